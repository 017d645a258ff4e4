"""Runs a function in a process of its own, so that what it kills is nobody else's."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable


def run_in_a_child(body: Callable[[], None]) -> None:
    child = multiprocessing.get_context("spawn").Process(target=body)
    child.start()
    child.join()
    assert child.exitcode == 0
