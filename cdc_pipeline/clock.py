"""The clock of this machine, and times in the product's unit: microseconds since 1970 in UTC."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from typing import Final

# What a person writes so is a time, which needs its zone, and never a GTID of MariaDB.
LOOKS_LIKE_TIME: Final = re.compile(r"\d{4}-(?:0\d|1[0-2])-[0-3]\d(?:[T ].*)?")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def now_us() -> int:
    return time.time_ns() // 1000


def time_of(at_us: int) -> datetime:
    """To the microsecond, which a division by 1e6 is not for every time."""
    return _EPOCH + timedelta(microseconds=at_us)


def microseconds_of(moment: datetime) -> int:
    """The inverse of `time_of`."""
    return (moment - _EPOCH) // timedelta(microseconds=1)
