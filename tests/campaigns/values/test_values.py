"""A sample of the campaign: a few types on each server, each changed to each other
(K23)."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest

from cdc_pipeline.schema.evolution.steps import (
    AddColumn,
    CheckRows,
    DropColumn,
    FillColumns,
    RenameColumn,
    Step,
)
from tests.campaigns.values.lake import Stopped, after, alike
from tests.campaigns.values.pairs import Pairs, drawn_samples
from tests.servers import Server
from tests.support.spark_expressions import NotInMemoryError

# MyISAM copies in a fraction of InnoDB's time; what becomes of values is decided above the engines.
SEEDS = {"mysql": 11, "mariadb": 12}


def test_k23_what_is_certain_of_a_change_of_types_is_what_the_server_makes_of_it(
    server: Server, fresh_database: str
) -> None:
    """K23: no value that a decision lets pass is another one at the server."""
    seed = SEEDS[server.flavor]
    pairs = Pairs(server, fresh_database, seed=seed, types=9, engine="MyISAM")
    for sample in drawn_samples(server.flavor, seed, 9):
        pairs.alter(sample.declared)
    assert not pairs.report.findings
    assert pairs.report.figures["certain"] > 20
    assert pairs.report.figures["reload"] > 100
    assert pairs.report.figures["generated columns that changed"] > 10


def test_k23_the_twin_of_the_steps_reads_them_as_spark_does() -> None:
    """K23: checks, conversions and the columns that take others' places."""
    check = CheckRows(condition="octet_length(`c`) <= 3", reason="cut")
    assert after("ab", [check]) == "ab"
    assert after(None, [check]) is None
    with pytest.raises(Stopped, match="cut"):
        after("äb€", [check])
    converted: list[Step] = [
        AddColumn(name="c__converted", delta_type="decimal(2,1)"),
        FillColumns(values=(("c__converted", "decimal(2,1)", "round(`c`, 1)"),)),
        DropColumn(name="c"),
        RenameColumn(name="c__converted", new_name="c"),
    ]
    assert after(Decimal("-1.25"), converted) == Decimal("-1.3")
    with pytest.raises(NotInMemoryError, match="SOUNDEX"):
        after("a", [CheckRows(condition="soundex(`c`) = 'A'", reason="")])
    assert alike(dt.date(2024, 1, 1), dt.datetime(2024, 1, 1))  # noqa: DTZ001
    assert not alike(1, True)
    assert not alike("1", 1)
