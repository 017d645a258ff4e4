"""Where a run starts: the decision table (SPEC P3-P8).

Rules:
- With a cursor, the first of `ROWS` whose condition holds decides; without one, the configuration.
  Its reason begins the chain of reasons, which `plan` shows and the cursor's metadata keeps.
- A cursor wins over the configuration. A cursor of an unrelated server, or past the end of its own
  server's log, is an error and never reads as "nothing new".
- Conditions query the source as little as possible. Rows are pure: the same answers lead to the
  same start.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from cdc_pipeline.config.pipeline_config import Start
from cdc_pipeline.position.cursor import CursorState
from cdc_pipeline.position.position import Position
from cdc_pipeline.position.start import decisions
from cdc_pipeline.position.start.context import (
    Log,
    OverlapResult,
    StartContext,
    StartDecision,
    StartRules,
)
from cdc_pipeline.position.start.lookup import complete


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table: if `applies`, `decide` returns the start or raises."""

    reason: str
    applies: Callable[[StartContext], bool]
    decide: Callable[[StartContext], StartDecision]


ROWS: Final = (
    Row(  # P5
        "the source is not the same kind of server as the cursor's",
        lambda q: q.cursor.flavor != q.identity.flavor,
        decisions.refuse,
    ),
    Row(  # P3
        "another server, which uses GTIDs: read its log after the cursor's GTID set",
        lambda q: q.goes_by_gtid and not q.same_server,
        decisions.fail_over,
    ),
    Row(  # P3
        "the cursor's journal was purged: its GTID set shows whether anything was lost",
        lambda q: q.goes_by_gtid and q.is_purged and not q.source.is_archive,
        decisions.by_set_after_purge,
    ),
    Row(  # P3
        "the server has begun to use GTIDs: continue by offset, with the executed set completed",
        lambda q: q.same_server and q.uses_gtids and not q.goes_by_gtid and bool(q.end.gtid_set),
        decisions.complete_cursor,
    ),
    Row(  # P5
        "the cursor's own server: continue at the last position",
        lambda q: q.same_server,
        decisions.stay,
    ),
    Row(  # P6
        "primary and standby were switched, and there is no GTID set to compare: search by time",
        lambda q: q.switched,
        decisions.switch_by_time,
    ),
    Row(  # P5
        "another server at the source's only address, after too many dump errors: search by time",
        lambda q: q.is_only_address and q.rules.dump_errors.count > q.rules.dump_errors_max,
        decisions.switch_virtual_ip,
    ),
    Row(  # P5
        "another server at the source's only address",
        lambda q: q.is_only_address,
        decisions.await_virtual_ip,
    ),
    Row("a server that is unrelated to the cursor", lambda _: True, decisions.refuse),  # P5
)


def resolve_start(
    *,
    cursor: CursorState | None,
    start: Start,
    source: Log,
    rules: StartRules | None = None,
    overlap: Callable[[Position, int], OverlapResult] | None = None,
) -> StartDecision:
    """`overlap`: after a switch by time, compares the log with the applied transactions (K7).

    Raises:
        SourceIdentityError: the cursor belongs to another server, or to this one before a reset.
        ServerChangedError: the address may not have moved for good (P5).
        PositionError: a configured start is no event boundary, or no GTID set of this source.
        JournalMissingError: a journal that the run needs was purged.
    """
    context = StartContext(cursor, start, source, rules or StartRules(), overlap)
    if cursor is None:
        return decisions.configured(context)
    row = next(row for row in ROWS if row.applies(context))
    decision = row.decide(context)
    decision = replace(decision, reasons=(row.reason, *decision.reasons))
    return _after_unknown_table(context, decision)


def _after_unknown_table(context: StartContext, decision: StartDecision) -> StartDecision:
    """Move the start to a transaction's begin after rows without a table map (P7)."""
    if not context.rules.dump_errors.table_id_not_found or not decision.by_offset:
        return decision
    position, notes = complete(context.source, decision.position.by_offset)
    back = (
        "the last run found rows without a table map: back to the beginning of the "
        "transaction before them"
    )
    return replace(decision, position=position, reasons=(*decision.reasons, back, *notes))
