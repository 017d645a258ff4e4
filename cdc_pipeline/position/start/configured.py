"""A start without a history: the configured one of the server that we are connected to (SPEC P3, P4).

Rules:
- A place in a journal is completed (see `executed`): between two transactions, with all GTIDs executed before it.
- A time is the first commit at or after it, exactly: the fallback interval belongs to switches.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cdc_pipeline.config.pipeline_config import GtidConfig, PositionConfig, TimeConfig
from cdc_pipeline.position.position import Position
from cdc_pipeline.position.start.executed import complete, with_created
from cdc_pipeline.position.start.history import after_gtid_set
from cdc_pipeline.position.start.question import Question
from cdc_pipeline.position.start.search import search_by_time
from cdc_pipeline.position.start.types import FIRST_OFFSET, SECOND_US, StartDecision


def gtid_set(question: Question) -> StartDecision:
    """P3: after the configured GTID set."""
    start = question.configured
    assert isinstance(start, GtidConfig)
    position = after_gtid_set(question.source, start.gtid_set, setting="start.gtid_set")
    return StartDecision(
        position, (f"the configuration starts after the GTID set {position.gtid_set}",), by_offset=False
    )


def journal_and_offset(question: Question) -> StartDecision:
    """P4: as it is."""
    start = question.configured
    assert isinstance(start, PositionConfig)
    wanted = Position(start.journal, start.offset)
    return _completed(question, wanted, f"the configuration starts at {wanted}")


def journal_and_time(question: Question) -> StartDecision:
    """P4: search in that journal only; its begin where nothing is found."""
    start = question.configured
    assert isinstance(start, TimeConfig)
    assert start.journal is not None
    head = Position(start.journal, FIRST_OFFSET)
    question.source.validate_position(head)
    found = search_by_time(question.source, t_us=_us(start.time), end=question.end, journal=start.journal)
    what = f"the configuration starts at {start.time.isoformat()} in {start.journal}"
    if found is None:
        return _completed(question, head, f"{what}: it has no commit at or after it, so all of it is read")
    return _completed(question, found, f"{what}: found at {found}")


def time(question: Question) -> StartDecision:
    """P4, P8: search; the current end where nothing is found."""
    start = question.configured
    assert isinstance(start, TimeConfig)
    found = search_by_time(question.source, t_us=_us(start.time), end=question.end)
    what = f"the configuration starts at {start.time.isoformat()}"
    if found is None:
        return _at_end(question, f"{what}: there is no commit at or after it, so at the end of the log")
    decision = _completed(question, found, f"{what}: found at {found}")
    oldest = question.source.journals()[0].journal
    if found.journal == oldest and question.source.journal_created_s(oldest) * SECOND_US > _us(start.time):
        late = f"the oldest journal, {oldest}, was created after that time: what came before it is not in the log"
        return StartDecision(decision.position, (*decision.reasons, late))
    return decision


def earliest(question: Question) -> StartDecision:
    """P4: the oldest journal."""
    position = with_created(question.source, question.source.earliest_position())
    return StartDecision(position, (f"the configuration starts at the earliest journal: {position}",))


def latest(question: Question) -> StartDecision:
    """P4: the current end."""
    return _at_end(question, "the configuration starts at the end of the log")


def standby_end(question: Question) -> StartDecision:
    """P4: nothing is configured for the standby: the current end."""
    return _at_end(
        question,
        "the primary's start means nothing on the standby, and source.standby.start is not set: the end of its log",
    )


def _at_end(question: Question, reason: str) -> StartDecision:
    position = with_created(question.source, question.end)
    return StartDecision(position, (f"{reason}: {position}",))


def _completed(question: Question, wanted: Position, reason: str) -> StartDecision:
    question.source.validate_position(wanted)
    position, notes = complete(question.source, wanted)
    return StartDecision(position, (reason, *notes))


def _us(time: datetime) -> int:
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
