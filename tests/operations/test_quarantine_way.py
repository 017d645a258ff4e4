"""Rows that cannot be applied, from a server into the quarantine and back, while everything else
goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import TargetSuspendedError
from cdc_pipeline.operations.quarantine_replay import entries_of, settle
from cdc_pipeline.operations.status import status
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.run.plan.planning import plan
from tests.servers import Server
from tests.support.captures import here, live
from tests.support.memory_sink import MemoryLake


def test_bad_rows_wait_in_quarantine_and_are_replayed_where_nothing_newer_is(
    mysql_server: Server, mysql_database: str, tmp_path: Path, memory: MemoryLake
) -> None:
    server, database, cursors = mysql_server, mysql_database, MemoryCursorStore()

    def config(**sink: Any) -> PipelineConfig:
        return PipelineConfig.model_validate(
            {
                "name": "bank",
                "source": live(server),
                "tables": {"include": [f"{database}.*"]},
                "sink": {"lake_path": tmp_path / "lake", "on_bad_row": "quarantine", **sink},
                "start": start,
            }
        )

    def lake(table: str, column: str = "v") -> dict[Any, Any]:
        rows = memory.rows(tmp_path / "lake" / database / table)
        return {row["d" if table == "k" else "id"]: row.get(column) for row in rows}

    start = here(server)
    session = ["SET sql_mode = ''", f"USE `{database}`"]
    server.execute_all(
        *session,
        "CREATE TABLE k (d DATE PRIMARY KEY, v INT)",
        "CREATE TABLE t (id INT PRIMARY KEY, d DATE, v INT DEFAULT 7)",
        "INSERT INTO k VALUES ('2026-01-01', 1), ('0000-00-00', 2), ('2026-01-02', 3)",
        "INSERT INTO t VALUES (1, '2026-01-01', 1), (2, '0000-00-00', 2), (3, '0000-00-00', "
        "3), (5, NULL, 5)",
        "UPDATE t SET d = '2026-05-05', v = 33 WHERE id = 3",
        "BEGIN", "INSERT INTO t VALUES (90, '0000-00-00', 2)", "ROLLBACK",
        "SET binlog_row_image = 'MINIMAL'", "INSERT INTO t (id) VALUES (4)",
    )  # fmt: skip
    strict = config(on_invalid_value="quarantine")
    report = capture(strict, cursors=cursors)
    names = {table: f"{database}.{table}" for table in "kt"}
    assert report.quarantine == {names["k"]: 1, names["t"]: 3}
    assert not report.suspended
    assert sorted(lake("k").values()) == [1, 3]
    # The update of row 3 heals it, and comes with its whole image: the insert is older.
    assert lake("t") == {1: 1, 5: 5, 3: 33}
    assert (
        status(strict, cursors=cursors).quarantine
        == plan(strict, cursors=cursors).quarantine
        == report.quarantine
    )
    found = {entry.table.split(".")[1]: entry for entry in entries_of(strict)}
    assert found["k"].error == "UnrepresentableValueError"
    assert found["k"].raw
    assert (
        found["k"].gtid == ""
        or found["k"].gtid in server.query("SELECT @@gtid_executed")[0][0]
        or ":" in found["k"].gtid
    )
    assert found["t"].error == "IncompleteRowsError"

    def settled(what: Any, **rest: Any) -> Any:
        return settle(rescuing, cursors=cursors, what=what, who="me", **rest)

    rescuing, folder = config(), tmp_path / "lake" / database / "t"
    memory.write(folder, rows=[])
    with pytest.raises(TargetSuspendedError, match="other than this pipeline"):
        settled("replayed", tables=[names["t"]])
    assert len(entries_of(rescuing)) == 4, "F236: they stay"
    memory.undo(folder)
    capture(rescuing, cursors=cursors)
    before = cursors.cursor
    done = settled("replayed")
    assert before is not None
    assert cursors.cursor is not None
    assert cursors.cursor.position == before.position, "the cursor stands still"
    assert len(done.done) == 2
    assert sorted(done.left) == sorted(entry.id for entry in found.values())
    assert lake("t") == {1: 1, 5: 5, 3: 33, 2: 2}
    (text,) = server.query(f"SELECT CAST(d AS CHAR) FROM `{database}`.t WHERE id = 2")[0]
    assert lake("t", "_cdc_rescued")[2] == {"d": text}
    assert status(rescuing, cursors=cursors).quarantine == {names["k"]: 1, names["t"]: 1}

    server.execute_all(*session, "INSERT INTO t VALUES (6, NULL, 6)", "DELETE FROM t WHERE id = 6")
    assert capture(rescuing, cursors=cursors).outcome == "applied"
    assert "have left the table" in settled("replayed", tables=[names["t"]]).left[found["t"].id]
    assert settled("discarded", ids=[found["t"].id]).done == [found["t"].id]
    assert status(rescuing, cursors=cursors).quarantine == {names["k"]: 1}
    assert capture(rescuing, cursors=cursors).outcome == "nothing_new"


def test_k18_f233_a_row_that_a_filter_has_taken_since_is_not_brought_back(
    mysql_server: Server, mysql_database: str, tmp_path: Path, memory: MemoryLake
) -> None:
    cursors, name = MemoryCursorStore(), f"{mysql_database}.t"
    document = {
        "name": "bank",
        "source": live(mysql_server),
        "tables": {"include": [name]},
        "start": here(mysql_server),
        "sink": {"lake_path": tmp_path / "lake", "on_invalid_value": "quarantine"},
        "targets": [{"tables": [name], "filter": "v > 0"}],
    }
    strict = PipelineConfig.model_validate(document)
    mysql_server.execute_all(
        f"USE `{mysql_database}`",
        "SET sql_mode = ''",
        "CREATE TABLE t (id INT PRIMARY KEY, d DATE, v INT)",
        "INSERT INTO t VALUES (1, '2026-01-01', 1), (2, 0, 2)",
        "UPDATE t SET d = '2026-01-01', v = -2 WHERE id = 2",
    )
    assert capture(strict, cursors=cursors).quarantine == {name: 1}
    rescuing = PipelineConfig.model_validate(
        {**document, "sink": {"lake_path": tmp_path / "lake", "on_invalid_value": "rescue"}}
    )
    (left,) = settle(rescuing, cursors=cursors, what="replayed", who="me").left.values()
    assert "have left the table" in left
    assert [row["id"] for row in memory.rows(tmp_path / "lake" / mysql_database / "t")] == [1]
