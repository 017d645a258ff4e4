"""Changelogs that are suspended keep every change once: they have no key by which a MERGE would
find a change that is there already. Found by `spec/commit.tla`.

Whole captures of a recorded journal into tables in memory.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cdc_pipeline.errors import CdcError, LakeStateError, TargetSuspendedError
from cdc_pipeline.lake.state import last_cut
from cdc_pipeline.operations.cursor.cursor_change import apply_rebuild, plan_rebuild
from tests.support.memory_shop import MemoryShop, memory_shop

PAIR, PLAIN = "shop.pair_changelog", "shop.plain_changelog"
RUNS_MAX = 20


def changelogs(folder: Path) -> MemoryShop:
    return memory_shop(
        folder,
        include=["shop.pair", "shop.plain"],
        sink={"catalog": {"database": "lake"}},
        targets=[{"tables": ["shop.*"], "mode": "changelog"}],
    )


@pytest.fixture
def expected(tmp_path: Path) -> dict[str, list[int]]:
    shop = changelogs(tmp_path / "sound")
    shop.run()
    return shop.all_changes()


def test_k4_what_fails_after_its_commit_is_caught_up_once(
    tmp_path: Path, expected: dict[str, list[int]]
) -> None:
    """The catalog refuses the table that has its rows already, run by run."""
    shop = changelogs(tmp_path / "refused")
    shop.fails_at("register", PAIR, lambda: KeyError("metaData"))
    for _ in range(3):
        with pytest.raises(CdcError):
            shop.run()
    assert set(shop.suspended()) == {PAIR}
    assert shop.changes(PAIR), "the table has rows that no cut names"
    shop.heal()
    shop.run()
    assert shop.all_changes() == expected


def test_k3_tables_that_are_ahead_of_a_restored_state_are_never_taken_back_in_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop, backup = changelogs(tmp_path / "restored"), tmp_path / "backup"
    for _ in range(RUNS_MAX):
        shop.run(1)
        cut = last_cut(shop.paths)
        if cut is not None and set(cut.tables) == {PAIR, PLAIN}:
            break
    shutil.copytree(shop.paths.state, backup)
    shop.run()
    newer = {name: shop.changes(name) for name in (PAIR, PLAIN)}
    shutil.rmtree(shop.paths.state)
    shutil.copytree(backup, shop.paths.state)
    with pytest.raises(LakeStateError, match="ahead of the lake"):
        shop.run()
    shop.take_place(monkeypatch)
    change = plan_rebuild(shop.config, cursors=shop.cursors, who="a person")
    apply_rebuild(shop.config, cursors=shop.cursors, change=change)
    for _ in range(4):  # each of which would explain one more of the old commits by its number
        with pytest.raises(TargetSuspendedError):
            shop.run()
        assert set(shop.suspended()) == {PAIR, PLAIN}
    assert {name: shop.changes(name) for name in newer} == newer


@pytest.mark.parametrize("step", ["log", "create", "rows"])
def test_k4_a_second_target_of_a_table_catches_up_over_its_creation(
    tmp_path: Path, step: str
) -> None:
    """The other target knows the table already, as it is later in the log."""
    shop = memory_shop(
        tmp_path,
        include=["shop.pair"],
        targets=[{"tables": ["shop.*"]}, {"tables": ["shop.*"], "mode": "changelog"}],
    )
    shop.fails_at(step, PAIR, lambda: KeyError("metaData"))
    for _ in range(2):
        with pytest.raises(CdcError):
            shop.run()
    assert set(shop.suspended()) == {PAIR}
    shop.heal()
    shop.run()
    assert shop.suspended() == {}
    assert len(shop.changes(PAIR)) == len(set(shop.changes(PAIR))) > 0
