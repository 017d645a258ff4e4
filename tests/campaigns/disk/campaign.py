"""Every call of a run fails once, the process ends at it, and the power goes at every fault point.

Without a JVM by default: batches are applied by a stand-in for Delta, so that every call can have
its turn. A case is one part, and each `stride`-th call or fault point behind an offset. All cases
of a seed have every call; with Spark, which takes long, a seed has one case for each part.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.campaigns.disk.parts import PARTS, run_part
from tests.campaigns.frame import Campaign, Case, Play, fresh


def _case(seed: int, number: int, *, part: str, spark: bool, stride: int, states: int) -> Case:
    parts = [name for name in PARTS if part in ("", name)]
    offset, which = divmod(number, len(parts))
    return [["part", parts[which], spark, stride, (offset + seed) % stride, seed, states]]


def _cases(_seed: int, *, part: str, spark: bool, stride: int, **_options: object) -> int:
    return sum(part in ("", name) for name in PARTS) * (1 if spark else stride)


@contextmanager
def _opened(folder: Path) -> Iterator[Play]:
    def play(case: Case) -> Counter[str]:
        counts: Counter[str] = Counter()
        for _name, part, spark, stride, offset, seed, states in case:
            with fresh(folder) as home:
                report = run_part(
                    home,
                    part,
                    spark=spark,
                    stride=stride,
                    offset=offset,
                    seed=seed,
                    states=states,
                )
            assert not report.findings, "\n".join(map(json.dumps, report.findings))
            counts[part] += report.cases
        return counts

    yield play


CAMPAIGN = Campaign(
    "disk",
    _case,
    _opened,
    cases_max=_cases,
    case_s_max=7200,
    needs=("C compiler", "jars"),
    options={"part": "", "spark": False, "stride": 16, "states": 10},
    budget="all",
    shrink_plays_max=0,
    on_disk=True,
)
