"""A sample of the campaign: a few tables and what happens to them; how a series is judged."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaigns.soak.soaked import Soaked
from tests.campaigns.soak.verdict import judge

NEVER_S = float("inf")


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.mysql
def test_k2_what_happens_in_hours_leaves_all_tables_equal(tmp_path: Path) -> None:
    """K2, K7: captures, a killed one and a failover."""
    with Soaked(
        "mysql",
        tmp_path,
        seed=1,
        tables=2,
        pause_s=1.0,
        retention="1 s",
        measure_every_s=NEVER_S,
    ) as source:
        source.deal_from(["failover", "killed_capture"])
        source.work(NEVER_S, actions_max=2)
    assert source.findings == []
    assert source.counts["compared at the end"] > 1
    assert source.counts["verified equal at the end"] > 0


def test_a_series_that_grows_is_told_from_one_that_is_flat() -> None:
    flat = [{"python_rss_mib": 400.0 + number % 3} for number in range(30)]
    grows = [{"python_rss_mib": 400.0 + 5 * number} for number in range(30)]
    warms_up = [{"python_rss_mib": 400.0 + 5 * min(number, 9)} for number in range(30)]
    assert [one.is_flat for one in judge(flat)] == [True]
    assert [one.is_flat for one in judge(grows)] == [False]
    assert [one.is_flat for one in judge(warms_up)] == [True]
    assert judge(grows[:8]) == []
    kept = [{"state_files": 100.0 * number} for number in range(60)]
    assert [one.is_flat for one in judge(kept[:30])] == [True]
    assert [one.is_flat for one in judge(kept)] == [False]
