"""Comments of the source in Delta's tables: at their creation, by a step of a DDL, and when a table
takes another's place; by commits of our own and by Spark."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from cdc_pipeline.binlog.table_schema import Kind
from cdc_pipeline.config.pipeline_config import SinkConfig, SparkConfig
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.schema.evolution.steps import AddColumn, Describe
from cdc_pipeline.schema.target_spec import RecordedSource
from cdc_pipeline.schema.types import target_columns
from cdc_pipeline.sink.apply.merge import applied_log
from cdc_pipeline.sink.delta.table_log import read_table_log
from cdc_pipeline.sink.delta_sink import DeltaSink
from cdc_pipeline.sink.read.lake import Lake
from cdc_pipeline.sink.replace.replaced_metadata import comments_of as comments_in
from cdc_pipeline.sink.replace.replaced_metadata import replaced_metadata
from tests.support.captures import SPARK
from tests.support.comments import TEXTS
from tests.support.sink_values import (
    applied,
    column,
    head_of,
    insert,
    record_steps,
    table_schema,
    target_of,
)

COLUMNS = [column(f"c{n}", Kind.INT32) for n in range(len(TEXTS))]
SCHEMA = table_schema("shop.t", COLUMNS, "c0")
COMMENTS = {"": "'".join(TEXTS), **{f"c{n}": text for n, text in enumerate(TEXTS)}}


def source_of(comments: dict[str, str]) -> dict[str, RecordedSource]:
    return {
        "shop.t": RecordedSource(
            columns=target_columns(SCHEMA), key=("c0",), comments=tuple(sorted(comments.items()))
        )
    }


def sink_at(folder: Path, engine: Literal["auto", "spark"] = "auto") -> DeltaSink:
    config = SinkConfig(lake_path=folder, engine=engine, spark=SparkConfig(**SPARK))
    return DeltaSink(source="shop", config=config)


def comments_of(sink: DeltaSink) -> dict[str, str]:
    log = read_table_log(sink.paths.table("shop.t"))
    assert log is not None
    return dict(log.comments)


def first_row(sink: DeltaSink) -> None:
    row = insert(**dict.fromkeys(SCHEMA.column_names, 1))
    applied(sink, 1, (SCHEMA, [row], 1), sources=source_of(COMMENTS))


def test_a_table_is_made_with_its_comments_without_spark(tmp_path: Path) -> None:
    sink = sink_at(tmp_path)
    with sink.lock():
        first_row(sink)
        assert not sink.spark.started
        assert comments_of(sink) == COMMENTS
        log = read_table_log(sink.paths.table("shop.t"))
        assert log is not None
        assert not log.needs_spark
    assert Lake(LakePaths(tmp_path, "shop").lake).read("shop.t").read_all().num_rows == 1


@pytest.mark.spark
def test_both_engines_make_and_change_the_same_comments(tmp_path: Path) -> None:
    changed = {"c0": "", "": "other", **{f"c{n}": text for n, text in enumerate(TEXTS[1:], 1)}}
    changed |= {"c1": TEXTS[2], "new": TEXTS[3]}
    for engine in ("auto", "spark"):
        sink = sink_at(tmp_path / engine, engine)
        with sink.lock():
            first_row(sink)
            assert comments_of(sink) == COMMENTS
            steps: list[Any] = [AddColumn(name="new", delta_type="int")]
            steps += [Describe(comments=tuple(changed.items()))]
            record = record_steps(sink, 2, SCHEMA, target_columns(SCHEMA), *steps)
            assert not applied_log(record, record.targets[0], paths=sink.paths)
            sink.finish(record)
            assert applied_log(record, record.targets[0], paths=sink.paths)
            assert comments_of(sink) == {name: text for name, text in changed.items() if text}
            described = sink.spark.session().sql(
                f"DESCRIBE TABLE delta.`{sink.paths.table('shop.t')}`"
            )
            assert {row.col_name: row.comment for row in described.collect()}["c4"] == TEXTS[4]
        assert Lake(tmp_path / engine).read("shop.t").read_all().num_rows == 1


@pytest.mark.spark
@pytest.mark.whole
def test_a_text_changes_alone_and_again(tmp_path: Path) -> None:
    sink = sink_at(tmp_path)
    with sink.lock():
        first_row(sink)
        for number, text in enumerate(TEXTS, 2):
            step = Describe(comments=(("c1", text), ("", text)))
            sink.finish(record_steps(sink, number, SCHEMA, target_columns(SCHEMA), step))
            assert comments_of(sink) == COMMENTS | {"c1": text, "": text}


@pytest.mark.spark
def test_a_table_that_takes_anothers_place_brings_its_own_comments(tmp_path: Path) -> None:
    sink = sink_at(tmp_path)
    with sink.lock():
        first_row(sink)
        target = target_of(SCHEMA, app_id="cdc_pipeline/test/next")
        comments = {"": TEXTS[1], "c1": TEXTS[3], "c2": TEXTS[2]}
        target = replace(target.with_spec(sources=source_of(comments)), is_new=True)
        old = "cdc_pipeline/test/shop.t"
        batch = sink.begin(2)
        batch.create(replace(target, replaces=old))
        sink.finish(batch.record(head_of(2)))
        assert comments_of(sink) == comments


def test_what_the_source_says_goes_before_what_was_added_to_the_table() -> None:
    def metadata(description: str | None, **comments: str) -> dict[str, Any]:
        fields = [
            {"name": name, "type": "integer", "metadata": {"comment": text} if text else {}}
            for name, text in comments.items()
        ]
        schema = json.dumps({"type": "struct", "fields": fields})
        return {"schemaString": schema, "configuration": {}, "description": description}

    old = metadata("an owner's", a="an owner's", b="an owner's", c="", d="the old source's")
    for description in ("the source's", None):
        new = metadata(description, a="the source's", b="", c="the source's", d="")
        told = {"": "the old source's", "d": "the old source's"}
        more: dict[str, Any] = {"source": "s", "table": "t", "app_id": "x", "extra": {}}
        made = replaced_metadata(new, old, told=told, **more)
        assert made["description"] == (description or "an owner's")
        assert comments_in(made) == {"a": "the source's", "b": "an owner's", "c": "the source's"}
        was_told = old | {"description": "the old source's"}
        assert replaced_metadata(new, was_told, told=told, **more).get("description") == description
