"""Threads that take turns as a seed decides, and a clock that moves only when all of them wait.

Rules:
- One thread runs at a time; the others wait for their turn. A turn may end wherever a thread takes
  a lock, waits, or reaches a fault point, so the seed alone decides the order of everything that
  threads do with each other.
- A wait with a time limit ends by it only when no thread can run: then the clock goes on to the
  nearest limit.
- A crash ends all threads: the main one at its next turn, once, so that it can unwind; the others
  whenever they would run again.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any, Final
from unittest import mock

from cdc_pipeline.fault_points import listening
from cdc_pipeline.run.capture import capture
from cdc_pipeline.run.capture.reader import Reader
from cdc_pipeline.store import ring
from tests.support.kills import Killed

_SWITCH_PROBABILITY: Final = 0.25


class _Thread:
    def __init__(self, name: str) -> None:
        self.name = name
        self.turn = threading.Semaphore(0)
        self.until: Callable[[], bool] | None = None
        self.limit_s: float | None = None
        self.is_done = False

    def can_run(self, now_s: float) -> bool:
        if self.is_done:
            return False
        late = self.limit_s is not None and self.limit_s <= now_s
        return self.until is None or late or self.until()


class Scheduler:
    """The threads of one run. `chance`: decides; `crash_at`: number of the step at which the
    process dies; None for a run that lives. `steps`: places so far at which a turn could end;
    `crashed`: whether the process has died.
    """

    def __init__(self, chance: random.Random, *, crash_at: int | None = None) -> None:
        self.steps = 0
        self.crashed = False
        self._has_unwound = False  # the main thread was told of the crash
        self._chance = chance
        self._crash_at = crash_at
        self._main = _Thread("main")
        self._threads = [self._main]
        self._current = self._main
        self._now_s = 0.0
        self._of_reader: dict[int, _Thread] = {}

    @contextmanager
    def running(self) -> Iterator[None]:
        """The store's locks and a capture's reader take turns in this context."""
        names = SimpleNamespace(Lock=lambda: _Lock(self), Condition=_Condition)
        with ExitStack() as stack:
            stack.enter_context(mock.patch.object(ring, "threading", names))
            stack.enter_context(
                mock.patch.object(ring, "time", SimpleNamespace(monotonic=lambda: self._now_s))
            )
            stack.enter_context(mock.patch.object(Reader, "start", self._starts()))
            stack.enter_context(mock.patch.object(Reader, "join", self._joins()))
            stack.enter_context(mock.patch.object(capture, "modules_kept", nullcontext))
            stack.enter_context(listening(lambda _point: self.step()))
            yield

    def step(self) -> None:
        """End the turn, perhaps; or the process. Raises Killed: it has died."""
        self.steps += 1
        if self.steps == self._crash_at and not self.crashed:
            self.crashed = True
            if self._current is not self._main:
                self._give_turn_to(self._main)
            self._has_unwound = True
            raise Killed
        if self._chance.random() < _SWITCH_PROBABILITY:
            self._next()

    def wait(self, until: Callable[[], bool], timeout_s: float | None = None) -> None:
        """End the turn until a condition is met or the time has passed."""
        here = self._current
        here.until = until
        here.limit_s = None if timeout_s is None else self._now_s + timeout_s
        try:
            self._next()
        finally:
            here.until = here.limit_s = None

    def _next(self) -> None:
        while not (able := [one for one in self._threads if one.can_run(self._now_s)]):
            limits = [one.limit_s for one in self._threads if one.limit_s is not None]
            assert limits, "every thread waits for another: " + ", ".join(
                one.name for one in self._threads if not one.is_done
            )
            self._now_s = min(limits)
        self._give_turn_to(self._chance.choice(able))

    def _give_turn_to(self, other: _Thread) -> None:
        here = self._current
        if other is here:
            return
        self._current = other
        other.turn.release()
        if here.is_done:
            return
        here.turn.acquire()
        if here is not self._main:
            if self.crashed:
                raise Killed
        elif self.crashed and not self._has_unwound:
            self._has_unwound = True
            raise Killed

    def _starts(self) -> Callable[[Reader], None]:
        def start(reader: Reader) -> None:
            thread = _Thread(reader.name)
            self._threads.append(thread)
            self._of_reader[id(reader)] = thread
            threading.Thread(target=self._body, args=(reader, thread), daemon=True).start()

        return start

    def _body(self, reader: Reader, thread: _Thread) -> None:
        thread.turn.acquire()
        try:
            if not self.crashed:
                reader.run()
        except Killed:
            pass
        finally:
            thread.is_done = True
            self._next()

    def _joins(self) -> Callable[..., None]:
        def join(reader: Reader, timeout: float | None = None) -> None:
            thread = self._of_reader[id(reader)]
            while not thread.is_done:
                self.wait(lambda: self.crashed or thread.is_done)
                if self.crashed and not thread.is_done:
                    self._give_turn_to(thread)

        return join


class _Lock:
    """`threading.Lock`, as far as the store uses it."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.is_held = False

    def __enter__(self) -> None:
        self.scheduler.step()
        while self.is_held:
            self.scheduler.wait(lambda: not self.is_held)
        self.is_held = True

    def __exit__(self, *_: object) -> None:
        self.is_held = False


class _Condition:
    def __init__(self, lock: _Lock) -> None:
        self._lock = lock
        self._waiting: list[list[bool]] = []  # of each waiter, whether it was notified

    def __enter__(self) -> Any:
        return self._lock.__enter__()

    def __exit__(self, *_: object) -> None:
        self._lock.__exit__()

    def wait(self, timeout: float | None = None) -> bool:
        told = [False]
        self._waiting.append(told)
        self._lock.is_held = False
        try:
            self._lock.scheduler.wait(lambda: told[0], timeout)
        finally:
            if told in self._waiting:
                self._waiting.remove(told)
        while self._lock.is_held:
            self._lock.scheduler.wait(lambda: not self._lock.is_held)
        self._lock.is_held = True
        return told[0]

    def notify(self, n: int = 1) -> None:
        for told in self._waiting[:n]:
            told[0] = True
        del self._waiting[:n]

    def notify_all(self) -> None:
        self.notify(len(self._waiting))
