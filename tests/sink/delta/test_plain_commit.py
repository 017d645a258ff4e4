"""Tables that are created and changed without a JVM are those that Delta's own code makes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from cdc_pipeline.binlog.table_schema import Kind
from cdc_pipeline.config.pipeline_config import SinkConfig
from cdc_pipeline.errors import LakeStateError, SinkError
from cdc_pipeline.lake.storage.storage import Storage
from cdc_pipeline.sink.delta import plain_commit
from cdc_pipeline.sink.delta.deletion_vectors import rows_of_vector, vector_path
from cdc_pipeline.sink.delta.failures import VersionTakenError
from cdc_pipeline.sink.delta.log import last_checkpoint, read_commit
from cdc_pipeline.sink.delta.plain_commit import PlainCommit, can_commit
from cdc_pipeline.sink.delta.table_log import TableLog, read_table_log
from cdc_pipeline.sink.delta_sink import DeltaSink
from cdc_pipeline.sink.spark.session import SparkProvider
from cdc_pipeline.sink.spark.sql import table_at, text_literal
from tests.support.delta_protocol import check_log
from tests.support.delta_reader import newest_rows, read_delta
from tests.support.kills import killed_at
from tests.support.sink_values import (
    Change,
    applied,
    column,
    delete,
    insert,
    record_batch,
    table_schema,
    update,
)
from tests.support.spark_reader import rows_by_spark

ORDERS = table_schema(
    "shop.orders",
    [
        column("id", Kind.INT32),
        column("name", Kind.TEXT, charset="utf8mb4"),
        column("at", Kind.DATETIME),
        column("größe", Kind.DECIMAL, precision=7, scale=2),
        column("tiny", Kind.INT8),
    ],
    "id",
)
TABLE = "shop.orders"


def row(number: int, name: str = "a") -> dict[str, Any]:
    return {"id": number, "name": name, "at": None, "größe": None, "tiny": 1}


def batches() -> list[list[Change]]:
    """Rows that come, change, change again, move and go; in every batch some of an earlier file."""
    found: list[list[Change]] = [[insert(**row(n)) for n in range(40)]]
    for number in range(1, 13):
        changes = [update(row(n), row(n, f"b{number}")) for n in range(3 * number, 3 * number + 5)]
        changes.append(insert(**row(100 + number)))
        if number % 4 == 0:
            changes += [delete(**row(100 + number - 1)), update(row(number), row(200 + number))]
        found.append(changes)
    found.append([delete(**row(n)) for n in (0, 1, 2)])
    return found


def history(path: Path) -> list[tuple[list[dict[str, Any]], list[tuple[Any, ...]]]]:
    """For each version what its commit says of the table and of the batch, without what differs
    from run to run, and the table's rows."""
    found = []
    for version, file in enumerate(sorted((path / "_delta_log").glob("*.json"))):
        made = []
        for line in file.read_text().splitlines():
            ((kind, value),) = json.loads(line).items()
            if kind in ("add", "remove"):
                continue
            if kind == "commitInfo" and version:
                value = {name: value[name] for name in ("userMetadata", "readVersion")}
            for name in (
                "timestamp", "txnId", "engineInfo", "lastUpdated", "createdTime", "id",
            ):  # fmt: skip
                value.pop(name, None)
            for name in ("readerFeatures", "writerFeatures"):
                value[name] = sorted(value.get(name, ()))
            if "properties" in value.get("operationParameters", {}):
                value["operationParameters"]["properties"] = json.loads(
                    value["operationParameters"]["properties"]
                )
            made.append({kind: value})
        rows = read_delta(path, version).rows
        found.append((made, sorted(tuple(row[name] for name in _READ) for row in rows)))
    return found


_READ = ("id", "name", "_cdc_op", "_cdc_seq")


def seen(sink: DeltaSink) -> list[tuple[Any, ...]]:
    return sorted(tuple(found.values()) for found in rows_by_spark(sink, TABLE, *_READ).to_pylist())


def plainly_read(path: Path) -> list[tuple[Any, ...]]:
    return sorted(tuple(found.values()) for found in newest_rows(path, *_READ))


def test_a_table_is_created_changed_and_cleaned_up_without_spark(no_spark: DeltaSink) -> None:
    sink = no_spark
    with sink.lock():
        for number, changes in enumerate(batches(), start=1):
            cut = applied(sink, number, (ORDERS, changes, 100 * number))
    assert not sink.spark_started
    path = sink.paths.table(TABLE)
    assert cut.tables[TABLE].table_version == 14
    assert check_log(path) == 15
    assert last_checkpoint(path) == 10
    names = {found["id"]: found["name"] for found in newest_rows(path)}
    assert len(names) == 40 + 13 - 6
    assert names[38] == "b12"
    assert 0 not in names
    # What the checkpoint lists is what the log says: other readers begin there.
    assert DeltaTable(str(path)).version() == 14


@pytest.mark.whole
@pytest.mark.spark
def test_both_engines_make_the_same_table_and_the_same_history(
    open_sink: Callable[..., DeltaSink],
) -> None:
    plain, by_spark = open_sink("plain"), open_sink("by_spark", engine="spark")
    often = {"delta.checkpointInterval": "3"}
    for sink in (plain, by_spark):
        for number, changes in enumerate([*batches()[:5], batches()[-1]], start=1):
            applied(sink, number, (ORDERS, changes, 100 * number), properties=often)
    histories = [history(sink.paths.table(TABLE)) for sink in (plain, by_spark)]
    for version, (ours, theirs) in enumerate(zip(*histories, strict=True)):
        assert ours == theirs, version
    for sink in (plain, by_spark):
        assert check_log(sink.paths.table(TABLE)) == 7
        assert last_checkpoint(sink.paths.table(TABLE)) == 6
    assert seen(plain) == seen(by_spark)
    assert len(seen(plain)) == 40
    # Delta goes on from our log, and we from Delta's, across a checkpoint of each.
    session, path = plain.spark.session(), plain.paths.table(TABLE)
    session.sql(f"OPTIMIZE {table_at(path)}").collect()
    by_turns: Any = SinkConfig(lake_path=plain.paths.lake, engine="spark")
    tables: Any = plain.tables
    for number in range(7, 13):
        with pytest.MonkeyPatch.context() as patch:
            if number % 2 == 0:
                patch.setattr(tables, "_config", by_turns)
            rows = [insert(**row(1000 + number))]
            applied(plain, number, (ORDERS, rows, 100 * number), properties=often)
        if number == 8:
            assert last_checkpoint(path) == 9
    assert (last_checkpoint(path), check_log(path)) == (12, 14)
    assert seen(plain) == plainly_read(path)


@pytest.mark.spark
@pytest.mark.whole
def test_properties_are_set_in_new_and_in_old_tables_and_decide_who_writes(
    open_sink: Callable[..., DeltaSink],
) -> None:
    sink = open_sink()
    path, few = sink.paths.table(TABLE), {"delta.checkpointInterval": "3", "team": "it's us"}
    cut = applied(sink, 1, (ORDERS, [insert(**row(n)) for n in (1, 2)], 100), properties=few)
    assert {**DeltaTable(str(path)).metadata().configuration, **few} == (
        DeltaTable(str(path)).metadata().configuration
    )
    changes = [update(row(1), row(1, "b"))]
    cut = applied(sink, 2, (ORDERS, changes, 200), properties=few)
    assert cut.tables[TABLE].engine == "plain"
    fed = {"delta.enablechangedatafeed": "true"}
    for number in (3, 4):
        changes = [update(row(2), row(2, f"c{number}")), delete(**row(8 + number))]
        cut = applied(sink, number, (ORDERS, changes, 100 * number), properties=fed)
        assert cut.tables[TABLE].engine == "spark"
    operations = [commit.operation for commit in map(partial(read_commit, path), range(2, 6))]  # type: ignore[union-attr]
    assert operations == ["Manual Update", "SET TBLPROPERTIES", "MERGE", "MERGE"]
    feed = sink.spark.session().sql(
        f"SELECT _change_type, name FROM table_changes_by_path({text_literal(str(path))}, 4)"
    )
    assert sorted(map(tuple, feed.collect())) == [
        ("update_postimage", "c3"), ("update_postimage", "c4"),
        ("update_preimage", "a"), ("update_preimage", "c3"),
    ]  # fmt: skip
    assert check_log(path) == 6


def _changed(path: Path, change: Callable[[str], str]) -> TableLog:
    file = path / "_delta_log" / f"{0:020d}.json"
    file.write_text(change(file.read_text()))
    log = read_table_log(path)
    assert log is not None
    return log


@pytest.mark.parametrize(
    "text",
    [
        '"delta.appendOnly":"true"',
        '"delta.enableInCommitTimestamps":"true","delta.appendOnly":"false"',
        '"delta.enableChangeDataFeed":"true","delta.appendOnly":"false"',
        '"delta.enableRowTracking":"true","delta.appendOnly":"false"',
        '"delta.constraints.c":"id > 0","delta.appendOnly":"false"',
        '"delta.checkpointPolicy":"v2","delta.appendOnly":"false"',
        '"delta.autoOptimize.autoCompact":"true","delta.appendOnly":"false"',
        '"delta.unheardOf":"1","delta.appendOnly":"false"',
    ],
)
def test_a_table_that_asks_for_more_is_left_to_spark(no_spark: DeltaSink, text: str) -> None:
    with no_spark.lock():
        applied(no_spark, 1, (ORDERS, [], 10))
    path = no_spark.paths.table(TABLE)
    log = read_table_log(path)
    assert log is not None
    assert can_commit(path, log)
    changed = _changed(
        path, lambda found: re.sub(r'"delta.appendOnly":"false"', lambda _: text, found)
    )
    assert not can_commit(path, changed)


def test_a_feature_that_is_not_known_is_left_to_spark(no_spark: DeltaSink) -> None:
    with no_spark.lock():
        applied(no_spark, 1, (ORDERS, [], 10))
    path = no_spark.paths.table(TABLE)
    changed = _changed(path, lambda found: found.replace('"invariants"', '"rowTracking"'))
    assert not can_commit(path, changed)


def test_k2_a_version_that_exists_is_never_written(no_spark: DeltaSink) -> None:
    with no_spark.lock():
        applied(no_spark, 1, (ORDERS, [insert(**row(1))], 10))
    path = no_spark.paths.table(TABLE)
    log = read_table_log(path)
    assert log is not None
    PlainCommit(path, log, note="").commit(app_id=log.app_id, version=32)
    with pytest.raises(VersionTakenError):
        PlainCommit(path, log, note="").commit(app_id=log.app_id, version=48)
    there = read_table_log(path)
    assert there is not None
    assert (there.version, there.transaction_version) == (2, 32)


def test_k2_a_kill_before_or_after_the_commit_changes_nothing(
    no_spark: DeltaSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The data file and the deletion vector of a commit that was not put are garbage."""
    sink = no_spark
    with sink.lock():
        applied(sink, 1, (ORDERS, [insert(**row(n)) for n in range(4)], 10))
        record = record_batch(sink, 2, (ORDERS, [update(row(1), row(1, "b"))], 20))
        put = Storage.put_if_absent

        def killed(storage: Storage, path: Path, content: bytes) -> bool:
            if path.parent.name == "_delta_log":
                raise KeyboardInterrupt
            return put(storage, path, content)

        with monkeypatch.context() as patch:
            patch.setattr(Storage, "put_if_absent", killed)
            with pytest.raises(KeyboardInterrupt):
                sink.finish(record)
        with killed_at("between_merges"):
            sink.finish(record)
        assert sink.finish(record).tables[TABLE].table_version == 2
    names = {found["id"]: found["name"] for found in newest_rows(sink.paths.table(TABLE))}
    assert names == {0: "a", 1: "b", 2: "a", 3: "a"}


def test_a_damaged_deletion_vector_is_never_read_as_another_one(no_spark: DeltaSink) -> None:
    sink = no_spark
    with sink.lock():
        applied(sink, 1, (ORDERS, [insert(**row(n)) for n in range(9)], 10))
        applied(sink, 2, (ORDERS, [delete(**row(n)) for n in (2, 3, 5)], 20))
    path = sink.paths.table(TABLE)
    (vector,) = (
        add["deletionVector"]
        for version in actions_as_written(path)
        for add in version
        if "deletionVector" in add
    )
    assert rows_of_vector(path, vector).tolist() == [2, 3, 5]
    file = vector_path(path, vector["pathOrInlineDv"])
    whole = file.read_bytes()
    for at in range(len(whole)):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(LakeStateError, match="deletion vector"):
            rows_of_vector(path, vector)
        file.write_bytes(whole[:at])
        with pytest.raises(LakeStateError, match="deletion vector"):
            rows_of_vector(path, vector)


def actions_as_written(path: Path) -> list[list[dict[str, Any]]]:
    return [
        [
            action["add"]
            for action in map(json.loads, file.read_text().splitlines())
            if "add" in action
        ]
        for file in sorted((path / "_delta_log").glob("*.json"))
    ]


def test_a_checkpoint_that_failed_is_written_later(
    no_spark: DeltaSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit counts, the next one writes it; if none can be written, Spark is asked."""
    sink = no_spark
    path = sink.paths.table(TABLE)
    write = plain_commit._open_delta

    def fails(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with sink.lock():
        monkeypatch.setattr(plain_commit, "_open_delta", fails)
        for number in range(1, 11):
            applied(sink, number, (ORDERS, [insert(**row(number))], 10 * number))
        assert last_checkpoint(path) == -1
        monkeypatch.setattr(plain_commit, "_open_delta", write)
        applied(sink, 11, (ORDERS, [insert(**row(11))], 110))
        assert last_checkpoint(path) == 11
        monkeypatch.setattr(plain_commit, "_open_delta", fails)
        for number in range(12, 43):
            applied(sink, number, (ORDERS, [insert(**row(number))], 10 * number))
        record = record_batch(sink, 43, (ORDERS, [insert(**row(43))], 430))
        with pytest.raises((SinkError, AssertionError), match="Spark starts"):
            sink.finish(record)


@pytest.mark.spark
def test_a_checkpoint_made_here_keeps_what_others_need(
    open_sink: Callable[..., DeltaSink], sink_provider: SparkProvider
) -> None:
    """Files with their deletion vectors and statistics, the transaction id, and removed files for
    as long as the table's retention says: a vacuum goes by them (K15)."""
    sink = open_sink()
    for number, changes in enumerate(batches()[:10], start=1):
        applied(sink, number, (ORDERS, changes, 100 * number))
    path = sink.paths.table(TABLE)
    assert last_checkpoint(path) == 10
    rows = pq.read_table(path / "_delta_log" / f"{10:020d}.checkpoint.parquet").to_pylist()
    assert sum(found["txn"] is not None for found in rows) == 1
    assert sum(found["remove"] is not None for found in rows) > 5
    expected = plainly_read(path)
    for file in (path / "_delta_log").glob("*.json"):
        if int(file.stem) < 10:
            file.unlink()  # as a cleanup does
    session: Any = sink_provider.session()
    session._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    assert seen(sink) == expected
    log = read_table_log(path)
    assert log is not None
    assert log.transaction_version == 160
