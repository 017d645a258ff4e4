"""Play a campaign of `tests.campaigns.frame`: ``make campaign NAME=... SEED=... BUDGET=...``.

``python -m tests.campaigns NAME [--seed S] [--budget CASES|MINUTESm|all] [key=value ...]``, and one
case of it alone: ``--case NUMBER``, or ``--choices JSON`` as a finding prints it. Without a name:
all campaigns, with what they need, their budgets and options.

Exits with 1 if anything was found.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence

from tests.campaigns import frame


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns", description=__doc__)
    parser.add_argument("name", nargs="?", choices=frame.names(), metavar="NAME")
    parser.add_argument("options", nargs="*", metavar="key=value")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--budget", type=frame.Budget.parse)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--keep", metavar="FOLDER", help="leave there what plays leave")
    parser.add_argument("--bounds", action="store_true", help="kernels that check bounds")
    parser.add_argument("--case", type=int, help="only the case of this number")
    parser.add_argument("--choices", type=json.loads, help="only this case, as JSON")
    chosen = parser.parse_intermixed_args(arguments)
    if chosen.name is None:
        print("\n".join(_table()))
        return 0
    if chosen.keep:
        os.environ[frame.KEEP] = chosen.keep
    if chosen.bounds:
        frame.check_bounds()
    campaign = frame.campaign_of(chosen.name)
    budget = chosen.budget or frame.Budget.parse(campaign.budget)
    try:
        bound = campaign.with_options(chosen.options)
        bound.case_count(chosen.seed, budget, chosen.first)
        bound.case(chosen.seed, chosen.first)  # an option may name what there is not
    except ValueError as error:
        parser.error(str(error))
    frame.install(campaign)
    if chosen.case is not None or chosen.choices is not None:
        case = chosen.choices
        if case is None:
            case = bound.case(chosen.seed, chosen.case)
        print(json.dumps(case))
        with frame.played(bound) as play:
            finding, counts = frame.judged(play, case)
        print(finding or f"no finding: {dict(counts)}")
        return 1 if finding else 0
    report = frame.run(
        campaign,
        seed=chosen.seed,
        budget=budget,
        processes=chosen.processes,
        options=chosen.options,
        first=chosen.first,
        tell=lambda line: print(line, flush=True),
    )
    print(report.text())
    return 1 if report.findings else 0


def _table() -> Iterator[str]:
    for name in frame.names():
        campaign = frame.campaign_of(name)
        options = " ".join(f"{key}={value}" for key, value in campaign.options.items())
        needs = ", ".join(campaign.needs) or "nothing"
        yield f"{name:15} budget {campaign.budget:5} needs {needs:20} {options}".rstrip()


if __name__ == "__main__":
    sys.exit(main())
