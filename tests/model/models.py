"""The models that `make campaign NAME=model` explores, and the rules that are taken out of the
specification.

Each model bounds how often a kind of fault happens; within that, TLC visits every order of steps
and faults.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tests.model.tlc import Value

_NONE: Final[Mapping[str, Value]] = {
    "Crashes": 0,
    "PowerCuts": 0,
    "Failures": 0,
    "Losses": 0,
    "Interventions": 0,
    "Loads": 0,
}
_ONE_RUN: Final = frozenset({"r1"})
_TWO_RUNS: Final = frozenset({"r1", "r2"})


@dataclass(frozen=True, slots=True)
class Model:
    """One exploration.

    Attributes:
        what: what may happen in it.
        is_small: it takes seconds, and runs in the suite.
        is_progress: checks that the log is in the tables in the end, in place of the invariants.
    """

    name: str
    what: str
    constants: Mapping[str, Value] = field(default_factory=dict)
    is_small: bool = False
    is_progress: bool = False


def _disk(batches: int, **faults: int) -> dict[str, Value]:
    return {**_NONE, "Runs": _ONE_RUN, "Store": "disk", "Batches": batches, **faults}


def _store(batches: int, **faults: int) -> dict[str, Value]:
    return {**_NONE, "Runs": _TWO_RUNS, "Store": "object", "Batches": batches, **faults}


MODELS: Final = (
    Model(
        "disk",
        "a kill, a power cut and a target that fails",
        is_small=True,
    ),
    Model(
        "progress",
        "the same: in the end the log is in the tables",
        _disk(6, Crashes=1, PowerCuts=1, Failures=1),
        is_small=True,
        is_progress=True,
    ),
    Model(
        "lease",
        "two runs: a lost lease and a target that fails",
        _store(4, Losses=1, Failures=1),
        is_small=True,
    ),
    Model(
        "two runs",
        "a kill and a lost lease: in the end the log is in the tables",
        _store(7, Crashes=1, Losses=1),
        is_small=True,
        is_progress=True,
    ),
    Model(
        "snapshot",
        "a snapshot: a kill, a target that fails, and a person",
        _disk(4, Crashes=1, Failures=1, Interventions=1, Loads=1),
    ),
    Model(
        "restores",
        "a kill, and two restores by a person",
        _disk(5, Crashes=1, Interventions=2),
    ),
    Model(
        "leases",
        "two runs: a kill, two lost leases and a snapshot",
        _store(4, Crashes=1, Losses=2, Loads=1),
    ),
    Model(
        "all on a disk",
        "a kill, a power cut, a target that fails, and a person",
        _disk(5, Crashes=1, PowerCuts=1, Failures=1, Interventions=1),
    ),
)


@dataclass(frozen=True, slots=True)
class TakenOut:
    """A rule that is taken out of the specification.

    Attributes:
        rule: its name in the specification.
        violated: the invariant that does not hold then.
        constants: of the smallest model that shows it.
    """

    rule: str
    violated: str
    constants: Mapping[str, Value]


TAKEN_OUT: Final = (
    TakenOut("the cursor comes after the cut", "CursorNeverAhead", _disk(3, Crashes=1)),
    TakenOut("commits are durable before the cut", "CutAtomic", _disk(3, PowerCuts=1)),
    TakenOut("torn commits are undone", "CutAtomic", _disk(3, PowerCuts=1)),
    TakenOut(
        "names are made durable under the lock",
        "CursorNeverAhead",
        _disk(3, Crashes=1, PowerCuts=1),
    ),
    TakenOut("a batch has its transaction id", "NoneTwice", _disk(3, Crashes=1)),
    TakenOut("one run holds the lock", "OneWriter", _store(3)),
    TakenOut("the lease is looked at", "OneWriter", _store(3, Losses=1)),
    TakenOut("a record is put if absent", "CutAtomic", _store(3, Crashes=1, Losses=1)),
    TakenOut("what a batch left behind is taken back", "NoneTwice", _disk(4, Failures=1)),
    TakenOut(
        "what a batch left behind is looked for again",
        "NoneTwice",
        _store(4, Losses=1, Failures=1),
    ),
    TakenOut("tables are compared with the cut", "CutAtomic", _disk(4, Interventions=1)),
    TakenOut("a later transaction id is refused", "NoLostChange", _disk(5, Interventions=2)),
    TakenOut(
        "a finished table is as its batch left it",
        "NoLostChange",
        _disk(3, Crashes=1, Interventions=1, Loads=1),
    ),
    TakenOut("a cursor that is ahead stops", "NoLostChange", _disk(4, Interventions=1)),
    TakenOut("a snapshot is swapped in at its own place", "CutAtomic", _disk(4, Loads=1)),
)
