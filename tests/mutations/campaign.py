"""Each rule that keeps the data right is taken out, and a test must fail.

It is a finding if that test passes without the rule, or does not pass with it. ``spark`` is
``only``, ``none``, or empty for both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tests.campaigns.frame import SERVERS, Campaign, Case, Play
from tests.mutations.rules import MUTATIONS
from tests.mutations.runner import TIMEOUT_S, copied, judge, run_tests


def _chosen(rule: str, spark: str) -> list[int]:
    return [
        number
        for number, mutation in enumerate(MUTATIONS)
        if rule in ("", mutation.rule) and spark in ("", "only" if mutation.spark else "none")
    ]


def _case(_seed: int, number: int, *, rule: str, spark: str) -> Case:
    return [_chosen(rule, spark)[number]]


def _cases(_seed: int, *, rule: str, spark: str) -> int:
    return len(_chosen(rule, spark))


@contextmanager
def _opened(folder: Path) -> Iterator[Play]:
    with copied(folder) as project:

        @cache
        def passes(test: str) -> str:
            code, printed = run_tests(project, test)
            return printed[-3000:] if code else ""

        def play(case: Case) -> Counter[str]:
            counts: Counter[str] = Counter()
            for number in case:
                mutation = MUTATIONS[number]
                about = f"{mutation.rule} {mutation.what} ({mutation.path}) by {mutation.test}"
                failure = passes(mutation.test)
                assert not failure, f"not passed with the rule: {about}\n{failure}"
                outcome = judge(project, mutation)
                assert outcome.killed, f"not seen: {about}: {outcome.what}"
                counts[f"{mutation.rule} seen"] += 1
            return counts

        yield play


CAMPAIGN = Campaign(
    "mutations",
    _case,
    _opened,
    cases_max=_cases,
    case_s_max=2 * TIMEOUT_S + 600,
    needs=(*SERVERS, "jars"),
    options={"rule": "", "spark": ""},
    budget="all",
    processes_max=1,
    shrink_plays_max=0,
    on_disk=True,
)
