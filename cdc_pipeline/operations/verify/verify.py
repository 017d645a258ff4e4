"""Prove that the lake's tables equal the source at an exact position; repair differences (K17).

    external writes?  ->  cut C0 | views of the next targets | cut C1
                      ->  for each of them:  compare  ->  rounds of  cut | view | cut | compare
                          ->  repair  ->  compare again

Rules:
- Nothing is locked and nothing is written at the source. In the lake, a verification captures like
  any run; it changes a table only with `repair`, by recorded batches.
- A table is *equal* only if every key was compared at a known place. What could not be compared is
  named with the reason, and is never equal.
- A table of the lake is compared with the source's table of the same name (K28). A target that
  follows a renamed table under its old name is compared only if the policy wants it to follow.
- A table's own versions reveal writes by other programs; `repair` restores it before anything else.
- Work is linear in tables: a capture checks every table of the source, so tables share captures,
  as many as memory holds the rows of. A key that changed between the two has its own rounds.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from cdc_pipeline.clock import now_us
from cdc_pipeline.config.modes import MODES
from cdc_pipeline.config.pipeline_config import LiveSourceConfig, PipelineConfig
from cdc_pipeline.errors import CdcError, ConfigError, RowsDifferError, SinkError
from cdc_pipeline.lake.proofs import Proofs, TablePass, proof_file
from cdc_pipeline.lake.records import BatchRecord, Cut, CutTable
from cdc_pipeline.lake.suspensions import new_snapshot, way_out
from cdc_pipeline.operations.reset import named_targets
from cdc_pipeline.operations.verify.captures import Captures, verify_lock
from cdc_pipeline.operations.verify.external_writes import describe, find_external_writes, put_back
from cdc_pipeline.operations.verify.read import Reading, VerifyContext, VerifyOptions
from cdc_pipeline.operations.verify.repair import Repaired, repairable
from cdc_pipeline.operations.verify.report import (
    Difference,
    ExternalChange,
    Intervals,
    Status,
    Step,
    TableVerified,
    VerifyReport,
)
from cdc_pipeline.operations.verify.table import RoundsResult, TableComparison
from cdc_pipeline.position.cursor import CursorStore
from cdc_pipeline.run.admin_batch import AdminBatch
from cdc_pipeline.run.observer import RunObserver
from cdc_pipeline.run.plan.needs_snapshot import why_parted
from cdc_pipeline.run.wiring import build_sink
from cdc_pipeline.sink.delta.failures import is_of_one_table
from cdc_pipeline.sink.read.rows import SMALL_BYTES
from cdc_pipeline.sink.read.spilled import Spill
from cdc_pipeline.sink.verify.compare import DIFFERENCES
from cdc_pipeline.sink.verify.whole_table import count_strays, history_intervals
from cdc_pipeline.targets.targets import targets_at

_LOCK_WAIT_S: Final = 900.0
# Figures of the source tables that add up to their target's.
_SUMMED: Final = (
    *("rows_source", "rows_lake", "rows_equal", "ranges", "rounds"),
    *("parts", "parts_differing", "unreadable", "stale"),
)


def verify(
    config: PipelineConfig,
    *,
    cursors: CursorStore,
    options: VerifyOptions | None = None,
    observer: RunObserver | None = None,
    run_id: str = "",
    on_step: Callable[[Step], None] | None = None,
) -> VerifyReport:
    """Compare the lake's tables with the source, and repair differences if requested.

    Raises ConfigError: the options do not fit; LockError: another verification of the source is
    under way, or a run is when a capture is needed; CdcError: as capture, reader and Spark.
    """
    options = options or VerifyOptions()
    started = (time.monotonic(), time.process_time())
    if not isinstance(config.source, LiveSourceConfig):
        raise ConfigError(
            "only a live server has rows to compare with",
            setting="source",
            expected="kind: live",
            next_step="verify against the server that wrote the archive",
        )
    if not 0 < options.share <= 1:
        raise ConfigError(
            "a sample is a share of the table", setting="sample", expected="above 0, at most 1"
        )
    if options.repair and options.share < 1:
        raise ConfigError(
            "a sample is not repaired: only a whole table shows which rows the source lacks",
            setting="sample",
            next_step="repair the table without --sample",
        )
    sink = build_sink(config)
    captures = Captures(config, cursors, observer or RunObserver(), run_id, _LOCK_WAIT_S)
    proofs = proof_file(sink.paths)
    with verify_lock(sink.paths):
        known = None if config.verify is None else proofs.read()
        told = on_step or (lambda _step: None)
        spill = Spill.beside(sink.paths.state)
        context = VerifyContext(config, options, sink, sink.spark.session, spill, captures, told)
        tables = _Verification(context).tables()
        if known is not None:
            proofs.write(_with_proved(known, tables))
    return VerifyReport(
        source=config.name,
        tables=tables,
        seconds=time.monotonic() - started[0],
        cpu_seconds=time.process_time() - started[1],
        spark_started=sink.spark_started or captures.spark_started,
    )


def _with_proved(proofs: Proofs, tables: Mapping[str, TableVerified]) -> Proofs:
    """What is equal as a whole ends what the rolling proof has found."""
    kept = {}
    for name, proof in proofs.tables.items():
        table = tables.get(name)
        if table is not None and table.status == "equal" and not table.sampled and table.place:
            current = proof.current
            whole = TablePass(place=table.place, began_at_us=now_us(), rows=table.rows_source)
            if current is not None:
                current = current.model_copy(update={"counts": {}, "keys": (), "unsettled": 0})
            update = {"last": whole, "current": current, "unsettled": 0}
            kept[name] = proof.model_copy(update=update)
    return proofs.model_copy(update={"tables": {**proofs.tables, **kept}})


def _release(names: Sequence[str], batch: AdminBatch) -> None:
    """Let the next capture catch up what the rolling proof has suspended."""
    suspended = batch.last_cut().cursor.suspended
    update = {"error": CdcError.__name__, "next_step": ""}
    batch.suspend({name: suspended[name].model_copy(update=update) for name in names})


class _Verification:
    def __init__(self, context: VerifyContext) -> None:
        self._context = context
        self._config = context.config
        self._options = context.options
        self._captures = context.captures

    def tables(self) -> dict[str, TableVerified]:
        self._context.on_step(Step("the source", "capturing"))
        cut = self._captures.run().cut
        suspended = cut.cursor.suspended
        held = [
            name
            for name in self._names(cut)
            if name in suspended and suspended[name].error == RowsDifferError.__name__
        ]
        if self._options.repair and held:
            self._captures.locked(partial(_release, held))
            cut = self._captures.run().cut
        external_writes = self._external_writes(cut)
        if any(change.restored for change in external_writes.values()):
            cut = self._captures.run().cut
        verified: dict[str, TableVerified] = {}
        names = self._names(cut)
        while len(verified) < len(names):
            verified |= self._next(names[len(verified) :], external_writes)
        return verified

    def _next(
        self, names: Sequence[str], external_writes: dict[str, ExternalChange]
    ) -> dict[str, TableVerified]:
        """As many as memory holds: their rows are read between the same two captures."""
        before = self._captures.recent()
        targets = targets_at(self._config, before.cut, before.cursor)
        reasons: dict[str, str] = {}
        begun: dict[str, dict[str, TableComparison]] = {}
        size_bytes = 0

        def keep(record: BatchRecord) -> None:
            for comparisons in begun.values():
                for comparison in comparisons.values():
                    comparison.keep(record)

        with self._captures.keeping(keep):
            for name in names:
                reasons[name] = why_not(
                    self._config, name, before.cut, is_named=bool(self._options.tables)
                )
                if reasons[name]:
                    continue
                begun[name] = {
                    source: TableComparison(self._context, name, source)
                    for source, recorded in before.cut.tables[name].spec.sources_of(name).items()
                    if not recorded.gone
                }
                for comparison in begun[name].values():
                    size_bytes += comparison.begin(before, targets)
                # A repair changes the cut for which the rows of other tables are proved.
                if self._options.repair or size_bytes > SMALL_BYTES:
                    break
            after = self._captures.run_behind(before) if begun else before
        verified = {}
        for name, reason in reasons.items():
            started = time.monotonic()
            if name not in begun:
                table = self._not_compared(before.cut, name, external_writes, reason)
            else:
                try:
                    parts = [comparison.verify(after) for comparison in begun[name].values()]
                    table = self._joined(name, before.cut.tables[name], begun[name], parts)
                except CdcError as error:
                    if not is_of_one_table(error):
                        raise
                    why = "; ".join(filter(None, (error.what, error.next_step)))
                    if isinstance(error, SinkError):
                        why += f"; {new_snapshot(self._config.name, name)} fills the table again"
                    table = self._not_compared(before.cut, name, external_writes, why)
            foreign, seconds = external_writes.get(name), time.monotonic() - started
            verified[name] = table.model_copy(update={"foreign": foreign, "seconds": seconds})
        return verified

    # -- which tables ------------------------------------------------------------------------------

    def _names(self, cut: Cut) -> list[str]:
        if not self._options.tables:
            return sorted(cut.cursor.targets)
        return sorted(named_targets(self._config, cut, self._options.tables))

    def _external_writes(self, cut: Cut) -> dict[str, ExternalChange]:
        """Of the tables that the capture has suspended: it compares each with its cut."""
        suspended = [name for name in self._names(cut) if name in cut.cursor.suspended]
        writes = find_external_writes(self._context.sink, suspended)
        kept = {name: describe(self._context, write) for name, write in writes.items()}
        if self._options.repair:
            back = [name for name, write in writes.items() if write.is_restorable]
            if back:
                self._captures.locked(partial(put_back, self._context, back))
            restored = {"restored": True}
            kept.update({name: kept[name].model_copy(update=restored) for name in back})
        return kept

    # -- in words ----------------------------------------------------------------------------------

    def _not_compared(
        self, cut: Cut, name: str, external_writes: dict[str, ExternalChange], reason: str = ""
    ) -> TableVerified:
        table = cut.tables.get(name)
        change = external_writes.get(name)
        return TableVerified(
            target=name,
            sources=cut.cursor.targets[name].source_names,
            mode="mirror" if table is None else table.spec.mode,
            key=() if table is None else table.spec.key,
            status="not_compared" if change is None or change.restored else "different",
            reason=reason or (change.what if change is not None else ""),
            cut=cut.batch_number,
            place=cut.cursor.position,
            partial=cut.cursor.targets[name].partial,
            foreign=change,
        )

    def _joined(
        self,
        name: str,
        table: CutTable,
        comparisons: Mapping[str, TableComparison],
        parts: Sequence[RoundsResult],
    ) -> TableVerified:
        counts: Counter[str] = Counter()
        differences: list[Difference] = []
        unsettled: list[Difference] = []
        readings = [part.last[0] for part in parts if part.last is not None]
        reading = max(readings, key=lambda of_part: of_part.after.cut.batch_number)
        for part in parts:
            counts.update(part.counts)
            for piece in part.different:
                differences += piece.displayed(self._context, len(differences))
            if part.unsettled is not None:
                unsettled += part.unsettled.displayed(self._context, len(unsettled))
        sources = tuple(comparisons)
        repaired = Repaired()
        for comparison in comparisons.values():
            repaired.counts += comparison.repaired.counts
            repaired.batches += comparison.repaired.batches
            repaired.keys += comparison.repaired.keys
        sides = reading.sides
        strays, intervals = self._of_whole_table(table, reading)
        open_keys = sum(part.unsettled.keys for part in parts if part.unsettled is not None)
        stale = sum(part.stale for part in parts)
        wrong = bool(
            counts or strays or stale or (intervals is not None and not intervals.is_continuous)
        )
        status: Status = "different" if wrong else "unsettled" if open_keys else "equal"
        keyless, mode = not sides.key, MODES[table.spec.mode]
        return TableVerified(
            target=name,
            sources=sources,
            mode=table.spec.mode,
            key=sides.key,
            status=status,
            proves=mode.proves_keyless if keyless else mode.proves,
            reason=self._reason(
                table,
                counts,
                open_keys,
                stale,
                unproved=any(of_part.unproved for of_part in readings),
                unread=keyless and any(p.unreadable for p in parts),
            ),
            cut=reading.after.cut.batch_number,
            place=reading.after.position,
            counts={kind: counts[kind] for kind in DIFFERENCES if counts[kind]},
            differences=tuple(differences),
            unsettled=open_keys,
            unsettled_keys=tuple(unsettled),
            strays=strays,
            **{name: sum(getattr(part, name) for part in parts) for name in _SUMMED},
            partial=reading.after.cut.cursor.targets[name].partial,
            sampled=self._options.share < 1,
            intervals=intervals,
            repaired=dict(repaired.counts),
            repaired_keys=tuple(repaired.keys[: self._options.keys_shown])
            if repaired.batches
            else (),
            repair_batches=tuple(repaired.batches),
        )

    def _of_whole_table(self, table: CutTable, reading: Reading) -> tuple[int, Intervals | None]:
        sides, spill = reading.sides, self._context.spill
        strays, intervals = 0, None
        if sides.shard is not None and self._options.share >= 1:
            strays = count_strays(sides.lake, sides.shard[0], reading.shards)
        if MODES[table.spec.mode].keeps_versions:
            intervals = Intervals(**history_intervals(sides.lake, table.spec.key, spill))
        return strays, intervals

    def _reason(
        self,
        table: CutTable,
        counts: Counter[str],
        open_keys: int,
        stale: int,
        *,
        unproved: bool,
        unread: bool,
    ) -> str:
        if counts and self._options.repair:
            why = repairable(
                table.spec.mode, [kind for kind in DIFFERENCES if counts[kind]], unread=unread
            )
            return f"not repaired: {why}" if why else "some keys differ again"
        if stale:
            return (
                f"{stale:,} rows of the lake are older than the source's, which the policies keep "
                "out of it: correct the values at the source, or see `cdc-pipeline quarantine list "
                f"{self._config.name}`"
            )
        if open_keys and unproved:
            return (
                "nothing shows that everything written since the server's newest journal "
                "began is committed: MySQL without GTIDs shows it by its locks (GRANT SELECT "
                "ON performance_schema.* TO the account); or verify again after FLUSH BINARY "
                "LOGS"
            )
        return "these keys changed whenever they were read" if open_keys else ""


def why_not(config: PipelineConfig, name: str, cut: Cut, *, is_named: bool = False) -> str:
    state, table = cut.cursor.targets[name], cut.tables.get(name)
    if state.suspended is not None:
        suspension = state.suspended
        out = way_out(name, suspension, source=config.name)
        return f"suspended at {suspension.position}: {suspension.cause}; {out}"
    if table is None or state.table_version < 0:
        return "not created yet"
    parted = why_parted(config, state)
    if parted and state.origin is not None:
        command = new_snapshot(config.name, state.origin[0])
        return f"{parted}: take its snapshot with {command}"
    sources = {source: of for source, of in table.spec.sources_of(name).items() if not of.gone}
    if not sources:
        return (
            "its table was dropped or renamed at the source; the lake keeps its rows; "
            "tables.exclude in the file leaves it out"
        )
    if state.partial and MODES[table.spec.mode].rows_are_changes:
        return (
            "a changelog that began after the table's creation: it does not show "
            "the rows that existed before its first change. Only a snapshot makes it "
            f"comparable: {new_snapshot(config.name, next(iter(sources)))}"
        )
    if state.partial and not is_named:
        return (
            "partial: it lacks rows from before its first change; name it with "
            "--table to compare it"
        )
    return ""
