"""Rules against each other, the record and the lake: all mistakes at once, each with its path."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from cdc_pipeline.errors import CdcError, ConfigError, LakeStateError, SchemaError
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.records import Cut, CutTable
from cdc_pipeline.position.cursor import Suspension, TargetState
from cdc_pipeline.schema.target_spec import RecordedSource, TargetSpec
from cdc_pipeline.schema.types import TargetColumn, target_columns
from cdc_pipeline.targets.route_checks import (
    check_columns,
    check_places,
    check_recorded,
    check_routes,
    join_shard,
)
from cdc_pipeline.targets.routes import Route, Routes
from cdc_pipeline.targets.shape import recorded_shape, shape_table
from tests.support.sink_values import cursor_at, interval_of
from tests.targets.build import HASH, PERSON, SALT, config_of, routes_of

COLUMNS = target_columns(PERSON)


def cut_of(rule: dict[str, Any]) -> Cut:
    """A cut that holds shop.person as a rule made it."""
    (route,) = routes_of(rule).of_table("shop.person")
    shaped = shape_table(route, COLUMNS, ("id",))
    table = CutTable(
        table_version=1,
        spec=TargetSpec(
            columns=shaped.columns,
            key=shaped.key,
            sources={"shop.person": RecordedSource(columns=COLUMNS, key=("id",))},
            shape=recorded_shape(route.rule),
        ),
    )
    state = TargetState(
        table=route.target, app_id="a", table_version=1, applied_batch=1, sources=("shop.person",)
    )
    return Cut(
        source="bank",
        batch_number=1,
        published_at_us=1,
        interval=interval_of(1),
        cursor=cursor_at(1, targets={route.target: state}),
        tables={route.target: table},
    )


RULE: dict[str, Any] = {
    "name": "crm.people",
    "masks": {"email": HASH},
    "filter": "amount > 1",
    "cluster_by": ["id"],
}


def test_a_rule_that_has_not_changed() -> None:
    check_recorded(routes_of(RULE), cut_of(RULE))
    check_recorded(routes_of({**RULE, "cluster_by": []}), cut_of(RULE))
    check_recorded(routes_of({}), cut_of({}))


@pytest.mark.parametrize(
    ("change", "settings"),
    [
        ({"filter": "amount > 2"}, "filter"),
        ({"filter": ""}, "filter"),
        ({"masks": {"email": {"hash": {"salt": SALT + "2"}}}}, "masks"),
        ({"masks": {}}, "masks"),
        ({"columns": {"exclude": ["raw"]}}, "columns"),
        ({"types": {"id": "string"}}, "types"),
        ({"computed": {"y": {"expression": "id", "type": "int"}}}, "computed"),
        ({"partition_by": ["id"], "cluster_by": []}, "partition_by"),
    ],
)
def test_k14_a_rule_that_the_rows_were_not_made_by(change: dict[str, Any], settings: str) -> None:
    with pytest.raises(ConfigError) as found:
        check_recorded(routes_of({**RULE, **change}), cut_of(RULE))
    assert found.value.setting == f"targets.0.{settings}"
    assert SALT not in str(found.value)


def test_k14_a_target_that_waits_for_its_load_is_made_by_the_rule_of_then() -> None:
    there, other = cut_of(RULE), routes_of({**RULE, "filter": ""})
    held = Suspension(
        batch_number=1, error="LakeStateError", what="gone", journal="binlog.000004", offset=40
    )
    for needs_snapshot in (False, True):
        held = held.model_copy(update={"needs_snapshot": needs_snapshot})
        states = {
            name: state.model_copy(update={"suspended": held})
            for name, state in there.cursor.targets.items()
        }
        cut = there.model_copy(
            update={"cursor": there.cursor.model_copy(update={"targets": states})}
        )
        with nullcontext() if needs_snapshot else pytest.raises(ConfigError):
            check_recorded(other, cut)


def test_all_mistakes_at_once() -> None:
    config = config_of(
        {"tables": ["shop.person"], "name": "crm.people", "filter": "amount > 2"},
        {"tables": ["shop.a", "shop.b"], "name": "crm.both"},
        {"tables": ["shop.c"], "name": "crm.c"},
        {"tables": ["shop.c"], "name": "crm.c"},
    )
    with pytest.raises(ConfigError) as found:
        check_routes(
            config, ["shop.person", "shop.a", "shop.b", "shop.c"], cut_of({"name": "crm.people"})
        )
    text = str(found.value)
    assert "3 mistakes" in text
    assert "targets.0.filter" in text
    assert "shop.b and shop.a lead to the same target crm.both" in text
    assert "two rules keep shop.c as the same target" in text


def test_shards_need_one_rule_and_values_of_their_own() -> None:
    tables = ["shop.a", "shop.b"]
    check_routes(config_of({"tables": tables, "name": "crm.x", "shard_column": "s"}), tables, None)
    with pytest.raises(ConfigError, match="same shard"):
        check_routes(
            config_of(
                {"tables": tables, "name": "crm.x", "shard_column": "s", "shard_value": "{schema}"}
            ),
            tables,
            None,
        )
    two = [{"tables": [table], "name": "crm.x", "shard_column": "s"} for table in tables]
    with pytest.raises(ConfigError, match="lead to the same target"):
        check_routes(config_of(*two), tables, None)


def spec_of(
    route: Route,
    key: tuple[str, ...],
    columns: tuple[TargetColumn, ...] = COLUMNS,
    sources: Mapping[str, RecordedSource] = MappingProxyType({}),
) -> TargetSpec:
    shaped = shape_table(route, columns, key)
    return TargetSpec(columns=shaped.columns, key=shaped.key, sources=dict(sources))


def test_shards_whose_columns_contradict() -> None:
    rule = {
        "tables": ["shop.*"],
        "name": "crm.x",
        "shard_column": "s",
        "columns": {"exclude": ["raw"]},
    }
    routes = routes_of(rule)
    (first,), (second,) = routes.of_table("shop.a"), routes.of_table("shop.b")
    sources = {"shop.a": RecordedSource(columns=COLUMNS, key=("id",))}
    there = spec_of(first, ("id",), sources=sources)
    join_shard(second, spec_of(second, ("id",)), there)
    without_raw = tuple(column for column in COLUMNS if column.name != "raw")
    join_shard(second, spec_of(second, ("id",), without_raw), there)
    other = (*without_raw, TargetColumn(name="more", delta_type="int"))
    with pytest.raises(SchemaError, match="`more` is absent in the target and int here"):
        join_shard(second, spec_of(second, ("id",), other), there)
    with pytest.raises(SchemaError, match="the key is"):
        join_shard(second, spec_of(second, ("Email",)), there)


def test_rules_against_the_catalog() -> None:
    config = config_of(
        {"tables": ["shop.person"], "masks": {"id": {"truncate": 1}, "mail": "drop"}},
        {"tables": ["shop.*"], "name": "crm.{table}", "masks": {"mail": "drop"}},
    )
    with pytest.raises(ConfigError) as found:
        check_columns(config, {"shop.person": (COLUMNS, PERSON.key_names)})
    assert "targets.0.masks.id" in str(found.value)
    assert "targets.0.masks.mail: no table of the rule has a column mail" in str(found.value)
    assert "targets.1.masks.mail" not in str(found.value), (
        "a pattern may match tables without the column"
    )


@pytest.mark.parametrize("rule", [{"key": ["Email"]}, {"mode": "changelog"}])
def test_k14_f143_what_is_no_key_of_the_target_may_be_left_out(rule: dict[str, Any]) -> None:
    """By the source's key the table was made, and refused from its second run on."""
    config = config_of({"tables": ["shop.person"], "masks": {"id": "drop"}, **rule})
    check_columns(config, {"shop.person": (COLUMNS, PERSON.key_names)})


def test_a_lake_that_cannot_be_written(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(LakeStateError, match="cannot be written"):
        check_routes(config_of(lake=str(file / "lake")), [], None)
    check_routes(config_of(lake=str(tmp_path / "new" / "lake")), [], None)


def test_k16_the_place_of_a_new_target_is_free(tmp_path: Path) -> None:
    import pyarrow as pa
    from deltalake import write_deltalake

    paths = LakePaths(tmp_path, "bank")
    for name in ("crm.people", "shop.other", "shop.torn"):
        write_deltalake(str(paths.table(name)), pa.table({"id": [1]}))
    torn = paths.table("shop.torn") / "_delta_log" / f"{0:020d}.json"
    torn.write_text("{")
    config = config_of({"tables": ["shop.person"], "name": "crm.people"}, lake=str(tmp_path))
    tables = ["shop.person", "shop.other", "shop.free", "shop.torn"]
    with pytest.raises(CdcError) as found:
        check_places(config, tables, paths=paths, ours=[])
    assert "crm.people" in str(found.value)
    assert "shop.other" in str(found.value)
    with pytest.raises(LakeStateError, match=str(torn)) as damage:
        check_places(config, ["shop.torn"], paths=paths, ours=[])
    assert damage.value.table == "shop.torn"
    assert damage.value.next_step == "move that table away, or give the target another `name`"
    check_places(config, tables, paths=paths, ours=["crm.people", "shop.other", "shop.torn"])
    assert Routes(config).of_table("shop.person")[0].setting == "targets.0"
