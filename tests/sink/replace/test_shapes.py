"""Tables of every layout that a load replaces: partitions, clustering, column mapping, rescued
values (K3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pytest

from cdc_pipeline.binlog.decoded import InvalidValue
from cdc_pipeline.binlog.table_schema import Kind
from cdc_pipeline.config.modes import Mode
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.schema.evolution.steps import RenameColumn
from cdc_pipeline.schema.target_spec import RecordedShape
from cdc_pipeline.sink.delta_sink import DeltaSink
from cdc_pipeline.sink.staging.staging import StagedBatch
from cdc_pipeline.sink.target import Target
from tests.sink.replace.lake import Lakes, differences, finish, recorded_swap, side_target, target
from tests.support.kills import killed_at
from tests.support.sink_values import (
    Change,
    check_targets,
    column,
    decoded,
    delete,
    insert,
    table_schema,
)
from tests.support.spark_reader import rows_by_spark

pytestmark = pytest.mark.spark


def version_of(cut: Cut, name: str) -> int:
    return cut.tables[f"shop.{name}"].table_version


COLUMNS = [column("id", Kind.INT32), column("region", Kind.TEXT), column("v", Kind.INT64)]
NAMES = ("part", "clus", "old_mapped", "side_mapped", "rescue", "constrained")


@pytest.mark.whole
def test_k3_every_layout_is_taken_over(open_sink: Callable[[str], DeltaSink], spark: Any) -> None:
    lakes = Lakes(open_sink)
    schemas = {name: table_schema(f"shop.{name}", COLUMNS, "id") for name in NAMES}
    targets = {name: target(schema) for name, schema in schemas.items()}
    shapes = {
        "part": RecordedShape(partition_by=("region",)),
        "clus": RecordedShape(cluster_by=("region",)),
    }
    for name, shape in shapes.items():
        targets[name] = targets[name].with_spec(shape=shape)

    def rows(count: int, v: int) -> list[Any]:
        return [insert(id=n, region=f"r {n % 2}", v=v * n) for n in range(count)]

    batch = lakes.main.begin(1)
    for name in NAMES:
        # What the rules say of a new table's layout may have changed since the old one was made.
        made = targets[name].with_spec(shape=None) if name == "clus" else targets[name]
        batch.create(made)
        batch.add(decoded(schemas[name], rows(4, 1), first_place=10), made)
    finish(lakes.main, batch)
    table = {name: lakes.table(schema) for name, schema in schemas.items()}
    for name in ("old_mapped", "constrained"):
        lakes.sql(
            f"ALTER TABLE {table[name]} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name', "
            "'mine' = 'kept')"
        )
    lakes.sql(f"ALTER TABLE {table['old_mapped']} RENAME COLUMN v TO w")
    lakes.sql(f"ALTER TABLE {table['old_mapped']} ALTER COLUMN region COMMENT 'where'")
    lakes.sql(f"ALTER TABLE {table['constrained']} ADD CONSTRAINT positive CHECK (v >= 0)")

    loading = {name: side_target(made) for name, made in targets.items()}
    loading["rescue"] = replace(loading["rescue"], rescued=("v",))
    batch = lakes.side.begin(1)
    for name in NAMES:
        batch.create(loading[name])
        invalid = [InvalidValue(1, "after", 2, "no number", "nan")] if name == "rescue" else None
        batch.add(
            decoded(schemas[name], rows(6, 10), first_place=500, invalid=invalid), loading[name]
        )
    finish(lakes.side, batch, kind="snapshot")
    batch = lakes.side.begin(2)
    for name in ("part", "clus", "rescue"):
        batch.add(
            decoded(schemas[name], [delete(id=3, region="r 1", v=30)], first_place=600),
            loading[name],
        )
    before = loading["side_mapped"].spec.columns
    step = RenameColumn(name="v", new_name="w")
    after = tuple(c.model_copy(update={"name": "w"}) if c.name == "v" else c for c in before)
    loading["side_mapped"] = loading["side_mapped"].with_spec(columns=after)
    batch.change(loading["side_mapped"], before, (step,))
    finish(lakes.side, batch)

    cut = lakes.main.finish(recorded_swap(lakes, *loading.values()))
    check_targets(lakes.main, cut)
    for name in NAMES:
        assert differences(lakes, schemas[name], rescued=name == "rescue") == [], name
        adopted = {
            add["path"] for add in lakes.actions(schemas[name], version_of(cut, name))["add"]
        }
        theirs = {
            file.relative_to(lakes.side.paths.table(f"shop.{name}")).as_posix()
            for file in lakes.side.paths.table(f"shop.{name}").rglob("*.parquet")
            if "_delta_log" not in file.parts
        }
        assert ({unquote(path) for path in adopted} <= theirs) == (name != "constrained")
    before_it = lakes.sql(
        f"SELECT id, w FROM {table['old_mapped']} VERSION AS OF {version_of(cut, 'old_mapped') - 1}"
    )
    assert sorted(map(tuple, before_it)) == [(n, n) for n in range(4)]
    told = {
        name: lakes.sql(f"DESCRIBE DETAIL {table[name]}")[0] for name in NAMES if name != "rescue"
    }
    assert told["part"].partitionColumns == ["region"]
    assert told["clus"].clusteringColumns == ["region"]
    assert told["old_mapped"].properties["mine"] == "kept"
    assert told["constrained"].properties["delta.constraints.positive"] == "v >= 0"
    assert {
        told[name].properties["delta.columnMapping.mode"] for name in ("old_mapped", "side_mapped")
    } == {"name"}
    described = {
        line.col_name: line.comment for line in lakes.sql(f"DESCRIBE TABLE {table['old_mapped']}")
    }
    assert described["region"] == "where"
    assert cut.tables["shop.rescue"].rescued_ever == {"v": 1}
    # They go on as tables of the sync and of maintenance.
    batch = lakes.main.begin(3)
    changes = [delete(id=0, region="r 0", v=0), insert(id=100, region="r 9", v=1)]
    batch.add(decoded(schemas["old_mapped"], changes, first_place=700), loading["old_mapped"])
    finish(lakes.main, batch)
    for name in ("clus", "old_mapped"):
        lakes.sql(f"OPTIMIZE {table[name]}")
    found = {row.id for row in lakes.sql(f"SELECT id FROM {table['old_mapped']}")}
    assert found == {1, 2, 3, 4, 5, 100}


@pytest.mark.whole
@pytest.mark.parametrize("killed", ["before_replaced", "between_merges"])
def test_k2_k17_rows_that_stay_go_from_clusters_to_partitions_and_back(
    open_sink: Callable[[str], DeltaSink], killed: str
) -> None:
    """Delta replaces no table that ever had clusters by one with partitions. What happens in
    between is no other program's change, and no batch."""
    modes: tuple[Mode, ...] = ("soft_delete", "history", "changelog")
    lakes = Lakes(open_sink)
    schemas = {mode: table_schema(f"shop.{mode}", COLUMNS, "id") for mode in modes}
    clustered = RecordedShape(cluster_by=("region",))
    made = {mode: target(schemas[mode], mode=mode, shape=clustered) for mode in modes}
    row = {"id": 1, "region": "a", "v": 1}
    names = pa.array(["1:10"])

    def add(batch: StagedBatch, mode: Mode, of: Target, change: Change, place: int) -> None:
        rows = decoded(schemas[mode], [change], first_place=place)
        batch.add(rows, of, transactions=names if mode == "changelog" else None)

    batch = lakes.main.begin(1)
    for mode in modes:
        batch.create(made[mode])
        add(batch, mode, made[mode], insert(**row), 10)
    finish(lakes.main, batch)
    partitioned = RecordedShape(partition_by=("region",))
    for number, shape in enumerate((partitioned, clustered), start=1):
        loading = {
            mode: side_target(before, number).with_spec(shape=shape)
            for mode, before in made.items()
        }
        batch = lakes.side.begin(1)
        for mode in modes:
            batch.create(loading[mode])
            add(batch, mode, loading[mode], insert(id=1 + number, region="b", v=2), 500)
        finish(lakes.side, batch, kind="snapshot")
        if shape is partitioned:  # the side table gets column mapping, which the old one lacks
            renamed = loading["soft_delete"]
            for batch_number, (old, new) in enumerate(("vw", "wv"), start=2):
                columns = renamed.spec.columns
                after = tuple(
                    c.model_copy(update={"name": new}) if c.name == old else c for c in columns
                )
                renamed = renamed.with_spec(columns=after)
                batch = lakes.side.begin(batch_number)
                batch.change(renamed, columns, (RenameColumn(name=old, new_name=new),))
                finish(lakes.side, batch)
        record = recorded_swap(lakes, *loading.values())
        with killed_at(killed):
            lakes.main.finish(record)
        before = lakes.main.last_cut()
        assert before is not None
        for mode in modes:
            lakes.main.check_target(before, f"shop.{mode}")
        cut = lakes.main.finish(record)
        check_targets(lakes.main, cut)
        made = loading
        for mode in modes:
            detail = lakes.sql(f"DESCRIBE DETAIL {lakes.table(schemas[mode])}")[0]
            assert detail.partitionColumns == list(shape.partition_by)
            assert detail.clusteringColumns == list(shape.cluster_by)
            ids = {row["id"] for row in rows_by_spark(lakes.main, f"shop.{mode}", "id").to_pylist()}
            # A changelog that follows the log already has what the load says of its rows.
            assert ids >= ({1} if mode == "changelog" else {1, 1 + number}), (mode, number)
        features: set[str] = set()
        mapping = "none"
        for version in range(version_of(cut, "soft_delete") + 1):
            actions = lakes.actions(schemas["soft_delete"], version)
            for protocol in actions.get("protocol", ()):
                features = {*protocol["writerFeatures"]}
            for metadata in actions.get("metaData", ()):
                mapping = metadata["configuration"].get("delta.columnMapping.mode", "none")
            assert mapping == "none" or "columnMapping" in features, version
        assert mapping == "name"
        lakes.snapshot_again()
