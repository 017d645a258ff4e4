"""Clocks of server and pipeline that jump, each by itself, in many histories; see `history.py` for
what happens in one and what must hold. The first case with ``spark=true`` is a lake on disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.campaigns.clocks.sets import HISTORIES_OF_A_SET, play_set, play_spark
from tests.campaigns.frame import SERVERS, Campaign, Case, Play, flavors


def _case(seed: int, number: int, *, flavor: str, spark: bool) -> Case:
    if spark and not number:
        return [["spark"]]
    chosen = flavors(flavor)
    set_number, which = divmod(number - spark, len(chosen))
    first = seed * 1000 + set_number * HISTORIES_OF_A_SET
    return [["server", chosen[which]], *range(first, first + HISTORIES_OF_A_SET)]


@contextmanager
def _opened(_folder: Path) -> Iterator[Play]:
    def play(case: Case) -> Counter[str]:
        if case == [["spark"]]:
            print(play_spark(), end="", flush=True)
            return Counter()
        server = next((choice[1] for choice in case if isinstance(choice, list)), "mysql")
        counts: Counter[str] = Counter()
        histories = [choice for choice in case if isinstance(choice, int)]
        for played in play_set(server, histories) if histories else ():
            assert not played.finding, f"{played.finding}\n{played.trace}"
            counts += played.counts
        return counts

    yield play


CAMPAIGN = Campaign(
    "clocks",
    _case,
    _opened,
    case_s_max=1800,
    needs=(*SERVERS, "C compiler"),
    options={"flavor": "", "spark": False},
    budget="8",
    processes_max=2,
    shrink_plays_max=8,
)
