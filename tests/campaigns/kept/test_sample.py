"""A sample of the campaign: one case of each server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaigns.frame import sample
from tests.campaigns.kept.campaign import CAMPAIGN

pytestmark = pytest.mark.whole


def test_k24_what_runs_keep_is_the_servers_and_all_that_a_later_reader_needs(
    tmp_path: Path,
) -> None:
    counts = sample(CAMPAIGN, seed=1, count=2, folder=tmp_path)
    assert counts["sealed"] > 2
    assert counts["killed"] > 2
    assert counts["struck"] > 0
