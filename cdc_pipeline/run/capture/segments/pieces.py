"""Divide a range of journals into stretches to decode in parallel, and the rest.

Rules:
- A stretch holds whole transactions that depend only on what is known at its beginning: no DDL of
  chosen tables, no XA transaction that is prepared and ended in different places, no journal end
  that only the next journal proves (K5). All of these are read in sequence, together with whatever
  is too small to be worth a task.
- The pieces follow each other without a gap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from cdc_pipeline.binlog.seq import journal_number
from cdc_pipeline.position.position import Position
from cdc_pipeline.run.capture.segments.survey import JournalSurvey, Segment

TOO_LITTLE: Final = "too small to be worth a task"


@dataclass(frozen=True, slots=True)
class RangePiece:
    """Up to `stop`; without `segments`, read in sequence, and `why`."""

    stop: Position
    segments: tuple[Segment, ...] = ()
    why: str = ""


_Order = tuple[int, int]  # `Position.order`


class _Gap(NamedTuple):
    start: _Order
    stop: _Order
    why: str


def pieces(surveys: Sequence[JournalSurvey], *, stretch_bytes_min: int) -> list[RangePiece]:
    """Up to the last journal's `end`; a stretch that is too small is read in sequence."""
    if not surveys:
        return []
    names = {journal_number(one.journal): one.journal for one in surveys}
    gaps = _joined(_gaps(surveys))
    at = (journal_number(surveys[0].journal), surveys[0].start)
    end = (journal_number(surveys[-1].journal), surveys[-1].end)
    divided: list[RangePiece] = []
    for gap in [*gaps, _Gap(end, end, "")]:
        segments = _segments(surveys, at, gap.start)
        size_bytes = sum(segment.size_bytes for segment in segments)
        if segments:
            stop = Position(segments[-1].journal, segments[-1].stop)
            if len(segments) > 1 and size_bytes >= stretch_bytes_min:
                divided.append(RangePiece(stop, tuple(segments)))
            else:
                divided.append(RangePiece(stop, why=TOO_LITTLE))
        if gap.stop > gap.start:
            number, offset = gap.stop
            stop = Position(names[number], offset)
            divided.append(RangePiece(stop, why=gap.why))
        at = max(at, gap.stop)
    return _one_after_the_other(divided)


def _gaps(surveys: Sequence[JournalSurvey]) -> list[_Gap]:
    gaps: list[_Gap] = []
    numbers = [journal_number(one.journal) for one in surveys]
    range_end = (numbers[-1], surveys[-1].end)
    prepared: dict[str, _Order] = {}
    for number, one in zip(numbers, surveys, strict=True):
        if one.failed:
            stop = (number, max(one.end, one.start))
            gaps.append(_Gap((number, one.start), stop, one.failed))
        why = "a statement that affects the tables"
        gaps += [_Gap((number, group.start), (number, group.stop), why) for group in one.alone]
        ends = [(group, False) for group in one.ended] + [(group, True) for group in one.prepared]
        for group, is_prepared in sorted(ends, key=lambda pair: pair[0].start):
            at = (number, group.start)
            if is_prepared:
                prepared[group.xid] = at
            else:
                begin = prepared.pop(group.xid, at)
                gaps.append(_Gap(begin, (number, group.stop), "an XA transaction"))
    why = "an XA transaction that does not end in the range"
    gaps += [_Gap(at, range_end, why) for at in prepared.values()]
    # An end that does not prove itself is proved by reading on; so is a failed journal.
    for (number, one), (next_number, following) in pairwise(zip(numbers, surveys, strict=True)):
        if not one.is_closed or one.failed:
            why = one.failed or "the end of a journal without ROTATE or STOP"
            gaps.append(_Gap((number, one.start), (next_number, following.end), why))
    return sorted(gaps)


def _joined(gaps: Sequence[_Gap]) -> list[_Gap]:
    joined: list[_Gap] = []
    for gap in gaps:
        if joined and gap.start <= joined[-1].stop:
            last = joined[-1]
            joined[-1] = _Gap(last.start, max(last.stop, gap.stop), last.why)
        else:
            joined.append(gap)
    return joined


def _segments(surveys: Sequence[JournalSurvey], start: _Order, stop: _Order) -> list[Segment]:
    segments = []
    for one in surveys:
        number = journal_number(one.journal)
        (_, first), (_, last) = max(start, (number, one.start)), min(stop, (number, one.end))
        if start[0] <= number <= stop[0] and first < last:
            bounds = [first, *(at for at in one.splits if first < at < last), last]
            segments += [
                Segment(journal=one.journal, start=begin, stop=end, created_s=one.created_s)
                for begin, end in pairwise(bounds)
            ]
    return segments


def _one_after_the_other(made: Sequence[RangePiece]) -> list[RangePiece]:
    """Neighbours that are read in sequence become one piece."""
    joined: list[RangePiece] = []
    for piece in made:
        if joined and not joined[-1].segments and not piece.segments:
            why = piece.why if joined[-1].why == TOO_LITTLE else joined[-1].why
            joined[-1] = RangePiece(piece.stop, why=why)
        else:
            joined.append(piece)
    return joined
