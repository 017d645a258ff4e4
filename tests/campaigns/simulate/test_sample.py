"""A sample of the campaign, and that a seed decides everything."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import CdcError
from tests.campaigns.simulate.history import LONG, SHORT, Size, play, size_of
from tests.campaigns.simulate.world import TABLES, World
from tests.support.memory_modes import comparable
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


def test_k4_k8_f205_what_is_read_again_for_a_prepared_transaction_counts_once(
    tmp_path: Path,
) -> None:
    """Targets that are left behind while XA transactions are open, at first and in the middle of
    their catch-up: what lies behind XA PREPARE and had come already, also a truncation, came to
    changelogs and histories again; and F206: an XA COMMIT there, of one that was prepared before,
    asked for a snapshot."""
    world = World(tmp_path / "journals", random.Random(3))
    document = {
        "name": "shop",
        "source": {"kind": "archive", "directory": tmp_path / "journals"},
        "tables": {"include": ["shop.*"]},
        "targets": [{"tables": ["shop.*"], "mode": mode} for mode in ("changelog", "history")],
        "batch": {"get_bytes": 1, "merge_rows": 1},
    }
    sound, left = (
        MemoryShop(PipelineConfig.model_validate({**document, "sink": {"lake_path": path}}))
        for path in (tmp_path / "sound", tmp_path / "left")
    )
    left.run()

    def prepare(xid: bytes) -> None:
        world.advance(2)
        world._xa(xid, one_phase=False)
        for table in TABLES:
            if not world._locked(table):
                world._ddl(f"TRUNCATE TABLE {table}", {table: {}})
        world.advance(4)

    prepare(b"a")
    left.run()
    chance = random.Random(5)

    def fault(_table: str, step: str) -> None:
        if step == "rows" and chance.random() < 0.5:
            raise KeyError("metaData")

    left.lake.fault = fault
    for xid in (b"b", b"c"):
        world.advance(2)
        for _ in range(2):
            with suppress(CdcError):
                left.run()
        assert any(held.passed for held in left.last_cut().cursor.suspended.values())
        prepare(xid)
        world._end_xa(b"a" if xid == b"b" else b"b", is_commit=True)
    world.end_prepared()
    for _ in range(6):
        with suppress(CdcError):
            left.run()
    left.lake.fault = lambda _table, _step: None
    left.run()
    sound.run()
    assert left.suspended() == {}
    for name in sound.last_cut().tables:
        assert comparable(left.rows(name)) == comparable(sound.rows(name)), name


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
