"""Random workloads with random DDL against the whole pipeline.

Each pack is one seed: its tables, transactions and DDL. Packs of a case share a pipeline, which
each engine plays into a lake of its own; the flavors take turns. Every cut of every lake is
compared with the server's SELECT at the cut's place, and every commit with Delta's protocol.
With ``shrink=true`` a finding says which statements it needs, with ``sql=true`` all are printed;
with ``kill=true`` captures are processes of their own that kill themselves. A case of
``engine=auto group=1`` takes seconds.
"""

from __future__ import annotations

import shutil
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
    least,
    named,
)
from tests.campaigns.sink.capabilities import KINDS
from tests.campaigns.sink.group import Group, Way
from tests.campaigns.sink.killing import killed_runs
from tests.campaigns.sink.spark_settings import LONG_RUN
from tests.campaigns.sink.workload import Pack, Size
from tests.servers import Server

TRIALS_MAX = 40


class Script(Pack):
    def play(self, statements: list[str]) -> None:
        executor = self._executor
        open_transaction = False
        for sql in statements:
            word = sql.split(None, 1)[0].upper()
            executor.try_sql(sql)
            if word == "BEGIN":
                open_transaction = True
            elif word in ("COMMIT", "ROLLBACK") and " TO " not in sql:
                open_transaction = False
            if not open_transaction and word != "SET":
                executor.note(*((self.database, name) for name in executor.names_in(self.database)))
        executor.try_sql("COMMIT")
        executor.note(*((self.database, name) for name in executor.names_in(self.database)))


def _shrunk(group: Group, table: str, folder: Path) -> str:
    """The fewest statements found that still give a finding for the pack of `table`, as a
    script."""
    database = table.split(".", 1)[0]
    seed = next(pack.seed for pack in group.packs if pack.database == database)
    statements = [sql for owner, sql in group.executor.script if owner == seed]
    found = ""
    assert group.way is not None
    way = replace(group.way, stepwise=False, archive=False, runs=1, crashes=False)

    def fails(chosen: list[str]) -> bool:
        nonlocal found
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        finding = _trial(group, seed, chosen, folder, way)
        found = finding or found
        return bool(finding)

    if not fails(statements):
        return (
            f"seed {seed} alone does not show it: more than its own statements or the way of "
            "capturing is needed"
        )
    statements = least(statements, fails, plays_max=TRIALS_MAX)
    script = "\n".join(f"    {sql};" for sql in statements)
    return f"shrunk to {len(statements)} statements:\n{script}\n  gives: {found}"


def _trial(group: Group, seed: int, statements: list[str], folder: Path, way: Way) -> str:
    trial = Group(
        group.server, [seed], folder, group.spark, size=group.size, kinds=group.kinds, way=way
    )
    trial.drop()
    try:
        trial.server.flush_journal()
        trial.start = trial.server.end_position()
        script = Script(seed, trial.executor, size=group.size)
        trial.packs = [script]
        script.play(statements)
        trial.capture_all()
        findings = trial.verify().findings
        return str(findings[0]) if findings else ""
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        trial.executor.close()
        trial.drop()


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
    engine: str,
    kill: bool,
    sql: bool,
    shrink: bool,
) -> Counter[str]:
    size = replace(Size(), steps=steps, changes_max=changes)
    group = Group(server, seeds, folder, LONG_RUN, size=size, kinds=frozenset(kinds))
    assert group.way is not None
    group.way = replace(group.way, engines=named(engine, group.way.engines))
    if kill:
        group.way = replace(group.way, crashes=False)
        group.run = killed_runs
    try:
        verdict = group.play()
        findings = list({finding.table: finding for finding in reversed(verdict.findings)}.values())
        if findings:
            text = "\n".join([*map(str, findings), f"way {group.way}"])
            least = _shrunk(group, findings[0].table, folder / "shrunk") if shrink else ""
            raise AssertionError(f"{text}\n{least}")
    finally:
        for seed, statement in group.executor.script if sql else ():
            print(f"/* {seed} */ {statement};")
        group.drop()
    totals = Counter(f"DDL {kind}" for pack in group.packs for kind in pack.changes)
    totals["statements"] = group.executor.taken
    totals["refused by the server"] = group.executor.refused
    totals.update({f"kills, engine {engine}": count for engine, count in group.kills.items()})
    totals["cuts"] = verdict.cuts
    totals["tables compared at cuts"] = verdict.compared
    totals.update({f"compared as {mode}": count for mode, count in verdict.modes.items()})
    totals.update({f"changes {what[:150]}": count for what, count in verdict.changes.items()})
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
        "engine": "",
        "kill": False,
        "sql": False,
        "shrink": False,
    },
    budget="14",
    processes_max=1,
    shrink_plays_max=0,
    on_disk=True,
)
