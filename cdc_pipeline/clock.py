"""The clock of this machine, and times in the product's unit: microseconds since 1970 in UTC."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def now_us() -> int:
    return time.time_ns() // 1000


def time_of(at_us: int) -> datetime:
    """To the microsecond, which a division by 1e6 is not for every time."""
    return _EPOCH + timedelta(microseconds=at_us)


def microseconds_of(moment: datetime) -> int:
    """The inverse of `time_of`."""
    return (moment - _EPOCH) // timedelta(microseconds=1)
