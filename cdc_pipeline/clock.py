"""The clock of this machine, in the product's unit of time."""

from __future__ import annotations

import time


def now_us() -> int:
    return time.time_ns() // 1000
