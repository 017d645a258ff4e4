"""Numbers, durations, sizes and lists as a person reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final


def count_of(number: int, noun: str) -> str:
    """``1 table``, ``2,000 tables``."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


_UNITS: Final = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))


def duration(seconds: float) -> str:
    """In the largest unit that fits twice or evenly: ``9 hours``."""
    for unit_s, name in _UNITS:
        count = seconds / unit_s
        if count >= 2 or (count >= 1 and count == int(count)):
            text = (
                f"{count:.0f}"
                if count >= 10 or abs(count - round(count)) < 0.05
                else f"{count:.1f}"
            )
            return f"{text} {name}" + ("" if text == "1" else "s")
    return f"{seconds:.1f} seconds" if seconds else "0 seconds"


def moment_text(moment: datetime | None) -> str:
    """`moment` in UTC."""
    return "unknown" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def size(count_bytes: float) -> str:
    for unit, name in ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count_bytes >= unit:
            return f"{count_bytes / unit:.1f} {name}"
    return f"{count_bytes:.0f} bytes"


def listed(names: Sequence[str], *, most: int = 20) -> str:
    """Of more than `most`, the first ones and the number of the rest."""
    return ", ".join(names[:most]) + and_more(len(names) - most)


def and_more(number: int) -> str:
    """After what was named; "" unless there are more."""
    return f" and {number:,} more" if number > 0 else ""


def by_reason(reasons: Mapping[str, str]) -> list[tuple[str, list[str]]]:
    """Group names by their shared reason, sorted, so that each reason appears once."""
    by_reason_names: dict[str, list[str]] = {}
    for name, reason in sorted(reasons.items()):
        by_reason_names.setdefault(reason, []).append(name)
    return list(by_reason_names.items())
