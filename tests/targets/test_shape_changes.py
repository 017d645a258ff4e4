"""DDL of tables whose target has other columns: what follows the rule, and what stops its target by
name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cdc_pipeline.config.schema_policy import SchemaChangePolicy
from cdc_pipeline.errors import SchemaError
from cdc_pipeline.schema.ddl.ddl import parse_statement
from cdc_pipeline.schema.evolution.changes import KnownTable, TableChange, decide
from cdc_pipeline.schema.evolution.statement_context import ALL_FEATURES, StatementContext
from cdc_pipeline.schema.evolution.steps import (
    AddColumn,
    DropColumn,
    FillColumns,
    RenameColumn,
    WidenColumn,
)
from cdc_pipeline.schema.target_spec import RecordedSource
from cdc_pipeline.schema.types import TargetColumn, target_columns
from cdc_pipeline.targets.shape import recorded_shape, shape_table
from cdc_pipeline.targets.shape_changes import shaped_change, unshaped
from tests.targets.build import HASH, PERSON, routes_of

COLUMNS = target_columns(PERSON)
RULE: dict[str, Any] = {
    "name": "crm.people",
    "columns": {"exclude": ["raw", "internal_*"]},
    "masks": {"email": HASH, "phone": {"truncate": 3}},
    "types": {"amount": "decimal(12,4)", "price": "string"},
    "computed": {"year": {"expression": "year(born)", "type": "int"}},
}


def known_before(
    rule: dict[str, Any], others: list[RecordedSource]
) -> tuple[KnownTable, tuple[TargetColumn, ...]]:
    (route,) = routes_of(rule).of_table("shop", "person")
    columns = shape_table(route, COLUMNS, ("id",)).columns
    source = RecordedSource(columns=COLUMNS, key=("id",))
    target = unshaped(columns, source, others, recorded_shape(route.rule))
    return KnownTable(
        RecordedSource(columns=COLUMNS, key=("id",)),
        target=target,
        shared=bool(others),
        name="crm.people",
    ), columns


def said(
    sql: str, rule: dict[str, Any] = RULE, others: list[RecordedSource] | None = None, **policy: Any
) -> TableChange:
    """What a statement does to the target of shop.person."""
    known, columns = known_before(rule, others or [])
    decision = decide(
        StatementContext(
            parse_statement(sql, "shop", is_mariadb=False),
            captured=lambda *_: True,
            known=lambda _, table: known if table == "person" else None,
            features=ALL_FEATURES,
            policy=lambda *_: SchemaChangePolicy(**policy),
        )
    )
    (change,) = decision.changes
    (route,) = routes_of(rule).of_table("shop", "person")
    return shaped_change(replace(change, before=known), route, columns, others or [])


def names(columns: tuple[TargetColumn, ...]) -> list[str]:
    return [column.name for column in columns]


def test_a_target_is_judged_as_if_it_had_the_sources_columns() -> None:
    known, columns = known_before(RULE, [])
    assert known.target_columns == COLUMNS
    assert names(columns) == ["id", "Email", "amount", "born", "year"]
    kept = (*columns, TargetColumn(name="old", delta_type="int"))
    (route,) = routes_of(RULE).of_table("shop", "person")
    source = RecordedSource(columns=COLUMNS, key=("id",))
    assert names(unshaped(kept, source, [], recorded_shape(route.rule))) == [*names(COLUMNS), "old"]


def test_new_columns_follow_the_rule() -> None:
    change = said(
        "ALTER TABLE person ADD vip INT, ADD internal_x INT, ADD phone VARCHAR(20), ADD price INT"
    )
    assert change.steps == (
        AddColumn(name="vip", delta_type="int"),
        AddColumn(name="phone", delta_type="string"),
        AddColumn(name="price", delta_type="string"),
    )
    assert names(change.known.source.columns) == [
        *names(COLUMNS),
        "vip",
        "internal_x",
        "phone",
        "price",
    ]
    assert names(change.known.target_columns) == [
        "id",
        "Email",
        "amount",
        "born",
        "year",
        "vip",
        "phone",
        "price",
    ]
    assert change.before is not None
    assert names(change.before.target_columns) == ["id", "Email", "amount", "born", "year"]


def test_k13_old_rows_get_defaults_of_plain_columns_alone() -> None:
    change = said(
        "ALTER TABLE person ADD vip INT NOT NULL DEFAULT 3, ADD internal_x INT NOT NULL DEFAULT 4"
    )
    added, filled = change.steps
    assert added == AddColumn(name="vip", delta_type="int")
    assert isinstance(filled, FillColumns)
    assert [name for name, _, _ in filled.values] == ["vip"]
    assert filled.defaults == ("vip",)
    for sql, setting in (
        (
            "ALTER TABLE person ADD phone VARCHAR(9) NOT NULL DEFAULT '555'",
            r"targets\.0\.masks\.phone",
        ),
        ("ALTER TABLE person ADD price INT NOT NULL", r"targets\.0\.types\.price"),
    ):
        with pytest.raises(SchemaError, match=setting):
            said(sql)


@pytest.mark.parametrize(
    ("sql", "setting"),
    [
        ("ALTER TABLE person DROP COLUMN Email", "masks.Email"),
        ("ALTER TABLE person RENAME COLUMN Email TO contact", "masks.Email"),
        ("ALTER TABLE person RENAME COLUMN amount TO total", "types.amount"),
        ("ALTER TABLE person DROP COLUMN born", "computed.year.expression"),
        ("ALTER TABLE person RENAME COLUMN raw TO public", "columns"),
        ("ALTER TABLE person ADD year INT", "computed"),
    ],
)
def test_k14_what_a_rule_holds_on_to_stops_the_target_by_name(sql: str, setting: str) -> None:
    """A mask or an exclusion would fall away without a word: the new name is none that the rule
    knows."""
    with pytest.raises(SchemaError) as found:
        said(sql)
    assert found.value.setting == f"targets.0.{setting}"
    assert found.value.table == "shop.person"


@pytest.mark.parametrize(
    ("rule", "sql", "setting"),
    [
        ({"filter": "born > '2000-01-01'"}, "ALTER TABLE person DROP COLUMN born", "filter"),
        ({"partition_by": ["amount"]}, "ALTER TABLE person DROP COLUMN amount", "partition_by"),
        ({"cluster_by": ["amount"]}, "ALTER TABLE person RENAME COLUMN amount TO a", "cluster_by"),
        (
            {"columns": {"include": ["id", "amount"]}},
            "ALTER TABLE person DROP COLUMN amount",
            "columns.include",
        ),
    ],
)
def test_columns_that_a_setting_names(rule: dict[str, Any], sql: str, setting: str) -> None:
    with pytest.raises(SchemaError) as found:
        said(sql, rule)
    assert found.value.setting == f"targets.0.{setting}"


def test_columns_that_the_target_does_not_take_change_in_the_record_alone() -> None:
    for sql in (
        "ALTER TABLE person DROP COLUMN raw",
        "ALTER TABLE person RENAME COLUMN raw TO internal_raw",
    ):
        for policy in ({"drop_column": "apply"}, {"drop_column": "keep"}):
            change = said(sql, **policy)
            assert change.steps == ()
            assert names(change.known.target_columns) == ["id", "Email", "amount", "born", "year"]
            assert "raw" not in names(change.known.source.columns)


def test_plain_columns_change_as_in_any_target() -> None:
    rule = {"columns": {"exclude": ["raw"]}}
    assert said("ALTER TABLE person DROP COLUMN born", rule, drop_column="apply").steps == (
        DropColumn(name="born"),
    )
    renamed = said("ALTER TABLE person RENAME COLUMN born TO birth", rule)
    assert renamed.steps == (RenameColumn(name="born", new_name="birth"),)
    assert names(renamed.known.target_columns) == ["id", "Email", "amount", "birth"]


SHARDS: dict[str, Any] = {"tables": ["shop.*"], "name": "crm.people", "shard_column": "shard"}
OTHER = RecordedSource(
    columns=(*COLUMNS, TargetColumn(name="extra", delta_type="int")), key=("id",)
)


def test_a_column_comes_with_the_first_shard_and_goes_with_the_last() -> None:
    first = said(
        "ALTER TABLE person ADD extra INT", SHARDS, [RecordedSource(columns=COLUMNS, key=("id",))]
    )
    assert first.steps == (AddColumn(name="extra", delta_type="int"),)
    kept = said("ALTER TABLE person DROP COLUMN born", SHARDS, [OTHER], drop_column="apply")
    assert kept.steps == ()
    known, _ = known_before(SHARDS, [OTHER])
    columns = (*shape_table(*_person(SHARDS)).columns, TargetColumn(name="extra", delta_type="int"))
    second = TableChange(
        ("shop", "person"),
        replace(
            known,
            source=RecordedSource(
                columns=(*COLUMNS, TargetColumn(name="extra", delta_type="int")), key=("id",)
            ),
        ),
        (AddColumn(name="extra", delta_type="int"),),
        before=known,
    )
    assert shaped_change(second, _person(SHARDS)[0], columns, [OTHER]).steps == ()
    wrong = replace(second, steps=(AddColumn(name="extra", delta_type="bigint"),))
    with pytest.raises(SchemaError, match="bigint, but int in the target"):
        shaped_change(wrong, _person(SHARDS)[0], columns, [OTHER])


def _person(rule: dict[str, Any]) -> tuple[Any, Any, Any]:
    (route,) = routes_of(rule).of_table("shop", "person")
    return route, COLUMNS, ("id",)


def test_shards_are_not_renamed_and_their_columns_neither() -> None:
    with pytest.raises(SchemaError, match="renamed"):
        said("ALTER TABLE person RENAME COLUMN born TO birth", SHARDS, [OTHER])
    with pytest.raises(SchemaError, match="a shard is renamed"):
        said("RENAME TABLE person TO people", SHARDS, rename_table="follow")


def test_wider_types_under_masks_and_overrides() -> None:
    (route,) = routes_of(RULE).of_table("shop", "person")
    known, columns = known_before(RULE, [])

    def widened(name: str, delta_type: str) -> TableChange:
        after = tuple(
            column.model_copy(update={"delta_type": delta_type}) if column.name == name else column
            for column in COLUMNS
        )
        step = WidenColumn(name=name, delta_type=delta_type)
        change = TableChange(
            ("shop", "person"),
            replace(known, source=RecordedSource(columns=after, key=("id",))),
            (step,),
            before=known,
        )
        return shaped_change(change, route, columns, [])

    assert widened("id", "bigint").steps == (WidenColumn(name="id", delta_type="bigint"),)
    assert widened("amount", "decimal(10,2)").steps == ()
    with pytest.raises(SchemaError, match=r"types\.amount"):
        widened("amount", "decimal(14,6)")
