"""Keep rows that cannot be applied, as Parquet in ``_cdc/<source>/quarantine``; no JVM.

Rules:
- Rows are staged with their batch and named in its record. Before the batch's cut is published they
  are copied to ``<batch number>-<place>.parquet``, again each time the batch is finished (K2). A
  file counts from its number's cut on.
- Marks in the record of a later batch say what became of rows; they are copied likewise to ``<batch
  number>.json``. A row without a mark is *open*.
- A row is identified by its source table and its `seq`: a table that is caught up may meet it
  again, and it is kept once. What replaces a table brings all of its own, some of which the table
  had before, too, and those are given up with it (`operations/snapshot/swap.py`).
- A row has three forms: ``change``, for people, a JSON text; ``row``, its decoded values as an
  Arrow stream (`prepared_rows`), for the replay; ``raw``, the bytes of its rows event, in the first
  row of each event and only if nothing of the table is masked (K14). A whole event that could not
  be decoded is one row, with ``raw`` alone.
- A cut holds how many rows of each table are open, and how many rows left its targets for good
  since the first of them came.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import TypeAdapter

from cdc_pipeline.binlog.decoded import DecodedRows
from cdc_pipeline.binlog.seq_columns import SEQ_TYPE
from cdc_pipeline.clock import now_us
from cdc_pipeline.config.modes import MODES
from cdc_pipeline.errors import CdcError, LakeStateError, StagingError
from cdc_pipeline.lake.parquet import read_parquet
from cdc_pipeline.lake.paths import NUMBER_DIGITS, LakePaths, read_document
from cdc_pipeline.lake.prepared_rows import decode_stream
from cdc_pipeline.lake.records import (
    BatchRecord,
    Cut,
    Note,
    QuarantineCount,
    QuarantineFile,
    QuarantineMark,
    RecordedTarget,
)
from cdc_pipeline.lake.staged_file import verify
from cdc_pipeline.lake.storage.storage import storage_of
from cdc_pipeline.text.server_messages import said_by

SCHEMA: Final = pa.schema(
    [
        ("_op", pa.int8()),  # as `binlog.decoded`; 0 for a whole event
        ("_seq", SEQ_TYPE),
        ("ts_us", pa.int64()),
        ("table", pa.string()),
        ("journal", pa.string()),
        ("offset", pa.int64()),  # of the rows event
        ("gtid", pa.string()),
        ("error", pa.string()),
        ("what", pa.string()),
        ("change", pa.string()),
        ("schema", pa.string()),
        ("row", pa.binary()),
        ("raw", pa.binary()),
    ]
)
_LOST_NOTE: Final = "quarantine_lost"
_FILE: Final = re.compile(rf"(\d{{{NUMBER_DIGITS}}})-(\d+)\.parquet")
_MARKS: Final = re.compile(rf"(\d{{{NUMBER_DIGITS}}})\.json")
_IDENTITY: Final = ["table", "_seq"]
_DAMAGED_STEP: Final = (
    "restore this file from a backup of the lake; or move it away and continue, which loses its "
    "rows"
)
_MARK_LIST: Final = TypeAdapter(tuple[QuarantineMark, ...])


@dataclass(frozen=True, slots=True)
class Entry:
    """One row in quarantine.

    Attributes:
        id: ``<batch number>.<place>``.
        seq: decimal text.
        raw: of the whole rows event; b"" if it is left out, or in another row of the event.
        mark: what became of it; None while it is open.
        op: as `binlog.decoded`; 0 for a whole event.
    """

    id: str
    table: str
    seq: str
    ts_us: int
    journal: str
    offset: int
    gtid: str
    error: str
    what: str
    change: str
    schema: str
    row: bytes
    raw: bytes
    mark: QuarantineMark | None = None
    op: int = 0

    def rows(self) -> DecodedRows | None:
        """The decoded change; None if the event could not be decoded."""
        return decode_stream(self.row, commit_ts_us=self.ts_us) if self.row else None

    def settled(
        self, what: Literal["replayed", "discarded"], *, who: str, why: str
    ) -> QuarantineMark:
        return QuarantineMark(
            entry=self.id, table=self.table, what=what, who=who, why=why, at_us=now_us()
        )


# -- writing ---------------------------------------------------------------------------------------


def publish_quarantine(
    paths: LakePaths,
    record: BatchRecord,
    previous: Cut | None,
    *,
    failing: Collection[str],
    without: Collection[str] = (),
) -> dict[str, QuarantineCount]:
    """Copy a recorded batch's quarantined rows; return its cut's counts. Safe to repeat. `failing`:
    targets that do not have the batch: their tables' marks do not count; `without`: paths of
    `damaged_files`.
    """
    counts = dict(previous.quarantine) if previous is not None else {}
    if not counts and not record.quarantine and not record.quarantine_marks:
        return {}
    rows = Counter({table: count.rows for table, count in counts.items()})
    gone = Counter({table: count.gone for table, count in counts.items()})
    if record.quarantine:
        rows += _publish_rows(paths, record, without=without)
    left = {
        name for target in record.targets if target.table in failing for name in _sources(target)
    }
    marks = tuple(mark for mark in record.quarantine_marks if mark.table not in left)
    if marks:
        place = paths.quarantine / f"{record.batch_number:0{NUMBER_DIGITS}d}.json"
        storage_of(place).replace(place, _MARK_LIST.dump_json(marks, indent=1))
        rows -= Counter(mark.table for mark in marks)
    for target in record.targets:
        for source in _sources(target):
            is_other = target.content is not None and target.content.renamed_from
            rows_gone = 0 if MODES[target.spec.mode].keeps_past else target.rows_gone
            gone[source] += rows_gone + bool(target.replaces or target.alters or is_other)
    return {
        table: QuarantineCount(rows=number, gone=gone[table])
        for table, number in sorted(rows.items())
        if number
    }


def damaged_files(
    paths: LakePaths, record: BatchRecord
) -> list[tuple[QuarantineFile, StagingError]]:
    found = []
    for file in record.quarantine:
        try:
            verify(file, lake=paths.lake, table=file.table)
        except StagingError as error:
            found.append((file, error))
    return found


def lost_note(file: QuarantineFile, error: CdcError) -> Note:
    """A cut's note of lost rows that no target reads again."""
    text = (
        f"{file.rows} rows that could not be applied are missing from the quarantine: {error.what}"
    )
    return Note(kind=_LOST_NOTE, text=text, table=file.table)


def _publish_rows(
    paths: LakePaths, record: BatchRecord, *, without: Collection[str]
) -> Counter[str]:
    is_of_log = record.kind in ("batch", "catch_up")
    known = _known(paths, before=record.batch_number) if is_of_log else set()
    added: Counter[str] = Counter()
    for number, file in enumerate(record.quarantine):
        if file.path in without:
            continue
        staged = verify(file, lake=paths.lake, table=file.table)
        table = read_parquet(staged)
        names, seqs = table.column("table").to_pylist(), table.column("_seq").to_pylist()
        new = [(name, str(seq)) not in known for name, seq in zip(names, seqs, strict=True)]
        added.update(name for name, is_new in zip(names, new, strict=True) if is_new)
        name = f"{record.batch_number:0{NUMBER_DIGITS}d}-{number:04d}.parquet"
        _write(paths.quarantine / name, table.filter(pa.array(new)))
    return added


def _write(file: Path, entries: pa.Table) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(entries, sink, compression="zstd")
    storage_of(file).replace(file, sink.getvalue().to_pybytes())


def _files(names: Iterable[str], *, before: int) -> list[re.Match[str]]:
    """Of a quarantine's names those with entries of batches below `before`."""
    files = map(_FILE.fullmatch, names)
    return [match for match in files if match and int(match[1]) < before]


def _known(paths: LakePaths, *, before: int) -> set[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    for match in _files(storage_of(paths.quarantine).names(paths.quarantine), before=before):
        found.update(
            (line["table"], str(line["_seq"]))
            for line in _read(paths.quarantine / match[0], _IDENTITY)
        )
    return found


def _sources(target: RecordedTarget) -> list[str]:
    return list(target.spec.sources) or [target.table]


def erase_entries(
    paths: LakePaths,
    tables: Collection[str],
    *,
    before: int,
    is_erased: Callable[[DecodedRows], bool],
) -> tuple[int, int]:
    """Remove the values of entries whose rows are erased, and the bytes of their tables' decoded
    events, which may hold more rows; their places stay. Return how many there are, and how many
    events are bytes alone: nothing tells whose rows they have.
    """
    removed, unread, folder = 0, 0, paths.quarantine
    for match in _files(storage_of(folder).names(folder), before=before):
        file = folder / match[0]
        entries, is_changed = _read(file), False
        for entry in (one for one in entries if one["table"] in tables):
            if entry["row"] is None:
                unread += entry["raw"] is not None
                continue
            gone = ["raw"]
            if is_erased(decode_stream(entry["row"], commit_ts_us=entry["ts_us"])):
                gone += ["change", "row"]
                removed += 1
            is_changed |= any(entry[name] is not None for name in gone)
            entry.update(dict.fromkeys(gone))
        if is_changed:
            _write(file, pa.Table.from_pylist(entries, schema=SCHEMA))
    return removed, unread


# -- reading ---------------------------------------------------------------------------------------


def read_entries(
    paths: LakePaths, *, before: int, tables: Collection[str] = (), only_open: bool = False
) -> Iterator[Entry]:
    """Rows of batches below `before`, oldest first; () for all source tables. Raises
    LakeStateError: a file is damaged.
    """
    folder = paths.quarantine
    names = storage_of(folder).names(folder)
    files = _files(names, before=before)
    marks = _read_marks(paths, names, before=before)
    place: Counter[int] = Counter()
    for match in sorted(files, key=lambda entries: (int(entries[1]), int(entries[2]))):
        number, path = int(match[1]), folder / match[0]
        for line in _read(path):
            place[number] += 1
            name = f"{number}.{place[number]}"
            mark = marks.get(name)
            if (tables and line["table"] not in tables) or (only_open and mark is not None):
                continue
            op, seq = line.pop("_op"), str(line.pop("_seq"))
            texts = {of: line[of] or "" for of in ("gtid", "change", "schema")}
            contents = {of: line[of] or b"" for of in ("row", "raw")}
            yield Entry(**{**line, **texts, **contents}, id=name, seq=seq, op=op, mark=mark)


def _read(path: Path, columns: list[str] | None = None) -> list[dict[str, Any]]:
    try:
        rows: list[dict[str, Any]] = read_parquet(path, columns=columns).to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise _damaged(path, error) from None
    return rows


def _read_marks(paths: LakePaths, names: list[str], *, before: int) -> Mapping[str, QuarantineMark]:
    found: dict[str, QuarantineMark] = {}
    for match in map(_MARKS.fullmatch, names):
        if match and int(match[1]) < before:
            path = paths.quarantine / match[0]
            marks = read_document(path, _MARK_LIST.validate_json, next_step=_DAMAGED_STEP)
            found.update((mark.entry, mark) for mark in marks)
    return found


def _damaged(path: Path, error: Exception) -> LakeStateError:
    return LakeStateError(
        f"a file of the quarantine is damaged: {path}", got=said_by(error), next_step=_DAMAGED_STEP
    )
