"""What a verification of small tables asks of an object store: no JVM, and as much for each table
however many there are (K17)."""

from __future__ import annotations

import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.operations.verify.verify import verify
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.run.capture.capture import capture
from tests.servers import Server
from tests.support.captures import here, live
from tests.support.object_store import Store


@pytest.mark.mariadb
@pytest.mark.whole
def test_k17_small_tables_in_a_bucket_are_verified_without_a_jvm_and_linearly(
    mariadb_server: Server, mariadb_database: str, store: Store
) -> None:
    server, database = mariadb_server, mariadb_database
    cursors, config = (
        MemoryCursorStore(),
        PipelineConfig.model_validate(
            {
                "name": "shop",
                "source": live(server),
                "tables": {"include": [f"{database}.*"]},
                "start": here(server),
                "sink": store.sink_config(),
            }
        ),
    )

    def requests(numbers: range) -> int:
        for number in numbers:
            server.execute_all(
                f"USE `{database}`",
                f"CREATE TABLE t{number} (id INT PRIMARY KEY, v VARCHAR(9))",
                f"INSERT INTO t{number} VALUES (1, 'a'), (2, NULL), (3, '')",
            )
        capture(config, cursors=cursors)
        before = len(store.requests())
        report = verify(config, cursors=cursors)
        assert {table.rows_equal for table in report.tables.values()} == {3}
        assert (report.status, len(report.tables)) == ("equal", numbers.stop)
        assert not report.spark_started
        return len(store.requests()) - before

    few, many = requests(range(4)), requests(range(4, 12))
    # One listing, two commits and one file; the capture before it checks every table.
    assert (many - few) / 8 <= 4 + 10
