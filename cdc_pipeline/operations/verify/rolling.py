"""The rolling proof: behind each run, `verify` of the ranges that are next, within a budget.

    run's cut | view: the next rows, or the next keys of the lake | short capture | compare

Rules:
- It is exact as `verify` is, and by its code: the rows are read in a view behind the run's cut, and
  if the log has grown by then, a capture brings the lake behind the view. A view at the run's own
  end would cost each run a wait for a moment without commits.
- A pass leads a table through two walks. The server's ranges find what is missing or has other
  values; the keys of the lake, in an order of the lake's own, find what only the lake has. Two,
  because a server's collations order text as nothing else does, so that a range of the server is
  none of the lake. A table that fits into what is left of the budget is one comparison of both.
- No more rows are read than the budget has, but for keys that changed meanwhile: `verify` reads
  these again. Of the lake, a range reads the files that may have its keys; the next keys cost a
  look at the key's columns of all files behind the place. Time is looked at between ranges, which
  are as small as the time left asks for.
- What cannot be proved by ranges and is too large to be whole is told with its reason; so is a
  table that `verify` does not compare. Nothing here starts Spark.
- A table is done once a run. The one in the middle of a pass comes first, then the oldest pass.
- Whatever fails here is told and counted, and fails no capture.
"""

from __future__ import annotations

import base64
import time
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from shlex import quote
from typing import Final

import pyarrow as pa

from cdc_pipeline.clock import now_us
from cdc_pipeline.config.pipeline_config import PipelineConfig, VerifyConfig
from cdc_pipeline.errors import CdcError, LockError, RowsDifferError, SparkNeededError
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.proofs import (
    ROWS_PER_RANGE_MIN,
    ProofReport,
    Proofs,
    TablePass,
    TableProof,
    proof_file,
)
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.lake.suspensions import suspended_at
from cdc_pipeline.operations.verify.captures import Captures, SourceState, verify_lock
from cdc_pipeline.operations.verify.read import (
    NextRange,
    NotByRangeError,
    ReadRequest,
    VerifyContext,
    VerifyOptions,
)
from cdc_pipeline.operations.verify.report import Difference
from cdc_pipeline.operations.verify.table import RoundsResult, TableComparison
from cdc_pipeline.operations.verify.verify import why_not
from cdc_pipeline.operations.verify.view import NotFollowedError
from cdc_pipeline.position.cursor import CursorStore, Suspension
from cdc_pipeline.run.admin_batch import AdminBatch
from cdc_pipeline.run.observer import RunObserver
from cdc_pipeline.run.wiring import build_sink
from cdc_pipeline.sink.delta.failures import is_of_one_table
from cdc_pipeline.sink.delta.replay import row_count
from cdc_pipeline.sink.read.rows import SMALL_ROWS
from cdc_pipeline.sink.read.spilled import Spill
from cdc_pipeline.sink.verify.compare import DIFFERENCES, Kind
from cdc_pipeline.sink.verify.parts import next_keys
from cdc_pipeline.targets.targets import targets_at

_LOCK_WAIT_S: Final = 60.0
_RANGE_ROWS_MAX: Final = 20_000  # with more keys left open, the whole table is read again
_FIRST_ROWS: Final = 2_000  # of a run with a limit of time: how fast the server is, is not known
_KEYS_NAMED_MAX: Final = 20
_OF_LAKE: Final[tuple[Kind, ...]] = ("extra",)  # what only its keys lead to


def prove(
    config: PipelineConfig,
    *,
    cursors: CursorStore,
    observer: RunObserver | None = None,
    run_id: str = "",
    clock_s: Callable[[], float] = time.monotonic,
) -> ProofReport:
    """Compare the next rows behind a run, as `config.verify` says. Raises nothing."""
    assert config.verify is not None
    paths = LakePaths.of(config)
    captures = Captures(config, cursors, observer or RunObserver(), run_id, _LOCK_WAIT_S)
    run, file = _Run(config.verify, captures, clock_s), proof_file(paths)
    try:
        with verify_lock(paths):
            run.proofs = file.read()
            options = VerifyOptions(who="the rolling proof", keys_shown=_KEYS_NAMED_MAX)
            context = VerifyContext(
                config, options, build_sink(config), None, Spill.beside(paths.state),
                captures, lambda _: None,
            )  # fmt: skip
            try:
                run.compare(context)
                run.suspend()
            except Exception as error:
                run.fail(error)
            file.write(run.counted())
    except Exception as error:
        run.fail(error)
        run.is_kept = isinstance(error, LockError)  # by the holder
        with suppress(Exception):
            run.proofs = file.read()
    return run.report()


class _NextRunError(Exception):
    """A table can only be compared whole, and is too large for what is left of this run."""


class _Run:
    def __init__(
        self, settings: VerifyConfig, captures: Captures, clock_s: Callable[[], float]
    ) -> None:
        self.proofs = Proofs()
        self.is_kept = True
        self._failure = ""
        self._is_counted = False  # the failure
        self._settings = settings
        self._budget = settings.each_run
        self._captures = captures
        self._clock_s = clock_s
        self._began_s = clock_s()
        self._longest_s = 0.0  # of this run's ranges
        self._spent = self._rows = self._rows_at_once = 0
        self._touched: set[str] = set()
        self._done: set[str] = set()
        self._whole: set[str] = set()  # tables that no range of a key can lead through
        self._suspended: tuple[str, ...] = ()
        limited = self._budget.seconds is not None
        self._range_rows = _FIRST_ROWS if limited else _RANGE_ROWS_MAX

    def fail(self, error: Exception, name: str = "") -> None:
        """Another run that holds a lock is no failure of this one."""
        is_counted = not isinstance(error, LockError)
        if is_counted or not self._is_counted:
            what = str(error) if isinstance(error, CdcError) else type(error).__name__
            self._failure = f"{name}: {what}" if name else what
        self._is_counted = self._is_counted or is_counted

    # -- which range is next -----------------------------------------------------------------------

    def compare(self, context: VerifyContext) -> None:
        self._context = context
        self._begin_tables(context.config, self._captures.source_state())
        is_through = False
        while self._has_budget():
            left = [
                (proof.current is None or bool(proof.given_up), proof.done_at_us, name)
                for name, proof in self.proofs.tables.items()
                if not proof.reason and name not in self._done
            ]
            if not left:
                is_through = not any(proof.given_up for proof in self.proofs.tables.values())
                break
            began_s, spent = self._clock_s(), self._spent
            try:
                is_compared = self._try_range(min(left)[-1])
            except _NextRunError:
                break  # the table comes first then
            took_s = self._clock_s() - began_s
            self._longest_s = max(self._longest_s, took_s)
            self._note_range(self._spent - spent, took_s)
            if is_compared and 4 * took_s < self._left_s():
                self._range_rows = min(2 * self._range_rows, _RANGE_ROWS_MAX)
        self._note_pace(is_through=is_through)

    def _note_range(self, rows: int, took_s: float) -> None:
        """How many rows one comparison has in a run's seconds: many tiny ranges do not tell it."""
        limit_s = self._budget.seconds
        if limit_s is None or took_s <= 0 or (rows < _RANGE_ROWS_MAX and took_s < limit_s):
            return
        self._rows_at_once = max(self._rows_at_once, int(rows * limit_s / took_s))
        self.proofs = self.proofs.model_copy(update={"rows_at_once": self._rows_at_once})

    def _note_pace(self, *, is_through: bool) -> None:
        """Rows compared in a run's seconds; a few tell nothing, but if they are all."""
        limit_s, took_s = self._budget.seconds, self._clock_s() - self._began_s
        is_told = is_through or self._spent >= _RANGE_ROWS_MAX or not self._has_budget()
        if limit_s is not None and took_s > 0 and is_told:
            rows = int(self._spent * limit_s / took_s)
            update = {"rows_per_run": min(rows, self._budget.rows or rows)}
            self.proofs = self.proofs.model_copy(update=update)

    def _begin_tables(self, config: PipelineConfig, state: SourceState) -> None:
        """With those of the cut; what was reset, or loaded again, begins again."""
        tables = {}
        for name, target in state.cut.cursor.targets.items():
            proof = self.proofs.tables.get(name)
            spec = state.cut.tables[name].spec if name in state.cut.tables else None
            types = {} if spec is None else {c.name: c.delta_type for c in spec.columns}
            key = [] if spec is None else [(column, types[column]) for column in spec.key]
            identity = f"{target.app_id} {key}"
            if proof is None or proof.identity != identity:
                proof = TableProof(identity=identity, known_since_us=now_us())
            reason = why_not(config, name, state.cut)
            if not reason and len(state.cut.tables[name].spec.sources_of(name)) > 1:
                reason = "it has the rows of several tables: `cdc-pipeline verify` compares them"
            tables[name] = proof.model_copy(update={"reason": reason})
        self.proofs = self.proofs.model_copy(update={"tables": tables})

    def _left_s(self) -> float:
        limit_s = self._budget.seconds
        return float("inf") if limit_s is None else limit_s - (self._clock_s() - self._began_s)

    def _rows_left(self) -> int:
        return SMALL_ROWS if self._budget.rows is None else self._budget.rows - self._spent

    def _whole_rows(self) -> tuple[int, int]:
        """Of a table that is one comparison: the most in any run, and in what is left of this one.
        Seconds are as many rows as the last run compared at once in them; until that is known, the
        first comparison of a run may be of any size.
        """
        most = min(SMALL_ROWS, self._budget.rows or SMALL_ROWS)
        left = min(most, self._rows_left())
        if self._budget.seconds is not None:
            in_time = max(self.proofs.rows_at_once, _RANGE_ROWS_MAX)
            if self.proofs.rows_at_once:
                most = min(most, in_time)
            left = min(left, most)
            if self._spent:
                left = min(left, int(in_time * self._left_s() / self._budget.seconds))
        return most, left

    def _has_budget(self) -> bool:
        if self._rows_left() < ROWS_PER_RANGE_MIN:
            return False
        return not self._spent or self._left_s() > self._longest_s

    # -- one range ---------------------------------------------------------------------------------

    def _try_range(self, name: str) -> bool:
        proof, spent, is_compared = self.proofs.tables[name], self._spent, False
        try:
            proof = self._range(name, proof).model_copy(update={"given_up": ""})
            is_compared = True
        except _NextRunError:
            raise
        except (NotByRangeError, NotFollowedError, SparkNeededError) as error:
            if isinstance(error, NotByRangeError) and name not in self._whole:
                self._whole.add(name)
                return False  # it is tried whole, before any other
            proof = self._given_up(name, proof, error.what)
        except Exception as error:
            if isinstance(error, CdcError) and not is_of_one_table(error):
                raise
            self.fail(error, name)
            what = error.what if isinstance(error, CdcError) else type(error).__name__
            proof = self._given_up(name, proof, what)
        self._spent = max(self._spent, spent + ROWS_PER_RANGE_MIN)
        self._touched.add(name)
        tables = {**self.proofs.tables, name: proof}
        self.proofs = self.proofs.model_copy(update={"tables": tables})
        proof_file(self._context.sink.paths).write(self.proofs)
        return is_compared

    def _given_up(self, name: str, proof: TableProof, why: str) -> TableProof:
        """Until its next turn; the pass keeps its place and what it found, and goes on there."""
        self._done.add(name)
        return proof.model_copy(update={"given_up": why, "done_at_us": now_us()})

    def _row_count(self, name: str, cut: Cut) -> int | None:
        table = cut.tables.get(name)
        if table is None:
            return None
        return row_count(self._context.sink.paths.table(name), version=table.table_version)

    def _range(self, name: str, proof: TableProof) -> TableProof:
        before = self._captures.source_state()
        current = proof.current or TablePass(place=before.position, began_at_us=now_us())
        step = self._source_range if proof.walk == "source" else self._lake_range
        return step(name, proof, current, before)

    def _source_range(
        self, name: str, proof: TableProof, current: TablePass, before: SourceState
    ) -> TableProof:
        rows = min(self._rows_left(), self._range_rows)
        count = None if proof.after else self._row_count(name, before.cut)
        if name in self._whole:
            most, rows = self._whole_rows()
            if count is not None and rows < count <= most:
                raise _NextRunError
        is_whole = count is not None and count <= rows
        request = ReadRequest(next=NextRange(rows, proof.after, proof.layout, is_whole))
        settled, comparison = self._settled(name, request, before)
        following = comparison.reading.next
        assert following is not None
        if following.layout != proof.layout and proof.after is not None:
            update = {"place": before.position, "began_at_us": now_us(), "rows": 0}
            current = current.model_copy(update=update)  # again from the table's first row
        current = self._add(current, settled, comparison, rows=settled.rows_source)
        if following.is_whole:
            return self._ended(name, proof, current)
        return proof.model_copy(
            update={
                "current": current,
                "after": following.after,
                "layout": following.layout,
                "walk": "lake" if following.after is None else "source",
            }
        )

    def _lake_range(
        self, name: str, proof: TableProof, current: TablePass, before: SourceState
    ) -> TableProof:
        rows, table = min(self._rows_left(), self._range_rows), before.cut.tables[name]
        path, text = self._context.sink.paths.table(name), proof.lake_after
        after = pa.ipc.open_stream(base64.b64decode(text)).read_all() if text else None
        keys = next_keys(path, table.table_version, table.spec, after=after, most=rows)
        columns = {c.name: c for c in table.spec.columns}
        by_column = {columns[key]: keys.column(key) for key in table.spec.key}
        request = ReadRequest(keys=by_column, next=NextRange(10 * rows))
        settled, comparison = self._settled(name, request, before)
        # What both walks meet is told by the first.
        current = self._add(current, settled, comparison, rows=len(keys), kinds=_OF_LAKE)
        if len(keys) < rows:
            return self._ended(name, proof, current)
        update = {"current": current, "lake_after": _write_keys(keys.slice(len(keys) - 1))}
        return proof.model_copy(update=update)

    def _ended(self, name: str, proof: TableProof, ended: TablePass) -> TableProof:
        self._done.add(name)
        # One that left keys open proves nothing, nor does it disprove a difference.
        is_result = bool(ended.counts) or not ended.unsettled
        return TableProof(
            identity=proof.identity,
            known_since_us=proof.known_since_us,
            last=ended if is_result else proof.last,
            unsettled=ended.unsettled,
            done_at_us=now_us(),
        )

    def _settled(
        self, name: str, request: ReadRequest, before: SourceState
    ) -> tuple[RoundsResult, TableComparison]:
        context = self._context
        sources = before.cut.tables[name].spec.sources_of(name)
        comparison = TableComparison(context, name, next(iter(sources)), first=request)
        try:
            with self._captures.keeping(comparison.keep):
                targets = targets_at(context.config, before.cut, before.cursor)
                comparison.begin(before, targets)
                after = self._captures.run_behind(before)
            return comparison.verify(after), comparison
        except Exception:
            self._spent += comparison.reading.rows_read
            raise

    def _add(
        self,
        current: TablePass,
        settled: RoundsResult,
        comparison: TableComparison,
        *,
        rows: int,
        kinds: Collection[Kind] = DIFFERENCES,
    ) -> TablePass:
        """The pass with what a range found of these kinds."""
        self._spent += max(rows, comparison.reading.rows_read)
        self._rows += rows
        counts, named = Counter(current.counts), list(current.keys)
        for piece in settled.different:
            mine = replace(piece, kinds=tuple(kind for kind in piece.kinds if kind in kinds))
            if mine.keys:
                counts.update({kind: piece.found.counts.get(kind, 0) for kind in mine.kinds})
                named += map(_key_text, mine.displayed(self._context, len(named)))
        if "missing" in kinds:
            counts["stale"] += settled.stale
        unsettled = 0 if settled.unsettled is None else settled.unsettled.keys
        return current.model_copy(
            update={
                "rows": current.rows + rows,
                "counts": {kind: number for kind, number in counts.items() if number},
                "keys": tuple(named),
                "unsettled": current.unsettled + unsettled,
            }
        )

    # -- what it leads to --------------------------------------------------------------------------

    def suspend(self) -> None:
        """None beside an open prepared transaction: a catch-up would begin before it, and repeat
        what a changelog has already. The next run without one suspends.
        """
        differing = [
            name
            for name, proof in self.proofs.tables.items()
            if proof.differing is not None
            and not proof.differing.counts.keys().isdisjoint(DIFFERENCES)
        ]

        def suspend_in(batch: AdminBatch) -> tuple[str, ...]:
            new: dict[str, Suspension | None] = {
                name: suspended_at(
                    batch.cursor,
                    RowsDifferError(
                        self.proofs.tables[name].summary,
                        table=name,
                        next_step=self._repair(name),
                    ),
                    batch_number=batch.number,
                )
                for name, state in batch.last_cut().cursor.targets.items()
                if name in differing and state.suspended is None
            }
            if not new or batch.cursor.open_xa:
                return ()
            batch.suspend(new)
            return tuple(new)

        if self._settings.on_difference == "suspend" and differing:
            self._suspended = self._captures.locked(suspend_in)

    def _repair(self, name: str) -> str:
        command = f"cdc-pipeline verify {self._captures.config.name} --table {quote(name)} --repair"
        return f"`{command}` repairs it"

    def counted(self) -> Proofs:
        if self._is_counted or not self._failure:
            failed = self.proofs.failed_runs + 1 if self._failure else 0
            update = {"failed_runs": failed, "failure": self._failure}
            self.proofs = self.proofs.model_copy(update=update)
        return self.proofs

    def report(self) -> ProofReport:
        warnings = [] if self.is_kept else [f"its progress is not kept: {self._failure}"]
        shown = {}
        for name, proof in sorted(self.proofs.tables.items()):
            is_old = proof.is_stale(now_us(), self._settings.pass_age_max_s)
            if proof.differing is not None:
                warnings.append(f"{name} {proof.summary}; {self._repair(name)}")
            elif is_old:
                warnings.append(f"{name}: its last whole pass is too old: {proof.summary}")
            if name in self._touched or proof.differing is not None or is_old:
                shown[name] = proof
        failed = self.proofs.failed_runs
        if failed >= self._settings.failed_runs_max and self._failure:
            why = self.proofs.failure or self._failure
            warnings.append(f"{failed} runs in a row could not compare: {why}")
        return ProofReport(
            rows=self._rows,
            seconds=self._clock_s() - self._began_s,
            tables=shown,
            failure=self._failure,
            failed_runs=failed,
            warnings=tuple(warnings),
            suspended=self._suspended,
        )


def _key_text(difference: Difference) -> str:
    key = ", ".join(
        f"{name}={'NULL' if value is None else value}" for name, value in difference.key.items()
    )
    return f"{difference.kind}: {key}" + (
        f" ({', '.join(difference.columns)})" if difference.columns else ""
    )


def _write_keys(keys: pa.Table) -> str:
    with pa.BufferOutputStream() as stream:
        with pa.ipc.new_stream(stream, keys.schema) as writer:
            writer.write_table(keys)
        return base64.b64encode(stream.getvalue()).decode()
