"""A sample of the campaign: a few histories with each server."""

from __future__ import annotations

from typing import get_args

import pytest

from tests.campaigns.clocks.sets import play_set
from tests.servers import Flavor


@pytest.mark.whole
@pytest.mark.parametrize("flavor", get_args(Flavor))
def test_k15_clocks_that_jump_lose_nothing_and_keep_what_is_young(flavor: Flavor) -> None:
    """K2, K6, K15: rows, searches by time, cuts and figures stay right while both clocks jump."""
    played = play_set(flavor, range(3))
    assert not [f"{one.seed}: {one.finding}\n{one.trace}" for one in played if one.finding]
    assert all(one.counts["runs"] for one in played)
