"""K19: which targets are labelled partial; what becomes of them: tests/operations/snapshot."""

from __future__ import annotations

from typing import Any

import pytest

from cdc_pipeline.binlog.table_schema import Column, Kind, TableSchema
from cdc_pipeline.targets.confirmed import confirmed
from cdc_pipeline.targets.targets import Targets, targets_at
from tests.targets.test_exact import config, said

COLUMNS = (Column("a", Kind.INT32, -1, 0, False),)


def met(targets: Targets, table: str) -> tuple[Targets, bool]:
    """Whether the target of a table is partial once a table map of it has come."""
    targets, (target,) = confirmed(targets, TableSchema("d", table, COLUMNS, (0,)))
    return targets, target.state.partial


def targets_of(**sections: Any) -> Targets:
    return targets_at(config(**sections), None)


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
        targets = said(targets, sql)
    targets, first = met(targets, "t")
    assert first is partial
    assert met(targets, "t")[1] is partial, "it stays what it is"


def test_k19_a_target_is_partial_while_one_of_its_tables_is() -> None:
    targets = targets_of(targets=[{"tables": ["d.*_t"], "name": "d.t", "shard_column": "shard"}])
    targets, _ = met(targets, "eu_t")
    targets = said(targets, "CREATE TABLE us_t (a INT PRIMARY KEY)")
    assert met(targets, "us_t")[1], "all of one table, and a part of another"
    whole = targets_of(targets=[{"tables": ["d.*_t"], "name": "d.t", "shard_column": "shard"}])
    whole, is_partial = met(said(whole, "CREATE TABLE eu_t (a INT PRIMARY KEY)"), "eu_t")
    assert not is_partial
    assert met(whole, "us_t")[1]
