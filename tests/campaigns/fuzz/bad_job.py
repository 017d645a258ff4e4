"""A job that does everything that the runner watches for."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

from tests.campaigns.fuzz.runner import MEMORY_BYTES_MAX


def bad_job(_: Path) -> Callable[[int], tuple[str, str]]:
    """Good numbers, and one that dies, one that hangs and one that takes too much memory."""

    def one(number: int) -> tuple[str, str]:
        if number == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        if number == 5:
            signal.pause()  # for ever
        if number == 7:
            try:
                bytearray(2 * MEMORY_BYTES_MAX)
            except MemoryError as error:
                return "finding", type(error).__name__
        return "rows", ""

    return one
