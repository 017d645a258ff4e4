"""A run in sums and sentences: its interval, its tables, and why it ended where it did."""

from __future__ import annotations

from collections import Counter

from cdc_pipeline.pipeline.planning import LOG_END, ResolvedRun
from cdc_pipeline.pipeline.report import TableReport
from cdc_pipeline.sink.manifest import Cut, Interval


def whole_interval(parts: list[Interval], resolved: ResolvedRun) -> Interval:
    """The joined interval of a run from those of its batches."""
    start = resolved.start
    ends = (parts[-1].end_journal, parts[-1].end_offset) if parts else (start.journal, start.offset)
    counters = [name for name, field in Interval.model_fields.items() if field.annotation is int and field.default == 0]
    ignorable: Counter[str] = Counter()
    for part in parts:
        ignorable.update(part.ignorable_events)
    return Interval(
        start_journal=start.journal,
        start_offset=start.offset,
        end_journal=ends[0],
        end_offset=ends[1],
        ignorable_events=dict(ignorable),
        **{name: sum(getattr(part, name) for part in parts) for name in counters},
    )


def table_reports(cuts: list[Cut]) -> dict[str, TableReport]:
    """What the batches of a run did to each table."""
    tables: dict[str, TableReport] = {}
    for cut in cuts:
        for name, table in cut.tables.items():
            before = tables.get(name, TableReport())
            tables[name] = TableReport(
                rows_inserted=before.rows_inserted + table.rows_inserted,
                rows_updated=before.rows_updated + table.rows_updated,
                rows_deleted=before.rows_deleted + table.rows_deleted,
                rescued=dict(Counter(before.rescued) + Counter(table.rescued)),
                rescued_rows=before.rescued_rows + table.rescued_rows,
                delta_version=table.delta_version,
                partial=cut.cursor.targets[name].partial,
            )
    return tables


def reason_of(cuts: list[Cut], interval: Interval, resolved: ResolvedRun, *, limit_reached: bool) -> str:
    """What the run did, and why it ended where it did."""
    plan, limit = resolved.plan, resolved.limit
    if resolved.start.order == resolved.end.order:
        ended = ""
        found = f"{plan.identity} stands at {resolved.end}, where the cursor stands"
        if plan.end_reason != LOG_END:
            found = f"the run would end at {resolved.start}, where it starts: {plan.end_reason}"
    else:
        ended = f"at {plan.end_reason if limit is None else LOG_END}"
        if limit is not None and limit_reached:
            ended = limit.text
        found = (
            f"{plan.identity} moved from {resolved.start} to {interval.end_journal}:{interval.end_offset}: "
            f"{interval.transactions_seen} transactions, none of them changes a captured table"
        )
    if cuts:
        rows = sum(table.row_changes for cut in cuts for table in cut.tables.values())
        found = f"{rows:,} row change{'' if rows == 1 else 's'} in {len(cuts)} batch{'' if len(cuts) == 1 else 'es'}"
    return f"{found}; the run ended {ended}" if ended else found
