"""A sample of the campaign."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaigns.frame import sample
from tests.campaigns.writers.campaign import CAMPAIGN


@pytest.mark.mysql
@pytest.mark.mariadb
def test_k29_whoever_wrote_it_a_table_is_equal_or_named(tmp_path: Path) -> None:
    counts = sample(CAMPAIGN, seed=1, count=3, folder=tmp_path)
    assert counts["tables equal"] > counts["tables suspended"]
