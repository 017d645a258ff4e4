"""Catching up: CPU per gigabyte and peak memory of reading, decoding and staging, a large backlog
beside one gigabyte.

The journals of a backlog are one journal of a real server without GTIDs under many names (hard
links), so that 20 GB take 256 MB of disk. Its rows go through the product's own capture, batch by
batch, into tables that only count: Spark's part is measured by `make bench NAME=sink`.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

from benchmarks.backlog.journals import name_of
from benchmarks.decode.workloads import cache_folder
from benchmarks.history.tables import History, counted_sink
from benchmarks.processes import resident_mib, told_by
from benchmarks.report import Figure
from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.run.capture.capture import capture
from tests.servers import Server

RATIO_MAX = 1.1
GROWTH_MIB_MAX = 32.0
_GIGABYTE = 1_000_000_000
_JOURNAL_BYTES = 256 << 20
_STATEMENT_ROWS = 200
_ROW_BYTES = 640


def figures(folder: Path, *, gigabytes: float) -> list[Figure]:
    """Return CPU per gigabyte of `gigabytes` beside one, and how memory grows. One gigabyte is
    measured before and after it: what else the machine does changes in these minutes."""
    few, many, after = (
        _measured(folder / f"catch-up-{size:g}", size) for size in (1.0, gigabytes, 1.0)
    )
    few["cpu_s"] = (few["cpu_s"] + after["cpu_s"]) / 2
    per_gb = [found["cpu_s"] / found["bytes"] * _GIGABYTE for found in (few, many)]
    growth_mib = many["peak_mib"] - few["peak_mib"]
    size = f"{many['bytes'] / _GIGABYTE:.1f} GB in {many['batches']} batches"
    return [
        Figure("catch-up of 1 GB: CPU a GB", per_gb[0], "CPU-s"),
        Figure(f"catch-up of {size}: CPU a GB", per_gb[1], "CPU-s"),
        Figure("CPU a GB, to that of 1 GB", per_gb[1] / per_gb[0], "times", RATIO_MAX),
        Figure("peak memory at 1 GB", few["peak_mib"], "MiB"),
        Figure("growth of peak memory", growth_mib, "MiB", GROWTH_MIB_MAX),
    ]


def child(folder: Path) -> int:
    """Catch up with the archive in `folder`; print CPU-seconds, peak memory and batches."""
    _capture(folder / "warm", folder / "warm-lake")
    begun_s = time.process_time()
    batches = _capture(folder / "journals", folder / "lake")
    cpu_s = time.process_time() - begun_s
    print(json.dumps({"cpu_s": cpu_s, "peak_mib": resident_mib(), "batches": batches}))
    return 0


def _measured(folder: Path, gigabytes: float) -> dict[str, float]:
    link_journals(folder / "warm", 0)
    size_bytes = link_journals(folder / "journals", gigabytes)
    found: dict[str, float] = told_by("benchmarks.backlog", "child", folder)
    shutil.rmtree(folder)
    return {**found, "bytes": size_bytes}


def link_journals(folder: Path, gigabytes: float) -> int:
    """Make an archive of so many gigabytes of inserts, of one full journal at least; return its
    bytes without the journal that creates the table."""
    first, second = _recorded()
    count = max(1, round(gigabytes * _GIGABYTE / second.stat().st_size))
    folder.mkdir(parents=True)
    for number, file in enumerate([first, *[second] * count], 1):
        _link(file, folder / name_of(number))
    return count * second.stat().st_size


def _link(file: Path, name: Path) -> None:
    try:
        os.link(file, name)
    except OSError:  # another file system
        name.symlink_to(file)


def _capture(journals: Path, lake: Path) -> int:
    config = PipelineConfig.model_validate(
        {
            "name": "backlog",
            "source": {"kind": "archive", "directory": journals},
            "tables": {"include": ["bench.*"]},
            "batch": {"merge_rows": 1_000_000},
            "sink": {"lake_path": lake},
        }
    )
    cursors = MemoryCursorStore()
    history = History(lambda _record, _table, _version: None, {})
    capture(
        config,
        cursors=cursors,
        sink=counted_sink(history, source=config.name, config=config.sink),
    )
    assert cursors.cursor is not None
    return cursors.cursor.batch_number


def _recorded() -> tuple[Path, Path]:
    """Return a journal that creates the table, and one full of its changes; recorded if missing."""
    folder = cache_folder() / "backlog-1"
    if not folder.is_dir():
        partial = folder.with_name(folder.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.parent.mkdir(parents=True, exist_ok=True)
        _record(partial)
        partial.rename(folder)
    return folder / name_of(1), folder / name_of(2)


def _record(folder: Path) -> None:
    options: dict[str, str | int | bool | Path | None] = {
        "gtid_mode": "OFF",
        "max_binlog_size": 1 << 30,
        "sync_binlog": 0,
        "innodb_flush_log_at_trx_commit": 0,
    }
    with Server("mysql", options) as server:
        server.execute("CREATE DATABASE bench")
        server.flush_journal()
        server.execute(
            "CREATE TABLE bench.t (id INT NOT NULL PRIMARY KEY, n BIGINT, text VARCHAR(1000))"
        )
        created = server.journals()[-1].name
        server.flush_journal()
        full = server.journals()[-1].name
        with (
            server.root_connection(database="bench", autocommit=True) as connection,
            connection.cursor() as cursor,
        ):
            for first in range(0, _JOURNAL_BYTES // _ROW_BYTES, _STATEMENT_ROWS):
                cursor.execute(
                    f"INSERT INTO t WITH RECURSIVE numbers AS (SELECT {first} AS i UNION ALL "
                    f"SELECT i + 1 FROM numbers WHERE i + 1 < {first + _STATEMENT_ROWS}) SELECT i, "
                    "i * 7919, CONCAT(REPEAT(SHA2(i, 256), 8), SHA2(-i, 512)) FROM numbers"
                )
        server.flush_journal()
        server.copy_journals(folder)
    (folder / created).rename(folder / "created")
    (folder / full).rename(folder / "full")
    for journal in folder.glob("binlog.*"):
        journal.unlink()
    (folder / "created").rename(folder / name_of(1))
    (folder / "full").rename(folder / name_of(2))
