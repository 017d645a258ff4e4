"""DDL of tables whose target has other columns: what follows the rule, and what stops its target by
name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cdc_pipeline.binlog.table_schema import Column, Kind, TableSchema
from cdc_pipeline.config.schema_policy import SchemaChangePolicy
from cdc_pipeline.errors import SchemaError, UnsupportedDdlError
from cdc_pipeline.schema.ddl.ddl import parse_statement
from cdc_pipeline.schema.evolution.changes import decide
from cdc_pipeline.schema.evolution.statement_context import (
    Decision,
    KnownTable,
    StatementContext,
    TableChange,
)
from cdc_pipeline.schema.evolution.steps import (
    ALL_FEATURES,
    AddColumn,
    DropColumn,
    FillColumns,
    RenameColumn,
    WidenColumn,
    left_after,
)
from cdc_pipeline.schema.source_table import SourceTable
from cdc_pipeline.schema.target_spec import Misfit, RecordedShape, RecordedSource, shape_of
from cdc_pipeline.schema.types import TargetColumn, target_columns
from cdc_pipeline.targets.shape import recorded_shape, shape_table
from tests.support.sink_values import column
from tests.targets.build import HASH, PERSON, routes_of

COLUMNS = target_columns(PERSON)
RULE: dict[str, Any] = {
    "name": "crm.people",
    "columns": {"exclude": ["raw", "internal_*"]},
    "masks": {"email": HASH, "phone": {"truncate": 3}},
    "types": {"amount": "decimal(12,4)", "price": "string"},
    "computed": {"year": {"expression": "year(born)", "type": "int"}},
}


def known_before(rule: dict[str, Any], others: list[RecordedSource]) -> KnownTable:
    (route,) = routes_of(rule).of_table("shop.person")
    return KnownTable(
        RecordedSource(columns=COLUMNS, key=("id",)),
        target=shape_table(route, COLUMNS, ("id",)).columns,
        shape=recorded_shape(route.rule),
        others=tuple(others),
        name="crm.people",
        setting=route.setting,
    )


def decided(
    sql: str,
    rule: dict[str, Any] = RULE,
    others: list[RecordedSource] | None = None,
    *,
    known: KnownTable | None = None,
    before: TableSchema = PERSON,
    **policy: Any,
) -> Decision:
    of_target = replace(
        known or known_before(rule, others or []), policy=SchemaChangePolicy(**policy)
    )
    return decide(
        StatementContext(
            parse_statement(sql, "shop", is_mariadb=False),
            captured=lambda *_: True,
            known=lambda _, table: of_target if table == "person" else None,
            before=lambda *_: SourceTable(before, "utf8mb4", "utf8mb4", ()),
            features=ALL_FEATURES,
        )
    )


def said(*args: Any, **policy: Any) -> TableChange:
    """What a statement does to the target of shop.person."""
    (change,) = decided(*args, **policy).changes
    return change


def names(columns: tuple[TargetColumn, ...]) -> list[str]:
    return [column.name for column in columns]


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
    with_extra = known_before(SHARDS, [OTHER])
    extra = TargetColumn(name="extra", delta_type="int")
    with_extra = replace(with_extra, target=(*with_extra.target_columns, extra))
    sql = "ALTER TABLE person ADD extra INT"
    assert decided(sql, SHARDS, known=with_extra).ddl.reason == "`extra` is in the target already"
    second = said(sql, SHARDS, known=with_extra)
    assert second.steps == ()
    assert second.known.target_columns == with_extra.target_columns
    with pytest.raises(SchemaError, match="bigint, but int in the target"):
        said("ALTER TABLE person ADD extra BIGINT", SHARDS, known=with_extra)


def test_shards_are_not_renamed_and_their_columns_neither() -> None:
    with pytest.raises(SchemaError, match="renamed"):
        said("ALTER TABLE person RENAME COLUMN born TO birth", SHARDS, [OTHER])
    with pytest.raises(SchemaError, match="a shard is renamed"):
        said("RENAME TABLE person TO people", SHARDS, rename_table="follow")


def test_k14_a_column_dropped_and_added_by_one_statement_is_a_new_one() -> None:
    change = said("ALTER TABLE person DROP born, ADD born DATETIME NOT NULL DEFAULT '2024-01-02'", {
        "columns": {"exclude": ["raw"]}
    })  # fmt: skip
    renamed, added, filled = change.steps
    assert renamed == RenameColumn(name="born", new_name="born__dropped")
    assert added == AddColumn(name="born", delta_type="timestamp_ntz")
    assert isinstance(filled, FillColumns)
    assert names(change.known.target_columns) == ["id", "Email", "amount", "born__dropped", "born"]


def test_wider_types_under_masks_and_overrides() -> None:
    assert said("ALTER TABLE person MODIFY id BIGINT").steps == (
        WidenColumn(name="id", delta_type="bigint"),
    )
    assert said("ALTER TABLE person MODIFY amount DECIMAL(10,2)").steps == ()
    with pytest.raises(SchemaError, match=r"types\.amount"):
        said("ALTER TABLE person MODIFY amount DECIMAL(14,6)")


def test_k23_texts_of_numbers_stay_what_they_were_or_stop() -> None:
    """1.50 becomes 1.5000 at the source, which is another text, but has the same hash."""
    hashed, text = {"masks": {"amount": HASH}}, {"types": {"amount": "string"}}

    def widened(rule: dict[str, Any], before: Column, sql: str) -> TableChange:
        schema = replace(PERSON, columns=(*PERSON.columns[:2], before))
        known = known_before(rule, [])
        update = {"columns": target_columns(schema)}
        of_schema = replace(known, source=known.source.model_copy(update=update))
        return said(f"ALTER TABLE person MODIFY amount {sql}", known=of_schema, before=schema)

    whole = column("amount", Kind.INT32)
    cents = column("amount", Kind.DECIMAL, precision=6, scale=2)
    for rule in (hashed, text):
        for before, sql in (
            (whole, "BIGINT"),
            (whole, "DECIMAL(12)"),
            (cents, "DECIMAL(10,2)"),
        ):
            assert widened(rule, before, sql).steps == ()
    assert widened(hashed, cents, "DECIMAL(10,4)").steps == ()
    assert widened(hashed, whole, "DECIMAL(20,4)").steps == ()
    for rule, setting, before, sql in (
        (text, "types.amount", cents, "DECIMAL(10,4)"),
        (text, "types.amount", whole, "DECIMAL(20,4)"),
        (text, "types.amount", column("amount", Kind.FLOAT), "DOUBLE"),
        (hashed, "masks.amount", column("amount", Kind.FLOAT), "DOUBLE"),
        (hashed, "masks.amount", column("amount", Kind.DATE), "DATETIME"),
    ):
        with pytest.raises(SchemaError) as stopped:
            widened(rule, before, sql)
        assert stopped.value.setting == f"targets.0.{setting}"


def test_k13_f229_texts_of_times_stay_what_the_server_prints_or_stop() -> None:
    """Of 08:00:00 as DATETIME(3) it prints 08:00:00.000; a hash is of neither's zeros."""
    sql, plain = "ALTER TABLE person MODIFY born DATETIME(3)", {"columns": {"exclude": ["raw"]}}
    for rule in (plain, {**plain, "masks": {"born": HASH}}, {**plain, "cluster_by": ["born"]}):
        assert decided(sql, rule).changes == ()
    with pytest.raises(SchemaError, match=r"types\.born"):
        said(sql, {**plain, "types": {"born": "string"}})


@pytest.mark.parametrize(
    ("sql", "policy"),
    [
        ("RENAME COLUMN born TO birth", "keep"),
        ("DROP born", "apply"),
        ("DROP born, ADD born DATETIME", "keep"),
        ("MODIFY born DATETIME(3)", "keep"),
        ("MODIFY born DATE", "keep"),
        ("DROP amount, RENAME COLUMN born TO amount", "keep"),
    ],
)
def test_k13_f230_a_column_whose_values_were_rescued_keeps_its_name_and_type(
    sql: str, policy: str
) -> None:
    """Rows have the server's texts in `_cdc_rescued` under it."""
    known = replace(known_before({}, []), rescued=("born",))
    settings = {"drop_column": policy, "incompatible": "rewrite"}
    decided(f"ALTER TABLE person {sql}", {}, **settings)
    with pytest.raises(UnsupportedDdlError, match="values of `born` were rescued"):
        said(f"ALTER TABLE person {sql}", known=known, **settings)


def test_k13_f230_a_column_that_is_kept_keeps_the_texts_of_its_values() -> None:
    known = replace(known_before({}, []), rescued=("born",))
    kept = said("ALTER TABLE person DROP born", known=known)
    assert kept.steps == ()
    for sql in ("ADD born INT", "RENAME COLUMN amount TO born"):
        with pytest.raises(UnsupportedDdlError, match="values of `born` were rescued"):
            said(f"ALTER TABLE person {sql}", known=kept.known)
    new = said("ALTER TABLE person MODIFY born INT", known=known, incompatible="new_column")
    assert new.known.target_name("born") == "born__v2"
    assert decided("ALTER TABLE person MODIFY born DATETIME FIRST", known=known).changes == ()


@pytest.mark.parametrize("key", ["(id, amount)", "(amount)"])
def test_k13_f231_a_key_that_several_tables_have_is_not_changed_by_one_of_them(key: str) -> None:
    """The others' rows would be found by it, though they are not unique in it."""
    sql = f"ALTER TABLE person DROP PRIMARY KEY, ADD PRIMARY KEY {key}"
    schema = replace(PERSON, columns=tuple(replace(c, nullable=False) for c in PERSON.columns))
    alone = said(sql, SHARDS, before=schema, change_key="apply")
    assert "amount" in alone.known.source.key
    with pytest.raises(SchemaError, match="gets another primary key") as stopped:
        said(sql, SHARDS, [OTHER], before=schema, change_key="apply")
    assert stopped.value.setting == "targets.0.shard_column"


def test_k13_a_shard_that_drops_a_column_adds_it_again_only_without_its_old_values() -> None:
    """Other shards keep the column, and with it the values of rows that lost theirs."""
    born = RecordedSource(columns=COLUMNS, key=("id",))
    for policy in ("apply", "keep"):
        with pytest.raises(SchemaError, match="a change of values in a target"):
            said(
                "ALTER TABLE person DROP born, ADD born DATETIME",
                SHARDS,
                [born],
                drop_column=policy,
            )
        dropped = said("ALTER TABLE person DROP born", SHARDS, [born], drop_column=policy)
        assert dropped.steps == ()
        with pytest.raises(SchemaError, match="a change of values in a target"):
            said("ALTER TABLE person ADD born DATETIME", SHARDS, known=dropped.known)


@pytest.mark.parametrize("policy", ["apply", "keep"])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_k13_shards_that_have_all_dropped_a_column_may_all_add_it_again(
    policy: str, order: tuple[int, ...]
) -> None:
    """Its old values are in a column of another name, or gone."""
    known = known_before(SHARDS, [])
    shards, target = [known.source] * 3, known.target

    def alter(number: int, sql: str) -> None:
        nonlocal target
        others = [shards[other] for other in range(3) if other != number]
        of_shard = replace(known, source=shards[number], others=tuple(others), target=target)
        change = said(sql, known=of_shard, drop_column=policy)
        target = change.known.target_columns
        for other in range(3):
            if other != number:
                left = left_after(shards[other].left, change.steps)
                shards[other] = shards[other].model_copy(update={"left": left})
        shards[number] = change.known.source

    for number in range(3):
        alter(number, "ALTER TABLE person DROP born")
    for number in order:
        alter(number, "ALTER TABLE person ADD born DATETIME")
    assert names(target).count("born") == 1
    assert all("born" not in shard.left for shard in shards)


def test_k13_columns_that_look_the_same_afterwards_are_not_taken_for_changed() -> None:
    """A killed batch is continued where its columns show: these would show its end at once."""
    twins = replace(
        PERSON, columns=(PERSON.columns[0], column("a", Kind.INT32), column("b", Kind.INT32))
    )
    columns = target_columns(twins)
    known = replace(
        known_before({}, []), source=RecordedSource(columns=columns, key=("id",)), target=columns
    )
    sql = "ALTER TABLE person DROP a, RENAME COLUMN b TO a, ADD b INT"
    with pytest.raises(SchemaError, match="look the same as before") as refused:
        said(sql, known=known, before=twins, drop_column="apply")
    assert "drop_column: keep" in str(refused.value)
    kept = said(sql, known=known, before=twins, drop_column="keep")
    assert names(kept.known.target_columns) == ["id", "a__dropped", "a", "b"]


@pytest.mark.parametrize(
    ("rule", "setting"),
    [
        ({"filter": "amount > 1"}, "filter"),
        ({"partition_by": ["amount"]}, "partition_by"),
        ({"masks": {"amount": HASH}}, "masks.amount"),
        ({"computed": {"c": {"expression": "amount + 1", "type": "int"}}}, "computed.c.expression"),
    ],
)
def test_k14_a_column_that_a_setting_reads_keeps_getting_the_new_values(
    rule: dict[str, Any], setting: str
) -> None:
    with pytest.raises(SchemaError) as stopped:
        said("ALTER TABLE person MODIFY amount VARCHAR(9)", rule, incompatible="new_column")
    assert stopped.value.setting == f"targets.0.{setting}"


def test_shards_that_change_a_type_alike_share_its_new_column() -> None:
    def changed(sql_type: str) -> TableChange:
        alter, one = (
            "ALTER TABLE person MODIFY amount",
            RecordedSource(columns=COLUMNS, key=("id",)),
        )
        other = said(f"{alter} VARCHAR(9)", SHARDS, [one], incompatible="new_column").known
        known = replace(known_before(SHARDS, [other.source]), target=other.target)
        return said(f"{alter} {sql_type}", SHARDS, known=known, incompatible="new_column")

    second = changed("VARCHAR(20)")
    assert second.steps == ()
    assert second.known.target_name("amount") == "amount__v2"
    with pytest.raises(SchemaError, match="becomes timestamp_ntz, but is string in another table"):
        changed("DATETIME")


def test_a_filter_of_a_column_that_no_table_has_is_shown_whole() -> None:
    with pytest.raises(Misfit) as found:
        shape_of(RecordedShape(filter="nothing > 1"), COLUMNS, ("id",))
    assert (found.value.setting, found.value.got) == ("filter", "nothing > 1")


@pytest.mark.parametrize(
    "action",
    [
        "MODIFY raw INT",
        "DROP raw",
        "ADD internal_x INT AUTO_INCREMENT UNIQUE",
        "ADD internal_x DATETIME DEFAULT CURRENT_TIMESTAMP",
    ],
)
def test_k22_f232_what_becomes_of_a_column_that_the_target_leaves_out_stops_nothing(
    action: str,
) -> None:
    excludes = {"columns": {"exclude": ["raw", "internal_*"]}}
    change = said(f"ALTER TABLE person {action}", excludes, drop_column="stop")
    assert change.steps == ()
    with pytest.raises(UnsupportedDdlError):
        said(f"ALTER TABLE person {action}", {}, drop_column="stop")
