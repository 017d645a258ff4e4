"""What a changelog's rows were written with is kept over the DDL after them (F63, F64)."""

from __future__ import annotations

from typing import Any

import pytest

from cdc_pipeline.lake.earlier_layouts import earlier_layouts_after, names_after
from cdc_pipeline.lake.records import CutTable, EarlierLayout, RecordedContent, RecordedTarget
from cdc_pipeline.schema.evolution.steps import (
    AddColumn,
    DropColumn,
    FillColumns,
    RemoveRows,
    RenameColumn,
    Step,
)
from cdc_pipeline.schema.target_spec import RecordedSource, TargetSpec
from tests.support.sink_values import cursor_at, head_of, interval_of

INTERVAL, CURSOR = interval_of(3), cursor_at(3)
HERE = str(INTERVAL.end.seq(CURSOR.epoch))
SWAP = (
    RenameColumn(name="a", new_name="a__renaming"),
    RenameColumn(name="b", new_name="a"),
    RenameColumn(name="a__renaming", new_name="b"),
)


@pytest.mark.parametrize(
    ("steps", "names"),
    [
        ((AddColumn(name="n", delta_type="int"),), {}),
        ((RenameColumn(name="a", new_name="b"),), {"a": ("b",)}),
        (SWAP, {"a": ("b",), "b": ("a",)}),
        ((DropColumn(name="a"),), {"a": ()}),
        (
            (
                RenameColumn(name="gone", new_name="gone__dropped"),
                RenameColumn(name="a", new_name="gone"),
            ),
            {"gone": ("gone__dropped",), "a": ("gone",)},
        ),
        (
            (FillColumns(values=(("n", "int", "5"), ("m", "int", "`a`")), defaults=("n",)),),
            {"a": ("a", "m")},
        ),
        (
            (
                FillColumns(values=(("a`__converted", "string", "CAST(`a``` AS string)"),)),
                DropColumn(name="a`"),
                RenameColumn(name="a`__converted", new_name="a`"),
            ),
            {},
        ),
    ],
)
def test_k10_f63_what_became_of_a_columns_name(
    steps: tuple[Step, ...], names: dict[str, tuple[str, ...]]
) -> None:
    assert names_after(steps) == names


def spec(*key: str, mode: str = "changelog", source: str = "d.t") -> TargetSpec:
    return TargetSpec(mode=mode, sources={source: RecordedSource(columns=(), key=key)})


def after(
    before: CutTable | None, now: TargetSpec, *steps: Step, **more: Any
) -> tuple[EarlierLayout, ...]:
    record = head_of(3)
    target = RecordedTarget(table="d.t", app_id="x", spec=now, schema_steps=steps, **more)
    return earlier_layouts_after(before, record, target)


def test_k10_f64_a_changelogs_earlier_names_and_keys_follow_its_ddl() -> None:
    assert after(None, spec("id")) == ()
    before = CutTable(table_version=1, spec=spec("id"))
    assert after(before, spec("id")) == (), "nothing of it changed"
    assert after(before, spec("a"), RenameColumn(name="id", new_name="a")) == (
        EarlierLayout(seq=HERE, names={"id": ("a",)}),
    ), "the same key under another name"
    assert after(before, spec("code", mode="history")) == ()
    (one,) = after(before, spec("code"))
    assert one == EarlierLayout(seq=HERE, keys={"d.t": ("id",)})

    before = CutTable(table_version=1, spec=spec("code"), layouts=(one,))
    renamed = after(before, spec("sku"), RenameColumn(name="id", new_name="old"),
                    RenameColumn(name="code", new_name="sku"))  # fmt: skip
    assert renamed == (
        EarlierLayout(seq=HERE, keys={"d.t": ("old",)}),
        EarlierLayout(seq=HERE, names={"id": ("old",), "code": ("sku",)}),
    )
    assert after(before, spec("code"), DropColumn(name="id")) == (
        one,
        EarlierLayout(seq=HERE, names={"id": ()}),
    )
    assert after(before, spec("code"), RemoveRows(op="truncate")) == ()
    assert after(before, spec("code"), create=True) == ()
    assert after(before, spec("code"), replaces="z") == ()


def test_k18_k28_a_load_or_another_name_takes_them_along() -> None:
    earlier, later = (EarlierLayout(seq=seq, keys={"d.t": (seq,)}) for seq in ("9", "10"))
    before = CutTable(table_version=1, spec=spec("code"), layouts=(later,))
    content = RecordedContent(path="p", version=1, app_id="y", layouts=(earlier, later))

    def loaded(**how: Any) -> tuple[EarlierLayout, ...]:
        return after(before, spec("code"), content=content.model_copy(update=how))

    assert loaded() == (earlier, later), "all of it is new"
    assert loaded(keeps_rows=True, layouts=(earlier,)) == (earlier, later)
    assert loaded(keeps_rows=True, restarts=True, layouts=()) == ()

    moved = RecordedContent(path="p", version=1, app_id="y", renamed_from="d.old", keeps_rows=True)
    old = CutTable(table_version=1, spec=spec("id", source="d.old"),
                   layouts=(EarlierLayout(seq="9", keys={"d.old": ("code",)}),))  # fmt: skip
    assert after(old, spec("code"), content=moved) == (
        EarlierLayout(seq="9", keys={"d.t": ("code",)}),
        EarlierLayout(seq=HERE, keys={"d.t": ("id",)}),
    )
