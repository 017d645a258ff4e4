"""Days that a second calendar does not have."""

from __future__ import annotations

from datetime import date

import pytest

from cdc_pipeline.binlog.table_schema import Kind
from cdc_pipeline.sink.delta_sink import DeltaSink
from cdc_pipeline.sink.spark.session import SparkProvider, new_session
from cdc_pipeline.sink.spark.sql import table_at
from tests.support.sink_values import applied, column, insert, table_schema

pytestmark = pytest.mark.spark

DAYS = table_schema("shop.days", [column("day", Kind.DATE), column("n", Kind.INT32)], "day")


@pytest.mark.whole
def test_k10_f66_a_merge_finds_keys_in_the_gap_of_the_gregorian_calendar(
    sink: DeltaSink, sink_provider: SparkProvider
) -> None:
    """A MERGE names the limits of its keys. Spark hands them to Parquet's reader by way of the
    Julian calendar, in which the 5th to 14th of October 1582 are later days: a file of such days
    alone was left out, and its rows stayed."""
    applied(sink, 1, (DAYS, [insert(day=date(1582, 10, 10), n=1)], 10))
    session = new_session(sink_provider.session())
    table = table_at(sink.paths.table("shop.days"))
    found = session.sql(f"SELECT n FROM {table} WHERE day >= DATE'1582-10-09'").collect()
    assert [row.n for row in found] == [1]
