"""A start without a cursor: the configured start of the connected server (SPEC P3, P4).

Rules:
- A position in a journal is completed (see `executed`): moved between two transactions, with all
  GTIDs executed before it.
- A time means exactly the first commit at or after it: the fallback interval applies to switches
  only.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cdc_pipeline.config.pipeline_config import GtidConfig, PositionConfig, TimeConfig
from cdc_pipeline.position.position import Position
from cdc_pipeline.position.start.context import StartContext
from cdc_pipeline.position.start.executed import complete, with_created
from cdc_pipeline.position.start.history import after_gtid_set
from cdc_pipeline.position.start.search import search_by_time
from cdc_pipeline.position.start.types import FIRST_OFFSET, SECOND_US, StartDecision


def gtid_set(context: StartContext) -> StartDecision:
    """Start after the configured GTID set (P3)."""
    start = context.configured
    assert isinstance(start, GtidConfig)
    position = after_gtid_set(context.source, start.gtid_set, setting="start.gtid_set")
    return StartDecision(
        position,
        (f"the configuration starts after the GTID set {position.gtid_set}",),
        by_offset=False,
    )


def journal_and_offset(context: StartContext) -> StartDecision:
    """Start at the configured journal and offset (P4)."""
    start = context.configured
    assert isinstance(start, PositionConfig)
    wanted = Position(start.journal, start.offset)
    return _completed(context, wanted, f"the configuration starts at {wanted}")


def journal_and_time(context: StartContext) -> StartDecision:
    """Search for the time in that journal only; start at its begin if nothing is found (P4)."""
    start = context.configured
    assert isinstance(start, TimeConfig)
    assert start.journal is not None
    head = Position(start.journal, FIRST_OFFSET)
    context.source.validate_position(head)
    position = search_by_time(
        context.source, t_us=_us(start.time), end=context.end, journal=start.journal
    )
    what = f"the configuration starts at {start.time.isoformat()} in {start.journal}"
    if position is None:
        return _completed(
            context,
            head,
            f"{what}: the journal has no commit at or after it, so all of the journal is read",
        )
    return _completed(context, position, f"{what}: found at {position}")


def time(context: StartContext) -> StartDecision:
    """Search for the time; start at the current end if nothing is found (P4, P8)."""
    start = context.configured
    assert isinstance(start, TimeConfig)
    position = search_by_time(context.source, t_us=_us(start.time), end=context.end)
    what = f"the configuration starts at {start.time.isoformat()}"
    if position is None:
        return _at_end(
            context,
            f"{what}: there is no commit at or after it, so reading starts at the end of the log",
        )
    decision = _completed(context, position, f"{what}: found at {position}")
    oldest = context.source.journals()[0].journal
    if position.journal == oldest and context.source.journal_created_s(oldest) * SECOND_US > _us(
        start.time
    ):
        late = (
            f"the oldest journal, {oldest}, was created after that time: the log lacks "
            "what happened before"
        )
        return StartDecision(decision.position, (*decision.reasons, late))
    return decision


def earliest(context: StartContext) -> StartDecision:
    """Start at the oldest journal (P4)."""
    position = with_created(context.source, context.source.earliest_position())
    return StartDecision(
        position, (f"the configuration starts at the earliest journal: {position}",)
    )


def latest(context: StartContext) -> StartDecision:
    """Start at the current end (P4)."""
    return _at_end(context, "the configuration starts at the end of the log")


def standby_end(context: StartContext) -> StartDecision:
    """Start at the current end, because nothing is configured for the standby (P4)."""
    return _at_end(
        context,
        "the primary's start is meaningless on the standby, and source.standby.start is not set: "
        "the end of its log",
    )


def _at_end(context: StartContext, reason: str) -> StartDecision:
    position = with_created(context.source, context.end)
    return StartDecision(position, (f"{reason}: {position}",))


def _completed(context: StartContext, wanted: Position, reason: str) -> StartDecision:
    context.source.validate_position(wanted)
    position, notes = complete(context.source, wanted)
    return StartDecision(position, (reason, *notes))


def _us(time: datetime) -> int:
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
