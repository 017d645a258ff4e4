"""A sample of the campaign, and that a seed decides everything."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig
from tests.campaigns.simulate.history import LONG, SHORT, Size, play, size_of
from tests.campaigns.simulate.world import World
from tests.support.memory_shop import MemoryShop


@pytest.mark.parametrize(
    "seed", [*range(12), *(pytest.param(seed, marks=pytest.mark.whole) for seed in range(12, 41))]
)
def test_k2_a_history_of_crashes_and_faults_ends_with_the_databases_rows(
    seed: int, tmp_path: Path
) -> None:
    """K2, K4, K8, K34: each cut is the database at its place, no change is lost, and none is there
    twice."""
    assert play(seed, tmp_path, size=size_of(seed))["runs"]


@pytest.mark.parametrize("size", [SHORT, LONG])
def test_a_seed_plays_the_same_history_again(size: Size, tmp_path: Path) -> None:
    assert play(5, tmp_path / "one", size=size) == play(5, tmp_path / "two", size=size)


@pytest.mark.parametrize("seed", [100, 231, 247])
def test_k2_what_simulations_found_stays_mended(seed: int, tmp_path: Path) -> None:
    """K2: a changelog that a batch left behind, after it had the batch's rows, gets them once; a
    second target of a table that was left behind at its CREATE catches up."""
    play(seed, tmp_path, size=LONG, fails_over=False, controls=False)


def test_k4_k8_f113_a_suspended_table_waits_for_what_was_prepared_on_another_server(
    tmp_path: Path,
) -> None:
    """Its catch-up on the replica passed the XA PREPARE there, and its rows never came."""
    play(540, tmp_path, size=LONG)


def test_k7_a_replica_takes_over_and_has_nothing_new_at_first(tmp_path: Path) -> None:
    """F67: the columns that no table map shows go on in its log, from a run that only moves the
    cursor there."""
    world = World(tmp_path / "journals", random.Random(3))
    document = {
        "name": "shop",
        "source": {"kind": "archive", "directory": tmp_path / "journals"},
        "tables": {"include": ["shop.*"]},
        "sink": {"lake_path": tmp_path / "lake"},
    }
    shop = MemoryShop(PipelineConfig.model_validate(document))
    world.advance(9)
    shop.run()
    world.fail_over(random.Random(5))
    assert shop.run().outcome == "nothing_new"
    world.advance(9)
    shop.run()
    assert shop.suspended() == {}
    for table, rows in world.states[-1].rows.items():
        found = [
            tuple(v for k, v in row.items() if k[0] != "_") for row in shop.rows(f"shop.{table}")
        ]
        assert sorted(found) == sorted(rows.values())
