"""Expansion of changes and staged files, without Spark (K1, K2, K9, K10, K11)."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from cdc_pipeline.binlog.decoded import DecodedRows, InvalidValue
from cdc_pipeline.binlog.table_schema import Kind
from cdc_pipeline.config.pipeline_config import SinkConfig
from cdc_pipeline.errors import IncompleteRowsError, LakeStateError, LockError, StagingError
from cdc_pipeline.fault_points import listening
from cdc_pipeline.lake.staged_file import verify
from cdc_pipeline.schema.evolution.steps import AddColumn
from cdc_pipeline.sink.delta_sink import DeltaSink
from cdc_pipeline.sink.modes.expand import (
    ARRIVE,
    DELETE,
    INSERT,
    LEAVE,
    UPDATE,
    expand,
    with_after_bit,
)
from tests.support.seqs import seq_array
from tests.support.sink_values import (
    Change,
    check_targets,
    column,
    decoded,
    delete,
    head_of,
    insert,
    seq_of,
    table_schema,
    target_of,
    update,
)

SCHEMA = table_schema(
    "shop.things",
    [column("id", Kind.TEXT, charset="utf8mb4"), column("a", Kind.INT32), column("b", Kind.INT32)],
    "id",
)
NAMES = SCHEMA.column_names


def staged(changes: list[Change], place: int = 10) -> list[dict[str, Any]]:
    table = expand(decoded(SCHEMA, changes, first_place=place), columns=NAMES, key=("id",)).table
    return sorted(table.to_pylist(), key=lambda row: row["_seq"])


def twin(changes: list[Change], place: int = 10) -> list[tuple[int, int, tuple[Any, ...]]]:
    """The rules of `expand`, one change at a time, for whole images."""
    found = []
    for at, (_, before, after) in enumerate(changes, place):
        if before is not None and (after is None or after["id"] != before["id"]):
            found.append(
                (DELETE if after is None else LEAVE, seq_of(at), (before["id"], None, None))
            )
        if after is not None:
            op = INSERT if before is None else UPDATE if after["id"] == before["id"] else ARRIVE
            found.append((op, seq_of(at, after=True), tuple(after[name] for name in NAMES)))
    return found


def row(key: str, a: int | None = 1, b: int | None = 2) -> dict[str, Any]:
    return {"id": key, "a": a, "b": b}


def test_k11_expansion_equals_its_twin() -> None:
    changes = [
        insert(**row("x")),
        update(row("x"), row("x", None)),
        update(row("x"), row("X")),  # case alone is another key
        delete(**row("X")),
    ]
    found = [
        (line["_op"], int(line["_seq"]), (line["c0"], line["c1"], line["c2"]))
        for line in staged(changes)
    ]
    assert found == twin(changes)


def test_k10_absent_columns_are_marked_and_filled_from_the_before_image() -> None:
    lines = staged(
        [
            update({"id": "x"}, {"a": 7}),  # MINIMAL: the key only before, the change only after
            update({"id": "x"}, {"id": "y"}),
            update({"id": "x", "b": 3}, {"a": 1}),
            delete(id="x"),
        ]
    )
    shown = [
        (line["_op"], *(line[f"c{i}"] if line[f"p{i}"] else "-" for i in range(3)))
        for line in lines
    ]
    assert shown == [
        (UPDATE, "x", 7, "-"),
        (LEAVE, "-", "-", "-"),
        (ARRIVE, "y", "-", "-"),
        (UPDATE, "x", 1, 3),
        (DELETE, "-", "-", "-"),
    ]
    assert [line["c0"] for line in lines] == ["x", "x", "y", "x", "x"]
    result = expand(
        decoded(SCHEMA, [update({"id": "x"}, {"id": "y"})], first_place=1),
        columns=NAMES,
        key=("id",),
    )
    assert (result.partial, result.partial_key_updates) == (True, 1)


def test_images_that_only_deletes_lack_count_as_whole() -> None:
    result = expand(
        decoded(SCHEMA, [delete(id="x"), insert(**row("y"))], first_place=1),
        columns=NAMES,
        key=("id",),
    )
    assert not result.partial
    assert "p0" not in result.table.column_names


def test_k1_the_after_bit_is_set_on_slices_too() -> None:
    rows = decoded(SCHEMA, [insert(**row(str(i))) for i in range(5)], first_place=2**39)
    seq = with_after_bit(rows.seq.slice(2, 2))
    assert [int(value) for value in seq.to_pylist()] == [
        seq_of(2**39 + i, after=True) for i in (2, 3)
    ]


@pytest.mark.parametrize("change", [update({"a": 1}, {"a": 2}), delete(a=1), insert(a=1)])
def test_an_image_without_its_key_stops(change: Change) -> None:
    with pytest.raises(IncompleteRowsError, match="lacks key columns"):
        staged([change])


def test_an_invalid_value_is_never_staged() -> None:
    invalid = [InvalidValue(0, "after", 1, "zero or partial date", "0000-00-00")]
    with pytest.raises(StagingError, match="zero or partial date"):
        expand(
            decoded(SCHEMA, [insert(**row("x"))], first_place=1, invalid=invalid),
            columns=NAMES,
            key=("id",),
        )


# -- files and records -----------------------------------------------------------------------------


@pytest.fixture
def dry_sink(tmp_path: Path) -> DeltaSink:
    return DeltaSink(source="shop", config=SinkConfig(lake_path=tmp_path / "lake"))


def _record(batch: Any) -> Any:
    return batch.record(head_of(batch.number))


def test_k2_files_are_recorded_with_their_checksums(dry_sink: DeltaSink) -> None:
    points: list[str] = []
    plan = target_of(SCHEMA, partial=True)
    with listening(points.append), dry_sink.lock():
        batch = dry_sink.begin(1)
        assert not batch.has_work
        batch.create(plan)
        batch.add(decoded(SCHEMA, [insert(**row("x")), insert(**row("y"))], first_place=1), plan)
        batch.add(decoded(SCHEMA, [update(row("x"), row("z"))], first_place=3), plan)
        # another layout: a new file
        batch.add(decoded(SCHEMA, [update({"id": "y"}, {"a": 4})], first_place=4), plan)
        assert (batch.has_work, batch.has_open, batch.staged_rows) == (True, False, 5)
        assert batch.staged_bytes > 0
        assert dry_sink.pending_record() is None
        record = _record(batch)
        assert dry_sink.pending_record() == record
        with pytest.raises(LakeStateError, match="cannot begin"):
            dry_sink.begin(1)
    assert points == ["staging"] * 3 + ["before_record", "after_record"]
    (target,) = record.targets
    assert [file.rows for file in target.files] == [4, 1]
    assert (target.rows_inserted, target.rows_updated, target.rows_deleted) == (2, 2, 0)
    assert (target.create, target.partial, target.all_present) == (True, True, False)
    for file in target.files:
        path = verify(file, lake=dry_sink.paths.lake, table=target.table)
        assert hashlib.sha256(path.read_bytes()).hexdigest() == file.sha256
        assert pq.ParquetFile(path).metadata.num_rows == file.rows
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(StagingError, match="missing or damaged"):
        verify(file, lake=dry_sink.paths.lake, table=target.table)
    path.unlink()
    with pytest.raises(StagingError, match=path.name):
        verify(file, lake=dry_sink.paths.lake, table=target.table)


def test_k9_open_pieces_join_or_are_gone(dry_sink: DeltaSink) -> None:
    plan, other = target_of(SCHEMA), target_of(table_schema("shop.other", SCHEMA.columns, "id"))

    def rows(*keys: str) -> Any:
        return decoded(SCHEMA, [insert(**row(key)) for key in keys], first_place=1)

    with dry_sink.lock():
        batch = dry_sink.begin(1)
        batch.add(rows("a"), plan)
        batch.add(rows("b", "c"), plan, open_transaction=True)
        batch.add(rows("d"), other, open_transaction=True)
        assert (batch.has_open, batch.staged_rows) == (True, 4)
        with pytest.raises(StagingError, match="cannot be recorded"):
            _record(batch)
        with pytest.raises(StagingError, match="cannot be staged"):
            batch.add(rows("e"), plan)
        batch.drop_open()
        assert (batch.has_open, batch.staged_rows) == (False, 1)
        batch.add(rows("f", "g"), plan, open_transaction=True)
        batch.add(rows("h"), plan, open_transaction=True)
        batch.close_open()
        record = _record(batch)
    (target,) = record.targets  # the other table's rows were rolled back: nothing to do there
    assert (target.table, target.rows_inserted) == ("shop.things", 4)
    keys = [
        key
        for file in target.files
        for key in pq.read_table(dry_sink.paths.lake / file.path).column("c0").to_pylist()
    ]
    assert sorted(keys) == ["a", "f", "g", "h"]
    assert len(list(dry_sink.paths.staging(1).iterdir())) == len(target.files)


def test_k13_added_columns_stand_alone(dry_sink: DeltaSink) -> None:
    plan = target_of(SCHEMA)
    rows = decoded(SCHEMA, [insert(**row("x"))], first_place=1)
    with dry_sink.lock():
        batch = dry_sink.begin(1)
        batch.add(rows, plan)
        with pytest.raises(StagingError, match="has rows of the same table"):
            batch.change(plan, plan.spec.columns, (AddColumn(name="b", delta_type="int"),))
        batch = dry_sink.begin(1)
        batch.change(plan, plan.spec.columns, (AddColumn(name="b", delta_type="int"),))
        assert batch.has_work
        with pytest.raises(StagingError, match="rows after a DDL"):
            batch.add(rows, plan)


def test_k2_what_has_no_record_is_garbage(dry_sink: DeltaSink) -> None:
    with pytest.raises(LockError):
        dry_sink.begin(1)
    dry_sink.paths.batches.mkdir(parents=True)
    (dry_sink.paths.batches / ".put-1-x").write_text("half a rec")
    with dry_sink.lock():
        batch = dry_sink.begin(1)
        batch.add(decoded(SCHEMA, [insert(**row("x"))], first_place=1), target_of(SCHEMA))
        batch.add(
            decoded(SCHEMA, [insert(**row("y"))], first_place=2),
            target_of(SCHEMA),
            open_transaction=True,
        )
        assert dry_sink.discard_unrecorded() == 3
        assert dry_sink.discard_unrecorded() == 0
        batch = dry_sink.begin(1)
        batch.add(decoded(SCHEMA, [insert(**row("x"))], first_place=1), target_of(SCHEMA))
        record = _record(batch)
        assert dry_sink.discard_unrecorded() == 0
        assert verify(
            record.targets[0].files[0], lake=dry_sink.paths.lake, table="shop.things"
        ).exists()


def test_k3_a_record_without_its_predecessors_cut_stops(dry_sink: DeltaSink) -> None:
    with dry_sink.lock():
        record = _record(dry_sink.begin(1))
        ahead = record.model_copy(update={"batch_number": 3})
        dry_sink.paths.batch(3).write_text(ahead.model_dump_json())
        with pytest.raises(LakeStateError, match="batches before it"):
            dry_sink.pending_record()
        dry_sink.paths.batch(3).unlink()
        dry_sink.paths.batch(1).write_text(ahead.model_dump_json())
        with pytest.raises(LakeStateError, match="contradict its name"):
            dry_sink.pending_record()


def test_a_batch_without_targets_needs_no_jvm(dry_sink: DeltaSink) -> None:
    with dry_sink.lock():
        record = _record(dry_sink.begin(1))
        cut = dry_sink.finish(record)
        assert cut == dry_sink.last_cut()
        assert dry_sink.finish(record) == cut
        assert dry_sink.pending_record() is None
        check_targets(dry_sink, cut)
        dry_sink.cleanup(cut)
        assert not dry_sink.paths.staging(1).exists()
        assert dry_sink.cuts() == [1]
    assert not dry_sink.spark_started


def test_expanded_timestamps_are_utc_instants() -> None:
    (line,) = staged([insert(**row("x"))], place=86_400)
    assert line["_ts"].isoformat() == "1970-01-02T00:00:00+00:00"
    assert line["_seq"] == Decimal(seq_of(86_400, after=True))


def test_k8_undone_rows_leave_open_files_and_counts(dry_sink: DeltaSink) -> None:
    """ROLLBACK TO after rows were staged in pieces: in several files, in part, wholly, or not."""

    def piece(changes: list[Change], ordinal: int) -> DecodedRows:
        rows = decoded(SCHEMA, changes, first_place=1)
        count, zeros = len(changes), np.zeros(len(changes), np.int64)
        return replace(
            rows, seq=seq_array(1, 1, zeros + 50, np.arange(ordinal, ordinal + count), zeros, 0)
        )

    with dry_sink.lock():
        batch = dry_sink.begin(1)
        plan = target_of(SCHEMA)
        batch.add(decoded(SCHEMA, [insert(**row("whole"))], first_place=1), plan)
        batch.add(
            piece([insert(**row("a")), update(row("b"), row("c")), delete(**row("d"))], 2),
            plan,
            open_transaction=True,
        )
        # Another layout begins another file.
        batch.add(
            piece([update(row("e"), {"id": "e", "a": 5}), insert(**row("f"))], 5),
            plan,
            open_transaction=True,
        )
        batch.add(piece([delete(**row("g"))], 7), plan, open_transaction=True)
        batch.undo_open(np.array([[3, 4], [6, 8]]))
        batch.close_open()
        record = batch.record(head_of(1))
    (target,) = record.targets
    assert (target.rows_inserted, target.rows_updated, target.rows_deleted) == (2, 1, 1)
    tables = [
        pq.read_table(verify(file, lake=dry_sink.paths.lake, table="shop.things"))
        for file in target.files
    ]
    assert sorted(key for table in tables for key in table.column("c0").to_pylist()) == [
        "a",
        "d",
        "e",
        "whole",
    ]
    left = {path.name for path in dry_sink.paths.staging(1).iterdir()}
    assert left == {Path(file.path).name for file in target.files}


def test_k8_an_open_transaction_that_was_undone_wholly_leaves_nothing(dry_sink: DeltaSink) -> None:
    with dry_sink.lock():
        batch = dry_sink.begin(1)
        rows = decoded(SCHEMA, [insert(**row("a"))], first_place=1)
        batch.add(rows, target_of(SCHEMA), open_transaction=True)
        batch.undo_open(np.array([[0, 9]]))
        batch.close_open()
    assert not batch.has_work
    assert list(dry_sink.paths.staging(1).iterdir()) == []
