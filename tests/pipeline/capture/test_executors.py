"""Rows that are decoded on Spark's executors end in the same tables as those that the driver
decodes."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from cdc_pipeline.pipeline.decode.raw_staging import RawStaging, raw_staging, uses_executors
from cdc_pipeline.sink.staging.raw_files import RawRows, raw_events

import cdc_pipeline
from cdc_pipeline.binlog.rows.rows import RowsSelection, count_rows
from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import UnrepresentableValueError
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.records import BatchRecord, Interval, Note
from cdc_pipeline.pipeline.capture.capture import capture
from cdc_pipeline.pipeline.capture.commit import cursor_state
from cdc_pipeline.pipeline.targets.targets import Targets
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.position.position import Position, ServerIdentity
from cdc_pipeline.schema.types import target_columns
from cdc_pipeline.sink.apply.executors import lack_of_executors
from cdc_pipeline.sink.delta_sink import DeltaSink
from tests.servers import Server
from tests.support.captures import SPARK, here, live
from tests.support.comparison import lake_rows, server_rows
from tests.support.kills import killed_at
from tests.support.rows_events import (
    WRITE,
    chunk_of,
    full,
    int_column,
    prefixed,
    rows_body,
    schema_of,
    text_column,
)
from tests.support.sink_values import head_of, new_target
from tests.support.workload import COLUMNS, Workload, create_tables

pytestmark = [pytest.mark.spark, pytest.mark.mysql]

MakeConfig = Callable[..., PipelineConfig]


@pytest.mark.whole
def test_k2_k14_executors_end_in_the_same_rows_and_resume_from_raw_files(
    mysql_server: Server, mysql_database: str, make_config: MakeConfig, spark: Any, tmp_path: Path
) -> None:
    database, start, source = mysql_database, here(mysql_server), live(mysql_server)
    names = [f"{database}.account", f"{database}.label"]
    rules = [
        {"tables": [f"{database}.account"], "mode": "mirror"},
        {"tables": [f"{database}.account"], "mode": "history", "name": "{schema}.{table}_history"},
        {"tables": [f"{database}.label"], "masks": {"text": "drop"}},
    ]

    def config(way: str) -> PipelineConfig:
        sink = {"lake_path": tmp_path / way, "spark": SPARK}
        return make_config(
            source, include=names, start=start, targets=rules, batch={"decode": way}, sink=sink
        )

    create_tables(mysql_server, database)
    workload = Workload(mysql_server, database, seed=5)
    workload.run(12)
    workload.rolled_back_transaction()
    mysql_server.execute(f"INSERT INTO `{database}`.label VALUES ('hidden', 'a secret text', 'a')")
    cursors, executors = MemoryCursorStore(), config("executors")
    with killed_at("after_record"):
        capture(executors, cursors=cursors)

    paths = LakePaths(executors.sink.lake_path, executors.name)
    record = BatchRecord.model_validate_json(paths.batch(1).read_text(encoding="utf-8"))
    targets = {target.table.split(".")[1]: target for target in record.targets}
    for name in ("account", "account_history"):
        assert targets[name].raw_files, name
        assert not targets[name].files, name
    assert not targets["label"].raw_files, "what masks hide never reaches the lake"
    for file in paths.staging(1).rglob("*.parquet"):
        assert "a secret text" not in str(pq.read_table(file).to_pydict()), file

    workload.run(12)  # with updates of rows that the first batch inserted
    workload.close()
    capture(executors, cursors=cursors)
    driver = config("driver")
    capture(driver, cursors=MemoryCursorStore())
    assert not list(paths.staging_root.iterdir()), "decoded files are gone with the raw ones"
    expected = server_rows(mysql_server, database, "account", COLUMNS["account"])
    assert (
        lake_rows(spark, executors.sink.lake_path, database, "account", COLUMNS["account"])
        == expected
    )
    for table, columns in {
        "account": [*COLUMNS["account"], "_cdc_seq", "_cdc_ts"],
        "account_history": [*COLUMNS["account"], "__START_AT", "__END_AT"],
        "label": ["code", "kind", "_cdc_seq"],
    }.items():
        rows = [
            lake_rows(spark, one.sink.lake_path, database, table, columns)
            for one in (executors, driver)
        ]
        assert rows[0] == rows[1], table


@pytest.mark.whole
def test_k4_a_value_that_an_executor_cannot_decode_suspends_its_target_by_name(
    make_config: MakeConfig, spark: Any, tmp_path: Path
) -> None:
    table = schema_of(int_column(), text_column())
    bodies = [
        (WRITE, rows_body(WRITE, [full(struct.pack("<i", at), prefixed(b"\xff"))]))
        for at in range(2)
    ]
    part = RowsSelection(chunk_of(bodies), np.arange(2))
    config = make_config({"kind": "archive", "directory": tmp_path}, include=["*.*"])
    sink = DeltaSink(source="bank", config=config.sink)
    rows = RawRows(table, raw_events([part]), count_rows([part], table), 1)
    target = new_target(table.full_name, "a", target_columns(table), ("id",))
    with sink.lock():
        batch = sink.begin(1)
        batch.create(target)
        batch.add_raw(rows, target)
        place = Position(part.chunk.journal, 4)
        cursor = cursor_state(
            "bank", ServerIdentity(flavor="mysql", server_id=1), place, batch_number=1
        )
        interval = Interval(
            start_journal=place.journal, start_offset=4, end_journal=place.journal, end_offset=4
        )
        record = batch.record(head_of(interval=interval, cursor_after=cursor))
        cut = sink.finish(record)
    held = cut.cursor.targets[table.full_name].suspended
    assert held is not None, (
        "the only target of its source: else no run would ever get past the batch"
    )
    assert (held.error, held.needs_reload) == (UnrepresentableValueError.__name__, False)
    assert (held.journal, held.offset) == (part.chunk.journal, 4), (
        "from where the driver decodes it again"
    )
    assert "not valid" in held.what


@pytest.mark.whole
def test_executors_are_asked_before_auto_trusts_them(
    make_config: MakeConfig, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert lack_of_executors(spark) == ""
    monkeypatch.setattr(cdc_pipeline, "__version__", "0.0.0")
    lack = lack_of_executors(spark)
    assert "the driver has 0.0.0" in lack

    def staging(decode: str) -> RawStaging | Note | None:
        sink = {"lake_path": "lake", "spark": {"master": "spark://there:7077"}}
        batch = {"decode": decode, "executors_bytes_min": 0}
        config = make_config(
            {"kind": "archive", "directory": "there"}, include=["a.b"], batch=batch, sink=sink
        )
        targets = Targets(config, None)
        return raw_staging(config, targets, bytes_expected=1, epoch=1, lack=lambda: lack)

    note = staging("auto")
    assert isinstance(note, Note)
    assert note.kind == "decoded_in_driver"
    assert lack in note.text
    assert isinstance(staging("executors"), RawStaging), "if a user says so, nothing is asked"


def test_executors_decode_huge_runs_on_a_cluster_alone(make_config: MakeConfig) -> None:
    def uses(master: str, bytes_expected: int, **batch: Any) -> bool:
        sink = {"lake_path": "lake", "spark": {"master": master}}
        config = make_config(
            {"kind": "archive", "directory": "there"}, include=["a.b"], batch=batch, sink=sink
        )
        return uses_executors(config, bytes_expected=bytes_expected)

    assert not uses("local[*]", 1 << 40, decode="auto")
    assert uses("spark://there:7077", 1 << 40, decode="auto")
    assert not uses("spark://there:7077", 1 << 20, decode="auto")
    assert uses("spark://there:7077", 1 << 20, decode="auto", executors_bytes_min=1 << 20)
    assert uses("spark://there:7077", 1 << 40), "the default"
    assert not uses("local", 1 << 40)
    assert uses("local-cluster[1,1,1024]", 1 << 40)
    assert uses("local[2]", 0, decode="executors")
