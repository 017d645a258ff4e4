"""Lineage as it is: source table, snapshot, Delta table, cursor; and column by column."""

from __future__ import annotations

import dagster as dg
import pytest

from cdc_pipeline.config.pipeline_config import load_config
from cdc_pipeline.lake.records import Note
from cdc_pipeline.orchestration import columns
from cdc_pipeline.orchestration.columns import (
    SourceColumn,
    column_origins,
    column_schema,
    described_columns,
)
from cdc_pipeline.orchestration.definitions import build_definitions
from cdc_pipeline.orchestration.events.recorder import LOADED_NOTE
from cdc_pipeline.orchestration.translator import CdcTranslator
from cdc_pipeline.schema.target_spec import (
    ComputedColumn,
    RecordedShape,
    RecordedSource,
    TargetSpec,
)
from cdc_pipeline.schema.types import TargetColumn
from cdc_pipeline.sink.replace import content
from tests.support.dagster_runs import last_event
from tests.support.fake_capture import COLUMNS, FakeCapture, cut, write_config
from tests.support.project import Project

LIVE = "kind: live\n  host: localhost\n  user: cdc\n  password: secret"
ORDERS = dg.AssetKey(["shop", "shop", "orders"])
SOURCE_ORDERS = dg.AssetKey(["shop", "source", "shop", "orders"])
SNAPSHOT = dg.AssetKey(["shop", "snapshot"])
CURSOR = dg.AssetKey(["shop", "cursor"])


def _live(
    project: Project, extra: str = "", *, include: tuple[str, ...] = ("shop.orders",)
) -> None:
    file = write_config(project.jobs, "shop", include=include, extra=extra)
    text = file.read_text().replace("kind: archive\n  directory: journals", LIVE)
    file.write_text(text)


def test_the_lineage_of_a_live_source_runs_through_its_snapshot(project: Project) -> None:
    _live(project, include=("shop.orders", "shop.items"))
    definitions = build_definitions(project.jobs)
    dg.Definitions.validate_loadable(definitions)
    graph = definitions.resolve_asset_graph()
    items = dg.AssetKey(["shop", "shop", "items"])
    sources = {dg.AssetKey(["shop", "source", "shop", table]) for table in ("orders", "items")}
    assert graph.get(SNAPSHOT).parent_keys == sources
    assert graph.get(ORDERS).parent_keys == {SOURCE_ORDERS, SNAPSHOT}
    assert graph.get(CURSOR).parent_keys == {ORDERS, items}


def test_automation_does_not_wait_for_tables_of_the_database_or_loads(project: Project) -> None:
    """Captures observe the tables of the database: `eager` that saw them would never end."""
    _live(project, extra="dagster: {automation: eager}\n")
    definitions = build_definitions(project.jobs)
    with dg.DagsterInstance.ephemeral() as instance:
        first = dg.evaluate_automation_conditions(definitions, instance)
        assert first.get_num_requested(ORDERS) == 0, "an existing gap is not newly missing"
        instance.report_runless_asset_event(dg.AssetMaterialization(ORDERS))
        then = dg.evaluate_automation_conditions(definitions, instance, cursor=first.cursor)
        instance.report_runless_asset_event(dg.AssetObservation(SOURCE_ORDERS))
        instance.report_runless_asset_event(
            dg.AssetMaterialization(SNAPSHOT, partition="shop.orders")
        )
        last = dg.evaluate_automation_conditions(definitions, instance, cursor=then.cursor)
        assert last.get_num_requested(ORDERS) == 0


def test_each_event_of_a_table_has_the_lineage_of_its_columns(
    project: Project, instance: dg.DagsterInstance
) -> None:
    write_config(project.jobs, "shop")
    capture = FakeCapture([cut(batch=1, tables={"shop.orders": 1})])
    job = build_definitions(project.jobs, capture=capture).resolve_job_def("shop_capture")
    assert job.execute_in_process(instance=instance).success
    event = last_event(instance, ORDERS)
    lineage = event.metadata["dagster/column_lineage"].value
    assert isinstance(lineage, dg.TableColumnLineage)
    assert lineage.deps_by_column == {
        name: [dg.TableColumnDep(SOURCE_ORDERS, name)] for name in ("id", "note")
    }


def test_columns_of_merged_renamed_and_computed_targets_come_from_what_they_read() -> None:
    text = TargetColumn(name="note", delta_type="string")
    upper = TargetColumn(name="upper_note", delta_type="string")
    spec = TargetSpec(
        columns=(*COLUMNS, upper),
        key=("id",),
        sources={
            "eu.orders": RecordedSource(columns=COLUMNS, key=("id",)),
            "us.orders": RecordedSource(
                columns=(COLUMNS[0], text.model_copy(update={"name": "remark"})),
                key=("id",),
                names=(("remark", "note"),),
            ),
        },
        shape=RecordedShape(
            computed=(
                ComputedColumn(name="upper_note", delta_type="string", expression="upper(note)"),
            )
        ),
    )
    assert column_origins("orders", spec) == {
        "id": [("eu.orders", "id"), ("us.orders", "id")],
        "note": [("eu.orders", "note"), ("us.orders", "remark")],
        "upper_note": [("eu.orders", "note")],
    }
    at_source = {"eu.orders": {"note": SourceColumn("varchar(40)", "what *the* customer said")}}
    described = described_columns("orders", spec, at_source)
    (id_, note, _, *rest) = column_schema(spec.columns, key=("id",), described=described).columns
    assert (id_.description, id_.constraints.other) == (None, ["key"])
    assert note.description == r"what \*the\* customer said"
    assert note.constraints.other == ["at the source varchar(40)"]
    assert all(column.description for column in rest), "those of the pipeline are explained"


@pytest.mark.parametrize(
    ("given", "shown"),
    [("text", "text"), (b"\xc3\xa9\xff", "é\\xff"), ("é\udcff", "é\\xff"), (None, "")],
)
def test_a_text_of_the_catalog_that_is_no_utf8_is_shown_by_escapes(
    given: object, shown: str
) -> None:
    assert columns._text(given) == shown


def test_the_note_of_a_load_is_the_sinks() -> None:
    assert LOADED_NOTE == content.LOADED_NOTE


def test_a_load_materializes_its_partitions_before_the_table_that_comes_from_them(
    project: Project, instance: dg.DagsterInstance
) -> None:
    """Whoever ran it: what a load has published is told by the notes of its cut."""
    _live(project)
    loaded = cut(batch=1, tables={"shop.orders": 1}).model_copy(
        update={"notes": (Note(kind=LOADED_NOTE, text="4 rows were loaded", table="shop.orders"),)}
    )
    definitions = build_definitions(
        project.jobs, capture=FakeCapture([loaded]), row_counter=lambda _config, _table, _version: 4
    )
    job = definitions.resolve_job_def("shop_capture")
    result = job.execute_in_process(instance=instance)
    assert result.success
    keys = [
        (entry.get_dagster_event().asset_key, entry.get_dagster_event().partition)
        for entry in instance.all_logs(
            result.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION
        )
    ]
    assert keys == [(SNAPSHOT, "shop.orders"), (ORDERS, None), (CURSOR, None)]
    assert instance.get_materialized_partitions(SNAPSHOT) == {"shop.orders"}
    assert (
        load_config(project.jobs / "shop.yaml").name == CdcTranslator().snapshot_key("shop").path[0]
    )
