"""Play one cell of the matrix against a real server, and compare it with its decision."""

from __future__ import annotations

import random
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cdc_pipeline.errors import CdcError
from tests.campaigns.server_history.decisions import (
    Decision,
    GoesOn,
    Impossible,
    OneOf,
    Refused,
    Told,
    Unseen,
    Waits,
    WayOut,
)
from tests.campaigns.server_history.matrix import Row
from tests.campaigns.server_history.world import Place, Positions, Rows, World

_RUNS_AGAIN: Final = 4
_SAID: Final[dict[WayOut, str]] = {
    "again": "run again",
    "snapshot": "cursor set shop --from latest.*snapshot shop --restart",
    "rebuild": "cursor set (shop|SOURCE) --from latest.*backfill (shop|SOURCE) --table.*--rebuild",
    "accept": "accept.unproved_journal_ends",
    "file": "(put|copy) .*(back|again|into)",
    "purge": "PURGE BINARY LOGS TO",
    "verify": "run again.*cdc-pipeline verify",
    "cut": "truncate --size",
    "setting": "SET GLOBAL gtid_mode = '.*' and run again",
    "live": "source.kind: live.*snapshot (shop|SOURCE) --restart",
}
"""What an error says of each, as a regular expression."""


@dataclass(frozen=True)
class Played:
    """How a cell ended. `ended`: in a few words; `finding`: what is not as the matrix has it; empty
    if nothing is. `error`: what the run was refused with.
    """

    ended: str
    finding: str
    took_s: float
    error: CdcError | None = None


def play(row: Row, positions: Positions, place: Place, *, seed: int) -> Played:
    decision = row.decision(positions, place)
    assert not isinstance(decision, Impossible)
    began_s = time.monotonic()
    with _happened(row, positions, place, seed) as (world, before):
        try:
            reasons = world.capture()
        except CdcError as error:
            finding = _refused(decision, error, world)
            ended = f"refused: {error.code()}"
            return Played(ended, finding, time.monotonic() - began_s, error)
        ended, finding = _went_on(decision, world, before, reasons)
    return Played(ended, finding, time.monotonic() - began_s)


@contextmanager
def _happened(
    row: Row, positions: Positions, place: Place, seed: int
) -> Iterator[tuple[World, Rows]]:
    chance = random.Random(f"{seed} {row.name} {positions} {place}")
    with (
        tempfile.TemporaryDirectory(prefix="cdc-history-") as home,
        World(positions, place, Path(home) / "world", chance) as world,
    ):
        world.settle()
        world.archive_copies()
        world.capture()
        assert world.lake_rows() == world.server_rows(), "before anything happened"
        history = row.event(world)
        next(history)
        if world.changes_before:
            world.change()
        world.settle()
        world.archive_copies()
        world.run()
        if not world.lags:
            assert world.lake_rows() == world.server_rows(), "before it happened"
        world.fail_over()
        next(history, None)
        if world.changes_after:
            world.change()
        world.archive_copies()
        yield world, world.lake_rows()


def _went_on(
    decision: Decision, world: World, before: Rows, reasons: tuple[str, ...]
) -> tuple[str, str]:
    if isinstance(decision, OneOf):
        ended = [_went_on(one, world, before, reasons) for one in decision.decisions]
        return min(ended, key=lambda one: one[1])
    rows = world.lake_rows()
    if rows == world.server_rows():
        world.change()
        world.archive_copies()
        world.capture()
        if world.lake_rows() != world.server_rows():
            return "goes on", "the run after it has other rows than the server"
        return "goes on", "" if isinstance(decision, GoesOn) else f"is not {decision}"
    if rows == before and isinstance(decision, Waits):
        return "waits", ""
    if isinstance(decision, Told):
        told = any(decision.says in reason for reason in reasons)
        return "goes on and says so", "" if told else f"silent: {reasons}"
    if isinstance(decision, Unseen):
        return "goes on unseen", ""
    return "goes on unseen", f"other rows than the server's, and no error: {reasons}"


def _refused(decision: Decision, error: CdcError, world: World) -> str:
    if isinstance(decision, OneOf):
        refused = [one for one in decision.decisions if type(error) is getattr(one, "error", None)]
        return _refused(refused[0], error, world) if refused else f"refused: {error}"
    if not isinstance(decision, Refused) or type(error) is not decision.error:
        return f"refused: {error}"
    if not decision.ways_out:
        return "" if error.next_step else f"no next step: {error}"
    for way in decision.ways_out:
        if not re.search(_SAID[way], str(error.next_step)):
            return f"the next step does not say {_SAID[way]}: {error}"
        try:
            _WAYS[way](world, error)
            return ""
        except CdcError as later:
            error = later
        except AssertionError as wrong:
            return f"{way}: {wrong}"
    return f"the ways out {decision.ways_out} end with: {error}"


def _check_equal(world: World) -> None:
    world.archive_copies()
    world.capture()
    assert world.lake_rows() == world.server_rows(), "other rows than the server's"


def _again(world: World, _error: CdcError) -> None:
    for left in reversed(range(_RUNS_AGAIN)):
        try:
            _check_equal(world)
            return
        except CdcError as error:
            if not left or not error.retryable:
                raise


def _snapshot(world: World, _error: CdcError) -> None:
    world.set_cursor()
    world.change()
    world.snapshot_again()
    _check_equal(world)


def _rebuild(world: World, _error: CdcError) -> None:
    world.set_cursor()
    world.rebuild()
    world.change()
    _check_equal(world)


def _accept(world: World, error: CdcError) -> None:
    assert error.journal is not None
    world.accept(error.journal)
    _check_equal(world)


def _file(world: World, _error: CdcError) -> None:
    world.bring_back()
    _check_equal(world)


def _purge(world: World, _error: CdcError) -> None:
    world.forget_lost_journals()
    _check_equal(world)


def _verify(world: World, _error: CdcError) -> None:
    world.capture()  # verify itself takes Spark


def _cut(world: World, error: CdcError) -> None:
    assert error.journal is not None
    assert error.offset is not None
    world.copies = False
    with (world.archive / error.journal).open("r+b") as copy:
        copy.truncate(error.offset)
    world.capture()


def _live(world: World, error: CdcError) -> None:
    world.read_live()
    _snapshot(world, error)


def _setting(world: World, error: CdcError) -> None:
    mode = world.server.variable("gtid_mode")
    named = re.search(r"SET GLOBAL gtid_mode = '\w+'", str(error.next_step))
    assert named is not None
    world.server.execute(named[0])
    world.clock.move(60)  # without GTIDs another server is read on from a later time
    world.change()
    world.capture()
    world.server.execute(f"SET GLOBAL gtid_mode = '{mode}'")
    world.change()
    _check_equal(world)


_WAYS: Final[dict[WayOut, Callable[[World, CdcError], None]]] = {
    "again": _again,
    "snapshot": _snapshot,
    "rebuild": _rebuild,
    "accept": _accept,
    "file": _file,
    "purge": _purge,
    "verify": _verify,
    "cut": _cut,
    "live": _live,
    "setting": _setting,
}
