"""The journals that are decoded: written once by a real server, then kept in the cache folder.

Rules:
- One journal per workload, full row image, full row metadata, CRC32; it holds the changes and no
  DDL.
- A journal of the cache folder is complete or absent: it is written under another name and renamed
  at the end.
- A change of the statements needs a new name of the workload, or old journals would be measured.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pymysql.cursors import Cursor

from benchmarks.decode import statements
from tests.servers import Server

_SERVER_OPTIONS: dict[str, str | int | bool | Path | None] = {
    "max_binlog_size": 1 << 30,
    "sync_binlog": 0,
    "innodb_flush_log_at_trx_commit": 0,
    "innodb_redo_log_capacity": "512M",
    "innodb_buffer_pool_size": "512M",
}


@dataclass(frozen=True, slots=True)
class Workload:
    """What is written, and what its journal must hold. `name`: of the journal in the cache folder,
    and in the table of figures; `about`: what a person reads below the table; `changes`: row
    changes: an insert, an update or a delete of one row each; `prepare`: makes the tables; its
    statements are in an earlier journal. `write`: makes the changes; `target_s`: at most so many
    CPU-seconds per million changes.
    """

    name: str
    about: str
    changes: int
    prepare: Callable[[Cursor], None]
    write: Callable[[Cursor], None]
    target_s: float


W1 = Workload(
    name="w1-bulk",
    about="inserts of 1,000 rows of int, int, char(120), char(60)",
    changes=statements.BULK_ROWS,
    prepare=statements.prepare_bulk,
    write=statements.write_bulk,
    target_s=0.25,
)
W2 = Workload(
    name="w2-oltp",
    about="200,000 transactions of two or three inserts, updates and deletes of single rows of 12 "
    "columns in 5 tables",
    changes=statements.OLTP_CHANGES,
    prepare=statements.prepare_oltp,
    write=statements.write_oltp,
    target_s=2.0,
)
W3 = Workload(
    name="w3-wide",
    about="inserts and updates of 500 rows of 60 mixed columns",
    changes=2 * statements.WIDE_ROWS,
    prepare=statements.prepare_wide,
    write=statements.write_wide,
    target_s=4.0,
)
WORKLOADS = (W1, W2, W3)


def cache_folder() -> Path:
    """Where journals are kept between runs; never in the repository."""
    base = os.environ.get("CDC_PIPELINE_CACHE")
    if base:
        return Path(base) / "benchmarks"
    return (
        Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser()
        / "cdc_pipeline"
        / "benchmarks"
    )


def journals() -> Iterator[tuple[Workload, Path]]:
    folder = cache_folder()
    missing = [workload for workload in WORKLOADS if not _path(folder, workload).exists()]
    if missing:
        folder.mkdir(parents=True, exist_ok=True)
        with Server("mysql", _SERVER_OPTIONS) as server:
            for workload in missing:
                _record(server, workload, _path(folder, workload))
    for workload in WORKLOADS:
        yield workload, _path(folder, workload)


def _path(folder: Path, workload: Workload) -> Path:
    return folder / f"{workload.name}.000001"


def _record(server: Server, workload: Workload, path: Path) -> None:
    server.execute_all("DROP DATABASE IF EXISTS bench", "CREATE DATABASE bench")
    with server.root_connection(database="bench") as connection, connection.cursor() as cursor:
        workload.prepare(cursor)
        server.flush_journal()
        workload.write(cursor)
    server.flush_journal()
    partial = path.with_suffix(".partial")
    shutil.copyfile(server.journals()[-2], partial)
    partial.replace(path)


if __name__ == "__main__":
    for _, journal in journals():
        print(journal.name, journal.stat().st_size)
