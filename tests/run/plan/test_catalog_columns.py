"""Columns that the rules name, checked against the source's catalog before anything is read."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import ConfigError
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.run.capture.capture import capture
from tests.servers import Server
from tests.support.captures import here, live
from tests.support.memory_sink import MemoryLake, memory_sink


def test_k14_a_first_run_refuses_a_mask_of_a_column_that_no_table_has(
    mysql_server: Server, mysql_database: str, make_config: Callable[..., PipelineConfig]
) -> None:
    """The column that was meant stayed readable, and only the second run said so."""
    start = here(mysql_server)
    for table, column in (("people", "email"), ("others", "mail")):
        name = f"`{mysql_database}`.{table}"
        mysql_server.execute(f"CREATE TABLE {name} (id INT PRIMARY KEY, {column} VARCHAR(40))")
        mysql_server.execute(f"INSERT INTO {name} VALUES (1, 'ada@example.com')")

    def run(masks: dict[str, str], *names: str) -> list[str]:
        """Return the tables that got rows."""
        config = make_config(
            live(mysql_server),
            include=[f"{mysql_database}.*"],
            start=start,
            targets=[
                {
                    "tables": [f"{mysql_database}.{name}" for name in names],
                    "name": "{schema}.{table}",
                    "masks": masks,
                }
            ],
        )
        shutil.rmtree(config.sink.lake_path, ignore_errors=True)
        sink = memory_sink(MemoryLake(), source=config.name, config=config.sink)
        report = capture(config, cursors=MemoryCursorStore(), sink=sink)
        return sorted(name.split(".")[1] for name in report.tables)

    with pytest.raises(ConfigError, match="no table of the rule has a column e_mail") as caught:
        run({"e_mail": "drop"}, "people")
    assert caught.value.setting == "targets.0.masks.e_mail"
    assert caught.value.expected == "one of email, id"
    # A rule of several tables masks what each of them has.
    assert run({"email": "drop", "MAIL": "drop"}, "people", "others") == ["others", "people"]
    # It is not known what a table has that is still to be created.
    assert run({"e_mail": "drop"}, "people", "later") == ["others", "people"]
