"""A table of the lake made again from its history, and swapped in where the cursor stands."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from cdc_pipeline.binlog.seq import journal_number
from cdc_pipeline.config.pipeline_config import PipelineConfig, PositionConfig
from cdc_pipeline.errors import ConfigError, SnapshotError
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.records import BatchRecord
from cdc_pipeline.operations.backfill.rebuild import rebuild
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.run.capture.segments.division import Parallel
from tests.servers import Server
from tests.support.captures import SPARK, here, live
from tests.support.comparison import lake_rows, server_rows
from tests.support.kills import killed_at
from tests.support.memory_sink import MemoryLake
from tests.support.workload import COLUMNS, Workload, create_tables

MakeConfig = Callable[..., PipelineConfig]


def test_k18_a_partial_table_is_rebuilt_and_swapped_in_at_a_cut(
    mysql_server: Server,
    mysql_database: str,
    make_config: MakeConfig,
    memory: MemoryLake,
    tmp_path: Path,
) -> None:
    """Killed before the swap and after its record; the cursor stands still in it; the next captures
    go on behind it."""
    server, database = mysql_server, mysql_database
    begin = PositionConfig(**here(server))
    create_tables(server, database)
    workload = Workload(server, database, seed=21)
    workload.run(8)
    table = f"{database}.account"
    late = here(server)
    sink = {"lake_path": tmp_path / "lake", "spark": SPARK}
    config = make_config(
        live(server), tables={"include": [table]}, targets=[], start=late, sink=sink
    )
    cursors = MemoryCursorStore()
    workload.run(4)
    report = capture(config, cursors=cursors)
    assert report.cursor is not None
    assert report.cursor.targets[table].partial
    rows_of = partial(
        lake_rows, memory, config.sink.lake_path, database, "account", COLUMNS["account"]
    )
    old_rows = rows_of()
    assert old_rows != server_rows(server, database, "account", COLUMNS["account"])

    archive = tmp_path / "archive"
    archive.mkdir()
    for file in server.journals():
        if journal_number(file.name) >= journal_number(begin.journal):
            shutil.copy2(file, archive)
    parallel = Parallel(stretch_bytes_min=0)
    call = partial(
        rebuild,
        config,
        tables=[table],
        cursors=cursors,
        start=begin,
        archive=archive,
        parallel=parallel,
    )
    with killed_at("snapshot_caught_up"):
        call()
    assert any("part-" in str(file) for cut in _batches(config) for file in cut), (
        "journals of the archive, side by side"
    )
    assert rows_of() == old_rows
    workload.run(2)
    with killed_at("snapshot_swapping"):
        call()
    stood = cursors.read()
    assert stood is not None
    done = call()
    assert (done.outcome, done.resumed) == ("rebuilt", True)
    assert done.start is not None
    assert done.start.journal == begin.journal
    assert rows_of() == server_rows(server, database, "account", COLUMNS["account"])
    after = cursors.read()
    assert after is not None
    assert after.position == stood.position, (
        "at rest since: the swap is a batch in which the cursor stands still"
    )
    assert after.batch_number == stood.batch_number + 1
    state = after.targets[table]
    assert not state.partial
    assert not state.exact
    assert not list(
        (LakePaths(config.sink.lake_path, config.name).state / "operations").glob("2*")
    ), "the side lake is gone"

    workload.run(3)
    workload.close()
    capture(config, cursors=cursors)
    assert rows_of() == server_rows(server, database, "account", COLUMNS["account"])
    assert call().outcome == "nothing_new"


def _batches(config: PipelineConfig) -> list[list[str]]:
    """Staged files of each batch of the side lake."""
    records = (config.sink.lake_path / "_cdc" / "bank" / "operations").glob(
        "*/_cdc/*/batches/*.json"
    )
    read = [BatchRecord.model_validate_json(file.read_text()) for file in sorted(records)]
    return [[file.path for target in record.targets for file in target.files] for record in read]


def test_k18_a_rebuild_that_would_be_partial_is_refused(
    mysql_server: Server, mysql_database: str, make_config: MakeConfig, tmp_path: Path
) -> None:
    """With the way out, and nothing left of it."""
    server, database = mysql_server, mysql_database
    server.execute_all(
        f"USE `{database}`", "CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)"
    )
    start = here(server)
    server.execute(f"CREATE TABLE `{database}`.other (id INT PRIMARY KEY)")
    config = make_config(
        live(server), tables={"include": [f"{database}.t"]}, targets=[], start=start
    )
    cursors = MemoryCursorStore()
    with pytest.raises(SnapshotError, match="neither its CREATE TABLE nor a change") as refused:
        rebuild(config, tables=[f"{database}.t"], cursors=cursors, start=PositionConfig(**start))
    assert f"cdc-pipeline snapshot bank --table {database}.t" in str(refused.value)
    assert not list((config.sink.lake_path / "_cdc" / "bank" / "operations").glob("2*"))
    assert not (config.sink.lake_path / database).exists()
    with pytest.raises(ConfigError, match="only archives"):
        rebuild(config, tables=[f"{database}.t"], cursors=cursors, parallel=Parallel())
    with pytest.raises(ConfigError, match="these tables are not captured"):
        rebuild(config, tables=[f"{database}.other"], cursors=cursors)
