"""K13 on real Delta tables: the steps of a DDL lead to the recorded columns and rows, wherever a
run was killed."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cdc_pipeline.binlog.table_schema import Kind
from cdc_pipeline.config.pipeline_config import SinkConfig, SparkConfig
from cdc_pipeline.errors import LakeStateError, UnsupportedDdlError
from cdc_pipeline.lake.records import RecordedTarget
from cdc_pipeline.schema.evolution.steps import (
    AddColumn,
    CheckRows,
    DropColumn,
    FillColumns,
    RemoveRows,
    RenameColumn,
    Step,
    WidenColumn,
)
from cdc_pipeline.schema.types import TargetColumn, target_columns
from cdc_pipeline.sink.apply.merge import applied_log
from cdc_pipeline.sink.apply.schema_steps import run_steps
from cdc_pipeline.sink.delta.commit import COMMIT_NOTE, transaction_version
from cdc_pipeline.sink.delta.log import commit_note
from cdc_pipeline.sink.delta.table_log import read_table_log
from cdc_pipeline.sink.delta_sink import DeltaSink
from tests.support.captures import SPARK
from tests.support.sink_values import (
    applied,
    column,
    decoded,
    head_of,
    insert,
    lose_cut,
    record_steps,
    table_schema,
    target_of,
    update,
)
from tests.support.spark_reader import rows_by_spark

pytestmark = [pytest.mark.spark]

SCHEMA = table_schema(
    "shop.t",
    [
        column("id", Kind.INT32),
        column("a", Kind.INT32),
        column("b", Kind.TEXT, charset="utf8mb4"),
        column("c", Kind.INT32),
        column("f", Kind.FLOAT),
    ],
    "id",
)
BEFORE = target_columns(SCHEMA)
STEPS: tuple[Step, ...] = (
    CheckRows(condition="`id` <> 0", reason="numbered"),
    RenameColumn(name="a", new_name="a__renaming"),
    RenameColumn(name="b", new_name="a"),
    RenameColumn(name="a__renaming", new_name="b"),
    WidenColumn(name="id", delta_type="bigint"),
    WidenColumn(name="f", delta_type="double"),
    DropColumn(name="c"),
    AddColumn(name="at", delta_type="timestamp_ntz"),
    AddColumn(name="b__converted", delta_type="string"),
    FillColumns(
        values=(
            ("b__converted", "string", "CAST(`b` AS string)"),
            ("a", "string", "concat(`a`, '!')"),
        )
    ),
    DropColumn(name="b"),
    RenameColumn(name="b__converted", new_name="b"),
)


def one(sink: DeltaSink, target: RecordedTarget) -> Any:
    log = read_table_log(sink.paths.table(target.table))
    assert log is not None
    return log


@pytest.mark.whole
def test_k13_steps_go_on_where_a_run_was_killed(tmp_path: Path) -> None:
    config = SinkConfig(lake_path=tmp_path / "lake", spark=SparkConfig(**SPARK))
    sink = DeltaSink(source="shop", config=config)
    with sink.lock():
        follow_steps(sink)


def follow_steps(sink: DeltaSink) -> None:
    rows = [insert(id=i, a=10 * i, b=f"t{i}", c=i, f=0.5) for i in (1, 2)]
    applied(sink, 1, (SCHEMA, rows, 1))
    record = record_steps(sink, 2, SCHEMA, BEFORE, *STEPS)
    (target,) = record.targets
    path = sink.paths.table("shop.t")
    session = sink.spark.session().newSession()
    session.conf.set(COMMIT_NOTE, commit_note(target.app_id, 2))
    for count in (3, 10):  # in the middle of a circle of names, and right behind the UPDATE
        half = target.model_copy(update={"schema_steps": STEPS[:count]})
        run_steps(session, path, record, half, one(sink, target))
        assert applied_log(record, half, paths=sink.paths)
        assert not applied_log(record, target, paths=sink.paths)
    cut = sink.finish(record)
    version = cut.tables["shop.t"].table_version
    run_steps(session, path, record, target, one(sink, target))
    assert one(sink, target).version == version
    assert one(sink, target).transaction_version == transaction_version(2, 1)
    table = rows_by_spark(sink, "shop.t")
    assert table.column_names[:5] == ["id", "a", "f", "at", "b"]
    assert str(table.schema.field("id").type) == "int64"
    assert sorted(
        zip(*[table.column(n).to_pylist() for n in ("id", "a", "f", "at", "b")], strict=True)
    ) == [
        (1, "t1!", 0.5, None, "10"),
        (2, "t2!", 0.5, None, "20"),
    ]

    # Rows go on under the new columns, also those of the old types.
    wide = table_schema(
        "shop.t",
        [
            column("id", Kind.INT32),
            column("a", Kind.TEXT, charset="utf8mb4"),
            column("f", Kind.FLOAT),
            column("at", Kind.DATETIME),
            column("b", Kind.TEXT, charset="utf8mb4"),
        ],
        "id",
    )
    batch = sink.begin(3)
    plan = target_of(wide).with_spec(columns=target.spec.columns)
    old = {"id": 1, "a": "t1!", "f": 0.5, "at": None, "b": "10"}
    batch.add(decoded(wide, [update(old, {**old, "b": "new"})], first_place=20), plan)
    sink.finish(batch.record(head_of(3)))
    assert sorted(rows_by_spark(sink, "shop.t", "b").column("b").to_pylist()) == ["20", "new"]

    # A failing check changes nothing; columns that are not on the path stop.
    session.conf.set(COMMIT_NOTE, commit_note(target.app_id, 4))
    bad = record_steps(
        sink, 4, wide, target.spec.columns, CheckRows(condition="`b` <> 'new'", reason="it is new")
    )
    with pytest.raises(UnsupportedDdlError, match="it is new"):
        run_steps(session, path, bad, bad.targets[0], one(sink, target))
    foreign = bad.targets[0].model_copy(
        update={
            "columns_before": (TargetColumn(name="zz", delta_type="int"),),
            "schema_steps": (WidenColumn(name="zz", delta_type="bigint"),),
        }
    )
    with pytest.raises(LakeStateError, match="match no stage"):
        run_steps(session, path, bad, foreign, one(sink, target))
    # A check behind other steps of a shadow table is made, wherever a run was killed (F212).
    late = (AddColumn(name="q", delta_type="int"), *bad.targets[0].schema_steps)
    for count in (1, 2, 2):
        half = bad.targets[0].model_copy(update={"schema_steps": late[:count]})
        assert not applied_log(bad, half, paths=sink.paths)
        with pytest.raises(UnsupportedDdlError, match="it is new") if count > 1 else nullcontext():
            run_steps(session, path, bad, half, one(sink, target))
    good = bad.model_copy(
        update={
            "targets": (
                bad.targets[0].model_copy(
                    update={"schema_steps": (CheckRows(condition="`id` > 0", reason="x"),)}
                ),
            )
        }
    )
    assert not applied_log(good, good.targets[0], paths=sink.paths)
    sink.finish(good)
    assert applied_log(good, good.targets[0], paths=sink.paths)

    # All rows go, once; and a table that is made again begins with nothing, under an id of its own.
    gone = record_steps(
        sink, 5, wide, target.spec.columns, RemoveRows(op="truncate", seq="1", ts_us=1)
    )
    sink.finish(gone)
    assert rows_by_spark(sink, "shop.t").num_rows == 0
    batch = sink.begin(6)
    other = replace(target_of(SCHEMA, app_id="cdc_pipeline/test/again"), replaces=target.app_id)
    batch.change(other, (), ())
    anew = batch.record(head_of(6))
    assert not applied_log(anew, anew.targets[0], paths=sink.paths)
    sink.finish(anew)
    version = one(sink, target).version
    lose_cut(sink, 6)
    assert sink.finish(anew).tables["shop.t"].table_version == version
    assert rows_by_spark(sink, "shop.t").column_names[:5] == ["id", "a", "b", "c", "f"]
    assert one(sink, target).app_id == "cdc_pipeline/test/again"
