"""Plan what a run will read: start and why, end fixed in advance, tables (SPEC P3 to P5).

Rules:
- Planning writes nothing and starts no JVM.
- The end is fixed before the first event is read: the present end of the log, or the bound's
  position if that comes first. A bound that is found while reading is a limit (`limits`) before
  that end.
- An end before the start on the same server is an error, never "nothing new": the log was
  renumbered.
"""

from __future__ import annotations

from collections.abc import Callable

from cdc_pipeline.config.pipeline_config import (
    Bound,
    GtidBoundConfig,
    PipelineConfig,
    PositionConfig,
)
from cdc_pipeline.errors import PositionError, SourceIdentityError
from cdc_pipeline.lake.long_operations import operations_of
from cdc_pipeline.lake.records import BatchRecord, Cut
from cdc_pipeline.lake.run_notes import changed_start
from cdc_pipeline.position.cursor import CursorState, CursorStore
from cdc_pipeline.position.dump_errors import DumpErrors
from cdc_pipeline.position.position import Position, ServerIdentity
from cdc_pipeline.position.start.context import OverlapResult
from cdc_pipeline.position.start.start import resolve_start
from cdc_pipeline.run.plan.feature_plan import check_masked_columns, with_features
from cdc_pipeline.run.plan.limits import Limit, executed_before, make_limit
from cdc_pipeline.run.plan.needs_snapshot import needing
from cdc_pipeline.run.plan.possible import check_start
from cdc_pipeline.run.plan.preview import planned_targets
from cdc_pipeline.run.plan.reconcile import Reconciled, reconcile
from cdc_pipeline.run.plan.resolved_run import LOG_END, ResolvedRun
from cdc_pipeline.run.plan.server_switch import overlap_of
from cdc_pipeline.run.plan.starting import ChosenServer, choose, start_rules
from cdc_pipeline.run.plan.unmatched import unmatched
from cdc_pipeline.run.report import CapturePlan, needed_position, quarantined
from cdc_pipeline.run.wiring import (
    build_dump_errors,
    build_first_start,
    build_sink,
    build_source,
)
from cdc_pipeline.source.protocol import Source
from cdc_pipeline.targets.route_checks import check_routes
from cdc_pipeline.targets.table_filter import TableFilter


def plan(
    config: PipelineConfig, *, cursors: CursorStore, bound: Bound | None = None
) -> CapturePlan:
    """Nothing is written; raises what would keep the run from starting."""
    sink = build_sink(config)
    cut = sink.last_cut()
    unfinished = sink.pending_record()
    reconciled = reconcile(cursors.read(), cut)
    server = choose(config)
    source = build_source(server.config)
    try:
        source.check()
        config = config.comparing(source.identity.names)
        if unfinished is not None:
            # The run will finish the recorded batch first and resume from there.
            after = unfinished.cursor_after
            reason = (
                f"batch {unfinished.batch_number} is recorded but unfinished: the run "
                "finishes it first"
            )
            reconciled = Reconciled(after, reason, True)
        resolved = resolve(
            config,
            source=source,
            reconciled=reconciled,
            cut=cut,
            bound=bound or config.bound,
            unfinished=unfinished,
            server=server,
            dump_errors=build_dump_errors(config).read(),
            overlap=overlap_of(config, source=source, cursor=reconciled.cursor),
        ).plan
        ours = set(cut.cursor.targets if cut is not None else ())
        ours.update(
            target.table for target in (unfinished.targets if unfinished is not None else ())
        )
        return with_features(resolved, config=config, cut=cut, source=source, ours=ours)
    finally:
        source.close()


def resolve(
    config: PipelineConfig,
    *,
    source: Source,
    reconciled: Reconciled,
    cut: Cut | None,
    bound: Bound,
    unfinished: BatchRecord | None = None,
    server: ChosenServer | None = None,
    dump_errors: DumpErrors | None = None,
    overlap: Callable[[Position], OverlapResult] | None = None,
) -> ResolvedRun:
    """Start, end and tables of a run over `source`, which has passed its check.

    Raises:
        ConfigError: rules of targets contradict each other, or what is recorded.
        SourceError: the start is gone, the cursor belongs to another server, or the end lies before
            the start.
    """
    tables = TableFilter(config)
    source_tables = source.tables()
    captured = _table_names(tables, source_tables, reconciled.cursor, cut)
    check_routes(config, captured, cut)
    check_masked_columns(config, source=source, tables=captured, cut=cut)
    if reconciled.cursor is None:
        check_start(config)
        unused: tuple[str, ...] = ()
    else:
        kept = build_first_start(config).read()
        unused = changed_start(kept, config.start, pipeline_name=config.name)
    decision = resolve_start(
        cursor=reconciled.cursor,
        start=config.start,
        source=source,
        rules=start_rules(config, cut=cut, dump_errors=dump_errors or DumpErrors()),
        overlap=overlap,
    )
    compared = check_names(source.identity, reconciled.cursor)
    chosen = (server.reason,) if server is not None and server.reason else ()
    known_by = () if reconciled.cursor is None else (reconciled.reason,)
    log_end = source.end_position()
    start = decision.position
    end, end_reason, limit = _end(bound, start=start, log_end=log_end, source=source)
    if end.order < start.order:
        raise PositionError(
            "the run would end before it starts",
            expected=f"an end at or after {start}",
            got=f"{end} ({end_reason})",
            next_step="choose a later bound; a log that ends before the cursor was reset or "
            "belongs to another server",
        )
    reasons = (*decision.reasons, *source.reasons(decision.read_from))
    journals = [info for info in source.journals() if _within(info.journal, start, end)]
    # A first run that reads old journals may find tables created there; one that begins at the end
    # finds none.
    begun = cut is not None or reconciled.cursor is not None
    return ResolvedRun(
        plan=CapturePlan(
            source=config.name,
            identity=str(source.identity),
            start_journal=start.journal,
            start_offset=start.offset,
            start_gtid_set=start.gtid_set,
            start_reasons=(*chosen, *known_by, *compared, *reasons),
            end_journal=end.journal,
            end_offset=end.offset,
            end_reason=end_reason,
            limit="" if limit is None else limit.text,
            bytes_between=bytes_between(
                {info.journal: info.size_bytes for info in journals}, start, end
            ),
            journals=tuple(info.journal for info in journals),
            tables=tuple(captured),
            targets=planned_targets(config, captured, cut),
            partial_tables=_partial(reconciled.cursor),
            unfinished_batch=None if unfinished is None else unfinished.batch_number,
            oldest_needed=needed_position(reconciled.cursor),
            open_xa=reconciled.cursor.open_xa if reconciled.cursor is not None else (),
            suspended={} if reconciled.cursor is None else reconciled.cursor.suspended,
            quarantine=quarantined(cut),
            # Before its first run, the contents of an archive are unknown.
            unseen=()
            if source_tables is None and not begun
            else unmatched(tables, source_tables or (), reconciled.cursor),
            needs_snapshot=needing(config, cut, source_tables or ())
            if begun or config.start == "latest"
            else {},
            snapshots=tuple(operations_of(config, cut)),
            warnings=unused + source.warnings(captured),
        ),
        start=start,
        end=end,
        limit=limit,
        ends_anywhere=isinstance(bound, PositionConfig),
        decision=decision,
        epoch=(1 if reconciled.cursor is None else reconciled.cursor.epoch) + decision.epoch_grows,
        known=None if source_tables is None else tuple(source_tables),
        log_end=log_end,
    )


def check_names(identity: ServerIdentity, cursor: CursorState | None) -> tuple[str, ...]:
    """Of another name comparison than the cursor's (K30); SourceIdentityError if it cannot be."""
    before = identity.names if cursor is None else cursor.lower_case_table_names
    if cursor is None or identity.names.same_as(before):
        return ()
    known = {name for state in cursor.targets.values() for name in state.source_names}
    differing = sorted(name for name in known if identity.names.fold(name) != name)
    change = f"lower_case_table_names was {before:d} and is {identity.names:d} now"
    if not differing:
        return (f"{change}: the names of all tables are in lower case, and stay",)
    raise SourceIdentityError(
        f"the server compares names of tables otherwise than before: {change}",
        table=differing[0],
        setting="source.lower_case_table_names",
        expected=f"{before:d}, under which the lake has {', '.join(differing[:5])}",
        got=f"{identity.names:d}, under which no table has such a name",
        next_step="read a server whose lower_case_table_names is as before (an archive: set "
        "source.lower_case_table_names), or give this one a lake of its own (sink.lake_path) and "
        "take a snapshot",
    )


def _end(
    bound: Bound, *, start: Position, log_end: Position, source: Source
) -> tuple[Position, str, Limit | None]:
    if isinstance(bound, PositionConfig):
        end = Position(journal=bound.journal, offset=bound.offset)
        if end.order > log_end.order:
            raise PositionError(
                "the bound lies beyond the end of the log",
                journal=bound.journal,
                offset=bound.offset,
                expected=f"at most {log_end}",
                next_step="omit the bound: a run stops at the end of the log by itself",
            )
        source.validate_position(end)
        return end, "the configured bound", None
    flavor = source.identity.flavor
    if isinstance(bound, GtidBoundConfig) and executed_before(
        bound, start=start, log_end=log_end, flavor=flavor
    ):
        return start, f"the transaction {bound.gtid} was executed before the start", None
    limit = make_limit(bound, flavor)
    if limit is None:
        return log_end, LOG_END, None
    return log_end, f"{limit.text}, or at the latest at the end of the log", limit


def _within(journal: str, start: Position, end: Position) -> bool:
    number = Position(journal=journal, offset=0).order[0]
    return start.order[0] <= number <= end.order[0]


def bytes_between(sizes: dict[str, int], start: Position, end: Position) -> int:
    """Of the log; `sizes`: of the journals from the first to the last, by name."""
    total = sum(size for journal, size in sizes.items() if journal != end.journal)
    return max(0, total + end.offset - start.offset)


def _table_names(
    tables: TableFilter, known: list[str] | None, cursor: CursorState | None, cut: Cut | None
) -> list[str]:
    names = {*tables.exact_names, *(known or ())}
    names.update(
        *(state.source_names for state in (cursor.targets.values() if cursor is not None else ()))
    )
    names.update(
        *(state.source_names for state in (cut.cursor.targets.values() if cut is not None else ()))
    )
    return tables.captured_names(list(names))


def _partial(cursor: CursorState | None) -> tuple[str, ...]:
    targets = cursor.targets if cursor is not None else {}
    return tuple(sorted(name for name, target in targets.items() if target.partial))
