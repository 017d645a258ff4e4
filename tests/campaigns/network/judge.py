"""Faults of a conversation, and whether a play with one of them ended as it must.

A play ends in bounded time, with the rows that the server has or with an error that is retryable
and names no secret. The next play, without a fault, ends with the rows that the server has.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Final

from cdc_pipeline.errors import CdcError
from tests.campaigns.network.conversations import Name, Play, Rows, Shop
from tests.campaigns.network.faulty_proxy import KINDS, Direction, Fault, FaultyProxy
from tests.servers import Server

# A play has a few dozen answers to wait for, each at most a second, and nearly all come at once.
BOUND_S: Final = 60.0


@dataclass(frozen=True)
class Ended:
    """How a play with a fault ended. `happened`: whether the play came to it; `outcome`: ``equal``,
    or the code of the error; `finding`: what is not as it must be; empty if nothing is.
    """

    fault: object
    happened: bool
    outcome: str
    finding: str


def ended_as(play: Callable[[], str], *, secret: str) -> tuple[str, str]:
    """Outcome and finding of a play, which says what is wrong with its rows."""
    outcome, began_s = "equal", time.monotonic()
    try:
        finding = play()
    except CdcError as error:
        outcome, finding = error.code(), "" if error.retryable else f"not retryable: {error}"
        if secret in str(error):
            finding = "the error has the secret"
    except Exception as error:
        outcome = type(error).__name__
        finding = f"no error of ours: {outcome}: {error}"
    took_s = time.monotonic() - began_s
    return outcome, finding or (f"took {took_s:.0f} s" if took_s > BOUND_S else "")


class Conversation:
    """One kind of conversation with one server, and how long its connections are. Raises
    AssertionError: without a fault its rows are not the server's.
    """

    def __init__(self, shop: Shop, name: Name, tls: str, folder: Path) -> None:
        self._shop, self._name, self._tls, self._folder = shop, name, tls, folder
        self._server = shop.server
        self._plays = 0
        self.expected: Rows = shop.rows
        with FaultyProxy((self._server.host, self._server.port)) as proxy:
            assert self._play().run(proxy.port) == self.expected, f"{name} without a fault"
            self.lengths = proxy.sent

    def faults(self, count: int, seed: int) -> list[Fault]:
        """So many faults: each kind in turn, at a boundary of what was sent, or anywhere."""
        chance = random.Random(f"{seed} {self._name} {self._tls} {self._server.flavor}")
        ways: tuple[Direction, ...] = ("to_client", "to_server")
        found = []
        for number in range(count):
            connection = chance.randrange(len(self.lengths))
            way = chance.choice(ways)
            ends = [0, *accumulate(self.lengths[connection][way])]
            at_byte = chance.choice(ends) if chance.random() < 0.5 else chance.randint(0, ends[-1])
            found.append(Fault(KINDS[number % len(KINDS)], connection, way, at_byte))
        return found

    def judge(self, fault: Fault) -> Ended:
        play = self._play()
        with (
            _running_again(self._server),
            FaultyProxy(
                (self._server.host, self._server.port), fault, stop=lambda: _stop(self._server)
            ) as proxy,
        ):
            outcome, finding = ended_as(
                lambda: (
                    ""
                    if play.run(proxy.port) == self.expected
                    else "other rows than the server's, and no error"
                ),
                secret=str(self._shop.source["password"]),
            )
        return Ended(fault, proxy.happened.is_set(), outcome, finding or self._goes_on(play))

    def _goes_on(self, play: Play) -> str:
        try:
            rows = play.run(self._server.port)
        except Exception as error:
            return f"the next run fails: {type(error).__name__}: {error}"
        return "" if rows == self.expected else "the next run's rows are not the server's"

    def _play(self) -> Play:
        self._plays += 1
        folder = self._folder / f"{self._name}-{self._tls}-{self._plays}"
        return Play(self._shop, self._name, self._tls, folder)


def _stop(server: Server) -> None:
    assert server.pid is not None
    os.kill(server.pid, signal.SIGSTOP)


@contextmanager
def _running_again(server: Server) -> Iterator[None]:
    try:
        yield
    finally:
        assert server.pid is not None
        os.kill(server.pid, signal.SIGCONT)
