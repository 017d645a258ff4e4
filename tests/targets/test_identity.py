"""How a target's mode and key are decided, and what of a rule is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from cdc_pipeline.binlog.seq import pack_seq
from cdc_pipeline.binlog.seq_columns import SEQ_TYPE, ordinals, transactions
from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.config.target_config import TargetRule
from cdc_pipeline.errors import CdcError, IncompleteRowsError, KeylessTableError, SchemaError
from cdc_pipeline.lake.records import RecordedTarget
from cdc_pipeline.run.plan.preview import planned_targets
from cdc_pipeline.schema.target_spec import TargetSpec
from cdc_pipeline.schema.types import TargetColumn
from cdc_pipeline.sink.modes.expand import LEAVE, check_images, expand
from cdc_pipeline.sink.modes.registry import SINK_MODES
from cdc_pipeline.targets.keys import SOURCE_KEY, Identity, identity_of
from tests.sink.modes.test_modes_model import SCHEMA
from tests.support.sink_values import decoded, delete, table_schema, update


def identity(rule: dict[str, Any], *, key: tuple[str, ...] = ()) -> Identity:
    return identity_of(
        TargetRule(**rule), source="shop.t", columns=("a", "b", "__start_at"), source_key=key
    )


@pytest.mark.parametrize(
    ("rule", "key", "mode", "found"),
    [
        ({}, ("a",), "mirror", ("a",)),
        ({"key": ["b"]}, ("a",), "mirror", ("b",)),
        ({"mode": "soft_delete"}, ("a",), "soft_delete", ("a",)),
        ({"mode": "changelog"}, ("a",), "changelog", ()),
        ({}, (), "changelog", ()),
        ({"mode": "soft_delete"}, (), "changelog", ()),
        ({"keyless": "row_hash"}, (), "mirror", ()),
        ({"keyless": "row_hash"}, ("a",), "mirror", ("a",)),
    ],
)
def test_the_rule_then_the_source_then_keyless(
    rule: dict[str, Any], key: tuple[str, ...], mode: str, found: tuple[str, ...]
) -> None:
    chosen = identity(rule, key=key)
    assert (chosen.mode, chosen.key) == (mode, found)
    assert chosen.why


@pytest.mark.parametrize(
    ("rule", "error"),
    [
        ({"keyless": "stop"}, KeylessTableError),
        ({"key": ["nowhere"]}, CdcError),
        ({"mode": "history", "track": ["nowhere"]}, CdcError),
        ({"mode": "history", "key": ["a"]}, SchemaError),  # the table has a column __start_at
    ],
)
def test_what_cannot_be_is_refused_by_name(rule: dict[str, Any], error: type[CdcError]) -> None:
    with pytest.raises(error) as caught:
        identity(rule)
    assert caught.value.next_step


@pytest.mark.parametrize(
    "rule",
    [
        {"mode": "mirror", "track": ["a"]},
        {"mode": "changelog", "key": ["a"]},
        {"mode": "history", "keyless": "row_hash"},
    ],
)
def test_settings_that_contradict_the_mode_are_refused(rule: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        TargetRule(**rule)


def test_plan_says_mode_key_and_why(tmp_path: Path) -> None:
    document = {
        "name": "shop",
        "source": {"kind": "archive", "directory": tmp_path},
        "sink": {"lake_path": tmp_path / "lake"},
        "targets": [{"tables": ["shop.a"]}, {"tables": ["shop.a"], "mode": "changelog"}],
    }
    planned = planned_targets(PipelineConfig.model_validate(document), ["shop.a", "shop.b"], None)
    assert [(one.target, one.mode, one.key, one.key_text) for one in planned] == [
        ("shop.a", "mirror", None, "found in the log"),
        ("shop.a_changelog", "changelog", (), "none"),
        ("shop.b", "mirror", None, "found in the log"),
    ]
    assert planned[0].reason.startswith(SOURCE_KEY)


def test_plan_says_mode_and_key_of_tables_that_the_catalog_shows(tmp_path: Path) -> None:
    document = {
        "name": "shop",
        "source": {"kind": "archive", "directory": tmp_path},
        "sink": {"lake_path": tmp_path / "lake"},
        "targets": [
            {"tables": ["shop.stop"], "keyless": "stop"},
            {"tables": ["x*.part"], "name": "all.part", "shard_column": "shard"},
            {"tables": ["shop.new"], "schema_changes": {"policy": "stop", "truncate": "keep"}},
            {"tables": ["shop.*"], "except": ["shop.stop", "shop.new"]},
        ],
        "schema_changes": "careful",
    }
    config = PipelineConfig.model_validate(document)
    names = ["shop.keyed", "shop.keyless", "shop.new", "shop.stop", "x1.part", "x2.part"]
    a, b = (TargetColumn(name=name, delta_type="int") for name in "ab")
    catalog = {
        "shop.keyed": ((a, b), ("a", "b")),
        "shop.keyless": ((a,), ()),
        "shop.stop": ((a,), ()),
        "x1.part": ((a,), ("a",)),
    }
    told = {target.target: target for target in planned_targets(config, names, None, catalog)}
    assert {name: (one.mode, one.key) for name, one in told.items()} == {
        "all.part": ("mirror", ("a", "shard")),
        "shop.keyed": ("mirror", ("a", "b")),
        "shop.keyless": ("changelog", ()),
        "shop.new": ("mirror", None),
        "shop.stop": ("mirror", None),
    }
    assert told["shop.keyed"].reason == SOURCE_KEY
    assert "key" in told["shop.stop"].reason
    assert told["shop.keyed"].schema_changes == (
        "careful: added and wider columns are followed; renamed columns, renamed tables, new keys, "
        "rewritten values, dropped columns, dropped tables, truncated rows suspend the table"
    )
    assert told["shop.new"].schema_changes.endswith(
        "dropped tables suspend the table; truncated rows are kept"
    )


def test_plan_names_the_tables_that_a_target_of_another_name_is_made_of(tmp_path: Path) -> None:
    document = {
        "name": "shop",
        "source": {"kind": "archive", "directory": tmp_path},
        "sink": {"lake_path": tmp_path / "lake"},
        "targets": [
            {"tables": ["shop_*.part"], "name": "all.part", "shard_column": "shard"},
            {"tables": ["shop_1.part"], "mode": "soft_delete", "name": "shop.kept"},
        ],
    }
    planned = planned_targets(
        PipelineConfig.model_validate(document), ["shop_1.part", "shop_2.part", "shop.x"], None
    )
    assert {one.target: one.kind_text for one in planned} == {
        "all.part": "mirror of shop_1.part, shop_2.part",
        "shop.kept": "soft delete of shop_1.part",
        "shop.x": "mirror",
    }


def test_k10_rows_found_by_values_come_and_go_whole() -> None:
    schema = table_schema("shop.bag", SCHEMA.columns)
    names = SCHEMA.column_names
    old, new = dict.fromkeys(names, None) | {"story": 1}, dict.fromkeys(names, None) | {"story": 2}
    rows = decoded(schema, [update(old, new), delete(**new)], first_place=5)
    staged = expand(rows, columns=names, key=()).table
    assert sorted(zip(staged["_op"].to_pylist(), staged["c0"].to_pylist(), strict=True)) == [
        (0, 2),
        (3, 1),
        (4, 2),
    ]
    assert LEAVE == 3
    lacking = decoded(schema, [delete(story=1)], first_place=5)
    with pytest.raises(IncompleteRowsError, match="lacks"):
        check_images(lacking, ())


def test_k1_a_seq_tells_its_transaction_and_the_order_in_it() -> None:
    places = [(3, 77, 5, 2), (3, 1 << 39, 0, 0), (4, 4, 1 << 20, 1 << 17)]
    seq = pa.array(
        [pack_seq(1, j, o, e, r, 1) for j, o, e, r in places], pa.decimal128(38, 0)
    ).cast(SEQ_TYPE)
    numbers, offsets = transactions(seq)
    assert list(zip(numbers.tolist(), offsets.tolist(), strict=True)) == [
        (j, o) for j, o, _, _ in places
    ]
    assert ordinals(seq).tolist() == [e << 18 | r for _, _, e, r in places]


@pytest.mark.parametrize(
    ("mode", "verb"),
    [
        ("mirror", "DELETE"),
        ("soft_delete", "UPDATE"),
        ("history", "UPDATE"),
        ("changelog", "INSERT"),
    ],
)
def test_k13_each_mode_tells_a_truncate_in_its_own_way(mode: Any, verb: str) -> None:
    target = RecordedTarget(
        table="a.b", app_id="x", spec=TargetSpec(mode=mode, columns=(), key=("a",))
    )
    sql = SINK_MODES[mode].truncate_sql(
        Path("/lake/a/b"), target, seq=7, ts_us=1, transaction="o'clock:4"
    )
    assert sql.startswith(verb)
