"""The names that a table had, by what the schema history knows of RENAME."""

from __future__ import annotations

import pytest

from cdc_pipeline.binlog.table_schema import Kind
from cdc_pipeline.errors import ConfigError
from cdc_pipeline.lake.erasures import NameBound
from cdc_pipeline.operations.erase.keys import earlier_keys, earlier_names
from cdc_pipeline.schema.ddl.ddl import parse_statement
from cdc_pipeline.schema.history.apply_ddl import LoggedStatement, apply
from cdc_pipeline.schema.history.history import DROPPED, Origin, SchemaHistory, Version
from tests.support.sink_values import column, table_schema

PERSON = table_schema("shop.person", [column("id", Kind.INT32)], "id")


def bound(place: int) -> NameBound:
    return NameBound(seq=str(place), time_us=place)


def history(*known: tuple[str, int, str | None]) -> SchemaHistory:
    """`known`: a table, a place, the name that it had before; "" if none, None if it is gone."""
    found = SchemaHistory()
    for name, place, origin in known:
        schema, why = (None, DROPPED) if origin is None else (PERSON, "")
        renamed_from = f"shop.{origin}" if origin else ""
        version = Version(
            place, Origin.DDL, schema, why=why, time_us=place, renamed_from=renamed_from
        )
        found.add("shop", name, version)
    return found


UNTIL = bound(99)


def names(known: SchemaHistory, table: str = "shop.person", *given: str) -> dict[str, int]:
    found = earlier_names(known, table, until=UNTIL, given=given)
    return {name: one.place for name, one in found.items()}


def test_each_name_counts_up_to_the_rename_that_ended_it() -> None:
    renamed = history(
        ("human", 10, ""), ("human", 20, None), ("guest", 20, "human"), ("guest", 30, None),
        ("person", 30, "guest"), ("other", 30, None), ("human", 40, ""),
    )  # fmt: skip
    expected = {"shop.person": 99, "shop.guest": 30, "shop.human": 20}
    assert names(renamed) == expected
    # A new table of an old name is another one.
    assert names(renamed, "shop.human") == {"shop.human": 99}


def test_like_tables_and_swaps_are_told_apart() -> None:
    together = history(
        ("a", 30, None), ("c", 30, None), ("b", 30, "a"), ("e", 30, "c"),
    )  # fmt: skip
    assert names(together, "shop.b") == {"shop.b": 99, "shop.a": 30}
    nightly = history(("s", 10, ""), ("s_stage", 20, ""), ("s", 30, "s_stage"),
                      ("s_prev", 30, "s"), ("s_stage", 30, None))  # fmt: skip
    assert names(nightly, "shop.s") == {"shop.s": 99, "shop.s_stage": 30}
    found = earlier_names(nightly, "shop.s", until=UNTIL)
    assert (found["shop.s"].since, found["shop.s_stage"].since) == ("30", "0")
    assert names(nightly, "shop.s_prev") == {"shop.s_prev": 99, "shop.s": 30}


def test_k14_f164_a_name_that_a_table_got_again_counts_for_both_times() -> None:
    again = history(("t", 10, ""), ("u", 20, "t"), ("t", 20, None), ("t", 25, ""), ("t", 28, None),
                    ("u", 30, None), ("t", 30, "u"))  # fmt: skip
    found = earlier_names(again, "shop.t", until=UNTIL)
    now, before = found["shop.t"], found["shop.t"].before
    assert before is not None
    assert [(one.since, one.seq) for one in (now, before, found["shop.u"])] == [
        ("30", "99"), ("0", "20"), ("20", "30"),
    ]  # fmt: skip


def test_a_given_name_counts_up_to_the_table_that_has_it_now() -> None:
    reused = history(("person", 10, ""), ("human", 40, None), ("human", 50, ""))
    assert names(reused, "shop.person", "shop.human", "shop.old") == {
        "shop.person": 99, "shop.human": 40, "shop.old": 99,
    }  # fmt: skip
    with pytest.raises(ConfigError, match="another table has it now"):
        names(history(("human", 50, "")), "shop.person", "shop.human")


def test_the_schema_history_keeps_the_name_before_a_rename() -> None:
    found = SchemaHistory.from_json(history(("b", 30, "a")).to_json())
    assert found.versions("shop", "b")[0].renamed_from == "shop.a"


def test_names_outlive_the_columns_that_nobody_reads_again() -> None:
    known = history(("human", 20, None), ("person", 20, "human"), ("person", 40, ""))
    compacted = known.compacted(60, keep_since_us=-1)
    assert [one.place for one in compacted.versions("shop", "person")] == [20, 40]
    assert compacted.at("shop", "person", 60) == known.at("shop", "person", 60)
    assert names(compacted) == {"shop.person": 99, "shop.human": 20}


SWAP = "ALTER TABLE t CHANGE a b INT, CHANGE b a INT FIRST"
LOOKS_ALIKE = f"{SWAP}, DROP PRIMARY KEY, ADD PRIMARY KEY (a, b)"


@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        ([SWAP], "95 b a, 20 a b, 10 a b?"),
        ([LOOKS_ALIKE], "95 a b, 20 b a, 10 b a?"),
        ([LOOKS_ALIKE, LOOKS_ALIKE], "95 a b, 30 b a, 20 a b, 10 a b?"),
        ([SWAP, SWAP], "95 a b, 30 b a, 20 a b, 10 a b?"),
        (["ALTER TABLE t RENAME COLUMN c TO a, RENAME COLUMN a TO c"], "95 c b, 20 a b, 10 a b?"),
        (["ALTER TABLE t DROP b, RENAME COLUMN c TO b, DROP PRIMARY KEY, ADD PRIMARY KEY (a, b)"],
         "95 a b, 20 a c, 10 a c?"),
        (["ALTER TABLE t DROP c, ADD c INT", SWAP], "95 b a, 30 a b, 10 a b?"),
        (["ALTER TABLE t DROP b, ADD b INT, DROP PRIMARY KEY, ADD PRIMARY KEY (a, b)"],
         "95 a b, 20 "),
        (["ALTER TABLE t CHANGE a old INT, RENAME TO u", "RENAME TABLE u TO t"],
         "95 old b, 20 a b, 10 a b?"),
        (["DROP TABLE t", "CREATE TABLE t (a INT, b INT, PRIMARY KEY (a, b))"],
         "95 a b, 25 a b?"),
        (["ALTER TABLE t whatever"], "95 a b, 25 a b?"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("is_compacted", [False, True], ids=["whole", "compacted"])
def test_k14_f163_a_key_has_the_names_of_its_columns_at_each_place(
    statements: list[str], expected: str, is_compacted: bool
) -> None:
    """`?`: as far as they say."""
    known, columns = SchemaHistory(), [column(name, Kind.INT32) for name in ("a", "b", "c")]
    begin = Version(10, Origin.CATALOG, table_schema("shop.t", columns, "a", "b"))
    known.add("shop", "t", begin)
    for at, text in enumerate(statements, 2):
        statement = parse_statement(text, default_database="shop")
        place = at * 10
        apply(known, LoggedStatement(statement, place, time_us=place), lambda *_: True)
        apply(known, LoggedStatement(statement, place, time_us=place), lambda *_: True)
        known.restate(place, place + 5)
    now = known.versions("shop", "t")[-1].schema
    key = ("a", "b") if now is None else now.key_names
    if is_compacted:
        if any("TO u" in text for text in statements):
            expected = "95 old b, 30 old b?"  # a name that no table has any more is forgotten
        known = known.compacted(90, keep_since_us=-1)
    bounds = earlier_keys(known, "shop.t", key, at=bound(95))
    found = [f"{one.place} {' '.join(one.key)}{'' if one.is_known else '?'}" for one in bounds]
    assert ", ".join(found) == expected
