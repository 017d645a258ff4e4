"""Schedules and time zones: those that Dagster is certain to accept are known without loading it.

Rules:
- Dagster alone decides what a schedule is (`orchestration/definitions.py` asks it for the file's
  `FileContext`). Loading it takes several times as long as everything else that
  `cdc-pipeline validate` does, for a file whose schedule is almost always like ``*/15 * * * *``.
- So this grammar is narrower than Dagster's: what it accepts, Dagster accepts
  (`tests/config/test_plain_schedule.py` compares the two); of anything else Dagster is asked.
- Names of days and months, ``L``, ``#``, ``@daily`` and a day of the month together with a month
  (30 February) are left to Dagster.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, ValidationInfo

from cdc_pipeline.config.references import VARIABLE
from cdc_pipeline.config.section import FileContext, Section

_RANGES: Final = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))  # minute, hour, day, month, weekday
_PART: Final = re.compile(r"(\*|[0-9]{1,2}(?:-[0-9]{1,2})?)(?:/([0-9]{1,2}))?")
_ZONE: Final = re.compile(r"[A-Za-z_]+(?:/[A-Za-z_]+){0,2}")


def is_plain_cron(text: str) -> bool:
    """Five fields of numbers, ranges, steps and lists that Dagster accepts."""
    fields = text.split(" ")
    if len(fields) != len(_RANGES) or (fields[2] != "*" and fields[3] != "*"):
        return False
    return all(
        _is_plain_part(part, low, high)
        for field, (low, high) in zip(fields, _RANGES, strict=True)
        for part in field.split(",")
    )


def _is_plain_part(part: str, low: int, high: int) -> bool:
    match = _PART.fullmatch(part)
    if match is None or (match[2] is not None and not 1 <= int(match[2]) <= high):
        return False
    if match[1] == "*":
        return True
    bounds = [int(number) for number in match[1].split("-")]
    if match[2] is not None and len(bounds) == 1:
        return False  # a step without a range
    return low <= bounds[0] and bounds[-1] <= high and (len(bounds) == 1 or bounds[0] < bounds[1])


def is_plain_zone(name: str) -> bool:
    """A time zone such as Europe/Berlin that Python's own library knows."""
    if not _ZONE.fullmatch(name):
        return False
    try:
        ZoneInfo(name)
    except (OSError, ValueError, KeyError):
        return False
    return True


def is_accepted(info: ValidationInfo, **schedule: Any) -> bool:
    """Whether Dagster accepts it, or is not asked."""
    context: FileContext | None = info.context
    return context is None or context.accepts is None or context.accepts(**schedule)


def _cron(text: str, info: ValidationInfo) -> str:
    # A reference that is still there is unset: a mistake of its own.
    if (
        VARIABLE.search(text) is None
        and not is_plain_cron(text)
        and not is_accepted(info, cron=text)
    ):
        raise ValueError(
            f"{text!r} is not a cron expression such as 0 * * * * (minute hour day month weekday)"
        )
    return text


def _zone(name: str, info: ValidationInfo) -> str:
    if (
        VARIABLE.search(name) is None
        and not is_plain_zone(name)
        and not is_accepted(info, timezone=name)
    ):
        raise ValueError(f"{name!r} is not a time zone such as UTC or Europe/Berlin")
    return name


Cron = Annotated[str, AfterValidator(_cron)]
Zone = Annotated[str, AfterValidator(_zone)]


class Scheduled(Section):
    """A section with a schedule of Dagster's, if it has a `cron`."""

    cron: Cron | None = None
    timezone: Zone = "UTC"
    enabled: bool = False
