"""What a lake's own logs say of its batches, read from a folder; other commits."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.lake.state import read_cut
from cdc_pipeline.sink.delta.commit import COMMIT_NOTE
from cdc_pipeline.sink.delta.log import commit_note, maintenance_note
from cdc_pipeline.sink.delta.plain_commit import put_commit, removed
from cdc_pipeline.sink.delta.replay import readable_state
from cdc_pipeline.sink.delta.table_log import read_table_log
from cdc_pipeline.sink.spark.sql import table_at


def cuts_of(lake: Path, source: str) -> list[Cut]:
    paths = LakePaths(lake, source)
    return [read_cut(paths, int(file.stem)) for file in sorted(paths.cuts.glob("*.json"))]


def assert_each_batch_once(lake: Path, source: str) -> None:
    """No transaction version twice in a table's log; the cuts are numbered without a gap."""
    cuts = cuts_of(lake, source)
    assert [cut.batch_number for cut in cuts] == list(range(1, len(cuts) + 1))
    for log in lake.glob("*/*/_delta_log"):
        versions = Counter(
            (action["txn"]["appId"], action["txn"]["version"])
            for commit in sorted(log.glob("*.json"))
            for action in map(json.loads, commit.read_text(encoding="utf-8").splitlines())
            if "txn" in action
        )
        assert set(versions.values()) == {1}, log


def empty(table: Path) -> None:
    """As another program's DELETE of all rows commits it."""
    state = readable_state(table)
    gone = [removed(add) for add in state.adds.values()]
    put_commit(table, state.version + 1, gone, "DELETE", {}, note="")


def alter(session: Any, table: Path, clause: str, *, batch: int | None = None) -> None:
    """ALTER TABLE, as the pipeline's own maintenance or a batch of it commits that."""
    log = read_table_log(table)
    assert log is not None
    own = session.newSession()
    own.conf.set(
        COMMIT_NOTE,
        maintenance_note(log.app_id) if batch is None else commit_note(log.app_id, batch),
    )
    own.sql(f"ALTER TABLE {table_at(table)} {clause}").collect()


def set_property(session: Any, table: Path, name: str, value: str) -> None:
    alter(session, table, f"SET TBLPROPERTIES ('{name}' = '{value}')")
