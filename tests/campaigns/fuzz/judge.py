"""What becomes of a damaged journal: the whole decode of it, and everything else that reads raw
bytes.

Allowed are two ends: a CdcError that names the journal and the offset, or rows. Anything else is a
finding:
- another exception, a dead process, a hang, more memory than a gigabyte (the last three are the
  caller's);
- an Arrow array that is not valid, or a line that is no JSON;
- a wrong checksum that went through;
- rows of transactions that ended before the damage, changed or missing although the decode ended
  without error, or rows that stand before it and are not the seed's although it ended with one.
"""

from __future__ import annotations

import json
import traceback
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

import numpy as np

from cdc_pipeline.binlog.chunk import Chunk, EventSlice, SliceKind
from cdc_pipeline.binlog.decoded import DecodedRows
from cdc_pipeline.binlog.event_types import EventType
from cdc_pipeline.binlog.events import gtid, query, rotate, xa
from cdc_pipeline.binlog.framing.framing import EventFramer
from cdc_pipeline.binlog.framing.framing_kernel import PREFIX_BYTES
from cdc_pipeline.binlog.framing.packets import PacketBuffer
from cdc_pipeline.binlog.native.block_pool import BlockPool
from cdc_pipeline.binlog.rows.rows import RowsSelection, decode_rows
from cdc_pipeline.binlog.transactions.content_hash import ContentHasher
from cdc_pipeline.binlog.transactions.grouping import TransactionPass
from cdc_pipeline.errors import CdcError
from cdc_pipeline.position.position import Position
from cdc_pipeline.source.archive.archive import ArchiveSource
from cdc_pipeline.source.archive.files import read_journal
from cdc_pipeline.source.journal_ends import JournalEndProof
from cdc_pipeline.transaction.buffer import TransactionBuffer
from cdc_pipeline.transaction.table_maps import TableMaps
from tests.campaigns.fuzz import journal as wire
from tests.campaigns.fuzz.mutations import Mutant
from tests.support.shown_journals import changes

JOURNAL: Final = "binlog.000001"
_GTIDS: Final = (EventType.GTID, EventType.ANONYMOUS_GTID, EventType.GTID_TAGGED)
_SETS: Final = (EventType.PREVIOUS_GTIDS, EventType.MARIADB_GTID_LIST)


class FindingError(Exception):
    """The decode did what it must not do."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`outcome`: "rows", the name of a CdcError's class, or "finding" with its `detail`."""

    outcome: str
    detail: str = ""


def judge(mutant: Mutant, folder: Path) -> Verdict:
    """Decode a mutant in every way; `folder` is for its file."""
    try:
        return Verdict(_decoded(mutant, folder))
    except FindingError as finding:
        return Verdict("finding", str(finding))
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}:{place.lineno}"
        return Verdict(
            "finding",
            f"{type(error).__name__}: {error} ({where})\n{traceback.format_exc(limit=-8)}",
        )


def _decoded(mutant: Mutant, folder: Path) -> str:
    data = mutant.journal()
    file = folder / JOURNAL
    file.write_bytes(data)
    for read in READERS:
        try:
            read(file, data)
        except CdcError as error:
            check_error(error)
    lines: list[str] = []
    failure: CdcError | None = None
    try:
        lines.extend(changes([file]))
    except CdcError as error:
        failure = error
        check_error(error)
    if failure is None:
        wrong = wire.wrong_checksum(data)
        if wrong is not None:
            _found(f"the checksum of event {wrong} is wrong, and nothing said so")
    _check_lines(lines, mutant, data, failure)
    return "rows" if failure is None else type(failure).__name__


def check_error(error: CdcError) -> None:
    """An error must say where, and what to do; else FindingError."""
    json.dumps(error.as_dict())
    str(error)
    if error.journal is None or error.offset is None or not error.next_step:
        _found(f"an error without journal, offset or next step: {error.as_dict()}")


def _found(what: str) -> NoReturn:
    raise FindingError(what)


# -- the rows before the damage --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Seed:
    """What an undamaged seed gives. `lines`: its changes; `ends`: of each line, the offset where
    its transaction ends; `events`: offsets where events end.
    """

    lines: list[str]
    ends: list[int]
    events: list[int]


def _refuse_constant(text: str) -> NoReturn:
    _found(f"{text} is no JSON")


def parse_line(line: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(line, parse_constant=_refuse_constant)
    return found


def load_seed(name: str, folder: Path) -> None:
    """Decode a seed once, before any mutant of it."""
    _seed(name, folder)


_SEEDS: Final[dict[str, _Seed]] = {}


def _seed(name: str, folder: Path) -> _Seed:
    known = _SEEDS.get(name)
    if known is not None:
        return known
    data = wire.seed(name)
    file = folder / JOURNAL
    file.write_bytes(data)
    lines: list[str] = []
    transaction_ends: list[int] = []
    with suppress(CdcError):  # a seed whose last events cannot be decoded has less to compare
        lines.extend(changes([file]))
    with suppress(CdcError):
        transactions = TransactionPass()
        for chunk in read_journal(file):
            bounds = transactions.apply(chunk)
            transaction_ends += chunk.events["next_offset"][bounds.ends].tolist()
    ends = [
        transaction_ends[bisect_right(transaction_ends, parse_line(line)["offset"])]
        for line in lines
    ]
    event_ends, at = [], len(wire.MAGIC)
    for event in wire.split(data):
        at += len(event)
        event_ends.append(at)
    known = _SEEDS[name] = _Seed(lines, ends, event_ends)
    return known


def _check_lines(lines: list[str], mutant: Mutant, data: bytes, failure: CdcError | None) -> None:
    original = wire.seed(mutant.seed)
    seed = _SEEDS[mutant.seed]
    offsets = [parse_line(line)["offset"] for line in lines]
    if offsets != sorted(offsets):
        _found("the changes are not in the order of the log")
    same = next(
        (at for at, (a, b) in enumerate(zip(original, data, strict=False)) if a != b),
        min(len(original), len(data)),
    )
    damage = max((end for end in seed.events if end <= same), default=0)
    whole = [line for line, end in zip(seed.lines, seed.ends, strict=True) if end <= damage]
    if failure is None:
        if lines[: len(whole)] != whole:
            _found(f"rows before the damage at {damage} differ: {_difference(lines, whole)}")
        return
    before = [line for line, offset in zip(lines, offsets, strict=True) if offset < damage]
    known = set(seed.lines)
    foreign = [line for line in before if line not in known]
    if foreign:
        _found(f"a row before the damage at {damage} is not the seed's: {foreign[0][:500]}")


def _difference(lines: list[str], whole: list[str]) -> str:
    for index, line in enumerate(whole):
        if index >= len(lines) or lines[index] != line:
            return (
                f"row {index}: {line[:300]!r} became "
                f"{(lines[index] if index < len(lines) else 'nothing')[:300]!r}"
            )
    return ""


# -- the readers -----------------------------------------------------------------------------------


def slices(file: Path) -> Iterator[EventSlice]:
    """The slices of a journal; an error comes after what was before it."""
    taken: list[EventSlice] = []

    def take(parts: Sequence[EventSlice]) -> bool:
        taken.extend(parts)
        return True

    buffer = TransactionBuffer(
        take, is_isolated=lambda _query: False, source="", slice_events_max=64
    )
    for chunk in read_journal(file, chunk_bytes=4096):
        failure: CdcError | None = None
        try:
            buffer.feed(chunk)
        except CdcError as error:
            failure = error
        yield from taken
        taken.clear()
        if failure is not None:
            raise failure


def decoded(pieces: Iterable[EventSlice]) -> Iterator[DecodedRows]:
    maps = TableMaps(lambda _database, _table: True)
    for piece in pieces:
        if piece.kind is SliceKind.ABANDONED:
            maps.reset()
            continue
        for group in maps.resolve(piece):
            if group.schema is not None:
                rows = decode_rows([RowsSelection(piece.chunk, group.rows)], group.schema, epoch=1)
                rows.before.validate(full=True)
                rows.after.validate(full=True)
                yield rows


def _arrow(file: Path, data: bytes) -> None:
    """Table maps and rows to Arrow, every array checked; read in small blocks."""
    for rows in decoded(slices(file)):
        rows.seq.validate(full=True)


def _other_readers(file: Path, data: bytes) -> None:
    transactions, hasher = TransactionPass(), ContentHasher()
    failure: CdcError | None = None
    for chunk in read_journal(file):
        for row in range(len(chunk.events)):
            try:
                _read_event(chunk, row)
            except CdcError as error:
                check_error(error)
        for read in (gtid.executed, gtid.gtid_texts):
            try:
                read(chunk, 0, len(chunk.events))
            except CdcError as error:
                check_error(error)
        bounds = transactions.step(chunk)
        hasher.feed(chunk, 0, len(bounds.events), bounds.ends)
        failure = failure or bounds.error
    if failure is not None:
        raise failure


def _read_event(chunk: Chunk, row: int) -> None:
    event = chunk.events[row]
    kind, body = int(event["event_type"]), chunk.body(row)
    place: dict[str, Any] = {"journal": chunk.journal, "offset": int(event["offset"])}
    if kind == EventType.QUERY:
        query.parse_query(chunk, row)
    elif kind in _GTIDS:
        gtid.parse(body, kind, **place)
    elif kind in _SETS:
        gtid.previous_set(body, kind, **place)
    elif kind == EventType.MARIADB_GTID:
        gtid.parse_mariadb(body, int(event["server_id"]), **place)
    elif kind == EventType.XA_PREPARE:
        xa.parse_prepare(chunk, row)
    elif kind == EventType.ROTATE:
        rotate.parse(body, **place)


def _archive(file: Path, data: bytes) -> None:
    source = ArchiveSource(file.parent)
    source.check()
    end = source.end_position()
    start = source.earliest_position()
    source.validate_position(Position(file.name, 4))
    proof = JournalEndProof(start, open_offset=lambda: -1, ends_closed=source.ends_closed)
    for _ in proof.over(source.chunks(start, end)):
        pass
    source.ends_closed(end)


def _dump(file: Path, data: bytes) -> None:
    """As packets of a server that skips events and makes some up."""
    events = wire.split(data)
    stream = b""
    for index, event in enumerate(events):
        stream += (
            (len(event) + 1).to_bytes(3, "little") + bytes([(index + 1) & 0xFF]) + b"\0" + event
        )
    packets = PacketBuffer(BlockPool(1 << 16, spare_blocks_max=2), room_bytes=5000)
    framer = EventFramer(JOURNAL, dump=True, prefix_bytes=PREFIX_BYTES)
    for at in range(0, len(stream), 5000):
        piece = np.frombuffer(stream[at : at + 5000], np.uint8)
        packets.room()[: len(piece)] = piece
        packets.commit(len(piece))
        while True:
            chunk, consumed = framer.feed(packets.events)
            packets.consume(consumed)
            if chunk is None and not consumed:
                break


READERS: Final = (_arrow, _other_readers, _archive, _dump)
