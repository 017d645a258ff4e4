"""Waiting for a thing itself, however long it takes on this machine."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

DEADLINE_S = 300.0
"""Ends what never comes."""


def wait_until(condition: Callable[[], object], missing: str = "") -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline_s, missing
        threading.Event().wait(0.02)
