"""Publish a cut (`sink.publish`): views of its tables for readers by SQL, all at one transaction.

Rules:
- A cut is published after it is durable and the cursor is moved. A failure changes neither: it is
  told at the run's end, and the next run publishes what is missing before it reads anything.
- DuckDB's file is replaced by one rename, and its statements are one transaction.
- No catalog of Spark's replaces several views at once. So each cut gets a database of its own,
  which is complete when the view ``DATABASE_cuts.newest`` names it; the views of the plain name
  follow one after the other.
- A view reads a version, which no VACUUM can pin (K15): what the published views read is
  remembered, and a vacuum or a log's cleanup that would take it waits. Maintenance publishes again:
  the same rows in the files that stay.
- What is remembered is a convenience: without it, everything is published once more. If it cannot
  be read, it is replaced when all is published, and nothing that views may read goes until then.
- What another source, or one of another lake, has published is never replaced (K16): DuckDB's file
  names its publisher in the first line, and a catalog in the comment of ``DATABASE_cuts``, which is
  made before anything else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel, Field

from cdc_pipeline.clock import now_us
from cdc_pipeline.config.pipeline_config import SinkConfig
from cdc_pipeline.config.sink_config import PublishConfig
from cdc_pipeline.errors import CdcError, LakeStateError, LockError, PublicationError
from cdc_pipeline.fault_points import reach
from cdc_pipeline.lake.paths import LakePaths, read_if_there, replace_file
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.sink.delta.replay import table_state
from cdc_pipeline.sink.read.read import view_statements
from cdc_pipeline.sink.spark.session import new_session
from cdc_pipeline.sink.spark.sql import quoted, table_at, text_literal
from cdc_pipeline.text.server_messages import said_by

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LINE_MAX: Final = 10_000
_DATABASES_KEPT: Final = 10  # of the newest cuts: for sessions that read one of them


class _Published(BaseModel):
    """`settings`: those it was made with, "" while it changes; `tables`: versions."""

    cut: int
    settings: str
    at_us: int
    tables: dict[str, int]


class _Memory(BaseModel):
    kinds: dict[str, _Published] = Field(default_factory=dict)


def publish(
    paths: LakePaths,
    config: SinkConfig,
    cut: Cut,
    *,
    newest: Callable[[Cut], Cut],
    session: Callable[[], SparkSession],
    check_lock: Callable[[], None],
    again: bool = False,
) -> PublicationError | None:
    """Show a cut to the readers that are not shown it yet, or to all `again`; return the last
    failure. `newest`: the cut with each table at its newest version, if only maintenance lies
    between; `check_lock` raises if the source is no longer locked, and precedes each change (K16).
    """
    asked = config.publish
    assert asked is not None
    kinds = {"duckdb": asked.duckdb is not None, "catalog": asked.catalog}
    remembered, settings = _remembered(paths), asked.model_dump_json()
    memory = remembered or _Memory()
    memory.kinds = {kind: shown for kind, shown in memory.kinds.items() if kinds[kind]}
    failures: list[PublicationError] = []
    for kind in (kind for kind, is_asked in kinds.items() if is_asked):
        shown = memory.kinds.get(kind)
        if shown is not None and (again or shown.settings != settings):
            shown.settings = ""
        with _collected(failures, kind, cut):
            is_there = kind == "catalog" or (asked.duckdb is not None and asked.duckdb.exists())
            if shown and shown.cut == cut.batch_number and shown.settings == settings and is_there:
                continue
            cut = newest(cut)
            versions = {
                name: table.table_version
                for name, table in cut.tables.items()
                if name not in cut.cursor.suspended
            }
            if kind == "duckdb":
                _write_file(paths, asked, cut, check_lock)
            else:
                if shown is not None:
                    shown.settings = ""
                    _remember(paths, memory)
                known = cut.tables.keys() | (shown.tables.keys() if shown is not None else ())
                shows = new_session(session())
                _to_catalog(shows, paths, asked, cut, known, check_lock)
            memory.kinds[kind] = _Published(
                cut=cut.batch_number, settings=settings, at_us=now_us(), tables=versions
            )
            if remembered is not None:
                _remember(paths, memory)
    if remembered is None and not failures:
        with _collected(failures, "duckdb" if kinds["duckdb"] else "catalog", cut):
            _remember(paths, memory)
    return failures[-1] if failures else None


def published_versions(paths: LakePaths) -> dict[str, int] | None:
    """The oldest version of each table that published views read; None: that is not known."""
    memory, versions = _remembered(paths), dict[str, int]()
    if memory is None:
        return None
    for shown in memory.kinds.values():
        for table, version in shown.tables.items():
            versions[table] = min(version, versions.get(table, version))
    return versions


def is_read(paths: LakePaths, table: str, *, retention_us: int) -> bool:
    """Whether a vacuum might remove files that published views read; or what they read is not
    known.
    """
    versions, memory = published_versions(paths), _remembered(paths)
    if versions is None or memory is None:
        return True
    version = versions.get(table)
    oldest_us = min((shown.at_us for shown in memory.kinds.values()), default=0)
    return version is not None and replaces_files(
        paths.table(table), version, oldest_us, retention_us=retention_us
    )


def replaces_files(path: Path, version: int, at_us: int, *, retention_us: int) -> bool:
    """Files of a version that was the newest at `at_us`, before the retention began."""
    if at_us + retention_us > now_us():
        return False
    read, present = table_state(path, version), table_state(path)
    return read is not None and present is not None and not set(read.names) <= set(present.names)


def _write_file(
    paths: LakePaths, asked: PublishConfig, cut: Cut, check_lock: Callable[[], None]
) -> None:
    assert asked.duckdb is not None
    schema, of_ours = asked.database, f" of {_publisher(paths)}; "
    with suppress(FileNotFoundError), asked.duckdb.open("rb") as file:
        first = file.readline(_LINE_MAX).decode(errors="replace").strip()
        if not re.match(rf"-- cut \d+{re.escape(of_ours)}", first):
            raise _published_by_another("duckdb", asked.duckdb, paths, first, "remove the file")
    statements = [
        "BEGIN TRANSACTION",
        f'DROP SCHEMA IF EXISTS "{schema}" CASCADE',
        *view_statements(paths, cut, schema=schema, plain=asked.plain, dialect="duckdb"),
        "COMMIT",
    ]
    text = f"-- cut {cut.batch_number}{of_ours}replaces the schema {schema}\n"
    text += "".join(f"{statement};\n" for statement in statements)
    reach("before_published")
    check_lock()
    replace_file(asked.duckdb, text.encode())


def _to_catalog(
    session: SparkSession,
    paths: LakePaths,
    asked: PublishConfig,
    cut: Cut,
    known: Collection[str],
    check_lock: Callable[[], None],
) -> None:
    """`known`: tables that views may be of."""
    own = [f"{table_at(paths.table(table))} VERSION AS OF " for table in known]

    def run(statement: str) -> list[Any]:
        check_lock()
        return session.sql(statement).collect()

    def fill(database: str) -> None:
        statements = view_statements(paths, cut, schema=database, plain=asked.plain)
        for statement in statements:
            run(statement)
        for row in run(f"SHOW VIEWS IN {quoted(database)}"):
            name = f"{quoted(database)}.{quoted(row['viewName'])}"
            if any(f" VIEW {name} AS ".lower() in made.lower() for made in statements):
                continue
            text = run(f"SHOW CREATE TABLE {name}")[0][0]
            if any(table in text for table in own):  # ours, of a table that is gone
                run(f"DROP VIEW IF EXISTS {name}")

    names, of_cut = f"{asked.database}_cuts", f"{asked.database}_cut_{cut.batch_number}"
    publisher = f"cuts of {_publisher(paths)}"
    run(f"CREATE SCHEMA IF NOT EXISTS {quoted(names)} COMMENT {text_literal(publisher)}")
    described = {row[0]: row[1] for row in run(f"DESCRIBE SCHEMA {quoted(names)}")}
    if described.get("Comment") != publisher:
        clear = f"DROP SCHEMA {quoted(names)} CASCADE"
        raise _published_by_another("database", names, paths, described.get("Comment"), clear)
    fill(of_cut)
    reach("before_published")
    run(
        f"CREATE OR REPLACE VIEW {quoted(names)}.newest AS "
        f"SELECT {cut.batch_number} AS cut, {text_literal(of_cut)} AS database"
    )
    fill(asked.database)
    numbers = {
        int(match[1])
        for row in run(f"SHOW SCHEMAS LIKE '{asked.database}_cut_*'")
        if (match := re.fullmatch(rf"{asked.database}_cut_(\d+)", row[0], re.IGNORECASE))
    }
    kept = sorted(number for number in numbers if number <= cut.batch_number)[-_DATABASES_KEPT:]
    for number in numbers.difference(kept):
        run(f"DROP SCHEMA IF EXISTS {quoted(f'{asked.database}_cut_{number}')} CASCADE")


def _publisher(paths: LakePaths) -> str:
    """In one line of ASCII, as not every catalog keeps other comments."""
    return f"{paths.source} in {ascii(str(paths.lake))[1:-1]}"


def _published_by_another(
    setting: str, place: object, paths: LakePaths, found: str | None, clear: str
) -> PublicationError:
    return PublicationError(
        f"{place} is not this source's, and is left as it is: nothing is published",
        setting=f"sink.publish.{setting}",
        expected=f"one that is new, or cuts of {_publisher(paths)}",
        got=found or "nothing that says whose it is",
        next_step=f"name another one; or, if nobody publishes or needs it any more: {clear}",
    )


@contextmanager
def _collected(failures: list[PublicationError], kind: str, cut: Cut) -> Iterator[None]:
    """What the block raises, unless the lock is lost."""
    try:
        yield
    except LockError:
        raise
    except PublicationError as error:
        failures.append(error)
    except Exception as error:
        failures.append(
            PublicationError(
                f"cut {cut.batch_number} is not published: readers by SQL are still shown an older "
                "one",
                setting=f"sink.publish.{kind}",
                expected="its views",
                got=error.what if isinstance(error, CdcError) else said_by(error),
                next_step="remove the cause, then run again: a run without changes publishes it "
                "too",
            )
        )


def _remembered(paths: LakePaths) -> _Memory | None:
    """None: it cannot be read."""
    file = paths.state / "published.json"
    try:
        return read_if_there(file, _Memory.model_validate_json, absent=_Memory(), next_step="")
    except (OSError, LakeStateError):
        return None


def _remember(paths: LakePaths, memory: _Memory) -> None:
    replace_file(paths.state / "published.json", memory.model_dump_json(indent=1).encode())
