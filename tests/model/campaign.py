"""Every order of steps and faults of the commit protocol, by TLC (`spec/commit.tla`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.campaigns.frame import Campaign, Case, Play
from tests.model.models import MODELS
from tests.model.tlc import check


def _chosen(model: str) -> list[str]:
    return [one.name for one in MODELS if model in ("", one.name)]


def _case(_seed: int, number: int, *, model: str) -> Case:
    return [_chosen(model)[number]]


def _cases(_seed: int, *, model: str) -> int:
    return len(_chosen(model))


@contextmanager
def _opened(_folder: Path) -> Iterator[Play]:
    models = {model.name: model for model in MODELS}

    def play(case: Case) -> Counter[str]:
        counts: Counter[str] = Counter()
        for name in case:
            model = models[name]
            ended = check(model.constants, is_progress=model.is_progress)
            print(
                f"{name:14} {ended.states:>10,} states, depth {ended.depth:>3}, "
                f"{ended.seconds:>5.0f} s  {model.what}",
                flush=True,
            )
            assert not ended.violated, f"{ended.violated}: {' -> '.join(ended.steps)}"
            counts["states"] += ended.states
        return counts

    yield play


CAMPAIGN = Campaign(
    "model",
    _case,
    _opened,
    cases_max=_cases,
    case_s_max=float("inf"),
    options={"model": ""},
    budget="all",
    processes_max=1,  # TLC takes all processors
    shrink_plays_max=0,
)
