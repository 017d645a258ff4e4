"""A suspended target and a prepared XA transaction: the target reads it again when it has ended (K4
with K8)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import TargetSuspendedError
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.run.capture.capture import capture
from tests.run.capture.test_xa import Way
from tests.servers import Server

pytestmark = [pytest.mark.spark, pytest.mark.mysql, pytest.mark.whole]


def test_k4_k8_a_suspended_target_waits_for_a_prepared_transaction_and_loses_nothing_of_it(
    mysql_server: Server,
    mysql_database: str,
    make_config: Callable[..., PipelineConfig],
    spark: Any,
) -> None:
    way = Way(mysql_server, mysql_database, make_config, spark)
    way.execute("INSERT INTO u VALUES (1, 'one', 1)")
    way.run()
    xa = way.begin("'held'").run(
        "UPDATE t SET v = 'by xa' WHERE id = 1", "INSERT INTO u VALUES (2, 'by xa', 2)"
    )
    xa.prepare()
    way.run()
    (prepared,) = way.cursor.open_xa
    assert len(prepared.files) == 2

    name = f"{mysql_database}.t"
    folder = LakePaths(way.config.sink.lake_path, way.config.name).table(name)
    shutil.move(folder, way.config.sink.lake_path / "kept")
    way.execute("INSERT INTO t VALUES (4, 'four', 4)", "INSERT INTO u VALUES (4, 'four', 4)")
    with pytest.raises(TargetSuspendedError, match="is gone"):
        capture(way.config, cursors=way.cursors)
    held = way.cursor.suspended[name]
    assert (held.journal, held.offset) == (prepared.prepared_journal, prepared.prepared_offset), (
        "before its rows"
    )

    # The table is back, but what the transaction changes cannot be known before its end.
    shutil.move(way.config.sink.lake_path / "kept", folder)
    way.execute("INSERT INTO t VALUES (5, 'five', 5)")
    with pytest.raises(TargetSuspendedError, match="waits for the XA transactions"):
        capture(way.config, cursors=way.cursors)
    assert way.open_xids() == [prepared.xid]

    xa.commit()
    way.execute("UPDATE u SET d = d + 1")
    report = way.run()  # equal to the server's SELECT, both tables
    assert report.suspended == {}
    assert way.open_xids() == []
