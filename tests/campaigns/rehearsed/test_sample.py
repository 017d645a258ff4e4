"""A sample of the campaign: one script of the grammar's statements on each server, and one of
changes upon changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaigns.frame import sample
from tests.campaigns.rehearsed.campaign import CAMPAIGN, grammar
from tests.servers import Server


@pytest.mark.parametrize(
    ("seed", "statements"), [(1, 40), pytest.param(2, 150, marks=pytest.mark.whole)]
)
def test_k13_a_run_decides_generated_statements_as_was_rehearsed(
    server: Server, tmp_path: Path, seed: int, statements: int
) -> None:
    campaign = CAMPAIGN.with_options([f"statements={statements}", "kind=grammar"])
    counts = grammar(server, server, campaign.case(seed, 0)[1:], tmp_path)
    assert counts["told: applied"] > statements // 2


@pytest.mark.whole
def test_k13_a_run_decides_changes_upon_changes_as_was_rehearsed(tmp_path: Path) -> None:
    counts = sample(CAMPAIGN, seed=1, count=2, folder=tmp_path, options=["kind=workload"])
    assert counts["told: applied"] > 5
