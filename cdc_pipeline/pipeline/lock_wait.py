"""Wait for another run that holds the source's lock (K16: one run writes at a time)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

from cdc_pipeline.errors import LockError

POLL_S: Final = 0.5
_POLL_MAX_S: Final = 10.0

T = TypeVar("T")


def wait_for_lock(
    act: Callable[[], T],
    *,
    wait_s: float,
    on_waiting: Callable[[str], None] = lambda _holder: None,
    poll_max_s: float = _POLL_MAX_S,
) -> T:
    """Run `act`, which takes the source's lock, once the lock is free; `on_waiting` gets the
    holder, once.

    Pauses between two tries grow to `poll_max_s`. Raises LockError if another run holds it for
    longer than `wait_s`.
    """
    until_s, pause_s, is_reported = time.monotonic() + wait_s, POLL_S, False
    while True:
        try:
            return act()
        except LockError as error:
            if time.monotonic() >= until_s:
                raise
            if not is_reported:
                on_waiting(str(error.got or error.what))
            is_reported = True
        time.sleep(pause_s)
        pause_s = min(poll_max_s, 1.5 * pause_s)
