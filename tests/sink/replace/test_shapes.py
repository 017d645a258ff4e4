"""Tables of every layout that a load replaces: partitions, clustering, column mapping, rescued
values (K3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import pytest

from cdc_pipeline.binlog.decoded import InvalidValue
from cdc_pipeline.binlog.table_schema import Kind
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.schema.evolution.steps import RenameColumn
from cdc_pipeline.schema.target_spec import RecordedShape
from cdc_pipeline.sink.delta_sink import DeltaSink
from tests.sink.replace.lake import Lakes, differences, finish, recorded_swap, side_target, target
from tests.support.sink_values import check_targets, column, decoded, delete, insert, table_schema

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
