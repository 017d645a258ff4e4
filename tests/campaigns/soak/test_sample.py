"""A sample of ``make soak``: a few tables and what happens to them; how a series is judged."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaigns.soak.soaked import Soaked
from tests.campaigns.soak.verdict import judge
from tests.servers import Flavor

NEVER_S = float("inf")


@pytest.mark.whole
@pytest.mark.spark
@pytest.mark.parametrize(
    "flavor",
    [
        pytest.param("mysql", marks=pytest.mark.mysql),
        pytest.param("mariadb", marks=pytest.mark.mariadb),
    ],
)
def test_k2_what_happens_in_hours_leaves_all_tables_equal(flavor: Flavor, tmp_path: Path) -> None:
    """K2, K7, K17: captures, a killed one, a failover, a load, maintenance and a verification."""
    with Soaked(
        flavor,
        tmp_path,
        seed=1,
        tables=9,
        pause_s=0.05,
        retention="1 s",
        measure_every_s=NEVER_S,
    ) as source:
        source.deal_from(["maintain", "verify", "failover", "load", "killed_capture", "capture"])
        source.work(NEVER_S, actions_max=6)
    assert source.findings == []
    assert source.counts["compared at the end"] > 9
    assert source.counts["verified equal at the end"] > 9


def test_a_series_that_grows_is_told_from_one_that_is_flat() -> None:
    flat = [{"python_rss_mib": 400.0 + number % 3} for number in range(30)]
    grows = [{"python_rss_mib": 400.0 + 5 * number} for number in range(30)]
    warms_up = [{"python_rss_mib": 400.0 + 5 * min(number, 9)} for number in range(30)]
    assert [one.is_flat for one in judge(flat)] == [True]
    assert [one.is_flat for one in judge(grows)] == [False]
    assert [one.is_flat for one in judge(warms_up)] == [True]
    assert judge(grows[:8]) == []
