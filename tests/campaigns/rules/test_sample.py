"""A sample of the campaign."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaigns.frame import sample
from tests.campaigns.rules.campaign import CAMPAIGN

pytestmark = [pytest.mark.mysql, pytest.mark.mariadb, pytest.mark.whole]


def test_k10_k13_targets_of_rules_are_what_select_shows(tmp_path: Path) -> None:
    counts = sample(CAMPAIGN, seed=1, count=12, folder=tmp_path)
    assert counts["compared"]
