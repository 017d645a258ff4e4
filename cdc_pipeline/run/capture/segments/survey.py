"""Survey a journal of an archive for what cannot be decoded in parallel.

Rules:
- Nothing is decoded: framing, transaction pass and the texts of statements suffice. Runs on
  executors.
- *Alone* are transactions that sequential reading takes alone, and those that change what is known
  of tables: DDL of chosen tables and of their shadow tables, of databases, and statements that are
  not understood.
- A transaction that is prepared in one place and ended in another spans everything in between (K8).
- Anything odd in a journal is reported, not raised: sequential reading then names the error.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Final

import numpy as np

from cdc_pipeline.binlog.chunk import Chunk, Role
from cdc_pipeline.binlog.event_types import CLOSING_TYPES
from cdc_pipeline.binlog.events.query import parse_query
from cdc_pipeline.binlog.events.xa import parse_prepare
from cdc_pipeline.binlog.transactions.grouping import TransactionPass
from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import CdcError
from cdc_pipeline.frozen_model import FrozenModel
from cdc_pipeline.run.decode.statements import StatementRules
from cdc_pipeline.schema.ddl.statement import StatementKind
from cdc_pipeline.schema.history.apply_ddl import SCHEMA_KINDS
from cdc_pipeline.source.archive.files import read_head, read_journal
from cdc_pipeline.targets.table_filter import TableFilter
from cdc_pipeline.text.table_names import NameRule

SEGMENT_BYTES: Final = 64 << 20
_XA_ENDS: Final = (StatementKind.XA_COMMIT, StatementKind.XA_ROLLBACK)
_DATABASES: Final = (StatementKind.CREATE_DATABASE, StatementKind.ALTER_DATABASE)


class Segment(FrozenModel):
    """A part of one journal; `stop`: 0 is its end; `created_s`: when the journal was created."""

    journal: str
    start: int = 4
    stop: int = 0
    created_s: int = 0

    @property
    def size_bytes(self) -> int:
        return self.stop - self.start


class Group(FrozenModel):
    """A transaction: offsets of its first event and behind its last; `xid` if XA ends it."""

    start: int
    stop: int
    xid: str = ""


class JournalSurvey(FrozenModel):
    """`end`: behind the last whole transaction; `is_closed`: it ends with ROTATE or STOP, and no
    transaction is open there (K5); `splits`: beginnings of transactions, about every
    `SEGMENT_BYTES`; `failed`: why it cannot be surveyed to its end.
    """

    journal: str
    start: int
    end: int
    created_s: int = 0
    is_closed: bool = False
    alone: tuple[Group, ...] = ()
    prepared: tuple[Group, ...] = ()
    ended: tuple[Group, ...] = ()
    splits: tuple[int, ...] = ()
    failed: str = ""


def survey(
    part: Segment,
    *,
    directory: Path,
    config: PipelineConfig,
    names: NameRule = NameRule.AS_GIVEN,
    followed: Collection[str] = (),
) -> JournalSurvey:
    """Of the tables of `config`, the side lake's, and those `followed` after a rename."""
    file = directory / part.journal
    try:
        head = read_head(file)
        surveyor = _Surveyor(
            config,
            is_mariadb=head.journal_format.is_mariadb,
            names=names,
            followed=followed,
            start=part.start,
        )
        for chunk in read_journal(
            file,
            offset=part.start,
            journal_format=head.journal_format if part.start > 4 else None,
            stop_offset=part.stop or None,
            unpacked_bytes_max=config.source.unpacked_bytes_max,
        ):
            surveyor.add(chunk)
    except CdcError as error:
        return JournalSurvey(
            journal=file.name, start=part.start, end=part.start, failed=f"{error.what}"
        )
    return surveyor.found(file.name, created_s=head.journal_format.created_s)


class _Surveyor:
    def __init__(
        self,
        config: PipelineConfig,
        *,
        is_mariadb: bool,
        names: NameRule,
        followed: Collection[str],
        start: int,
    ) -> None:
        tables = TableFilter(config)
        self._rules = StatementRules(
            tables, is_mariadb=is_mariadb, names=names, config=config, followed=followed
        )
        self._tables = tables
        self._pass = TransactionPass()
        self._start = start
        self._end = start
        self._last_type = -1
        self._splits: list[int] = []
        self._groups: dict[str, list[Group]] = {"alone": [], "prepared": [], "ended": []}
        # Groups whose end has not been seen: (kind, offset of the first event, xid).
        self._open: list[tuple[str, int, str]] = []

    def add(self, chunk: Chunk) -> None:
        self._pass.apply(chunk)
        events = chunk.events
        self._split(chunk)
        self._close(chunk, 0)
        for row in np.flatnonzero(
            (events["role"] == Role.STATEMENT) | (events["role"] == Role.XA_PREPARE)
        ).tolist():
            boundary = self._boundary(chunk, row)
            if boundary is not None:
                self._open.append((boundary[0], int(events["tx_offset"][row]), boundary[1]))
                self._close(chunk, row)
        self._last_type = int(events["event_type"][-1])
        closing = self._last_type in CLOSING_TYPES
        self._end = int(events["offset" if closing else "next_offset"][-1])

    def found(self, journal: str, *, created_s: int) -> JournalSurvey:
        open_offset = self._pass.open_offset
        end = self._end if open_offset < 0 else open_offset
        for kind, start, xid in self._open:
            self._groups[kind].append(Group(start=start, stop=max(end, start), xid=xid))
        return JournalSurvey(
            journal=journal,
            start=self._start,
            end=end,
            created_s=created_s,
            is_closed=self._last_type in CLOSING_TYPES and open_offset < 0,
            alone=tuple(self._groups["alone"]),
            prepared=tuple(self._groups["prepared"]),
            ended=tuple(self._groups["ended"]),
            splits=tuple(self._splits),
        )

    def _split(self, chunk: Chunk) -> None:
        events = chunk.events
        begins = (events["tx_offset"] >= 0) & (events["tx_ordinal"] == 0) & (events["parent"] < 0)
        offsets = events["offset"][begins]
        while True:
            last = self._splits[-1] if self._splits else self._start
            far = np.searchsorted(offsets, last + SEGMENT_BYTES)
            if far == len(offsets):
                return
            self._splits.append(int(offsets[far]))

    def _close(self, chunk: Chunk, row: int) -> None:
        if not self._open:
            return
        following = chunk.events[row:]
        left = []
        for kind, start, xid in self._open:
            others = np.flatnonzero((following["tx_offset"] != start) & (following["parent"] < 0))
            if len(others):
                stop = int(following["offset"][others[0]])
                self._groups[kind].append(Group(start=start, stop=stop, xid=xid))
            else:
                left.append((kind, start, xid))
        self._open = left

    def _boundary(self, chunk: Chunk, row: int) -> tuple[str, str] | None:
        if chunk.events["role"][row] == Role.XA_PREPARE:
            return "prepared", parse_prepare(chunk, row).xid
        query = parse_query(chunk, row)
        if self._rules.is_isolated(query):
            return "alone", ""
        statement = self._rules.parse(query)
        if statement.kind in _XA_ENDS:
            return "ended", statement.name
        if statement.kind in _DATABASES:
            return "alone", ""
        if statement.kind in SCHEMA_KINDS and any(
            self._concerns(*table) for table in statement.tables
        ):
            return "alone", ""
        return None

    def _concerns(self, database: str, table: str) -> bool:
        return self._tables.captured(database, table) or bool(
            self._tables.shadowed(database, table)
        )
