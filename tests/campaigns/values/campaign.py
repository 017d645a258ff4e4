"""MODIFY of every pair of types on both servers, against the decisions (`pairs.py`).

A case is one type, altered to every other; the last ones are each server's charsets. Tables are
MyISAM's: InnoDB takes three times as long, and what becomes of values is decided above the engines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.campaigns.frame import SERVERS, Campaign, Case, OnDemand, Play, flavors
from tests.campaigns.values.pairs import Pairs, Report, drawn_samples
from tests.servers import Flavor, Server

_CHARSETS = "charsets"


def _cells(seed: int, *, flavor: str, types: int, engine: str, untouched: bool) -> Case:
    chosen = flavors(flavor)
    about = [seed, types, engine, untouched]
    samples = {name: [*drawn_samples(name, seed, types)] for name in chosen}
    longest = max(map(len, samples.values()))
    cells = [
        [name, samples[name][number].declared, *about]
        for number in range(longest)
        for name in chosen
        if number < len(samples[name])
    ]
    return [*cells, *([name, _CHARSETS, *about] for name in chosen)]


def _case(seed: int, number: int, **options: Any) -> Case:
    return [_cells(seed, **options)[number]]


def _cases(seed: int, **options: Any) -> int:
    return len(_cells(seed, **options))


@contextmanager
def _opened(_folder: Path) -> Iterator[Play]:
    @contextmanager
    def pairs_of(flavor: Flavor, seed: int, types: int, engine: str) -> Iterator[Pairs]:
        server = servers.get(flavor)
        server.execute_all("DROP DATABASE IF EXISTS d", "CREATE DATABASE d DEFAULT CHARSET utf8mb4")
        yield Pairs(server, "d", seed=seed, types=types, engine=engine)

    def play(case: Case) -> Counter[str]:
        counts: Counter[str] = Counter()
        for flavor, declared, seed, types, engine, untouched in case:
            pairs = opened.get(flavor, seed, types, engine)
            pairs.report = report = Report()
            if declared == _CHARSETS:
                pairs.alter_charsets()
            else:
                pairs.alter(declared)
            for old, new in sorted(report.untouched) if untouched else ():
                print(f"{flavor}: {old} -> {new} needs a reload, and no value changed", flush=True)
            assert not report.findings, "\n".join(report.findings)
            counts += report.figures
            counts["pairs that need a reload for nothing"] += len(report.untouched)
        return counts

    with (
        OnDemand(lambda flavor: Server(flavor, {"binlog_row_metadata": "FULL"})) as servers,
        OnDemand(pairs_of) as opened,
    ):
        yield play


CAMPAIGN = Campaign(
    "values",
    _case,
    _opened,
    cases_max=_cases,
    case_s_max=7200,
    needs=SERVERS,
    options={"flavor": "", "types": 0, "engine": "MyISAM", "untouched": False},
    budget="all",
    shrink_plays_max=0,
)
