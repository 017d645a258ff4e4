"""A server, two captures, and the database as of each: by read, by time, by GTID set, and by the
printed views."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import cdc_pipeline
from cdc_pipeline.config.pipeline_config import CatalogConfig, PipelineConfig
from cdc_pipeline.errors import CutNotFoundError
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.sink.read.cuts import find_cut
from cdc_pipeline.sink.read.read import view_statements
from tests.servers import Server
from tests.support.captures import here, live

pytestmark = pytest.mark.spark


@pytest.mark.whole
def test_the_database_as_of_each_cut(
    mysql_server: Server,
    mysql_database: str,
    make_config: Callable[..., PipelineConfig],
    spark: Any,
) -> None:
    tables = ("left", "right")
    config = make_config(
        live(mysql_server),
        include=[f"{mysql_database}.{name}" for name in tables],
        start=here(mysql_server),
    )
    catalog = CatalogConfig(database="cuts_{schema}")
    config = config.model_copy(update={"sink": config.sink.model_copy(update={"catalog": catalog})})
    lake, cursors = config.sink.lake_path, MemoryCursorStore()
    connection = mysql_server.root_connection(database=mysql_database, autocommit=True)
    expected: list[dict[str, int]] = []
    with connection.cursor() as cursor:
        for name in tables:
            cursor.execute(f"CREATE TABLE `{name}` (id INT PRIMARY KEY, cents BIGINT NOT NULL)")
            cursor.execute(f"INSERT INTO `{name}` VALUES (1, 1000), (2, 500)")
        for moved in (70, 7):
            cursor.execute("BEGIN")
            cursor.execute("UPDATE `left` SET cents = cents - %s WHERE id = 1", (moved,))
            cursor.execute("UPDATE `right` SET cents = cents + %s WHERE id = 2", (moved,))
            cursor.execute("COMMIT")
            sums = {}
            for name in tables:
                cursor.execute(f"SELECT CAST(SUM(cents) AS SIGNED) FROM `{name}`")
                sums[name] = cursor.fetchone()[0]
            expected.append(sums)
            capture(config, cursors=cursors)
    connection.close()
    first, *_, last = cdc_pipeline.cuts(lake, "bank")
    at_first = next(cut for cut in cdc_pipeline.cuts(lake, "bank") if cut.source_time is not None)
    assert expected[0] != expected[1]

    def sums_at(as_of: Any) -> dict[str, int]:
        found = {}
        for name in tables:
            table = f"{mysql_database}.{name}"
            frame = cdc_pipeline.read(lake, table, as_of=as_of, spark=spark).select("cents")
            found[name] = sum(row[0] for row in frame.collect())
            rows = cdc_pipeline.read(lake, table, as_of=as_of, columns=["cents"]).read_all()
            assert sum(rows.column("cents").to_pylist()) == found[name]
        return found

    before_last = last.number - 1
    assert sums_at(None) == sums_at(last) == expected[1]
    assert sums_at(before_last) == expected[0]
    assert last.source_time is not None
    assert sums_at(datetime.now(UTC)) == expected[1]
    assert sums_at(last.source_time - timedelta(microseconds=1)) == expected[0]
    if last.gtid_set:
        assert sums_at(last.gtid_set) == expected[1]
        assert sums_at(cdc_pipeline.cuts(lake, "bank")[-2].gtid_set) == expected[0]
    assert at_first.source_time is not None
    too_early = at_first.source_time - timedelta(seconds=1)
    with pytest.raises(CutNotFoundError, match="or later"):
        sums_at(too_early)
    assert first.number == 1

    for name in tables:  # each new table was registered before the cut that first names it
        whole = f"cuts_{mysql_database}.`{name}`"
        assert spark.sql(f"SELECT sum(cents) FROM {whole}").collect()[0][0] == expected[1][name]

    paths = LakePaths(lake, "bank")
    for statement in view_statements(paths, find_cut(paths, before_last)):
        spark.sql(statement).collect()
    seen = {name: spark.sql(f"SELECT sum(cents) FROM `{name}`").collect()[0][0] for name in tables}
    assert seen == expected[0]
