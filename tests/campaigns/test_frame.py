"""The frame of campaigns: the seed decides, the least is found, and a dead process is a finding."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.campaigns.frame import (
    Budget,
    Campaign,
    Case,
    Play,
    Report,
    judged,
    run,
    sample,
    shrunk,
)


def _case(seed: int, number: int) -> Case:
    chance = random.Random(f"{seed} {number}")
    return [chance.randrange(12) for _ in range(10)]


def _simpler(choice: int) -> Iterator[int]:
    yield from range(min(choice, 8), choice)


@contextmanager
def _opened(folder: Path) -> Iterator[Play]:
    def play(case: Case) -> Counter[str]:
        (folder / "here").touch()
        if case.count(11) > 3:
            os._exit(3)
        assert not (3 in case and max(case) > 7), f"3 beside {max(case)}\nand more of it"
        return Counter(choices=len(case))

    yield play


CAMPAIGN = Campaign("numbers", _case, _opened, _simpler)
ENDS = Campaign("ends", _case, _opened, _simpler, cases_max=int)


def _number(_seed: int, number: int) -> Case:
    return [number]


def _chosen_numbers(_seed: int, *, part: str, twice: bool) -> int:
    return (part in ("", "one")) * (1 + twice)


CHOSEN = Campaign(
    "chosen", _number, _opened, cases_max=_chosen_numbers, options={"part": "", "twice": False}
)


@contextmanager
def _opened_badly(_folder: Path) -> Iterator[Play]:
    def play(case: Case) -> Counter[str]:
        match case:
            case [3]:
                os.kill(os.getpid(), signal.SIGKILL)
            case [5]:
                time.sleep(3600)
            case [7]:
                bytearray(1 << 30)
        return Counter(passed=1)

    yield play


BAD = Campaign(
    "bad", _number, _opened_badly, case_s_max=2, memory_bytes_max=1 << 28, shrink_plays_max=0
)


def _told(report: Report) -> dict[str, object]:
    return {
        "cases": report.cases,
        "counts": report.counts,
        "findings": {
            kind: (found.number, found.told, found.cases, found.least)
            for kind, found in report.findings.items()
        },
    }


def test_a_seed_decides_in_any_number_of_processes_and_a_death_costs_one_case() -> None:
    one, two = (
        run(CAMPAIGN, seed=1, budget=Budget.parse("600"), processes=count) for count in (1, 2)
    )
    assert _told(one) == _told(two)
    assert one.cases == 600
    wrong, died = sorted(one.findings.values(), key=lambda found: found.least is None)
    assert wrong.told.startswith("AssertionError: 3 beside ")
    assert wrong.least == [3, 8]
    assert died.told == "the process ended with 3"
    assert died.cases == sum(_case(1, number).count(11) > 3 for number in range(600)) > 0
    assert f"--seed 1 --case {died.number}" in one.text()
    assert "python -m tests.campaigns numbers --choices '[3, 8]'" in one.text()


def test_death_hanging_and_memory_are_findings_and_the_run_goes_on() -> None:
    report = run(BAD, seed=1, budget=Budget.parse("12"), processes=2)
    assert {found.number: found.told.split("\n")[0] for found in report.findings.values()} == {
        3: "the process died by SIGKILL",
        5: "the process hung for 2 s",
        7: "MemoryError: ",
    }
    assert (report.cases, report.counts) == (12, Counter(passed=9))


def test_a_campaign_ends_with_its_last_case() -> None:
    assert run(ENDS, seed=3, budget=Budget.parse("all"), processes=2).cases == 3
    with pytest.raises(ValueError, match="no last case"):
        run(CAMPAIGN, seed=3, budget=Budget.parse("all"), processes=2)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("part=oen", "chosen has no case from 0 on"),
        ("twice=yes", "twice is true or false, not yes"),
        ("parts=one", "no option parts"),
    ],
)
def test_a_mistyped_option_is_an_error(option: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(CHOSEN, seed=1, budget=Budget.parse("1m"), processes=1, options=[option])


def test_a_sample_fails_with_the_least(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"least: .* --choices '\[3, 8\]'"):
        sample(CAMPAIGN, seed=1, count=40, folder=tmp_path)
    assert sample(CAMPAIGN, seed=1, count=1, folder=tmp_path) == Counter(choices=10)


def test_shrinking_keeps_the_kind_of_a_finding() -> None:
    def play(case: Case) -> Counter[str]:
        if len(case) < 4:
            raise ValueError("too short for that")
        raise AssertionError(f"{len(case)} choices")

    told, _counts = judged(play, [1] * 9)
    assert shrunk(CAMPAIGN, play, [1] * 9, told.replace("9", "#")) == [1] * 4


@pytest.mark.parametrize(
    ("text", "budget"), [("5", Budget(5)), ("1.5m", Budget(None, 90.0)), ("all", Budget())]
)
def test_a_budget_is_cases_or_minutes(text: str, budget: Budget) -> None:
    assert Budget.parse(text) == budget
