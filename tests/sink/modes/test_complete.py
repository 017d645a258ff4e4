"""Every room knows every mode, and nothing but the table and the registry depends on a mode's
name."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any, get_args

import pytest

from cdc_pipeline.config.modes import MODES, Mode, keeps_every_change
from cdc_pipeline.lake.records import RecordedTarget
from cdc_pipeline.schema.target_spec import TargetSpec
from cdc_pipeline.schema.types import TargetColumn
from cdc_pipeline.sink.modes.mode_columns import (
    BEFORE_COLUMN,
    CDC_COLUMNS,
    DELETED_COLUMN,
    END_COLUMN,
    START_COLUMN,
    TRANSACTION_COLUMN,
    live_rows_sql,
    own_columns,
)
from cdc_pipeline.sink.modes.registry import SINK_MODES
from tests.support.memory_modes import TWINS

ROOT = Path(__file__).resolve().parents[3]
NAMES: tuple[Mode, ...] = get_args(Mode)
PAGE = (ROOT / "docs" / "tables" / "modes.md").read_text(encoding="utf-8")
COLUMNS = (TargetColumn(name="a", delta_type="int"), TargetColumn(name="b", delta_type="string"))

ROOMS: dict[str, Collection[str]] = {
    "MODES in config/modes.py": MODES,
    "SINK_MODES in sink/modes/registry.py": SINK_MODES,
    "the headings of docs/tables/modes.md": re.findall(r"^## (\w+)$", PAGE, re.MULTILINE),
    "the setting `mode` in docs/tables/modes.md": re.findall(
        r"`(\w+)`", re.search(r"^\| `mode` \|(.*)$", PAGE, re.M)[1]
    ),  # type: ignore[index]
    "TWINS in tests/support/memory_modes.py": TWINS,
}


def own_types(mode: Mode) -> dict[str, str]:
    key = ("a",) if MODES[mode].has_key else ()
    return {column.name: column.delta_type for column in own_columns(mode, COLUMNS, key)}


@pytest.mark.parametrize("room", ROOMS)
@pytest.mark.parametrize("mode", NAMES)
def test_every_room_knows_every_mode(mode: Mode, room: str) -> None:
    assert mode in ROOMS[room], f"the mode {mode} is missing from {room}"


@pytest.mark.parametrize("room", [room for room in ROOMS if not room.startswith("the headings")])
def test_no_room_knows_another_mode(room: str) -> None:
    assert set(ROOMS[room]) == set(NAMES)


@pytest.mark.parametrize("mode", NAMES)
def test_the_page_says_what_a_snapshot_keeps_and_what_verify_proves(mode: Mode) -> None:
    section = PAGE.partition(f"\n## {mode}\n")[2].partition("\n## ")[0]
    assert "- **After a snapshot**: " in section
    assert "- **Verified**: " in section


@pytest.mark.parametrize("mode", NAMES)
def test_a_mode_has_a_file_of_its_own(mode: Mode) -> None:
    assert type(SINK_MODES[mode]).__module__ == f"cdc_pipeline.sink.modes.{mode}"


@pytest.mark.parametrize("mode", NAMES)
def test_the_columns_of_a_mode_fit_its_facts(mode: Mode) -> None:
    spec, own = MODES[mode], own_types(mode)
    assert [*own][: len(CDC_COLUMNS)] == [column.name for column in CDC_COLUMNS]
    assert {name.lower() for name in own if not name.startswith("_cdc_")} == {
        *spec.reserved_columns
    }
    assert (DELETED_COLUMN in own) == spec.marks_deleted_rows
    assert (START_COLUMN in own, END_COLUMN in own) == (spec.keeps_versions, spec.keeps_versions)
    assert (BEFORE_COLUMN in own, TRANSACTION_COLUMN in own) == (
        spec.rows_are_changes,
        spec.rows_are_changes,
    )
    for name in own:
        assert f"`{name}`" in PAGE, f"docs/tables/modes.md does not say what {name} is"


@pytest.mark.parametrize("mode", NAMES)
def test_what_the_sink_does_fits_the_facts(mode: Mode) -> None:
    spec, sink_mode, own = MODES[mode], SINK_MODES[mode], own_types(mode)
    assert bool(live_rows_sql(spec)) == (spec.marks_deleted_rows or spec.keeps_versions)
    assert (END_COLUMN in own) == spec.keeps_versions
    assert (sink_mode.staged_images == "cb") == spec.rows_are_changes
    target = RecordedTarget(
        table="a.b",
        app_id="x",
        spec=TargetSpec(mode=mode, columns=COLUMNS, key=("a",) if spec.has_key else ()),
    )
    sql = sink_mode.truncate_sql(Path("/lake/a/b"), target, seq=7, ts_us=1, transaction="o'clock:4")
    assert sql.startswith("DELETE ") == (not spec.keeps_past)


@pytest.mark.parametrize("mode", NAMES)
def test_the_facts_of_a_mode_fit_each_other(mode: Mode) -> None:
    spec = MODES[mode]
    assert spec.label
    assert spec.proves
    assert bool(spec.proves_keyless) == (spec.can_find_by_values or not spec.has_key)
    assert spec.keeps_past or not (spec.marks_deleted_rows or spec.keeps_every_change)
    assert spec.has_key != spec.rows_are_changes
    assert keeps_every_change(mode, ("a",)) == spec.keeps_every_change


def test_the_tables_beside_a_mirror_have_names_of_their_own() -> None:
    names = [spec.default_name for spec in MODES.values() if spec.keeps_every_change]
    assert len(set(names)) == len(names)


def test_nothing_compares_the_name_of_a_mode() -> None:
    found = []
    for file in sorted((ROOT / "cdc_pipeline").rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        if any(f'"{mode}"' in text for mode in NAMES):
            found += [f"{file.relative_to(ROOT)}:{line}" for line in _compared(ast.parse(text))]
    assert not found, "ask MODES for a fact instead"


def _compared(tree: ast.AST) -> list[int]:
    lines = []
    for node in ast.walk(tree):
        sides: list[Any] = []
        if isinstance(node, ast.Compare):
            sides = [part for side in (node.left, *node.comparators) for part in ast.walk(side)]
        elif isinstance(node, ast.MatchValue):
            sides = [node.value]
        lines += [
            node.lineno for side in sides if isinstance(side, ast.Constant) and side.value in NAMES
        ]
    return lines
