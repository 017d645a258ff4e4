"""Random workloads with random DDL against the whole pipeline.

Each pack is one seed: its tables, transactions and DDL. Packs of a case share a pipeline; the
flavors take turns. Every cut of every lake is compared with the server's SELECT at the cut's place.
With ``shrink=true`` a finding says which statements it needs, with ``sql=true`` all are printed;
with ``kill=true`` captures are processes of their own that kill themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.campaigns.frame import (
    SERVERS,
    Campaign,
    Case,
    OnDemand,
    Play,
    distinct,
    flavors,
    fresh,
)
from tests.campaigns.sink import shrink as shrinking
from tests.campaigns.sink.capabilities import KINDS
from tests.campaigns.sink.group import Group, choose_way
from tests.campaigns.sink.killing import KilledRuns
from tests.campaigns.sink.spark_settings import LONG_RUN
from tests.campaigns.sink.workload import Size
from tests.servers import Server


def _case(
    seed: int,
    number: int,
    *,
    flavor: str,
    group: int,
    kinds: str,
    **settings: Any,
) -> Case:
    chosen = flavors(flavor)
    wanted = kinds.split(",") if kinds else sorted(KINDS)
    first = distinct(seed, number * group + 1)
    return [
        ["group", chosen[number % len(chosen)], {**settings, "kinds": wanted}],
        *(["pack", pack] for pack in range(first, first + group)),
    ]


@contextmanager
def _opened(folder: Path) -> Iterator[Play]:
    with OnDemand(Server) as servers:

        def play(case: Case) -> Counter[str]:
            seeds = [choice[1] for choice in case if choice[0] == "pack"]
            if not seeds or case[0][0] != "group":
                return Counter()
            with fresh(folder) as home:
                return _play(servers.get(case[0][1]), seeds, home, **case[0][2])

        yield play


def _play(
    server: Server,
    seeds: list[int],
    folder: Path,
    *,
    steps: int,
    changes: int,
    kinds: list[str],
    kill: bool,
    sql: bool,
    shrink: bool,
) -> Counter[str]:
    size = replace(Size(), steps=steps, changes_max=changes)
    group = Group(server, seeds, folder, LONG_RUN, size=size, kinds=frozenset(kinds))
    if kill:
        group.way = replace(group.way or choose_way(group.choose), crashes=False)
        group.run = KilledRuns(folder)
    try:
        verdict = group.play()
        findings = list({finding.table: finding for finding in reversed(verdict.findings)}.values())
        if findings:
            text = "\n".join([*map(str, findings), f"way {group.way}"])
            least = shrinking.shrink(group, findings[0].table, folder / "shrunk") if shrink else ""
            raise AssertionError(f"{text}\n{least}")
    finally:
        for seed, statement in group.executor.script if sql else ():
            print(f"/* {seed} */ {statement};")
        group.drop()
    totals = Counter(f"DDL {kind}" for pack in group.packs for kind in pack.changes)
    totals["statements"] = group.executor.taken
    totals["refused by the server"] = group.executor.refused
    totals["cuts"] = verdict.cuts
    totals["tables compared at cuts"] = verdict.compared
    totals.update({f"compared as {mode}": count for mode, count in verdict.modes.items()})
    totals.update({f"stop: {what[:150]}": count for what, count in verdict.stops.items()})
    return totals


CAMPAIGN = Campaign(
    "sink",
    _case,
    _opened,
    case_s_max=7200,
    needs=(*SERVERS, "jars"),
    options={
        "flavor": "",
        "group": 15,
        "kinds": "",
        "steps": Size.steps,
        "changes": Size.changes_max,
        "kill": False,
        "sql": False,
        "shrink": False,
    },
    budget="14",
    processes_max=1,
    shrink_plays_max=0,
    on_disk=True,
)
