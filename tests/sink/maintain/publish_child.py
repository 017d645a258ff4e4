"""Captures that publish to a Hive metastore (Derby's, embedded) while a session of the same process
reads what is published: ``python -m tests.sink.maintain.publish_child CONFIG PORT DATABASE``.

Prints what the reader saw as JSON.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pymysql

from cdc_pipeline.config.pipeline_config import MaintenanceConfig, PipelineConfig
from cdc_pipeline.errors import PublicationError
from cdc_pipeline.fault_points import listening
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.sink.delta_sink import DeltaSink
from cdc_pipeline.sink.maintain import publish
from cdc_pipeline.sink.maintain.maintenance import maintain
from cdc_pipeline.sink.read.cuts import find_cut
from cdc_pipeline.sink.read.read import REFUSE_OLD_COMMITS
from cdc_pipeline.sink.spark.session import SparkProvider
from cdc_pipeline.sink.spark.sql import table_at
from tests.support.kills import AtPoint, Killed, end_run

_POINTS = ("", "before_cursor", "before_ack", "before_published", "", "before_cut", "")


def main(config_file: str, port: str, database: str) -> int:
    config = PipelineConfig.model_validate_json(Path(config_file).read_text(encoding="utf-8"))
    provider = SparkProvider.from_config(config.sink)
    paths, cursors = LakePaths(config.sink.lake_path, config.name), MemoryCursorStore()
    session: Any = provider.session().newSession()
    session.conf.set(REFUSE_OLD_COMMITS, "false")
    connection = pymysql.connect(
        host="127.0.0.1", port=int(port), user="root", database=database, ssl_disabled=True
    )

    def run(point: str = "") -> None:
        sink = DeltaSink(source=config.name, config=config.sink, spark=provider)
        with listening(AtPoint(point, end_run)) if point else nullcontext(), suppress(Killed):
            capture(config, cursors=cursors, sink=sink)

    def commit(*statements: str) -> None:
        with connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
        connection.commit()

    def rows(statement: str, of: Any = session) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in of.sql(statement).collect()]

    def views(of: str) -> set[str]:
        return {name for _, name, _ in rows(f"SHOW VIEWS IN {of}")}

    told: dict[str, Any] = {"torn": []}
    publish._DATABASES_KEPT = 3  # type: ignore[misc]
    run()
    first = rows("SELECT cut, database FROM live_cuts.newest")
    reads, ended = list[int](), threading.Event()
    reader = threading.Thread(
        target=_read, args=(session.newSession(), ended, reads, told["torn"]), daemon=True
    )
    reader.start()
    for amount, point in enumerate(_POINTS, 1):
        commit(
            f"UPDATE `left` SET cents = cents - {amount} WHERE id = 1",
            f"UPDATE `right` SET cents = cents + {amount} WHERE id = 2",
        )
        run(point)
        until = len(reads) + 2
        while len(reads) < until and reader.is_alive():
            time.sleep(0.05)
    run()
    ended.set()
    reader.join()
    told["seen"] = len(set(reads))
    newest = find_cut(paths)
    told["newest"] = rows("SELECT cut FROM live_cuts.newest") == [(newest.batch_number,)]
    told["grew"] = newest.batch_number - first[0][0]
    told["kept"] = len(rows("SHOW SCHEMAS LIKE 'live_cut_*'"))
    told["sum"] = rows("SELECT sum(cents) FROM (SELECT * FROM live.left UNION SELECT * FROM "
                       "live.right)")[0][0]  # fmt: skip
    commit("DROP TABLE `right`", "CREATE TABLE later (id INT PRIMARY KEY)", "INSERT INTO later "
           "VALUES (1)")  # fmt: skip
    session.sql("CREATE VIEW live.yours AS SELECT 1 AS one").collect()
    gone = f"SELECT * FROM {table_at(paths.table(f'{database}.left'))} VERSION AS OF 0"
    session.sql(f"CREATE VIEW live.gone AS {gone}").collect()
    run()
    told["views"] = sorted(views("live")), sorted(views(f"live_cut_{find_cut(paths).batch_number}"))
    told["idle"] = _idle(run, provider)
    for database in ("live", "live_cuts"):
        session.sql(f"DROP SCHEMA {database} CASCADE").collect()
    session.sql("CREATE SCHEMA live").collect()
    session.sql("CREATE TABLE live.left (id INT) USING parquet").collect()
    commit("UPDATE `left` SET cents = 7 WHERE id = 2")
    told["failures"] = [_failure(run), _failure(run)]  # with a change, and without one
    newest = find_cut(paths)
    of_cut = f"live_cut_{newest.batch_number}"
    told["captured"] = rows(f"SELECT cents FROM {of_cut}.left WHERE id = 2")
    session.sql("DROP TABLE live.left").collect()
    run()
    told["published"] = rows("SELECT cents FROM live.left WHERE id = 2")
    maintain(paths, config.sink, MaintenanceConfig(small_files=2), spark=provider)
    told["maintained"] = rows("SELECT cents FROM live.left WHERE id = 2")
    print(json.dumps(told))
    provider.stop()
    return 0


def _read(session: Any, ended: threading.Event, reads: list[int], torn: list[str]) -> None:
    session.sql("DECLARE VARIABLE at STRING").collect()
    while not ended.is_set():
        session.sql("SET VARIABLE at = (SELECT database FROM live_cuts.newest)").collect()
        session.sql("USE IDENTIFIER(at)").collect()
        cents = [
            session.sql(f"SELECT sum(cents) FROM {name}").collect()[0][0]
            for name in ("left", "right")
        ]
        reads.append(cents[0])
        if sum(cents) != 3000:
            torn.append(str(cents))


def _failure(run: Callable[[], None]) -> str:
    try:
        run()
    except PublicationError as error:
        return f"{error.setting}: {error.got}"[:60]
    return ""


def _idle(run: Callable[[], None], provider: SparkProvider) -> bool:
    """Whether a run without changes asks for no session."""
    with patch.object(provider, "session", side_effect=AssertionError("Spark starts")) as session:
        run()
    return not session.called
