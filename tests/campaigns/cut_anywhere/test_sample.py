"""A sample of the campaign, and cuts that lost something before."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaigns.cut_anywhere.campaign import CAMPAIGN
from tests.campaigns.cut_anywhere.player import LOG_NAMES, Player, measured
from tests.campaigns.frame import Case, sample


@pytest.fixture(scope="module")
def player(tmp_path_factory: pytest.TempPathFactory) -> Player:
    return Player(tmp_path_factory.mktemp("player"))


def test_k34_a_log_that_is_cut_anywhere_leaves_the_same_rows(tmp_path: Path) -> None:
    """K34: chunk, get, batch, segment, end of run and kill, at any event, change nothing."""
    counts = sample(CAMPAIGN, seed=1, count=10, folder=tmp_path)
    assert counts["runs"] >= 10


@pytest.mark.parametrize("log", LOG_NAMES)
@pytest.mark.parametrize(
    "cuts",
    [
        [["set", "store.ring_events", 2]],
        [["set", "store.ring_events", 4], ["set", "store.kind", "file"]],
        [["get", 110]],
        [["get", 112]],
    ],
)
def test_f71_an_end_of_xa_that_two_slices_share_counts(
    player: Player, log: str, cuts: Case
) -> None:
    """F71: XA COMMIT and XA ROLLBACK whose events two gets share, or two slices of a small ring."""
    player.play([["play", log, "xa"], *cuts])


@pytest.mark.parametrize("log", LOG_NAMES)
@pytest.mark.parametrize("transactions", [4, 11])
def test_k18_a_rebuild_over_ddl_leaves_the_rows_of_one_run(
    player: Player, log: str, transactions: int
) -> None:
    counts = player.play([["play", log, "ddl"], ["rebuild", transactions]])
    assert counts["rebuilt"] > 0


def test_the_logs_hold_what_is_cut() -> None:
    """Each log has every story, of more than one event and one transaction."""
    stories = measured()
    assert {log for log, _ in stories} == set(LOG_NAMES)
    assert min(story.events for story in stories.values()) > 30
    assert min(story.transactions for story in stories.values()) > 4
