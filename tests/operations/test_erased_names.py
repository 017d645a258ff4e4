"""The names that a table had, by what the schema history knows of RENAME."""

from __future__ import annotations

import pytest

from cdc_pipeline.binlog.table_schema import Kind
from cdc_pipeline.errors import ConfigError
from cdc_pipeline.lake.erasures import NameBound
from cdc_pipeline.operations.erase.keys import earlier_names
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
