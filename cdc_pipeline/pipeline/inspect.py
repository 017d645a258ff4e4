"""What is in some journals: a summary, or every change as a line of JSON. Reads files; needs no server and no pipeline.

Rules:
- Journals are read in the order of their numbers; each must begin at its start (the magic bytes).
- Everything is decoded, captured or not. What cannot be shown stops with journal and offset, after what came before it.
- Changes come out in the order of the log; rows of rolled-back transactions do not come out.
- What a later event decides is not known here: rows of prepared XA transactions, and rows that ROLLBACK TO a savepoint
  undoes, come out where they stand.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from cdc_pipeline.binlog.chunk import Chunk, EventSlice, Role, SliceKind
from cdc_pipeline.binlog.decoded import DELETE, INSERT, UPDATE, DecodedRows
from cdc_pipeline.binlog.event_types import event_name
from cdc_pipeline.binlog.gtid import gtid_texts
from cdc_pipeline.binlog.rows import RowsSelection, decode_rows
from cdc_pipeline.binlog.text_jsonl import jsonl_lines
from cdc_pipeline.errors import CdcError, JournalMissingError
from cdc_pipeline.source.archive_files import journal_files, read_journal
from cdc_pipeline.transaction.buffer import TransactionBuffer
from cdc_pipeline.transaction.table_maps import TableMaps


class JournalInfo(BaseModel):
    """One journal file."""

    model_config = ConfigDict(frozen=True)

    journal: str
    size_bytes: int
    server_version: str
    events: int
    first_time_s: int
    last_time_s: int


class TableChanges(BaseModel):
    """Changes of one table over all journals."""

    model_config = ConfigDict(frozen=True)

    inserts: int = 0
    updates: int = 0
    deletes: int = 0


class JournalSummary(BaseModel):
    """What some journals hold.

    Attributes:
        error: what ended the reading early; the counts are of what came before.
    """

    model_config = ConfigDict(frozen=True)

    journals: list[JournalInfo] = Field(default_factory=list)
    transactions: int = 0
    rolled_back: int = 0
    prepared: int = 0  # ended by XA PREPARE; their XA COMMIT or XA ROLLBACK is a transaction of its own
    events_by_type: dict[str, int] = Field(default_factory=dict)
    tables: dict[str, TableChanges] = Field(default_factory=dict)
    error: dict[str, object] | None = None


def expand_paths(paths: Sequence[Path]) -> list[Path]:
    """Journal files named by `paths`, directories searched, in the order of their numbers.

    Raises:
        JournalMissingError: a path that is not there, or a directory without journals.
    """
    files: list[Path] = []
    for path in paths:
        if not path.exists():
            raise JournalMissingError("there is no such file or directory", journal=str(path))
        found = journal_files(path) if path.is_dir() else [path]
        if not found:
            raise JournalMissingError(
                "the directory holds no journals", journal=str(path), expected="binlog.000001 ..."
            )
        files += found
    return files


def inspect(paths: Sequence[Path]) -> JournalSummary:
    """Count what the journals hold, by event type and table."""
    types: Counter[int] = Counter()
    counts: dict[str, NDArray[np.int64]] = {}
    journals: dict[Path, _Seen] = {}
    log = _Log(lambda _database, _table: True)
    failure: CdcError | None = None
    try:
        for file in expand_paths(paths):
            for chunk in read_journal(file):
                journals.setdefault(file, _Seen(file)).add(chunk)
                types.update(dict(enumerate(np.bincount(chunk.events["event_type"]).tolist())))
                for changed in log.feed(chunk):
                    name = changed.rows.schema.full_name
                    before = counts.get(name, np.zeros(4, np.int64))
                    counts[name] = before + np.bincount(changed.rows.op, minlength=4)
    except CdcError as error:
        failure = error
    return JournalSummary(
        journals=[seen.info() for seen in journals.values()],
        transactions=log.transactions,
        rolled_back=log.rolled_back,
        prepared=log.prepared,
        events_by_type={event_name(number): count for number, count in sorted(types.items()) if count},
        tables={
            name: TableChanges(inserts=int(ops[INSERT]), updates=int(ops[UPDATE]), deletes=int(ops[DELETE]))
            for name, ops in sorted(counts.items())
        },
        error=None if failure is None else failure.as_dict(),
    )


def changes(paths: Sequence[Path], *, table_patterns: Sequence[str] = ()) -> Iterator[str]:
    """Every change as a line of JSON, in the order of the log.

    Args:
        paths: journal files and directories.
        table_patterns: shell patterns over ``schema.table``; all tables without any.

    Raises:
        CdcError: with journal and offset; what came before was yielded.
    """

    def wanted(database: str, table: str) -> bool:
        return not table_patterns or any(fnmatchcase(f"{database}.{table}", p) for p in table_patterns)

    log = _Log(wanted)
    for file in expand_paths(paths):
        for chunk in read_journal(file):
            found: list[_Changed] = []
            failure: CdcError | None = None
            try:
                found.extend(log.feed(chunk))
            except CdcError as error:
                failure = error
            # Tables are decoded one by one; their lines are put back into the order of the log.
            yield from (line for _, line in heapq.merge(*(changed.lines() for changed in found)))
            if failure is not None:
                raise failure


@dataclass(frozen=True, slots=True)
class _Changed:
    """Changes of one table in one slice, and what is printed beside each of their events."""

    rows: DecodedRows
    journal: str
    offsets: NDArray[np.int64]
    gtids: list[str | None]

    def lines(self) -> Iterator[tuple[int, str]]:
        """(seq, line) of every change, in order."""
        lines = jsonl_lines(self.rows, journal=self.journal, offsets=self.offsets, gtids=self.gtids)
        return zip(map(int, self.rows.seq.to_pylist()), lines, strict=True)


class _Seen:
    """Collects a journal's line of the summary."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._events = 0
        self._version = ""
        self._first_s = self._last_s = 0

    def add(self, chunk: Chunk) -> None:
        self._version = chunk.journal_format.server_version
        self._first_s = self._first_s or int(chunk.events["timestamp_s"][0])
        self._last_s = int(chunk.events["timestamp_s"][-1])
        self._events += len(chunk.events)

    def info(self) -> JournalInfo:
        return JournalInfo(
            journal=self._file.name,
            size_bytes=self._file.stat().st_size,
            server_version=self._version,
            events=self._events,
            first_time_s=self._first_s,
            last_time_s=self._last_s,
        )


class _Log:
    """Transactions and table maps over consecutive chunks."""

    def __init__(self, wanted: Callable[[str, str], bool]) -> None:
        self._slices: list[EventSlice] = []
        self._buffer = TransactionBuffer(self._take, is_isolated=lambda _sql, _database: False, source="")
        self._maps = TableMaps(wanted)
        self._gtids: dict[int, str] = {}  # of the transactions at work, by the offset of their begin

    @property
    def transactions(self) -> int:
        return self._buffer.transactions.transactions

    @property
    def rolled_back(self) -> int:
        return self._buffer.transactions.rolled_back

    @property
    def prepared(self) -> int:
        return self._buffer.transactions.prepared

    def _take(self, slices: Sequence[EventSlice]) -> bool:
        self._slices.extend(slices)
        return True

    def feed(self, chunk: Chunk) -> Iterator[_Changed]:
        """The changes that the chunk completes; an error comes after what was before it."""
        failure: CdcError | None = None
        try:
            self._buffer.feed(chunk)
        except CdcError as error:
            failure = error
        taken, self._slices = self._slices, []
        for piece in taken:
            yield from self._changed(piece)
        if failure is not None:
            raise failure

    def _changed(self, piece: EventSlice) -> Iterator[_Changed]:
        if piece.kind is SliceKind.ABANDONED:
            self._maps.reset()
            return
        events = piece.chunk.events
        self._gtids |= gtid_texts(piece.chunk, piece.first, piece.stop)
        rolled_back = piece.events["tx_offset"][piece.events["role"] == Role.ROLLBACK]
        for group in self._maps.resolve(piece):
            rows = group.rows[~np.isin(events["tx_offset"][group.rows], rolled_back)]
            if group.schema is not None and len(rows):
                yield _Changed(
                    rows=decode_rows([RowsSelection(piece.chunk, rows)], group.schema, epoch=1),
                    journal=piece.chunk.journal,
                    offsets=events["offset"][rows],
                    gtids=[self._gtids.get(at) for at in events["tx_offset"][rows].tolist()],
                )
        if piece.kind is not SliceKind.OPEN_PIECE:
            self._gtids.clear()
