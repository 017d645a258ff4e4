"""Many writers of one file of the lake at once, and one that loses its lease."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from cdc_pipeline.errors import LockError
from cdc_pipeline.lake.paths import put_if_absent
from tests.support.waits import DEADLINE_S

WRITERS = 8


def texts_that_won(path: Path) -> list[str]:
    """What the writers put who were told that they had, of as many as start together."""
    start = threading.Barrier(WRITERS)
    won: list[str] = []

    def put(text: str) -> None:
        start.wait()
        if put_if_absent(path, text):
            won.append(text)

    threads = [threading.Thread(target=put, args=(f'"{number}"',)) for number in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return won


def wait_until_lost(check: Callable[[], None]) -> None:
    """Until a lease's `check` raises LockError."""
    end_s = time.monotonic() + DEADLINE_S
    with suppress(LockError):
        while time.monotonic() < end_s:
            check()
            threading.Event().wait(0.02)  # the lease's own thread must get its turn
