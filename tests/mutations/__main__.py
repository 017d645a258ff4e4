"""``python -m tests.mutations [--rule K14 ...] [--spark | --no-spark]``: exits with 1 where a rule
can be taken out and its test passes, or where a test does not pass with the rule in place."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.mutations.rules import MUTATIONS, page
from tests.mutations.runner import copied, judge, run_tests


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("--rule", nargs="*", help="these rules alone")
    parser.add_argument(
        "--spark",
        action=argparse.BooleanOptionalAction,
        help="the tests with Spark alone, or without",
    )
    parser.add_argument(
        "--page", action="store_true", help="print tests/mutations/README.md and do nothing else"
    )
    options = parser.parse_args()
    if options.page:
        print(page(), end="")
        return 0
    chosen = [
        one
        for one in MUTATIONS
        if (not options.rule or one.rule in options.rule) and options.spark in (None, one.spark)
    ]
    failed = 0
    with (
        tempfile.TemporaryDirectory(prefix="cdc-mutations-") as folder,
        copied(Path(folder)) as project,
    ):
        code, printed = run_tests(project, *dict.fromkeys(one.test for one in chosen))
        if code:
            failed += 1
            print(f"NOT PASSED with all rules in place: {printed[-3000:]}", flush=True)
        for one in chosen:
            began_s = time.monotonic()
            outcome = judge(project, one)
            failed += not outcome.killed
            word = "seen" if outcome.killed else "NOT SEEN"
            seconds = time.monotonic() - began_s
            told = (
                f"{one.rule:4} {one.what} ({one.path}) by {one.test}: {outcome.what} "
                f"({seconds:.0f} s in all)"
            )
            print(f"{word:8}  {told}", flush=True)
    print(f"{len(chosen)} rules taken out, {failed} problems")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
