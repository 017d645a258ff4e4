"""Ten thousand runs in a Dagster home, as copies of one that really ran.

Executing them would take an hour. What is copied is what a run leaves in Dagster's SQLite storage:
its row and tags, its events in the index of all runs, and the file of its own events (a hard link).
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from uuid import uuid4


def copy_run(home: Path, run_id: str, count: int) -> None:
    """Add `count` copies of a run, older than it."""
    new_ids = [str(uuid4()) for _ in range(count)]
    for database, tables in (
        (home / "history" / "runs.db", ("runs", "run_tags")),
        (home / "history" / "runs" / "index.db", ("event_logs",)),
    ):
        with closing(sqlite3.connect(database)) as connection, connection:
            for table in tables:
                _copy_rows(connection, table, run_id, new_ids)
    file = home / "history" / "runs" / f"{run_id}.db"
    for new_id in new_ids:
        os.link(file, file.with_name(f"{new_id}.db"))


def _copy_rows(connection: sqlite3.Connection, table: str, run_id: str, new_ids: list[str]) -> None:
    """Copy the rows of a run, and give the run itself the newest rows."""
    columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    columns.remove("id")
    names = ", ".join(columns)
    texts = {"run_id", "run_body", "event"}
    values = ", ".join(
        f"replace({name}, :old, :new)" if name in texts else name for name in columns
    )
    last = connection.execute(f"SELECT max(id) FROM {table}").fetchone()[0]
    copy = f"INSERT INTO {table} ({names}) SELECT {values} FROM {table} WHERE run_id = :old"
    connection.executemany(
        f"{copy} AND id <= {last} ORDER BY id", [{"old": run_id, "new": new} for new in new_ids]
    )
