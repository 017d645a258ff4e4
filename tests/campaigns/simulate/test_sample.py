"""A sample of ``make simulate``, and that a seed decides everything."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaigns.simulate.history import play


@pytest.mark.parametrize("seed", range(12))
def test_k2_a_history_of_crashes_and_faults_ends_with_the_databases_rows(
    seed: int, tmp_path: Path
) -> None:
    """K2, K4: each cut is the database at its place, no change is lost, and none is there twice."""
    assert play(seed, tmp_path)["runs"]


def test_a_seed_plays_the_same_history_again(tmp_path: Path) -> None:
    assert play(5, tmp_path / "one") == play(5, tmp_path / "two")


@pytest.mark.parametrize("seed", [100, 231, 247])
def test_k2_what_simulations_found_stays_mended(seed: int, tmp_path: Path) -> None:
    """K2: a changelog that a batch left behind, after it had the batch's rows, gets them once; a
    second target of a table that was left behind at its CREATE catches up."""
    play(seed, tmp_path)
