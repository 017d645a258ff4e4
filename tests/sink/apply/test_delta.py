"""Batches in real Delta tables: every step again is a no-op (K2), and what others did to a table is
noticed (K3)."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from cdc_pipeline.binlog.table_schema import Kind, TableSchema
from cdc_pipeline.errors import LakeStateError, TargetRefusedError
from cdc_pipeline.fault_points import listening
from cdc_pipeline.sink.apply.external_writes import find_external_write
from cdc_pipeline.sink.apply.merge import transaction_version
from cdc_pipeline.sink.apply.schema_steps import run_steps
from cdc_pipeline.sink.delta.commit import COMMIT_NOTE
from cdc_pipeline.sink.delta.log import commit_note
from cdc_pipeline.sink.delta.table_log import read_table_log
from cdc_pipeline.sink.delta_sink import DeltaSink
from cdc_pipeline.sink.spark.sql import table_at
from tests.support.delta_reader import newest_rows
from tests.support.kills import killed_at
from tests.support.lake_log import alter, empty, set_property
from tests.support.sink_values import (
    AddedColumn,
    applied,
    check_targets,
    column,
    delete,
    insert,
    lose_cut,
    record_added_columns,
    record_batch,
    seq_of,
    table_schema,
    update,
)
from tests.support.spark_reader import rows_by_spark

pytestmark = pytest.mark.spark

ORDERS = table_schema("shop.orders", [column("id", Kind.INT32), column("total", Kind.INT64)], "id")
PEOPLE = table_schema("shop.people", [column("id", Kind.INT32), column("total", Kind.INT64)], "id")


def rows_of(sink: DeltaSink, table: str, *columns: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in newest_rows(sink.paths.table(table), *columns))


def transactions(sink: DeltaSink, table: str) -> list[int]:
    """In the order of commits: each batch must be there once."""
    found = []
    for file in sorted((sink.paths.table(table) / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in file.read_text().splitlines()]
        found += [action["txn"]["version"] for action in actions if "txn" in action]
    return found


def run_sql(sink: DeltaSink, statement: str) -> None:
    sink.spark.session().sql(statement).collect()


def test_k2_every_step_again_changes_nothing(sink: DeltaSink) -> None:
    """A run that dies between two merges is finished; again, with or without its cut: nothing."""
    first = applied(
        sink,
        1,
        (ORDERS, [insert(id=i, total=i) for i in range(5)], 10),
        (PEOPLE, [insert(id=1, total=1)], 20),
    )
    assert first.cursor.targets["shop.orders"].applied_batch == 1
    assert first.tables["shop.orders"].rows_inserted == 5

    record = record_batch(
        sink,
        2,
        (ORDERS, [update({"id": 1, "total": 1}, {"id": 9, "total": 1}), delete(id=2, total=2)], 30),
        (PEOPLE, [update({"id": 1, "total": 1}, {"id": 1, "total": 2})], 40),
    )
    with killed_at("between_merges"):
        sink.finish(record)
    assert sink.pending_record() == record
    check_targets(sink, first)
    cut = sink.finish(record)
    assert sink.finish(record) == cut
    lose_cut(sink, 2)
    again, at_us = sink.finish(record), cut.published_at_us
    cursor = again.cursor.model_copy(update={"cut_published_at_us": at_us})
    assert again.model_copy(update={"published_at_us": at_us, "cursor": cursor}) == cut
    check_targets(sink, again)

    assert rows_of(sink, "shop.orders", "id", "total", "_cdc_op", "_cdc_seq") == [
        (0, 0, "insert", seq_of(10, after=True)),
        (3, 3, "insert", seq_of(13, after=True)),
        (4, 4, "insert", seq_of(14, after=True)),
        (9, 1, "update", seq_of(30, after=True)),
    ]
    assert rows_of(sink, "shop.people", "id", "total") == [(1, 2)]
    for table in ("shop.orders", "shop.people"):
        assert transactions(sink, table) == [transaction_version(1, 0), transaction_version(2, 0)]
        log = read_table_log(sink.paths.table(table))
        assert log is not None
        assert (log.version, log.transaction_version) == (again.tables[table].table_version, 32)

    # A batch that touches one table keeps the other in the cut, at its version.
    third = applied(sink, 3, (ORDERS, [insert(id=50, total=None)], 50))
    assert third.tables["shop.people"].table_version == cut.tables["shop.people"].table_version
    assert third.tables["shop.people"].rows_updated == 0
    assert third.cursor.targets["shop.people"].applied_batch == 2
    sink.cleanup(third)
    assert not list(sink.paths.staging_root.iterdir())

    # Changes that are older than their rows are not applied.
    applied(
        sink,
        4,
        (
            ORDERS,
            [update({"id": 50, "total": 0}, {"id": 50, "total": 0}), delete(id=9, total=1)],
            25,
        ),
    )
    assert rows_of(sink, "shop.orders", "id", "total") == [
        (0, 0),
        (3, 3),
        (4, 4),
        (9, 1),
        (50, None),
    ]


@pytest.mark.whole
def test_k3_what_others_did_to_a_table_is_noticed(sink: DeltaSink) -> None:
    applied(sink, 1, (ORDERS, [insert(id=1, total=1)], 10))
    path = sink.paths.table("shop.orders")
    backup = shutil.copytree(path, sink.paths.lake / "backup")
    cut = applied(sink, 2, (ORDERS, [insert(id=2, total=2)], 20))
    run_sql(sink, f"OPTIMIZE {table_at(path)}")
    check_targets(sink, cut)
    log = read_table_log(path)
    assert log is not None
    assert log.version > cut.tables["shop.orders"].table_version

    run_sql(sink, f"RESTORE TABLE {table_at(path)} TO VERSION AS OF 1")
    restored = read_table_log(path)
    assert restored is not None
    # why a replay would be skipped
    assert restored.transaction_version == transaction_version(2, 0)
    with pytest.raises(LakeStateError, match="RESTORE") as caught:
        check_targets(sink, cut)
    assert caught.value.table == "shop.orders"

    shutil.rmtree(path)
    shutil.copytree(backup, path)
    with pytest.raises(LakeStateError, match="older than the last cut"):
        check_targets(sink, cut)
    shutil.rmtree(path)
    with pytest.raises(LakeStateError, match="is gone"):
        check_targets(sink, cut)
    path.parent.mkdir(exist_ok=True)
    run_sql(sink, f"CREATE TABLE {table_at(path)} (id INT) USING delta")
    with pytest.raises(LakeStateError, match="another program"):
        check_targets(sink, cut)


@pytest.mark.usefixtures("engine")
def test_k3_f235_what_others_write_while_a_batch_is_applied_is_told_and_can_be_undone(
    sink: DeltaSink,
) -> None:
    first = applied(sink, 1, (ORDERS, [insert(id=1, total=1)], 10))
    path = sink.paths.table("shop.orders")
    record = record_batch(sink, 2, (ORDERS, [insert(id=2, total=2)], 20))
    version = first.tables["shop.orders"].table_version + 1
    empty(path)
    cut = sink.finish(record)
    assert "version" in cut.cursor.suspended["shop.orders"].what
    found = find_external_write(sink.paths, cut, "shop.orders")
    assert found is not None
    assert (found.versions, found.is_restorable) == ({version: "DELETE"}, True)


def test_k13_added_columns_and_backfill_are_done_once(sink: DeltaSink) -> None:
    applied(sink, 1, (ORDERS, [insert(id=i, total=i) for i in range(3)], 10))
    wide = table_schema(
        "shop.orders",
        [
            column("id", Kind.INT32),
            column("total", Kind.INT64),
            column("when", Kind.DATETIME),
            column("state", Kind.TEXT, charset="utf8mb4"),
            column("note", Kind.TEXT, charset="utf8mb4"),
        ],
        "id",
    )
    added = [
        AddedColumn(name="when", delta_type="timestamp_ntz"),
        AddedColumn(name="state", delta_type="string", backfill_sql="'it\\'s new'"),
        AddedColumn(name="note", delta_type="string", backfill_sql="''"),
    ]
    cut_before = sink.last_cut()
    assert cut_before is not None
    record = record_added_columns(sink, 2, wide, *added)
    (target,) = record.targets
    path = sink.paths.table("shop.orders")
    # A run that died after the first of the three columns.
    half = target.model_copy(update={"schema_steps": target.schema_steps[:1]})
    session = sink.spark.session().newSession()
    session.conf.set(COMMIT_NOTE, commit_note(target.app_id, 2))
    there = read_table_log(path)
    assert there is not None
    run_steps(session, path, record, half, there)
    check_targets(sink, cut_before)

    cut = sink.finish(record)
    version = cut.tables["shop.orders"].table_version
    lose_cut(sink, 2)
    assert sink.finish(record).tables["shop.orders"].table_version == version
    assert transactions(sink, "shop.orders") == [
        transaction_version(1, 0),
        transaction_version(2, 1),
    ]

    table = rows_by_spark(sink, "shop.orders")
    assert table.column_names == [
        "id",
        "total",
        "when",
        "state",
        "note",
        "_cdc_op",
        "_cdc_seq",
        "_cdc_ts",
    ]
    row = {"when": datetime(2024, 2, 29, 1, 2, 3, 4), "state": None, "note": "n"}  # noqa: DTZ001 - a wall clock
    applied(sink, 3, (wide, [insert(id=7, total=7, **row)], 30))
    shown = rows_of(sink, "shop.orders", "id", "when", "state", "note")
    assert shown == [(i, None, "it's new", "") for i in range(3)] + [(7, row["when"], None, "n")]

    clash = AddedColumn(name="note", delta_type="int")
    held = sink.finish(record_added_columns(sink, 4, wide, clash)).cursor.suspended["shop.orders"]
    assert held.error == LakeStateError.__name__
    assert "match no stage" in held.what


@pytest.mark.whole
def test_k22_odd_names_and_every_type(open_sink: Callable[..., DeltaSink]) -> None:
    """F10: and a name that is too long for a folder."""
    sink = open_sink(lake="a lake", source="odd")
    text = {"charset": "utf8mb4"}
    schema = table_schema(
        "my db.it's `a`/.. table.2%" + "\u4e00" * 38,
        [
            column("k`1.x", Kind.TEXT, **text),
            column("k'2", Kind.DATE),
            column("tiny", Kind.INT8),
            column("u64", Kind.INT64, unsigned=True),
            column("bit", Kind.BIT, bits=1),
            column("dec", Kind.DECIMAL, precision=38, scale=4),
            column("flt", Kind.FLOAT),
            column("at", Kind.TIMESTAMP),
            column("raw", Kind.BINARY),
            column("ü-s$", Kind.SET, labels=("a",), **text),
            column("geo", Kind.GEOMETRY),
            column("vec", Kind.VECTOR),
        ],
        "k`1.x",
        "k'2",
    )
    values = [-128, 2**64 - 1, True, Decimal("-" + "9" * 34 + ".0001"), 0.5]
    values += [
        datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
        b"\0\xff",
        "a",
        {"srid": 4326, "wkb": b"\1"},
        [1.5, -2.0],
    ]
    row = dict(zip(schema.column_names, ["\\'\n\0x\u00fc", date(1000, 1, 1), *values], strict=True))
    other = {**dict.fromkeys(schema.column_names), "k`1.x": "'; --", "k'2": date(9999, 12, 31)}
    name = schema.full_name
    cut = applied(sink, 1, (schema, [insert(**row), insert(**other)], 1))
    changed = {**row, "tiny": 127}
    cut = applied(
        sink, 2, (schema, [update(row, changed), update(other, {**other, "k`1.x": "\u4e2d"})], 3)
    )
    assert (cut.tables[name].rows_updated, rows_by_spark(sink, name).num_rows) == (2, 2)
    found = {
        line["k`1.x"]: line for line in rows_by_spark(sink, name, *schema.column_names).to_pylist()
    }
    assert found == {row["k`1.x"]: changed, "\u4e2d": {**other, "k`1.x": "\u4e2d"}}
    check_targets(sink, cut)
    assert sink.paths.table(name).parent.parent == sink.paths.lake


def test_k22_what_an_interrupted_create_left_is_made_a_table(sink: DeltaSink) -> None:
    """F11: a log without a commit, and one whose first commit a power cut emptied."""
    for schema in (ORDERS, PEOPLE):
        log = sink.paths.table(schema.full_name) / "_delta_log"
        for left in ("_commits", "_staged_commits"):
            (log / left).mkdir(parents=True)
        (log / ".00000000000000000000.json.0d9f1c1e.tmp").write_text("{")
    (log / "00000000000000000000.json").touch()
    cut = applied(
        sink, 1, (ORDERS, [insert(id=1, total=1)], 1), (PEOPLE, [insert(id=1, total=1)], 2)
    )
    check_targets(sink, cut)
    assert rows_of(sink, "shop.orders", "id") == rows_of(sink, "shop.people", "id") == [(1,)]


def test_k16_a_table_of_somebody_else_is_left_alone(open_sink: Callable[..., DeltaSink]) -> None:
    ours = open_sink()
    applied(ours, 1, (ORDERS, [insert(id=1, total=1)], 1))
    other = open_sink(source="copycat")
    other.paths.table("shop.people").mkdir(parents=True)
    (other.paths.table("shop.people") / "notes.txt").write_text("mine")
    record = record_batch(other, 1, (ORDERS, [insert(id=2, total=2)], 1))
    (target,) = record.targets
    foreign = record.model_copy(
        update={"targets": (target.model_copy(update={"app_id": "other"}),)}
    )
    people = target.model_copy(update={"table": "shop.people"})
    cut = other.finish(foreign.model_copy(update={"targets": (*foreign.targets, people)}))
    held = {name: (held.error, held.what) for name, held in cut.cursor.suspended.items()}
    assert {error for error, _ in held.values()} == {LakeStateError.__name__}
    assert "source shop" in held["shop.orders"][1]
    assert "not empty" in held["shop.people"][1]
    assert (other.paths.table("shop.people") / "notes.txt").read_text() == "mine"
    assert rows_of(ours, "shop.orders", "id") == [(1,)]


def test_k4_a_target_that_fails_is_left_behind_where_the_batch_begins(sink: DeltaSink) -> None:
    record = record_batch(
        sink, 1, (ORDERS, [insert(id=1, total=1)], 1), (PEOPLE, [insert(id=1, total=1)], 2)
    )
    orders, people = record.targets
    damaged = sink.paths.lake / orders.files[0].path
    content = damaged.read_bytes()
    damaged.write_bytes(content[:-5] + b"XXXXX")
    cut = sink.finish(record)
    assert set(cut.tables) == {"shop.people"}
    held = cut.cursor.suspended["shop.orders"]
    assert (held.error, held.journal, held.offset) == ("StagingError", "binlog.000001", 4)
    assert cut.cursor.targets["shop.orders"].app_id == orders.app_id
    assert [(note.kind, note.table) for note in cut.notes] == [("suspended", "shop.orders")]
    assert transactions(sink, people.table) == [16]
    assert sink.finish(record) == cut


@pytest.mark.whole
def test_k4_k22_what_spark_refuses_suspends_at_once(sink: DeltaSink) -> None:
    """It would refuse it again; and no value of a row is told."""
    applied(sink, 1, (ORDERS, [insert(id=1, total=1)], 1), (PEOPLE, [insert(id=1, total=1)], 2))
    record = record_batch(sink, 2, (ORDERS, [insert(id=2, total=2)], 20))
    path = sink.paths.table("shop.orders")
    alter(sink.spark.session(), path, "ADD CONSTRAINT few CHECK (id < 2)", batch=2)
    cut = sink.finish(record)
    held = cut.cursor.suspended["shop.orders"]
    assert held.error == TargetRefusedError.__name__
    assert "violat" in held.what.lower()
    assert "id : 2" not in held.what
    assert (
        cut.tables["shop.orders"].table_version
        == sink.read_cut(1).tables["shop.orders"].table_version
    )


def test_k11_keys_swap_through_a_third(sink: DeltaSink) -> None:
    def moved(old: int, new: int, total: int) -> Any:
        return update({"id": old, "total": total}, {"id": new, "total": total})

    schema: TableSchema = ORDERS
    applied(sink, 1, (schema, [insert(id=1, total=100), insert(id=2, total=200)], 1))
    applied(sink, 2, (schema, [moved(1, 0, 100), moved(2, 1, 200), moved(0, 2, 100)], 10))
    assert rows_of(sink, "shop.orders", "id", "total") == [(1, 200), (2, 100)]


@pytest.mark.usefixtures("engine")
def test_k21_old_log_files_go_after_the_cut_that_has_their_checkpoint(sink: DeltaSink) -> None:
    """Delta would remove them as it writes the checkpoint, which no disk has by then. A version
    goes when the next one is older than the retention: until then a cut may name it (K15)."""
    seen: list[tuple[bool, bool]] = []

    def look(point: str) -> None:
        log = sink.paths.table("shop.orders") / "_delta_log"
        if point == "before_cut":
            seen.append(
                ((log / f"{0:020d}.json").exists(), bool(list(log.glob("*.checkpoint.parquet"))))
            )

    path = sink.paths.table("shop.orders")
    with listening(look):
        applied(sink, 1, (ORDERS, [insert(id=1, total=1)], 10))
    set_property(sink.spark.session(), path, "delta.checkpointInterval", "3")
    for file in (path / "_delta_log").glob("*.json"):
        os.utime(file, (0, 0))
    with listening(look):
        applied(sink, 2, (ORDERS, [insert(id=2, total=2)], 20))
    assert seen == [(True, False), (True, True)]
    assert (path / "_delta_log" / f"{0:020d}.json").exists(), "version 2 was the newest until now"
    for file in (path / "_delta_log").glob("*.json"):
        os.utime(file, (0, 0))
    for number in (1, 2):  # as if cut 2 had been published long ago: it is the oldest that is kept
        cut, at_us = sink.paths.cut(number), sink.read_cut(number).published_at_us
        cut.write_text(cut.read_text().replace(str(at_us), str(number)))
    with listening(look):
        for number in range(3, 6):
            applied(sink, number, (ORDERS, [insert(id=number, total=2)], 10 * number))
    assert seen[2:] == [(True, True)] * 3
    left = sorted(file.name for file in (path / "_delta_log").glob("*.json"))
    assert left == [f"{number:020d}.json" for number in range(3, 7)]
    assert rows_by_spark(sink, "shop.orders").num_rows == 5
