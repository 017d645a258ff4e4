"""The line that moves while a command is at work: what it does, and for how long.

Rules:
- It appears on a terminal alone, once a command has been silent for two seconds, on standard error.
- Whatever else is written takes its line first (`cleared`); a bar replaces it while it is shown
  (`replaced`). The first result ends it: from then on the results show the progress.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from cdc_pipeline.text.printable import printable

_SILENT_S: Final = 2.0
_SIGNS: Final = "|/-\\"


class _Activity:
    """`text` may change at any time."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._began_s = self._written_s = time.monotonic()
        self._terminal = os.dup(2)  # libraries are kept off the terminal by redirecting 2
        self._replaced = 0
        self._is_drawn = False
        self._lock = threading.RLock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._move, daemon=True)
        self._thread.start()

    def _move(self) -> None:
        while not self._ended.wait(0.25):
            with self._lock:
                now_s = time.monotonic()
                if self._replaced or now_s - self._written_s < _SILENT_S:
                    continue
                seconds = int(now_s - self._began_s)
                line = f"{_SIGNS[int(now_s * 4) % 4]} {seconds} s: {printable(self.text)}"
                self._write(
                    f"\r{line[: (os.get_terminal_size(self._terminal).columns or 80) - 1]}\x1b[K"
                )
                self._is_drawn = True

    def _write(self, text: str) -> None:
        os.write(self._terminal, text.encode(errors="replace"))

    def clear(self) -> None:
        with self._lock:
            if self._is_drawn:
                self._write("\r\x1b[K")
                self._is_drawn, self._written_s = False, time.monotonic()

    def replace(self, by: int) -> None:
        with self._lock:
            self.clear()
            self._replaced += by

    def end(self) -> None:
        if not self._ended.is_set():
            self._ended.set()
            self._thread.join()
            self.clear()
            os.close(self._terminal)


_activity: _Activity | None = None


@contextmanager
def at_work(text: str, *, quiet: bool) -> Iterator[None]:
    """Unless `quiet`, or standard error is no terminal."""
    global _activity
    if not quiet and sys.stderr.isatty():
        _activity = _Activity(text)
    try:
        yield
    finally:
        ended()


def does(text: str) -> None:
    """Say what the command does now."""
    if _activity is not None:
        _activity.text = text


def cleared() -> None:
    """Before anything else is written to standard error."""
    if _activity is not None:
        _activity.clear()


@contextmanager
def replaced() -> Iterator[None]:
    """While something else moves, or a person is asked."""
    activity = _activity
    if activity is not None:
        activity.replace(1)
    try:
        yield
    finally:
        if activity is not None:
            activity.replace(-1)


def ended() -> None:
    """Before the first result."""
    global _activity
    if _activity is not None:
        _activity.end()
        _activity = None
