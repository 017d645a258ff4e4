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
from dataclasses import dataclass
from typing import Final, Protocol

from cdc_pipeline.errors import CdcError, LockError
from cdc_pipeline.position.cursor import CursorStore, MemoryCursorStore
from tests.campaigns.objects.faulty_store import Fault, FaultyStore, faults
from tests.campaigns.objects.story import new_lake
from tests.cluster.daemon import Daemon
from tests.cluster.gateway import Gateway
from tests.support.object_store_server import SECRET

BOUND_S: Final = 60.0
LATE_S: Final = 0.3


@dataclass(frozen=True)
class Ended:
    """How a play with a fault ended.

    Attributes:
        happened: whether the play came to its request.
        outcome: ``equal``, or the code of the error.
        finding: what is not as it must be; empty if nothing is.
    """

    fault: Fault
    happened: bool
    outcome: str
    took_s: float
    finding: str


class Plays(Protocol):
    """What can be played into a lake, and looked at afterwards: see `Story`."""

    @property
    def lease_s(self) -> float:
        """How long a lease of its lakes lasts."""

    def play(self, lake: str, endpoint: str, cursors: CursorStore) -> None:
        """Play it; a later call goes on from what is there."""

    def wrong(self, lake: str, endpoint: str, cursors: CursorStore) -> str:
        """What is not as it must be."""


class Judge:
    """Plays a story through faults, each into a lake of its own.

    Attributes:
        requests: those of a play without a fault.

    Raises:
        AssertionError: the lake is wrong after a play without a fault.
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
        """So many faults of a seed's choice."""
        return faults(count, self.requests, random.Random(seed))

    def judge(self, fault: Fault) -> Ended:
        """Play with a fault, then without."""
        lake, cursors = new_lake(self._gateway.store.bucket), MemoryCursorStore()
        finding, began_s = "", time.monotonic()
        with (
            _running_again(self._gateway.daemon),
            FaultyStore(
                self._gateway.store.endpoint,
                fault,
                late_s=self._story.lease_s if fault.kind == "away" else LATE_S,
                stop=lambda: _stop_for_a_while(self._gateway.daemon, self._story.lease_s),
            ) as store,
        ):
            try:
                outcome = "equal"
                self._story.play(lake, store.endpoint, cursors)
                finding = self._story.wrong(lake, self._gateway.store.endpoint, cursors)
            except CdcError as error:
                outcome, finding = error.code(), wrong_with(error)
            except Exception as error:
                outcome = type(error).__name__
                finding = f"no error of ours: {outcome}: {error}"
            took_s = time.monotonic() - began_s
            happened = store.happened.is_set()
        if took_s > BOUND_S:
            finding = finding or f"took {took_s:.0f} s"
        return Ended(fault, happened, outcome, took_s, finding or self._goes_on(lake, cursors))

    def _goes_on(self, lake: str, cursors: CursorStore) -> str:
        return goes_on(self._story, lake, self._gateway.store.endpoint, cursors)


def wrong_with(error: CdcError) -> str:
    """What is not as it must be with an error that a store's fault has led to."""
    if SECRET in str(error):
        return "the error has the secret"
    return "" if error.retryable else f"not retryable: {error}"


def goes_on(story: Plays, lake: str, endpoint: str, cursors: CursorStore) -> str:
    """Play once more, without a fault; what is wrong then."""
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
    """Stop a server's process, and let it go on after a while."""
    os.killpg(daemon.group, signal.SIGSTOP)
    again = threading.Timer(stopped_s, os.killpg, (daemon.group, signal.SIGCONT))
    again.daemon = True
    again.start()


@contextmanager
def _running_again(daemon: Daemon) -> Iterator[None]:
    """At the end the server's process goes on, if it was stopped."""
    try:
        yield
    finally:
        os.killpg(daemon.group, signal.SIGCONT)
