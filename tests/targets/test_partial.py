"""K19: which targets are labelled partial; what becomes of them: tests/operations/snapshot."""

from __future__ import annotations

from typing import Any

import pytest

from cdc_pipeline.binlog.table_schema import Column, Kind, TableSchema
from cdc_pipeline.targets.targets import Targets
from tests.targets.test_exact import config, said

COLUMNS = (Column("a", Kind.INT32, -1, 0, False),)


def met(targets: Targets, table: str) -> bool:
    """Whether the target of a table is partial once a table map of it has come."""
    (target,) = targets.confirm(TableSchema("d", table, COLUMNS, (0,)))
    return target.state.partial


def targets_of(**sections: Any) -> Targets:
    return Targets(config(**sections), None)


@pytest.mark.parametrize(
    ("sql", "partial"),
    [
        ("", True),
        ("CREATE TABLE t (a INT PRIMARY KEY)", False),
        ("CREATE TABLE IF NOT EXISTS t (a INT PRIMARY KEY)", True),
    ],
)
def test_k19_a_table_first_met_in_a_table_map_is_partial(sql: str, partial: bool) -> None:
    targets = targets_of()
    if sql:
        said(targets, sql)
    assert met(targets, "t") is partial
    assert met(targets, "t") is partial, "it stays what it is"


def test_k19_a_target_is_partial_while_one_of_its_tables_is() -> None:
    targets = targets_of(targets=[{"tables": ["d.*_t"], "name": "d.t", "shard_column": "shard"}])
    assert met(targets, "eu_t")
    said(targets, "CREATE TABLE us_t (a INT PRIMARY KEY)")
    assert met(targets, "us_t"), "all of one table, and a part of another"
    whole = targets_of(targets=[{"tables": ["d.*_t"], "name": "d.t", "shard_column": "shard"}])
    said(whole, "CREATE TABLE eu_t (a INT PRIMARY KEY)")
    assert not met(whole, "eu_t")
    assert met(whole, "us_t")
