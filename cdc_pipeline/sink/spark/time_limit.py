"""Limit how long the Spark jobs of one batch may take (K25: nothing waits without a limit).

A lock or lease is renewed for as long as its process lives, so a Spark job that hangs would hold
its source forever. When the time is up, every job is cancelled, repeatedly until the work has
ended: a retry, or the next target, may have started another one. Cancelled work fails like other
Spark failures: the record stays, and the next run finishes the batch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

_AGAIN_S: Final = 5.0


@contextmanager
def time_limit(limit_s: float, cancel: Callable[[], None]) -> Iterator[Callable[[], bool]]:
    """Call `cancel` while the body runs for longer than `limit_s`; yields whether it was called."""
    done, late = threading.Event(), threading.Event()

    def watch() -> None:
        wait_s = limit_s
        while not done.wait(wait_s):
            late.set()
            cancel()
            wait_s = _AGAIN_S

    watcher = threading.Thread(target=watch, name="batch time limit", daemon=True)
    watcher.start()
    try:
        yield late.is_set
    finally:
        done.set()
        watcher.join()
