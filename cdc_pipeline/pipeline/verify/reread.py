"""Read rows of one table again from the server and bring them into its targets.

    capture to C -> view, rows, end mark H -> capture to C' >= H -> keys that changed between the two -> one batch at C'

Rules:
- Everything before C is proved to be committed before the view is opened, and the view shows
  nothing behind H (K17). So a row whose key no event between C and C' names is, at C', as the view
  showed it. The batch writes it with the seq of C', newer than everything in the lake, and deletes
  a requested key that the server does not have.
- Rows come behind those that an earlier load or repair wrote at the same place: the MERGE's guard
  accepts newer rows.
- A key that changed meanwhile is read again in the next round. After the last round it stays as the
  log has it.
- The cursor does not move; the batch is recorded like any other (K2).
- Only mirrors and soft deletes with a key are supported: other modes cannot take a row without its
  past (K18).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from shlex import quote
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from cdc_pipeline.binlog.arrow_types import arrow_schema
from cdc_pipeline.binlog.selected import LOAD_SEQS, SelectedRows, next_seq
from cdc_pipeline.binlog.seq import journal_number, pack_seq
from cdc_pipeline.binlog.table_schema import TableSchema
from cdc_pipeline.config.modes import keeps_every_change
from cdc_pipeline.config.pipeline_config import LiveSourceConfig, PipelineConfig
from cdc_pipeline.errors import ConfigError, LoadError, TableChangedError
from cdc_pipeline.lake.records import Cut, Note
from cdc_pipeline.pipeline.admin_batch import AdminBatch, UnfinishedBatchError
from cdc_pipeline.pipeline.load.main import MainLake
from cdc_pipeline.pipeline.load.rows import ReadPlace, RowPath
from cdc_pipeline.pipeline.load.server import LoadSource
from cdc_pipeline.pipeline.observer import RunObserver
from cdc_pipeline.pipeline.runs import DirectRuns, Runs
from cdc_pipeline.pipeline.targets.targets import Targets
from cdc_pipeline.pipeline.verify.changed_keys import among, changed_keys
from cdc_pipeline.pipeline.verify.key_sql import deletes_of, key_condition
from cdc_pipeline.position.cursor import CursorState, CursorStore
from cdc_pipeline.position.position import Position
from cdc_pipeline.source.rows.key_ranges import KeyRange, plan_ranges, usable_key
from cdc_pipeline.source.rows.marks import end_mark
from cdc_pipeline.source.rows.table_reader import TableReader

ROUNDS_MAX: Final = 5
_KEYS_AT_A_TIME: Final = 500
REPAIRED_NOTE: Final = "repaired"


class RepairReport(BaseModel):
    """Result of a repair.

    Attributes:
        rows_written: rows of the server that were brought into each target.
        rows_deleted: keys that the server does not have.
        rows_left: keys that changed in every round: they are as the log has them.
        rounds: reads of the server.
        batches: numbers of the batches.
    """

    model_config = ConfigDict(frozen=True)

    source: str
    table: str
    rows_written: int = 0
    rows_deleted: int = 0
    rows_left: int = 0
    rounds: int = 0
    batches: tuple[int, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class _Part:
    """Input of one round: a condition, and the keys that it must return (None: any)."""

    where: str
    bounds: KeyRange | None
    keys: pa.Table | None


@dataclass(frozen=True, slots=True)
class _Read:
    """Rows of one view.

    `keys` are of all rows, `mask` marks the wanted ones, `wanted` are the requested keys; with
    the end of the log behind the view.
    """

    parts: list[SelectedRows]
    keys: pa.Table
    mask: NDArray[np.bool_]
    wanted: pa.Table
    high: Position


def repair(
    config: PipelineConfig,
    *,
    cursors: CursorStore,
    table: str,
    where: str | None = None,
    keys: pa.Table | None = None,
    observer: RunObserver | None = None,
    run_id: str = "",
    runs: Runs | None = None,
) -> RepairReport:
    """Read rows of a table again.

    Args:
        table: source table, ``schema.table``.
        where: condition in the server's SQL that selects the rows; rows that the server does not
            have stay.
        keys: instead, the keys of the rows: one column for each key column, named and typed as
            decoded (`binlog.arrow_types`); keys that the server does not have are deleted.
        observer, run_id, runs: as in `load.load`.

    Raises:
        ConfigError: neither or both of `where` and `keys`; a condition that the server refuses.
        LoadError: a target cannot take rows this way; the error names the alternative.
        CdcError: everything else; what was written stays.
    """
    if (where is None) == (keys is None):
        raise ConfigError("a repair takes a condition or keys", setting="where", expected="one of the two")
    if not isinstance(config.source, LiveSourceConfig):
        raise ConfigError("only a running server can be asked for its rows", setting="source.kind", expected="live")
    observer = observer or RunObserver()
    began_s = time.monotonic()
    main = MainLake(config, runs=runs or DirectRuns(config, cursors, run_id), observer=observer)
    with LoadSource(config) as source, TableReader(source.config) as reader, TableReader(source.config) as planner:
        one = _Repair(config, table, main=main, source=source, reader=reader, observer=observer)
        parts = one.parts(planner, where) if where is not None else one.parts_of(keys)
        for part in parts:
            one.run(part)
        return one.report(seconds=time.monotonic() - began_s)


class _Repair:
    def __init__(
        self,
        config: PipelineConfig,
        table: str,
        *,
        main: MainLake,
        source: LoadSource,
        reader: TableReader,
        observer: RunObserver,
    ) -> None:
        self._config = config
        self._table = table
        self._main = main
        self._source = source
        self._reader = reader
        self._observer = observer
        self._written = self._deleted = self._left = self._rounds = 0
        self._batches: list[int] = []
        self._cursor = self._low()
        self._schema = self._read_schema()
        self._key = self._check_targets()

    def report(self, *, seconds: float) -> RepairReport:
        return RepairReport(
            source=self._config.name,
            table=self._table,
            rows_written=self._written,
            rows_deleted=self._deleted,
            rows_left=self._left,
            rounds=self._rounds,
            batches=tuple(self._batches),
            seconds=seconds,
        )

    # -- what is read -------------------------------------------------------------------------------------------------

    def parts(self, planner: TableReader, where: str) -> Iterator[_Part]:
        """Yield the rows of a condition, in ranges of a bounded number of rows."""
        key = usable_key(planner, self._schema)
        rows = self._config.snapshot.chunk_rows
        for bounds in plan_ranges(planner, self._schema, key, rows, where=where):
            yield _Part(where, bounds, None)

    def parts_of(self, keys: pa.Table | None) -> Iterator[_Part]:
        """Yield rows by key."""
        assert keys is not None
        types = arrow_schema(self._schema)
        wanted = keys.select(list(self._key)).cast(pa.schema([types.field(name) for name in self._key]))
        for first in range(0, wanted.num_rows, _KEYS_AT_A_TIME):
            some = wanted.slice(first, _KEYS_AT_A_TIME)
            yield _Part(key_condition(self._schema, some), None, some)

    def _read_schema(self) -> TableSchema:
        schema = self._source.schemas([self._table]).get(self._table)
        if schema is None:
            raise ConfigError(
                f"the source shows no table {self._table}, or one with a column of an unknown type",
                setting="table",
                next_step="name a captured table as schema.table, and GRANT SELECT on it",
            )
        return schema

    def _check_targets(self) -> tuple[str, ...]:
        """Return the key of the source table.

        Raises:
            LoadError: one of its targets cannot take rows this way.
        """
        _, cut = self._main.state()
        targets = Targets(self._config, cut)
        following = targets.following(self._schema.database, self._schema.table)
        others = [one.name for one in following if keeps_every_change(one.spec.mode, one.spec.key)]
        if not following or others or targets.is_suspended(self._schema.database, self._schema.table):
            raise LoadError(
                f"rows of {self._table} cannot be brought in by themselves",
                table=self._table,
                expected="mirrors and soft deletes by key, which follow the source",
                got=f"targets that keep every change: {', '.join(others)}" if others else "no target that follows it",
                next_step=f"load the table anew: `cdc-pipeline snapshot {self._config.name} "
                f"--table {quote(self._table)}`",
            )
        return self._schema.key_names or usable_key(self._reader, self._schema)

    # -- one part -----------------------------------------------------------------------------------------------------

    def run(self, part: _Part) -> None:
        """Read a part, and again while its keys change meanwhile."""
        wanted = part.keys  # None in the first round of a condition: any keys
        for number in range(1, ROUNDS_MAX + 1):
            if number > 1:
                self._cursor = self._low()
            self._rounds += 1
            self._observer.load_stepped(f"reading rows of {self._table}")
            read = self._read(part, wanted)
            self._check_unchanged()
            wanted = self._apply(read, part.keys is not None)
            if not wanted.num_rows:
                return
        self._left += 0 if wanted is None else wanted.num_rows

    def _low(self) -> CursorState:
        """Return a cursor before which everything is committed and every transaction has ended."""
        until_s = time.monotonic() + self._config.snapshot.lock_wait_s
        while True:
            cursor = self._main.capture()
            if not cursor.open_xa:
                break
            if time.monotonic() >= until_s:
                xids = ", ".join(xa.xid for xa in cursor.open_xa)
                raise LoadError(
                    f"the XA transactions {xids} are prepared: what they change is not known",
                    next_step="commit or roll back these XA transactions, then repair again",
                )
            time.sleep(0.5)
        if self._source.proved(cursor.position).order != cursor.position.order:
            raise LoadError(
                "nothing proves that what stands before the cursor is committed",
                setting="gtid_mode",
                expected="GTIDs, or a log that began a new journal since",
                next_step="repair again after FLUSH BINARY LOGS",
            )
        return cursor

    def _read(self, part: _Part, wanted: pa.Table | None) -> _Read:
        """Return the rows of one view."""
        reader = self._reader
        reader.begin_view()
        high = end_mark(self._source.server).position
        found = list(reader.select(self._schema, bounds=part.bounds, where=part.where))
        reader.end_view()
        key = list(self._key)
        types = arrow_schema(self._schema)
        keys = pa.Table.from_batches(
            [one.rows.select(key) for one in found], schema=pa.schema([types.field(name) for name in key])
        )
        mask = np.ones(keys.num_rows, np.bool_) if wanted is None else among(keys, wanted, self._key)
        return _Read(found, keys, mask, keys if wanted is None else wanted, high)

    def _check_unchanged(self) -> None:
        if self._read_schema() != self._schema:
            raise TableChangedError(
                "the table was changed by DDL while its rows were read",
                table=self._table,
                next_step="repair again",
            )

    def _apply(self, read: _Read, is_by_key: bool) -> pa.Table:
        """Write the rows that did not change meanwhile; return the keys of the others."""
        while True:
            cursor = self._main.capture()
            if cursor.position.order < read.high.order:
                continue
            changed = self._changed(self._cursor, cursor)
            try:
                again = self._main.locked(
                    lambda at: self._write(at, read, self._with_later(changed, cursor, at), is_by_key)  # noqa: B023
                )
            except UnfinishedBatchError:
                continue
            self._cursor = cursor
            return again

    def _changed(self, start: CursorState, end: CursorState) -> pa.Table:
        if start.epoch != end.epoch:
            raise LoadError("another server answers than the one whose rows were read", next_step="repair again")
        return changed_keys(self._config, self._source.live, self._schema, self._key, cursor=start, end=end.position)

    def _with_later(self, changed: pa.Table, cursor: CursorState, at: AdminBatch) -> pa.Table:
        """The main lake may have moved on before it was locked."""
        if at.cursor.position.order == cursor.position.order:
            return changed
        return pa.concat_tables([changed, self._changed(cursor, at.cursor)])

    def _write(self, at: AdminBatch, read: _Read, changed: pa.Table, is_by_key: bool) -> pa.Table:
        """Write rows and deletes in the main lake's lock, with the seq of its position."""
        touched = among(read.keys, changed, self._key)
        good = read.mask & ~touched
        again = read.keys.filter(pa.array(read.mask & touched))
        gone = read.keys.slice(0, 0)
        if is_by_key:
            absent = read.wanted.filter(pa.array(~among(read.wanted, read.keys, self._key)))
            gone = absent.filter(pa.array(~among(absent, changed, self._key)))
            again = read.wanted.filter(pa.array(among(read.wanted, changed, self._key)))
        if good.any() or gone.num_rows:
            self._batches.append(self._commit(at, read, good, gone).batch_number)
            self._written += int(good.sum())
            self._deleted += gone.num_rows
        return again

    def _taken(self, at: AdminBatch, targets: Targets, seq: int, *, count: int) -> int:
        """Return how many places earlier loads and repairs took at the cursor's position.

        New rows come behind them.

        Raises:
            LoadError: there is no room for `count` more.
        """
        taken = 0
        for target in targets.following(self._schema.database, self._schema.table):
            there = at.sink.rows_within(target.name, low=seq, high=seq + 2 * LOAD_SEQS - 1).highest
            taken = max(taken, 0 if there is None else (there - seq) // 2 + 1)
        if taken + count > LOAD_SEQS:
            raise LoadError(
                "no more rows can be told apart at the place where the cursor stands",
                table=self._table,
                next_step="repair again after the source's next transaction, or load the table anew",
            )
        return taken

    def _commit(self, at: AdminBatch, read: _Read, good: NDArray[np.bool_], gone: pa.Table) -> Cut:
        cursor, cut = at.cursor, at.last_cut()
        time_us = max(cursor.timestamp_s * 1_000_000, cut.source_time_us)
        seq = pack_seq(cursor.epoch, journal_number(cursor.journal), cursor.offset)
        place = ReadPlace(cursor.journal, cursor.offset, seq, time_us)
        targets = Targets(self._config, cut, shadows=cursor.shadows)
        taken = self._taken(at, targets, seq, count=int(good.sum()) + gone.num_rows)
        path, first, start = RowPath(targets, place), taken, 0
        for part in read.parts:
            inserts = part.as_inserts(seq_first=next_seq(seq, first), commit_ts_us=time_us)
            chosen = inserts.where(good[start : start + len(part)])
            start += len(part)
            if len(chosen):
                path.take(at.rows, chosen, first=first)
                first += len(chosen)
        if gone.num_rows:
            path.take(at.rows, deletes_of(self._schema, gone, seq=next_seq(seq, first), time_us=time_us), first=first)
        text = f"{first - taken} rows were read again, {gone.num_rows} keys are gone"
        note = Note(kind=REPAIRED_NOTE, text=text, table=self._table)
        return at.publish(kind="repair", targets=targets.states(()), notes=[note])
