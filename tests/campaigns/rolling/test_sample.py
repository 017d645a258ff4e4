"""A sample of the campaign: a source of each server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaigns.frame import sample
from tests.campaigns.rolling.campaign import CAMPAIGN

pytestmark = [pytest.mark.spark, pytest.mark.whole]


def test_k17_the_proof_names_what_differs_within_its_runs_and_nothing_else(tmp_path: Path) -> None:
    counts = sample(CAMPAIGN, seed=4, count=2, folder=tmp_path)
    assert counts["runs"] > 10
