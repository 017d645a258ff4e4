"""Comments as both servers have them: by a snapshot, and by the statements of the log."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc_pipeline.operations.snapshot.snapshot import take_snapshot
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.sink.cursor_table import DeltaCursorStore
from cdc_pipeline.sink.delta.table_log import read_table_log
from tests.conftest import temporary_database
from tests.operations.snapshot.test_snapshot import project
from tests.servers import Server
from tests.support.comments import TEXTS

# Both servers lose what stands behind a NUL in the comment of a table.
WHOLE = "".join(TEXTS).replace("\0", "")


def as_kept(text: str) -> str:
    return text.replace("\U0001f600", "?")


@pytest.mark.spark
def test_a_snapshot_and_the_log_give_a_table_its_comments(server: Server, tmp_path: Path) -> None:
    with temporary_database(server) as database:
        server.execute_all(f"USE `{database}`", "SET NAMES utf8mb4")
        columns = ", ".join(f"c{n} INT COMMENT %s" for n in range(len(TEXTS)))
        server.execute(
            f"CREATE TABLE a (id INT PRIMARY KEY, {columns}) COMMENT %s", [*TEXTS, WHOLE]
        )
        server.execute("INSERT INTO a (id) VALUES (1)")
        config = project(server, database, tmp_path, [])
        cursors = DeltaCursorStore(tmp_path / "cursors", source="bank")

        def comments(table: str) -> dict[str, str]:
            log = read_table_log(Path(str(config.sink.lake_path)) / database / table)
            assert log is not None
            return dict(log.comments)

        take_snapshot(config, cursors=cursors)
        texts = {f"c{n}": as_kept(text) for n, text in enumerate(TEXTS)}
        assert comments("a") == {"": as_kept(WHOLE), **texts}
        server.execute(
            f"CREATE TABLE b (id INT PRIMARY KEY, {columns}) COMMENT %s", [*TEXTS, WHOLE]
        )
        server.execute("INSERT INTO b (id) VALUES (1)")
        server.execute("ALTER TABLE a MODIFY c1 INT, COMMENT %s", [TEXTS[3]])
        server.execute("ALTER TABLE a MODIFY c0 INT COMMENT %s", [TEXTS[2]])
        server.execute("UPDATE a SET c0 = 5")
        capture(config, cursors=cursors)
        assert comments("b") == {"": as_kept(WHOLE), **texts}
        del texts["c1"]
        assert comments("a") == {**texts, "": TEXTS[3], "c0": TEXTS[2]}
