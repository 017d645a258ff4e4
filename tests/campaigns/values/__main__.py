"""MODIFY of every pair of types on both servers, against the decisions.

``python -m tests.campaigns.values [--seed S]``.

Exits with 1 where a value that was said to be certain is not the server's.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from tests.campaigns.values.campaign import Campaign, Report
from tests.campaigns.values.domain import SAMPLES
from tests.servers import Flavor, Server

FINDINGS_SHOWN = 200


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.values", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of the random values")
    parser.add_argument(
        "--types", type=int, help="how many types, drawn by the seed; all by default"
    )
    parser.add_argument("--flavor", choices=("mysql", "mariadb"), help="one server only")
    parser.add_argument(
        "--engine", default="MyISAM", help="of the tables; InnoDB takes three times as long"
    )
    parser.add_argument(
        "--untouched", action="store_true", help="list pairs that need a reload for nothing"
    )
    options = parser.parse_args()
    flavors: list[Flavor] = [options.flavor] if options.flavor else ["mysql", "mariadb"]
    started = time.monotonic()
    told = Counter[str]()
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with (
        Progress(*columns, console=Console(stderr=True)) as progress,
        ThreadPoolExecutor(len(flavors)) as pool,
    ):

        def play(flavor: Flavor) -> Report:
            task = progress.add_task(flavor, total=options.types or len(SAMPLES))
            with Server(flavor, {"binlog_row_metadata": "FULL"}) as server:
                server.execute("CREATE DATABASE d DEFAULT CHARSET utf8mb4")
                campaign = Campaign(
                    server, "d", seed=options.seed, types=options.types, engine=options.engine
                )
                for _ in campaign.run():
                    progress.advance(task)
                    while told[flavor] < len(campaign.report.findings):
                        line = f"{flavor}: {campaign.report.findings[told[flavor]]}"
                        progress.console.print(line, markup=False, highlight=False, soft_wrap=True)
                        told[flavor] += 1
                for _ in campaign.run_charsets():
                    progress.update(task, description=f"{flavor}, charsets")
            return campaign.report

        reports = dict(zip(flavors, pool.map(play, flavors), strict=True))
    for line in _lines(reports, with_untouched=options.untouched):
        sys.stdout.write(line + "\n")
    sys.stdout.write(f"{time.monotonic() - started:.0f} s\n")
    return int(any(report.findings for report in reports.values()))


def _lines(reports: dict[Flavor, Report], *, with_untouched: bool) -> Iterator[str]:
    for flavor, report in reports.items():
        yield f"{flavor}: " + ", ".join(
            f"{name} {count:,}" for name, count in sorted(report.figures.items())
        )
        yield f"{flavor}: findings {len(report.findings)}"
        yield from (f"  {finding}" for finding in report.findings[:FINDINGS_SHOWN])
    untouched = set.intersection(*(report.untouched for report in reports.values()))
    yield f"pairs that need a reload though no value changed on any server: {len(untouched)}"
    if with_untouched:
        yield from (f"  {old} -> {new}" for old, new in sorted(untouched))


if __name__ == "__main__":
    sys.exit(main())
