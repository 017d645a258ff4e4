"""A campaign of `tests.campaigns.frame`.

``python -m tests.campaigns NAME [--seed S] [--budget CASES|MINUTESm|all] [--processes N]``, and one
case of it alone: ``--case NUMBER``, or ``--choices JSON`` as a finding prints it.

Exits with 1 if anything was found.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence

from tests.campaigns import frame


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns", description=__doc__)
    parser.add_argument("name", help="the folder of the campaign in tests/campaigns")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--budget", type=frame.Budget.parse, default=frame.Budget.parse("1m"))
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--case", type=int, help="only the case of this number")
    parser.add_argument("--choices", type=json.loads, help="only this case, as JSON")
    options = parser.parse_args(arguments)
    campaign = frame.campaign_of(options.name)
    if options.case is not None or options.choices is not None:
        case = options.choices
        if case is None:
            case = campaign.case(options.seed, options.case)
        print(json.dumps(case))
        with frame.played(campaign) as play:
            told, counts = frame.judged(play, case)
        print(told or f"no finding: {dict(counts)}")
        return 1 if told else 0
    report = frame.run(
        campaign,
        seed=options.seed,
        budget=options.budget,
        processes=options.processes,
        tell=lambda line: print(line, flush=True),
    )
    print(report.text())
    return 1 if report.findings else 0


if __name__ == "__main__":
    sys.exit(main())
