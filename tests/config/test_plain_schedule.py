"""Schedules that are accepted without Dagster: exactly as Dagster would, never more."""

from __future__ import annotations

import dagster as dg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_pipeline.config.schedules import is_plain_cron, is_plain_zone

_NUMBERS = st.integers(0, 75).map(str)
_PARTS = st.one_of(
    st.just("*"),
    _NUMBERS,
    st.integers(0, 9).map("0{}".format),
    st.tuples(_NUMBERS, _NUMBERS).map("-".join),
    st.tuples(st.just("*"), _NUMBERS).map("/".join),
    st.tuples(_NUMBERS, _NUMBERS).map("/".join),
    st.tuples(_NUMBERS, _NUMBERS, _NUMBERS).map(lambda it: f"{it[0]}-{it[1]}/{it[2]}"),
    st.sampled_from(["", "L", "?", "mon", "H", "*/*", "1--2", "-1", "٣", "1\n"]),
)
_FIELD = st.lists(_PARTS, min_size=1, max_size=3).map(",".join)
# Most fields are a star, so that whole expressions are often valid.
_CRONS = st.lists(st.one_of(st.just("*"), st.just("*"), _FIELD), min_size=4, max_size=6).map(
    " ".join
)


def _dagster_accepts(cron: str, zone: str | None = None) -> bool:
    try:
        dg.ScheduleDefinition(job_name="check", cron_schedule=cron, execution_timezone=zone)
    except Exception:
        return False
    return True


@given(cron=_CRONS)
def test_what_is_plain_is_accepted_by_dagster(cron: str) -> None:
    if is_plain_cron(cron):
        assert _dagster_accepts(cron)


@pytest.mark.parametrize("field", range(5))
def test_each_number_of_each_field_is_judged_as_dagster_does(field: int) -> None:
    for number in range(70):
        fields = ["*"] * 5
        fields[field] = str(number)
        cron = " ".join(fields)
        if is_plain_cron(cron):
            assert _dagster_accepts(cron)
        else:
            assert not _dagster_accepts(cron) or (field, number) == (4, 7), cron


@pytest.mark.parametrize(
    "cron",
    ["0 * * * *", "*/15 * * * *", "5 3 * * *", "0,30 6-22/2 * * 1-5", "0 0 1 * *", "0 0 * 1 *"],
)
def test_usual_schedules_are_plain(cron: str) -> None:
    assert is_plain_cron(cron)


@pytest.mark.parametrize(
    "cron", ["@daily", "0 0 30 2 *", "60 * * * *", "* * * *", "* * * * * *", "", "0  * * * *"]
)
def test_others_are_left_to_dagster(cron: str) -> None:
    assert not is_plain_cron(cron)


def test_zones_are_those_that_dagster_opens() -> None:
    for zone in ("UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires", "Asia/Kolkata"):
        assert is_plain_zone(zone)
        assert _dagster_accepts("@daily", zone)
    for zone in ("Mars/Olympus", "", "../etc/passwd", "/UTC", "Europe", "Etc/GMT+1"):
        assert not is_plain_zone(zone)
