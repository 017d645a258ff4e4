"""Record the state that this version leaves, for the tests of later ones (`test_golden_lake.py`).

``python -m tests.golden.record_state [FILE]``, by default ``state-<version>.tar.xz`` beside this
file.

Of a server of each flavor: two runs by Dagster of tables in every mode, one of which is suspended
and one of which has rows in quarantine; a snapshot that was killed before its swap; and a run that
was killed between the merges of the next batch, whose record and staged files are there and whose
cut is not. With it are the journals, the cursors also as files, and the rows of each cut and of the
end. It needs Spark. Do it once before a version is released, and never again for that version.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import TargetSuspendedError
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.operations.snapshot.snapshot import take_snapshot
from cdc_pipeline.orchestration.runs.execute import load_source, open_instance
from cdc_pipeline.position.cursor import CursorStore
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.sink.cursor_table import DeltaCursorStore
from tests.campaigns.sink.column_types import plain
from tests.campaigns.sink.verify import Lake
from tests.servers import Server
from tests.servers.installation import FLAVORS
from tests.support.captures import SPARK, here, live
from tests.support.kills import killed_at

ROOT: Final = Path(__file__).resolve().parents[2]
KEPT: Final = (*FLAVORS, "dagster_home")
# In a traceback, what stands before the part of a path that is the same on every machine.
_FOLDER: Final = re.compile(r'(File \\")/[^"]*?/(?=site-packages/|cdc_pipeline/|python3\.\d+/)')

_TABLES: Final = (
    "CREATE DATABASE shop",
    "USE shop",
    "SET sql_mode = ''",
    "CREATE TABLE item (id INT PRIMARY KEY, n DECIMAL(12,3), name VARCHAR(20), at DATETIME(6))",
    "CREATE TABLE line (n INT, v VARCHAR(20))",
    "CREATE TABLE waits (id INT PRIMARY KEY, d DATE)",
    "CREATE TABLE stops (id INT PRIMARY KEY, d DATE)",
)
_RUNS: Final = (
    (
        "INSERT INTO item VALUES (1, 1.5, 'one', '2026-01-01 00:00:00.000001'), (2, 2, 'zwei ü', "
        "NULL), (3, NULL, NULL, NULL)",
        "INSERT INTO line VALUES (1, 'a'), (1, 'a'), (NULL, NULL)",
        "INSERT INTO waits VALUES (1, '2026-01-01'), (2, '0000-00-00')",
        "INSERT INTO stops VALUES (1, '2026-01-01')",
    ),
    (
        "UPDATE item SET n = n + 1 WHERE id < 3",
        "DELETE FROM item WHERE id = 3",
        "ALTER TABLE item ADD COLUMN more INT DEFAULT 7",
        "INSERT INTO stops VALUES (2, '0000-00-00')",
        "INSERT INTO line VALUES (2, 'b')",
    ),
    (
        "UPDATE item SET more = 8, name = 'three' WHERE id = 2",
        "INSERT INTO item VALUES (4, 4, 'four', NULL, NULL)",
        "INSERT INTO line VALUES (3, 'c')",
        "INSERT INTO waits VALUES (3, '0000-00-00'), (4, NULL)",
    ),
)


def document(folder: Path, **source: Any) -> dict[str, Any]:
    item = {"tables": ["shop.item"]}
    return {
        "tables": {"include": ["shop.*"]},
        "sink": {"lake_path": str(folder / "lake"), "on_bad_row": "quarantine", "spark": SPARK},
        "targets": [
            {**item, "mode": "mirror"},
            {**item, "mode": "soft_delete", "name": "{schema}.{table}_soft"},
            {**item, "mode": "history"},
            {**item, "mode": "changelog"},
            {"tables": ["shop.line"], "mode": "changelog"},
            {"tables": ["shop.waits"], "on_invalid_value": "quarantine"},
            {"tables": ["shop.stops"], "on_invalid_value": "fail"},
        ],
        **source,
    }


def archived(folder: Path, flavor: str) -> PipelineConfig:
    """The pipeline of a recorded folder, which reads the journals in it."""
    home = folder / flavor
    source = {"kind": "archive", "directory": str(home / "journals")}
    return PipelineConfig.model_validate({"name": flavor, **document(home, source=source)})


def rows_of(lake: Path, cut: Cut) -> dict[str, list[str]]:
    """As lines that no version need know how to make: the rows of every table, in any order."""
    tables = Lake(lake, cut.source)
    rows = {}
    for name, state in cut.tables.items():
        table = tables.table(name, state.table_version)
        rows[name] = sorted(
            repr({column: plain(row[column]) for column in sorted(table.columns)})
            for row in table.rows
        )
    return rows


def finish(config: PipelineConfig, cursors: CursorStore) -> None:
    try:
        capture(config, cursors=cursors)
    except TargetSuspendedError:
        return


def record(folder: Path, flavor: str, jobs: Path) -> None:
    home = folder / flavor
    home.mkdir()
    with Server(flavor) as server:
        server.execute_all(*_TABLES)
        start = here(server)
        live_document = document(home, source=live(server), start=start)
        (jobs / f"{flavor}.yaml").write_text(json.dumps(live_document))
        config = PipelineConfig.model_validate({"name": flavor, **live_document})
        for statements in _RUNS[:2]:
            server.execute_all("USE shop", "SET sql_mode = ''", *statements)
            # A suspended target ends it with an exit code of its own.
            command = [sys.executable, "-m", "cdc_pipeline.cli", "--jobs", str(jobs), "run", flavor]
            subprocess.run(command, check=False, cwd=folder)
        with open_instance() as instance:
            cursor = load_source(jobs, flavor).cursors(instance).read()
        if cursor is None:
            raise RuntimeError("Dagster has no cursor of the run")
        cursors = DeltaCursorStore(home / "cursors", source=flavor)
        cursors.write(cursor, {})
        with killed_at("snapshot_swapping"):
            take_snapshot(config, tables=["shop.item"], cursors=cursors)
        server.execute_all("USE shop", "SET sql_mode = ''", *_RUNS[2])
        with killed_at("between_merges"):
            capture(config, cursors=cursors)
        server.flush_journal()
        server.copy_journals(home / "journals")
    lake = Lake(home / "lake", flavor)
    rows: Mapping[str, Any] = {
        str(cut.batch_number): rows_of(home / "lake", cut) for cut in lake.cuts()
    }
    with tempfile.TemporaryDirectory() as other:
        shutil.copytree(home, Path(other) / flavor)
        again = archived(Path(other), flavor)
        finish(again, DeltaCursorStore(Path(other) / flavor / "cursors", source=flavor))
        end = Lake(again.sink.lake_path, flavor).cuts()[-1]
        rows = {**rows, "end": rows_of(again.sink.lake_path, end)}
    (home / "rows.json").write_text(json.dumps(rows, indent=1, ensure_ascii=False))


def main(arguments: list[str]) -> int:
    default = Path(__file__).with_name(f"state-{version('cdc-pipeline')}.tar.xz")
    file = Path(arguments[0]) if arguments else default
    with tempfile.TemporaryDirectory(prefix="state-") as name:
        folder = Path(name)
        jobs, home = folder / "jobs", folder / "dagster_home"
        for made in (jobs, home):
            made.mkdir()
        shutil.copy(ROOT / "dagster_home" / "dagster.yaml", home)
        os.environ["DAGSTER_HOME"] = str(home)
        for flavor in FLAVORS:
            record(folder, flavor, jobs)
        pack(folder, file)
    print(f"{file}: {file.stat().st_size:,} bytes")
    return 0


def pack(folder: Path, file: Path) -> None:
    """Without what only this machine has: logs, locks, owners, and its folders in tracebacks."""
    home = folder / "dagster_home"
    for other in ("logs", "schedules", "storage", ".logs_queue", ".nux", ".telemetry"):
        shutil.rmtree(home / other, ignore_errors=True)
    for database in home.rglob("*.db"):
        with closing(sqlite3.connect(database, isolation_level=None)) as connection:
            connection.create_function("short", 1, lambda text: _FOLDER.sub(r"\1/", text))
            if connection.execute(
                "SELECT 1 FROM sqlite_master WHERE name = 'event_logs'"
            ).fetchone():
                connection.execute("UPDATE event_logs SET event = short(event)")
            connection.execute("VACUUM")
    with tarfile.open(file, "w:xz", preset=9) as archive:
        for kept in KEPT:
            archive.add(folder / kept, kept, filter=_anonymous)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if member.name.endswith(".lock"):
        return None  # holds who took it last
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
