"""The clock of this machine, in the product's unit of time."""

from __future__ import annotations

import time


def now_us() -> int:
    """Return microseconds since 1970 UTC."""
    return time.time_ns() // 1000
