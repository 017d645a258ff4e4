"""K25: what grows with tables times columns is kept once, and a run keeps counters of its past."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cdc_pipeline.errors import LakeStateError
from cdc_pipeline.lake import state
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.records import Cut, CutTable, Interval, Note
from cdc_pipeline.lake.table_facts import prune_facts, put_cut
from cdc_pipeline.position.cursor import CursorState, Suspension, TargetState
from cdc_pipeline.position.position import Position
from cdc_pipeline.schema.target_spec import TargetSpec
from cdc_pipeline.schema.types import TargetColumn

TABLES, COLUMNS = 500, 30


def _columns(table: int) -> tuple[TargetColumn, ...]:
    return tuple(
        TargetColumn(name=f"t{table}_c{place}", delta_type="decimal(20,0)")
        for place in range(COLUMNS)
    )


def cut_of(number: int, tables: dict[str, CutTable], *, notes: tuple[Note, ...] = ()) -> Cut:
    return Cut(
        source="shop",
        batch_number=number,
        published_at_us=number,
        interval=Interval(
            start=Position("b.1", number),
            end=Position("b.1", number + 1),
            transactions_seen=2,
        ),
        cursor=CursorState(
            source="shop",
            batch_number=number,
            flavor="mysql",
            server_id=1,
            journal="b.1",
            offset=4 + number,
            targets={
                name: TargetState(
                    table=name, app_id=f"a/{name}", table_version=number, applied_batch=number
                )
                for name in tables
            },
        ),
        tables=tables,
        notes=notes,
    )


def _many() -> dict[str, CutTable]:
    return {
        f"shop.t{n}": CutTable(
            table_version=1,
            spec=TargetSpec(columns=_columns(n), key=(f"t{n}_c0",)),
            rows_inserted=n,
        )
        for n in range(TABLES)
    }


def _without_references(cut: Cut) -> Cut:
    tables = {name: table.model_copy(update={"facts": ""}) for name, table in cut.tables.items()}
    return cut.model_copy(update={"tables": tables})


def _facts_files(paths: LakePaths) -> list[str]:
    return sorted(file.name for file in paths.tables.iterdir()) if paths.tables.is_dir() else []


@pytest.fixture
def paths(tmp_path: Path) -> LakePaths:
    return LakePaths(tmp_path, "shop")


def test_k25_a_cut_is_read_anew_when_its_file_has_another_text(paths: LakePaths) -> None:
    """A process that lives long sees a lake that was restored from a backup."""
    put_cut(paths, cut_of(1, _many()))
    first = state.read_cut(paths, 1)
    assert state.read_cut(paths, 1) is first
    text = paths.cut(1).read_text(encoding="utf-8")
    paths.cut(1).write_text(
        text.replace('"published_at_us":1,', '"published_at_us":7,'), encoding="utf-8"
    )
    assert state.read_cut(paths, 1) == first.model_copy(update={"published_at_us": 7})


def test_k25_a_cut_grows_by_its_tables_and_not_by_their_columns(paths: LakePaths) -> None:
    first = cut_of(1, _many())
    written = put_cut(paths, first)
    back = state.read_cut(paths, 1)
    assert written == back
    assert _without_references(back) == first
    second = cut_of(
        2,
        {
            name: table.model_copy(update={"table_version": 2})
            for name, table in back.tables.items()
        },
    )
    assert put_cut(paths, second, back) == state.read_cut(paths, 2)
    assert _without_references(state.read_cut(paths, 2)) == _without_references(second)
    assert len(_facts_files(paths)) == 1, "nothing of the second cut is new"
    assert paths.cut(2).stat().st_size / TABLES < 150


def test_k3_a_cut_is_read_as_it_was_written_whatever_becomes_of_its_targets(
    paths: LakePaths,
) -> None:
    """Exactness is lost, a target is suspended and comes back: the file holds what changed."""
    put_cut(paths, cut_of(1, _many()))
    held = Suspension(batch_number=2, error="MergeError", what="x", journal="b.1", offset=4)
    changes: tuple[dict[str, object], ...] = (
        {"exact": True},
        {"exact": False, "partial": True, "origin": ("a.b", "c.d")},
        {"suspended": held, "table_version": 1},
        {"suspended": None},
    )
    for number, change in enumerate(changes, start=2):
        before = state.read_cut(paths, number - 1)
        assert before.facts_files == ()
        tables = {
            name: table.model_copy(update={"table_version": number})
            for name, table in before.tables.items()
        }
        cut = cut_of(number, tables)
        states = dict(cut.cursor.targets)
        states["shop.t1"] = states["shop.t1"].model_copy(update=change)
        cut = cut.model_copy(update={"cursor": cut.cursor.model_copy(update={"targets": states})})
        written = put_cut(paths, cut, before)
        back = state.read_cut(paths, number)
        assert written == back
        assert back.cursor.targets == states
        assert paths.cut(number).stat().st_size / TABLES < 150


def test_k25_a_table_whose_facts_are_the_same_is_referred_to_and_a_changed_one_is_written_alone(
    paths: LakePaths,
) -> None:
    put_cut(paths, cut_of(1, _many()))
    before = state.read_cut(paths, 1)
    tables = dict(before.tables)
    # The sink builds tables of a batch from its record: they come without a reference.
    tables["shop.t1"] = CutTable(
        table_version=2, spec=TargetSpec(columns=_columns(1), key=("t1_c0",))
    )
    tables["shop.t2"] = CutTable(
        table_version=2, spec=TargetSpec(columns=_columns(2)[:-1], key=("t2_c0",))
    )
    put_cut(paths, cut_of(2, tables), before)
    after = state.read_cut(paths, 2)
    assert after.tables["shop.t1"].facts == before.tables["shop.t1"].facts
    assert after.tables["shop.t2"].spec.columns == _columns(2)[:-1]
    _first, new = _facts_files(paths)
    assert (paths.tables / new).stat().st_size < paths.cut(2).stat().st_size / 10


def test_k25_facts_without_a_cut_are_taken_when_it_comes_and_a_second_cut_of_a_number_changes_nothing(  # noqa: E501
    paths: LakePaths,
) -> None:
    cut = cut_of(1, _many())
    put_cut(paths, cut)
    paths.cut(1).unlink()  # as if the process had died before
    assert put_cut(paths, cut) is not None
    assert put_cut(paths, cut_of(1, {})) is None
    assert _without_references(state.read_cut(paths, 1)) == cut


def test_k25_facts_that_no_cut_refers_to_are_pruned(paths: LakePaths) -> None:
    previous = None
    for number in range(1, 5):
        wide = 1 if number < 3 else number
        tables = {
            "shop.t0": CutTable(table_version=number, spec=TargetSpec(columns=_columns(0)[:wide]))
        }
        put_cut(paths, cut_of(number, tables), previous)
        previous = state.read_cut(paths, number)
    assert [name[:20].lstrip("0") for name in _facts_files(paths)] == ["1", "3", "4"]
    assert prune_facts(paths, [state.read_cut(paths, 2)]) == 0
    assert prune_facts(paths, [state.read_cut(paths, 1), state.read_cut(paths, 3)]) == 0, (
        "cut 1 is kept too"
    )
    assert prune_facts(paths, [state.read_cut(paths, 3)]) == 1
    assert state.read_cut(paths, 4).tables["shop.t0"].spec.columns == _columns(0)[:4]


def test_k25_a_reference_to_nothing_is_told(paths: LakePaths) -> None:
    put_cut(
        paths,
        cut_of(9, {"shop.t0": CutTable(table_version=1, spec=TargetSpec(columns=_columns(99)))}),
    )
    for file in paths.tables.iterdir():
        file.unlink()
    with pytest.raises(LakeStateError, match="records"):
        state.read_cut(paths, 9)


def test_k25_a_cut_without_a_reference_is_told(paths: LakePaths) -> None:
    put_cut(paths, cut_of(9, {"shop.t0": CutTable(table_version=1, spec=TargetSpec(columns=()))}))
    document = json.loads(paths.cut(9).read_text())
    document["tables"]["shop.t0"].pop("facts")
    paths.cut(9).write_text(json.dumps(document))
    with pytest.raises(LakeStateError, match="does not say where"):
        state.read_cut(paths, 9)
