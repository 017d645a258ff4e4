"""Cut anywhere: a boundary of each kind at every event, alone and then several at once (K34).

The first cases are systematic: for each story of each log a chunk that ends before each event, a
batch (and so a get) that does, gets of each small size, a run that ends after each transaction, a
kill at each fault point, each small ring of each kind of store, and segments of executors. Those
behind them are random: a few cuts of any kind at once.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.campaigns.cut_anywhere.player import ALL, Player, Story, measured
from tests.campaigns.frame import Campaign, Case, Play

# Not `spill`: what is raised there breaks the store's own accounts, which a real kill would not.
_KILLS: Final = (
    "put", "staging", "parking", "before_record", "after_record", "between_merges",
    "before_cut", "before_cursor", "before_ack",
)  # fmt: skip
_KINDS: Final = ("memory", "file", "mixed")
_RINGS: Final = (2, 4, 8, 16, 64)


def _ring(kind: str, events: int, *, mode: str = "itemsize") -> Case:
    return [
        ["set", "store.kind", kind],
        ["set", "store.ring_events", events],
        ["set", "store.batch_mode", mode],
    ]


def _systematic(log: str, name: str, story: Story) -> Iterator[Case]:
    play = ["play", log, name]
    for count in range(1, story.transactions):
        yield [play, ["stop", count]]
        yield [play, ["rebuild", count]]
    for size in (1, 500, 3000):
        for wave in (1, 1000, 1 << 20):
            yield [play, ["segments", size, wave]]
    for kind in _KINDS:
        for events in _RINGS:
            yield [play, *_ring(kind, events, mode="memsize")]
    if name == ALL:  # each event belongs to a story
        return
    for kind in _KINDS:
        for events in _RINGS:
            yield [play, *_ring(kind, events, mode="itemsize")]
            yield [play, *_ring(kind, events, mode="itemsize"), ["set", "batch.merge_rows", 1]]
    for at in range(len(story.places)):
        yield [play, ["chunk", at]]
        yield [play, ["chunk", at], ["short", 0]]
    for at in range(1, story.events):
        yield [play, ["batch", at]]
    for size in (1, 2, 3, 5, 7, 11, 19, 37):
        for first in {1, size // 2, size} - {0}:
            yield [play, *(["get", at] for at in range(first, story.events, size))]
    for size in (32, 64, 200, 1000):
        yield [play, ["chunk_bytes", size]]
        yield [play, ["chunk_bytes", size], *_ring("mixed", 2)]
    for point in _KILLS:
        for occurrence in (1, 2, 4):
            yield [play, ["kill", point, occurrence]]
            # Small batches reach the points of one more often.
            yield [play, ["kill", point, occurrence], ["set", "batch.merge_rows", 2],
                   *_ring("mixed", 4)]  # fmt: skip


def _random(chance: random.Random, log: str, name: str, story: Story) -> Case:
    case: Case = [["play", log, name]]
    if chance.random() < 0.5:
        case += _ring(
            chance.choice(_KINDS),
            chance.choice(_RINGS),
            mode=chance.choice(("itemsize", "memsize")),
        )
    kinds = chance.sample(
        ("chunk", "chunk", "get", "batch", "stop", "kill", "rebuild", "segments", "set"), 3
    )
    for kind in kinds:
        for _ in range(chance.randint(1, 3)):
            case += _cut(chance, kind, story)
    return case


def _cut(chance: random.Random, kind: str, story: Story) -> Case:
    if kind == "chunk":
        return [["chunk", chance.randrange(len(story.places))]]
    if kind in ("get", "batch"):
        return [[kind, chance.randrange(1, story.events)]]
    if kind in ("stop", "rebuild"):
        return [[kind, chance.randint(1, max(1, story.transactions // 2))]]
    if kind == "kill":
        return [["kill", chance.choice(_KILLS), chance.randint(1, 8)]]
    if kind == "segments":
        return [["segments", chance.choice((1, 500, 3000)), chance.choice((1, 1000, 1 << 20))]]
    setting, values = chance.choice(
        (
            ("batch.merge_rows", (1, 2, 5)),
            ("batch.get_bytes", (1, 300, 2000)),
            ("store.memory_unit_bytes", (1, 100)),
        )
    )
    return [["set", setting, chance.choice(values)]]


@functools.cache
def _cases() -> list[Case]:
    stories = measured()
    return [
        case
        for (log, name), story in sorted(stories.items())
        # Without GTIDs the events are the same; what only such a log has is played.
        if log != "mysql-anonymous" or name == ALL or ("mysql", name) not in stories
        for case in _systematic(log, name, story)
    ]


@functools.cache
def _order(seed: int) -> list[int]:
    return random.Random(seed).sample(range(len(_cases())), len(_cases()))


def case(seed: int, number: int) -> Case:
    """A systematic case as long as there are any, those of each seed in an order of its own."""
    cases = _cases()
    if number < len(cases):
        return cases[_order(seed)[number]]
    chance = random.Random(f"{seed} {number}")
    stories = sorted(measured().items())
    # All stories at once cost as much as all of them.
    weights = [1 if name == ALL else 8 for (_log, name), _story in stories]
    ((log, name), story) = chance.choices(stories, weights)[0]
    return _random(chance, log, name, story)


def cases_max(seed: int) -> int:
    """Every systematic case, and a quarter as many random ones."""
    return len(_cases()) * 5 // 4


def simpler(choice: Any) -> Iterator[Any]:
    """One story instead of all; earlier places and smaller numbers."""
    if choice[0] == "play" and choice[2] == ALL:
        for log, name in sorted(measured()):
            if log == choice[1] and name != ALL:
                yield ["play", log, name]
    elif choice[0] == "kill" and choice[2] > 1:
        yield [*choice[:2], 1]


@contextmanager
def opened(folder: Path) -> Iterator[Play]:
    yield Player(folder).play


CAMPAIGN = Campaign("cut_anywhere", case, opened, simpler, cases_max)
