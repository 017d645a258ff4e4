"""Random workloads against the whole pipeline: ``python -m tests.campaigns.sink [--packs N] [--seed
S] [--sql] ...``.

Each pack is one seed: its tables, transactions and DDL. Packs share a pipeline by groups; the
flavors take turns. Every cut of every lake is compared with the server's SELECT at the cut's place.
Exits with 1 where they differ; each finding names the seed and the command that plays it alone.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tests.campaigns.sink.capabilities import KINDS
from tests.campaigns.sink.group import Group, choose_way
from tests.campaigns.sink.shrink import shrink
from tests.campaigns.sink.spark_settings import LONG_RUN
from tests.campaigns.sink.workload import Size
from tests.servers import Flavor, Server


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.sink", description=__doc__)
    parser.add_argument("--packs", type=int, default=200, help="how many seeds")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--group", type=int, default=15, help="seeds that share a pipeline")
    parser.add_argument("--steps", type=int, default=Size.steps)
    parser.add_argument(
        "--changes", type=int, default=Size.changes_max, help="DDL in a step, at most"
    )
    parser.add_argument("--flavor", choices=get_args(Flavor), help="one server only")
    parser.add_argument("--kinds", nargs="*", help=f"kinds of DDL, of {' '.join(sorted(KINDS))}")
    parser.add_argument(
        "--kill",
        action="store_true",
        help="captures in processes of their own that kill themselves",
    )
    parser.add_argument("--sql", action="store_true", help="print the SQL of the packs")
    parser.add_argument(
        "--shrink", action="store_true", help="shrink a finding to the statements that it needs"
    )
    parser.add_argument("--keep", type=Path, help="leave the lakes in this folder")
    parser.add_argument(
        "--log",
        type=Path,
        help="a line for each group; groups that ended here well are not run again",
    )
    options = parser.parse_args()
    console = Console(stderr=True)
    started, findings, totals = time.monotonic(), 0, Counter[str]()
    with ExitStack() as stack, Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
        console=console
    ) as progress:  # fmt: skip
        folder = options.keep or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="cdc-torture-"))
        )
        servers: dict[Flavor, Server] = {}
        task = progress.add_task("packs", total=options.packs)
        done = _done(options)
        for flavor, seeds in _groups(options):
            if _name(flavor, seeds, options) in done:
                progress.update(task, advance=len(seeds))
                continue
            if flavor not in servers:
                servers[flavor] = stack.enter_context(Server(flavor))
            of_group, cpu_s = Counter[str](), _jvm_cpu_s()
            found = _play(
                flavor,
                seeds,
                servers[flavor],
                folder / f"{flavor}-{seeds[0]}",
                options,
                of_group,
                progress,
            )
            findings += found
            totals += of_group
            _log(
                flavor,
                seeds,
                options,
                findings=found,
                totals=of_group,
                jvm_cpu_s=_jvm_cpu_s() - cpu_s,
            )
            progress.update(task, advance=len(seeds), description=f"packs ({findings} findings)")
    for name, count in totals.most_common():
        print(f"{count:8}  {name}")
    print(f"{_jvm_cpu_s():8.0f}  CPU-seconds of the JVM, {time.process_time():.0f} of Python")
    print(f"{findings} findings in {time.monotonic() - started:.0f} s")
    return 1 if findings else 0


def _jvm_cpu_s() -> float:
    """CPU-seconds of this process' JVM so far; 0 where it has none."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    if gateway is None:
        return 0.0
    fields = (
        Path(f"/proc/{gateway.proc.pid}/stat")
        .read_text(encoding="utf-8")
        .rpartition(")")[2]
        .split()
    )
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _name(flavor: Flavor, seeds: list[int], options: argparse.Namespace) -> str:
    """What a group does, in one text."""
    kinds = "" if options.kinds is None else f" --kinds {' '.join(options.kinds)}"
    return (
        f"--flavor {flavor} --seed {seeds[0]} --packs {len(seeds)} --group {len(seeds)} --steps "
        f"{options.steps} --changes {options.changes}{kinds}{' --kill' if options.kill else ''}"
    )


def _done(options: argparse.Namespace) -> set[str]:
    """The groups that ended without a finding, by the log."""
    if options.log is None or not options.log.exists():
        return set()
    lines = map(json.loads, options.log.read_text(encoding="utf-8").splitlines())
    return {line["group"] for line in lines if not line["findings"]}


def _log(
    flavor: Flavor,
    seeds: list[int],
    options: argparse.Namespace,
    *,
    findings: int,
    totals: Counter[str],
    jvm_cpu_s: float,
) -> None:
    if options.log is not None:
        line = {
            "group": _name(flavor, seeds, options),
            "findings": findings,
            "jvm_cpu_s": round(jvm_cpu_s),
            **totals,
        }
        with options.log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


def _groups(options: argparse.Namespace) -> Iterator[tuple[Flavor, list[int]]]:
    flavors: list[Flavor] = [options.flavor] if options.flavor else list(get_args(Flavor))
    seeds = range(options.seed, options.seed + options.packs)
    for number, first in enumerate(range(0, len(seeds), options.group)):
        yield flavors[number % len(flavors)], list(seeds[first : first + options.group])


def _play(
    flavor: Flavor,
    seeds: list[int],
    server: Server,
    folder: Path,
    options: argparse.Namespace,
    totals: Counter[str],
    progress: Progress,
) -> int:
    kinds = frozenset(options.kinds) if options.kinds is not None else KINDS
    folder.mkdir(parents=True, exist_ok=True)
    group = Group(
        server,
        seeds,
        folder,
        LONG_RUN,
        size=replace(Size(), steps=options.steps, changes_max=options.changes),
        kinds=kinds,
    )
    if options.kill:
        from tests.campaigns.sink.killing import KilledRuns

        group.way = replace(group.way or choose_way(group.choose), crashes=False)
        group.run = KilledRuns(folder)
    show = progress.console.print
    try:
        verdict = group.play()
    except Exception as error:
        show(
            f"[red]{flavor}, seeds {seeds[0]} to {seeds[-1]}: {type(error).__name__}[/red]",
            markup=True,
        )
        show("".join(traceback.format_exception(error)[-12:]), markup=False)
        _reproduce(flavor, seeds, options, show)
        return 1
    finally:
        if options.sql:
            for seed, sql in group.executor.script:
                print(f"/* {seed} */ {sql};")
        group.drop()
    for pack in group.packs:
        totals.update(f"DDL {kind}" for kind in pack.changes)
    totals.update(
        {
            "statements": group.executor.taken,
            "refused by the server": group.executor.refused,
            "cuts": verdict.cuts,
            "tables compared at cuts": verdict.compared,
        }
    )
    totals.update({f"compared as {mode}": count for mode, count in verdict.modes.items()})
    totals.update({f"stop: {what[:150]}": count for what, count in verdict.stops.items()})
    failed: dict[str, str] = {}
    for finding in verdict.findings:
        failed.setdefault(finding.table, str(finding))
    for text in failed.values():
        show(f"{flavor}, way {group.way}", markup=False)
        show(text, markup=False)
    if failed:
        _reproduce(flavor, seeds, options, show)
        if options.shrink:
            table = next(iter(failed))
            show(shrink(group, table, folder / "shrunk"), markup=False)
    return len(failed)


def _reproduce(flavor: Flavor, seeds: list[int], options: argparse.Namespace, show: object) -> None:
    assert callable(show)
    show(
        f"again: python -m tests.campaigns.sink {_name(flavor, seeds, options)} --shrink",
        markup=False,
    )


if __name__ == "__main__":
    sys.exit(main())
