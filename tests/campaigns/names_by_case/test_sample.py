"""A sample of the campaign."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaigns.frame import sample
from tests.campaigns.names_by_case.campaign import CAMPAIGN

pytestmark = [pytest.mark.mysql, pytest.mark.mariadb, pytest.mark.whole]


def test_k30_names_in_any_case_are_the_same_tables(tmp_path: Path) -> None:
    counts = sample(CAMPAIGN, seed=1, count=6, folder=tmp_path)
    assert counts["tables"] > counts["suspended"]
