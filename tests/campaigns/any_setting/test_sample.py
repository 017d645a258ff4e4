"""A sample of the campaign, and that each setting is tried or not with a
reason."""

from __future__ import annotations

from pathlib import Path

from tests.campaigns.any_setting.campaign import CAMPAIGN
from tests.campaigns.any_setting.settings import (
    MAY_NOT_CHANGE_ROWS,
    NOT_TRIED,
    every_setting,
)
from tests.campaigns.frame import sample


def test_k34_two_settings_at_once_leave_the_same_rows(tmp_path: Path) -> None:
    """K34: what is read, kept and merged at a time changes nothing."""
    assert sample(CAMPAIGN, seed=1, count=10, folder=tmp_path)["runs"] == 10


def test_k34_each_setting_is_tried_or_is_not_with_a_reason() -> None:
    """A new setting belongs in one of the two lists: does it change rows?"""
    settings = set(every_setting())
    lists = {*MAY_NOT_CHANGE_ROWS, *NOT_TRIED}
    of_each = {
        name: [one for one in lists if name == one or name.startswith(f"{one}.")]
        for name in settings
    }
    assert {name: found for name, found in of_each.items() if len(found) != 1} == {}
    assert lists == {one for found in of_each.values() for one in found}
