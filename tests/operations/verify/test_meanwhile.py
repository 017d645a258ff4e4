"""What happens to a table while it is verified: DDL, new journals, suspension; and a server without
GTIDs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from pydantic import SecretStr

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.operations.verify.read import VerifyOptions
from cdc_pipeline.operations.verify.report import Step
from cdc_pipeline.operations.verify.verify import verify
from cdc_pipeline.run.capture.capture import capture
from tests.operations.verify.test_end_to_end import Verified, keys
from tests.servers import Server
from tests.support.captures import here, live

pytestmark = pytest.mark.spark

MEANWHILE = {
    "added": ["ALTER TABLE added ADD COLUMN n INT NOT NULL DEFAULT 7"],
    "anew": [
        "DROP TABLE anew",
        "CREATE TABLE anew (id INT PRIMARY KEY, w INT)",
        "INSERT INTO anew VALUES (8,8)",
    ],
    "away": ["RENAME TABLE away TO elsewhere"],
    "journal": [
        "UPDATE journal SET v = 5 WHERE id = 1",
        "FLUSH BINARY LOGS",
        "INSERT INTO journal VALUES (7,7)",
    ],
    "stopped": ["ALTER TABLE stopped MODIFY v VARCHAR(1)", "INSERT INTO stopped VALUES (6,'x')"],
}


class Meanwhile:
    """Runs a table's statements once, while its rows are read."""

    def __init__(self, server: Server, database: str) -> None:
        self.left = dict(MEANWHILE)
        self.failed: list[Exception] = []
        self._server, self._database = server, database
        self._thread: threading.Thread | None = None

    def __call__(self, step: Step) -> None:
        statements = (
            self.left.pop(step.target.partition(".")[2], None) if step.what == "reading" else None
        )
        if statements is not None:
            # The view that is open holds DDL up.
            self._thread = threading.Thread(target=self._run, args=(statements,))
            self._thread.start()
        elif step.what == "capturing" and self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self, statements: list[str]) -> None:
        try:
            connection = self._server.root_connection(database=self._database, autocommit=True)
            with closing(connection), connection.cursor() as run:
                for statement in statements:
                    run.execute(statement)
        except Exception as error:
            self.failed.append(error)


@pytest.mark.whole
def test_k17_a_ddl_while_a_table_is_verified_begins_its_comparison_anew(
    mysql_server: Server,
    mysql_database: str,
    make_config: Callable[..., PipelineConfig],
    spark: Any,
) -> None:
    database, start = mysql_database, here(mysql_server)
    config = make_config(live(mysql_server), include=[f"{database}.*"], start=start)
    lake = Verified(mysql_server, database, config)
    mysql_server.execute_all(
        f"USE `{database}`",
        *(f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT)" for name in MEANWHILE),
        *(f"INSERT INTO {name} VALUES (1,1),(2,NULL),(3,3)" for name in MEANWHILE),
    )
    meanwhile = Meanwhile(mysql_server, database)
    report = verify(
        config, cursors=lake.cursors, options=VerifyOptions(rows_per_range=1), on_step=meanwhile
    )
    assert not meanwhile.failed
    assert not meanwhile.left
    told = {name.partition(".")[2]: table for name, table in report.tables.items()}
    statuses = {name: table.status for name, table in told.items()}
    reasons = {name: table.reason for name, table in told.items()}
    assert statuses == dict.fromkeys(MEANWHILE, "equal") | {
        "away": "not_compared", "stopped": "not_compared"
    }, reasons  # fmt: skip
    assert "suspended in the meantime" in reasons["stopped"]
    rows = {name: table.rows_equal for name, table in told.items() if table.status == "equal"}
    assert rows == {"added": 3, "anew": 1, "journal": 4}


@pytest.mark.mysql
@pytest.mark.whole
def test_k17_mysql_without_gtids_is_proved_by_its_locks(
    start_server: Callable[..., Server], make_config: Callable[..., PipelineConfig], spark: Any
) -> None:
    """All rows lie in the newest journal: nothing else could tell that they are committed."""
    server = start_server(
        "mysql", gtid_mode="OFF", enforce_gtid_consistency="OFF", performance_schema=True
    )
    server.execute_all(
        "CREATE DATABASE d", "USE d", "CREATE TABLE item (id INT PRIMARY KEY, name VARCHAR(9))",
        "CREATE TABLE bag (a INT)", "INSERT INTO item VALUES (1,'a'),(2,'b'),(3,'c')",
        "INSERT INTO bag VALUES (1),(1)",
    )  # fmt: skip
    config = make_config(live(server), include=["d.*"], start="earliest")
    lake = Verified(server, "d", config)
    capture(config, cursors=lake.cursors)
    lake.unlogged(
        "INSERT INTO item VALUES (4,'d')",
        "DELETE FROM bag LIMIT 1",
        "DELETE FROM item WHERE id = 1",
    )
    found = lake.verify().tables
    assert keys(found["d.item"].differences) == {"missing": [("4",)], "extra": [("1",)]}
    assert keys(found["d.bag"].differences) == {"extra": [("1",)]}
    assert found["d.item"].unsettled == 0

    user, password = server.create_replication_user(
        "few", grants=("REPLICATION SLAVE", "REPLICATION CLIENT")
    )
    server.execute(f"GRANT SELECT ON d.* TO `{user}`@'%'")
    source = config.source.model_copy(update={"user": user, "password": SecretStr(password)})
    lake.config = config.model_copy(update={"source": source})
    found = lake.verify().tables
    assert (found["d.item"].status, found["d.item"].unsettled, found["d.item"].rounds) == (
        "unsettled",
        4,
        1,
    )
    assert "GRANT SELECT ON performance_schema" in found["d.item"].reason
    assert found["d.bag"].status == "not_compared"
