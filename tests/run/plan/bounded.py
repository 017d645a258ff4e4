"""Bounded reading without a lake: a log in memory, one run of the Reader over it, and where the
next one goes on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from cdc_pipeline.binlog.chunk import Chunk, EventSlice, SliceKind
from cdc_pipeline.binlog.event_types import EventType
from cdc_pipeline.config.pipeline_config import Bound, PipelineConfig
from cdc_pipeline.position.position import Flavor, Position, ServerIdentity
from cdc_pipeline.run.capture.progress import Progress
from cdc_pipeline.run.capture.reader import Reader
from cdc_pipeline.run.decode.statements import StatementRules
from cdc_pipeline.run.plan.limits import Limit, make_limit
from cdc_pipeline.run.plan.resolved_run import LogRange
from cdc_pipeline.source.protocol import Source
from cdc_pipeline.store.ring import RingStore
from cdc_pipeline.targets.table_filter import TableFilter
from cdc_pipeline.text.table_names import NameRule
from tests.support.event_builder import JournalBuilder, cut, gtid_body

SOURCE_UUID = "00010203-0405-0607-0809-0a0b0c0d0e0f"  # what `gtid_body` writes
NEVER = 9_999  # the number of transactions that were never committed
FIRST_US = 1_700_000_000_000_000

Place_ = tuple[str, int]


@dataclass(frozen=True)
class Told:
    """A transaction as the log's author knows it."""

    number: int
    begin: Place_
    end: Place_
    commit_us: int


@dataclass
class Log:
    """A log in memory; `chunks` reads it as a source does, in chunks of `chunk_events` events."""

    chunk_events: int = 7
    identity: ServerIdentity = field(default_factory=lambda: ServerIdentity("mysql", 1))
    journals: list[Chunk] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)
    start: Position = field(default_factory=lambda: Position("binlog.000001", 4))

    @property
    def end(self) -> Position:
        last = self.journals[-1]
        executed = f"{SOURCE_UUID}:1-{len(self.told)}" if self.told else ""
        return Position(last.journal, last.end_offset, gtid_set=executed)

    def archived(self, start: Position, end: Position) -> None:
        """See the protocol."""

    def ends_closed(self, position: Position) -> bool:
        return any(
            (log.journal, log.end_offset) == (position.journal, position.offset)
            for log in self.journals
        )

    def chunks(self, start: Position, end: Position) -> Iterator[Chunk]:
        for whole in self.journals:
            offsets = whole.events["offset"]
            wanted = np.ones(len(offsets), dtype=bool)
            if whole.journal == start.journal:
                wanted &= offsets >= start.offset
            if whole.journal == end.journal:
                wanted &= offsets < end.offset
            if start.journal <= whole.journal <= end.journal and wanted.any():
                events = whole.events[wanted].copy()
                sizes = [self.chunk_events] * (len(events) // self.chunk_events)
                yield from cut(replace(whole, events=events), sizes)


def build_log(shape: list[list[tuple[str, int, int]]], *, chunk_events: int = 7) -> Log:
    """A log of one journal for each list of `shape`: (kind, rows, seconds since the transaction
    before).

    Kinds: ``commit``, ``rollback``, ``ddl``, ``mark`` (no transaction). An ``abandoned``
    transaction ends its journal.
    """
    log = Log(chunk_events=chunk_events)
    commit_us = FIRST_US
    for number, transactions in enumerate(shape, start=1):
        builder = JournalBuilder(journal=f"binlog.{number:06d}").fde()
        # row of the first event, commit time, whether it counts
        begins: list[tuple[int, int, bool]] = []
        for kind, rows, later_s in transactions:
            commit_us += later_s * 1_000_000
            if kind == "mark":
                builder.add(EventType.IGNORABLE, bytes(5))
                continue
            next_number = len(log.told) + sum(counts for _, _, counts in begins) + 1
            begins.append((len(builder._bodies), commit_us, kind != "abandoned"))
            builder.add(
                EventType.GTID, gtid_body(next_number if kind != "abandoned" else NEVER, commit_us)
            )
            if kind == "ddl":
                builder.query(f"CREATE TABLE t{next_number} (a INT PRIMARY KEY)")
                continue
            builder.query("BEGIN").rows(rows)
            if kind == "abandoned":
                break
            if kind == "commit":
                builder.xid()
            else:
                builder.query("ROLLBACK")
        builder.add(EventType.ROTATE, bytes(20))
        chunk = builder.chunk()
        offsets, nexts = chunk.events["offset"], chunk.events["next_offset"]
        is_mark = chunk.events["event_type"] == EventType.IGNORABLE
        stops = [*(first for first, _, _ in begins[1:]), len(offsets) - 1]
        for (first, at_us, counts), stop in zip(begins, stops, strict=False):
            last = stop - 1
            while is_mark[last]:
                last -= 1
            if counts:
                log.told.append(
                    Told(
                        len(log.told) + 1,
                        (chunk.journal, int(offsets[first])),
                        (chunk.journal, int(nexts[last])),
                        at_us,
                    )
                )
        log.journals.append(chunk)
    return log


@dataclass
class Run:
    """What one run of the Reader put, and where the next one goes on."""

    reader: Reader
    slices: list[EventSlice]
    delivered: list[Place_]  # journal and offset of every event that counts, in order
    place: Progress
    next_start: Position
    limit: Limit | None


def run_once(
    source: Log | Source,
    bound: Bound,
    *,
    start: Position,
    end: Position,
    flavor: Flavor = "mysql",
    slice_events_max: int = 4,
    ends_anywhere: bool = False,
) -> Run:
    """Read from `start` to `bound`, at the latest to `end`, as a capture does, and move over it as
    its drain does."""
    limit = make_limit(bound, flavor)
    config = PipelineConfig.model_validate(
        {
            "name": "shop",
            "source": {"kind": "archive", "directory": "."},
            "tables": {"include": ["shop.*"]},
            "store": {"ring_events": 4 * slice_events_max},
            "sink": {"lake_path": "."},
        }
    )
    store = RingStore(ring_events=1 << 16, batch_mode="itemsize", memory_unit_bytes=1024)
    store.start()
    reader = Reader(
        config,
        LogRange(start, end, limit, ends_anywhere, bytes_expected=1 << 40),
        source,  # type: ignore[arg-type]
        store=store,
        rules=StatementRules(
            TableFilter(config),
            is_mariadb=flavor == "mariadb",
            names=NameRule.AS_GIVEN,
            config=config,
            followed=(),
        ),
    )
    reader.run()
    slices: list[EventSlice] = []
    while not store.is_drained:
        slices += store.get(1 << 15).slices
    store.stop()
    place = Progress(start, flavor)
    delivered: list[Place_] = []
    open_pieces: list[Place_] = []
    for piece in slices:
        rows = [(piece.chunk.journal, int(offset)) for offset in piece.events["offset"]]
        if piece.kind is SliceKind.ABANDONED:
            open_pieces = []
            place.drop_open()
        if piece.kind is SliceKind.OPEN_PIECE:
            open_pieces += rows
        else:
            delivered += open_pieces + rows
            open_pieces = []
        place.advance([piece])
    if not ends_anywhere:
        assert not open_pieces, "the run ended inside a transaction"
    place.drop_open()
    if reader.reached_end:
        place.reach(end)
    return Run(reader, slices, delivered, place, place.full_position(), limit)
