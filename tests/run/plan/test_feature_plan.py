"""``plan`` says which Delta features come on, for which tables, and whom that keeps out. No JVM."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.run.plan.feature_plan import feature_lines
from cdc_pipeline.run.plan.planning import plan
from tests.servers import Server
from tests.support.captures import here, live


@pytest.mark.mysql
def test_a_plan_names_the_features_of_new_tables_and_those_that_may_not_come_on(
    mysql_server: Server, mysql_database: str, make_config: Callable[..., PipelineConfig]
) -> None:
    for table, column in (("plain", "n INT"), ("dated", "at DATETIME")):
        mysql_server.execute(
            f"CREATE TABLE `{mysql_database}`.{table} (id INT PRIMARY KEY, {column})"
        )
    config = make_config(
        live(mysql_server), include=[f"{mysql_database}.*"], start=here(mysql_server)
    )
    made = plan(config, cursors=MemoryCursorStore())
    assert made.features == {
        f"{mysql_database}.dated": ("deletionVectors", "timestampNtz"),
        f"{mysql_database}.plain": ("deletionVectors",),
    }
    assert not [warning for warning in made.warnings if "suspended" in warning]
    assert set(made.engines.values()) == {"plain"}
    sink = config.sink.model_copy(update={"engine": "spark"})
    by_spark = plan(config.model_copy(update={"sink": sink}), cursors=MemoryCursorStore())
    assert set(by_spark.engines.values()) == {"spark: sink.engine is spark"}

    sink = config.sink.model_copy(update={"reader_features": ("columnMapping",)})
    strict = plan(config.model_copy(update={"sink": sink}), cursors=MemoryCursorStore())
    assert strict.features == {f"{mysql_database}.plain": ()}
    by_both = "plain; updates and deletes by spark: the table has no deletion vectors"
    assert strict.engines[f"{mysql_database}.plain"] == by_both
    (warning,) = [warning for warning in strict.warnings if "suspended" in warning]
    assert (
        f"{mysql_database}.dated will be suspended: column `at` is stored as timestamp_ntz"
        in warning
    )
    assert "sink.reader_features" in warning


def test_a_line_for_each_feature_with_who_cannot_read() -> None:
    held = {f"shop.t{number}": ("deletionVectors",) for number in range(7)} | {
        "shop.u": ("timestampNtz",)
    }
    vectors, ntz = feature_lines(held)
    assert vectors == (
        "deletionVectors: shop.t0, shop.t1, shop.t2, shop.t3, shop.t4 and 2 more; cannot be read "
        "by delta-rs, polars"
    )
    assert ntz == "timestampNtz: shop.u"
