"""Whether a play through a store that does one thing wrong ended as it must.

A play ends in bounded time, with a lake that is right or with an error that is retryable and names
no secret. The next play, without a fault, ends with a lake that is right, as soon as a lease that
could not be given back has expired.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from cdc_pipeline.errors import LockError
from cdc_pipeline.position.cursor import CursorStore, MemoryCursorStore
from tests.campaigns.network.judge import Ended, ended_as
from tests.campaigns.objects.faulty_store import Fault, FaultyStore, faults
from tests.campaigns.objects.story import new_lake
from tests.cluster.daemon import Daemon
from tests.cluster.gateway import Gateway
from tests.support.object_store_server import SECRET

LATE_S: Final = 0.3


class Plays(Protocol):
    @property
    def lease_s(self) -> float:
        """How long a lease of its lakes lasts."""

    def play(self, lake: str, endpoint: str, cursors: CursorStore) -> None:
        """Play it; a later call goes on from what is there."""

    def wrong(self, lake: str, endpoint: str, cursors: CursorStore) -> str:
        """What is not as it must be."""


class Judge:
    """Plays a story through faults, each into a lake of its own. `requests`: those of a play
    without a fault. Raises AssertionError: the lake is wrong after a play without a fault.
    """

    def __init__(self, story: Plays, gateway: Gateway) -> None:
        self._story, self._gateway = story, gateway
        lake, cursors = new_lake(gateway.store.bucket), MemoryCursorStore()
        with FaultyStore(gateway.store.endpoint) as store:
            story.play(lake, store.endpoint, cursors)
            wrong = story.wrong(lake, store.endpoint, cursors)
            assert not wrong, wrong
        self.requests = store.requests

    def faults(self, count: int, seed: int) -> list[Fault]:
        return faults(count, self.requests, random.Random(seed))

    def judge(self, fault: Fault) -> Ended:
        lake, cursors = new_lake(self._gateway.store.bucket), MemoryCursorStore()
        with (
            _running_again(self._gateway.daemon),
            FaultyStore(
                self._gateway.store.endpoint,
                fault,
                late_s=self._story.lease_s if fault.kind == "away" else LATE_S,
                stop=lambda: _stop_for_a_while(self._gateway.daemon, self._story.lease_s),
            ) as store,
        ):

            def play() -> str:
                self._story.play(lake, store.endpoint, cursors)
                return self._story.wrong(lake, self._gateway.store.endpoint, cursors)

            outcome, finding = ended_as(play, secret=SECRET)
            happened = store.happened.is_set()
        return Ended(fault, happened, outcome, finding or self._goes_on(lake, cursors))

    def _goes_on(self, lake: str, cursors: CursorStore) -> str:
        return goes_on(self._story, lake, self._gateway.store.endpoint, cursors)


def goes_on(story: Plays, lake: str, endpoint: str, cursors: CursorStore) -> str:
    try:
        unlocked(lambda: story.play(lake, endpoint, cursors), wait_s=2 * story.lease_s + 10)
    except Exception as error:
        return f"the next run fails: {type(error).__name__}: {error}"
    return story.wrong(lake, endpoint, cursors)


def unlocked(play: object, *, wait_s: float) -> None:
    """Call `play` until no other writer has the lease; raise LockError if that takes too long."""
    end_s = time.monotonic() + wait_s
    while True:
        try:
            play()  # type: ignore[operator]
        except LockError:
            if time.monotonic() > end_s:
                raise
            threading.Event().wait(0.1)
        else:
            return


def _stop_for_a_while(daemon: Daemon, stopped_s: float) -> None:
    os.killpg(daemon.group, signal.SIGSTOP)
    again = threading.Timer(stopped_s, os.killpg, (daemon.group, signal.SIGCONT))
    again.daemon = True
    again.start()


@contextmanager
def _running_again(daemon: Daemon) -> Iterator[None]:
    try:
        yield
    finally:
        os.killpg(daemon.group, signal.SIGCONT)
