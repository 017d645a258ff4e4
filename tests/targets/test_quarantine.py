"""Rows in quarantine: staged, recorded, copied once, marked once; no server and no Spark."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cdc_pipeline.binlog.chunk import Chunk
from cdc_pipeline.binlog.decoded import InvalidValue
from cdc_pipeline.binlog.rows.rows import RowsSelection
from cdc_pipeline.binlog.seq import pack_seq
from cdc_pipeline.binlog.table_schema import Kind
from cdc_pipeline.config.pipeline_config import SinkConfig
from cdc_pipeline.errors import DamagedJournalError, LakeStateError
from cdc_pipeline.fault_points import listening
from cdc_pipeline.lake.quarantine import Entry, read_entries
from cdc_pipeline.lake.records import Cut, QuarantineMark
from cdc_pipeline.run.decode import decoding
from cdc_pipeline.run.decode.decoding import RunDecoder
from cdc_pipeline.sink.delta_sink import DeltaSink
from cdc_pipeline.sink.staging.staging import StagedBatch
from cdc_pipeline.targets.quarantine import BadRows, bad_rows
from cdc_pipeline.targets.targets import targets_at
from tests.support.sink_values import (
    NOTHING_ERASED,
    column,
    decoded,
    head_of,
    insert,
    table_schema,
    update,
)
from tests.targets.test_exact import config

SCHEMA = table_schema(
    "shop.t", [column("d", Kind.DATE), column("n", Kind.TEXT, charset="ascii")], "d"
)
CAUSE = ("UnrepresentableValueError", "column d holds a zero date")


def _chunk(events: int) -> Chunk:
    """Some events of seven bytes, all of one transaction."""
    from cdc_pipeline.binlog.chunk import EVENT_DTYPE, JournalFormat

    rows = np.zeros(events, EVENT_DTYPE)
    rows["offset"] = np.arange(events) * 100 + 4
    rows["start"], rows["event_length"], rows["tx_offset"] = np.arange(events) * 7, 7, 4
    form = JournalFormat(4, "9", False, 0, 1, 4, (), False)
    return Chunk("binlog.000001", form, np.arange(events * 7, dtype=np.uint8), rows, 1000)


def _bad(*, first_place: int = 1, hidden: tuple[str, ...] = ()) -> BadRows:
    """The second and third of three changes are bad; the third has the same event as the second."""
    changes = [
        insert(d=1, n="good"),
        insert(d=None, n="secret"),
        update({"d": 2, "n": "a"}, {"d": None, "n": "b"}),
    ]
    invalid = [
        InvalidValue(row, "after", 0, "zero or partial date", "0000-00-00") for row in (1, 2)
    ]
    rows = decoded(SCHEMA, changes, first_place=first_place, invalid=invalid)
    rows.event_row[:] = [0, 1, 1]
    part = RowsSelection(_chunk(3), np.array([0, 2]))
    return bad_rows(rows, {1: CAUSE, 2: CAUSE}, [part], hidden=hidden, keeps_bytes=True)


def _sink(lake: Path) -> DeltaSink:
    return DeltaSink(source="shop", config=SinkConfig(lake_path=lake))


def _record(batch: StagedBatch, **rest: Any) -> Any:
    return batch.record(head_of(batch.number, **rest))


def _entries(sink: DeltaSink, **rest: Any) -> list[Entry]:
    cut = sink.last_cut()
    return list(
        read_entries(sink.paths, before=cut.batch_number + 1 if cut is not None else 1, **rest)
    )


def _put(sink: DeltaSink, number: int, *bad: BadRows) -> Cut:
    with sink.lock():
        batch = sink.begin(number)
        for rows in bad:
            batch.quarantine(rows.table, rows.entries)
        assert batch.has_work
        return sink.finish(_record(batch))


def test_entries_tell_place_cause_images_and_come_back_as_decoded_rows(tmp_path: Path) -> None:
    sink = _sink(tmp_path / "lake")
    cut = _put(sink, 1, _bad())
    assert {name: count.rows for name, count in cut.quarantine.items()} == {"shop.t": 2}
    assert not cut.tables
    first, second = _entries(sink)
    assert (first.id, second.id) == ("1.1", "1.2")
    assert (first.table, first.journal, first.offset) == ("shop.t", "binlog.000001", 204)
    assert (first.error, first.what) == CAUSE
    change = json.loads(second.change)
    assert (change["op"], change["before"], change["offset"]) == (
        "update",
        {"d": "1970-01-03", "n": "a"},
        204,
    )
    assert "0000-00-00" in second.change
    assert first.raw == bytes(range(14, 21))
    assert second.raw == b"", "the event's bytes stand in its first row"
    rows = second.rows()
    assert rows is not None
    assert (rows.schema, rows.after.column("n").to_pylist()) == (SCHEMA, ["b"])
    assert rows.invalid == [InvalidValue(0, "after", 0, "zero or partial date", "0000-00-00")]
    assert rows.commit_ts_us.tolist() == [3_000_000]
    assert str(rows.seq[0].as_py()) == second.seq


def test_k14_hidden_columns_are_in_no_part_of_an_entry(tmp_path: Path) -> None:
    sink = _sink(tmp_path / "lake")
    _put(sink, 1, _bad(hidden=("n",)))
    for entry in _entries(sink):
        rows = entry.rows()
        assert rows is not None
        assert rows.after.column("n").to_pylist() == rows.before.column("n").to_pylist() == [None]
        assert entry.raw == b""
    for file in sink.paths.quarantine.iterdir():
        import pyarrow.parquet as pq

        assert b"secret" not in b"".join(
            value or b"" for value in pq.read_table(file).column("row").to_pylist()
        )
        assert "secret" not in "".join(pq.read_table(file).column("change").to_pylist())


@pytest.mark.parametrize("point", ["before_record", "after_record", "before_cut", "after_copy"])
def test_k2_killed_at_any_fault_point_rows_are_there_once(tmp_path: Path, point: str) -> None:
    """A process that is killed there, and a run after it that takes up what it finds."""
    lake = tmp_path / "lake"
    child = os.fork()
    if child == 0:

        def reached(name: str) -> None:
            if name == point:
                os._exit(9)

        if point == "after_copy":
            from cdc_pipeline.sink import lake_sink

            lake_sink.put_cut = lambda *_: os._exit(9)  # type: ignore[assignment]
        with listening(reached):
            _put(_sink(lake), 1, _bad())
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    sink = _sink(lake)
    assert _entries(sink) == []
    with sink.lock():
        pending = sink.pending_record()
        assert (pending is None) == (point == "before_record")
        sink.discard_unrecorded()
        if pending is not None:
            cut = sink.finish(pending, recovered=True)
            assert cut == sink.finish(pending, recovered=True)
    if point == "before_record":
        cut = _put(sink, 1, _bad())
    assert cut.quarantine["shop.t"].rows == len(_entries(sink)) == 2


def test_k4_a_row_that_is_met_again_is_kept_once(tmp_path: Path) -> None:
    """A table that was left behind reads its rows again when it is caught up."""
    sink = _sink(tmp_path / "lake")
    _put(sink, 1, _bad())
    cut = _put(sink, 2, _bad(), _bad(first_place=10))
    assert cut.quarantine["shop.t"].rows == 4
    assert [entry.id for entry in _entries(sink)] == ["1.1", "1.2", "2.1", "2.2"]
    assert len({entry.seq for entry in _entries(sink)}) == 4


def test_rows_of_an_open_transaction_join_or_are_gone(tmp_path: Path) -> None:
    sink = _sink(tmp_path / "lake")
    with sink.lock():
        batch = sink.begin(1)
        bad = _bad()
        batch.quarantine(bad.table, bad.entries, open_transaction=True)
        assert batch.has_open
        batch.drop_open()
        assert not batch.has_work
        batch.quarantine(bad.table, bad.entries, open_transaction=True)
        batch.drop_open("shop.other")
        assert batch.has_open
        batch.undo_open(np.array([[0, 1]], np.int64))
        batch.close_open()
        assert not batch.has_work, "ROLLBACK TO undid both"
        batch.quarantine(bad.table, bad.entries, open_transaction=True)
        batch.close_open()
        assert sink.finish(_record(batch)).quarantine["shop.t"].rows == 2


def test_marks_settle_rows_once_and_count_from_their_cut_on(tmp_path: Path) -> None:
    sink = _sink(tmp_path / "lake")
    _put(sink, 1, _bad())
    mark = QuarantineMark(entry="1.2", table="shop.t", what="discarded", who="me", why="a test row")
    with sink.lock():
        record = _record(sink.begin(2), kind="replay", quarantine_marks=(mark,))
        assert [entry.mark for entry in _entries(sink)] == [None, None]
        cut = sink.finish(record)
    assert cut.quarantine["shop.t"].rows == 1
    assert [entry.mark for entry in _entries(sink)] == [None, mark]
    assert [entry.id for entry in _entries(sink, only_open=True)] == ["1.1"]
    (file,) = sink.paths.quarantine.glob("*.json")
    file.write_text("{", encoding="utf-8")
    with pytest.raises(LakeStateError, match="damaged"):
        _entries(sink)


def test_an_event_that_cannot_be_decoded_is_one_row_and_the_others_are_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its bounds are known; by default it stops the run, as before."""
    chunk = _chunk(3)
    parts = [RowsSelection(chunk, np.array([0, 1, 2]))]

    def decode(
        given: list[RowsSelection], schema: Any, *, epoch: int, found_by: frozenset[str]
    ) -> Any:
        offsets = [
            int(offset) for part in given for offset in part.chunk.events["offset"][part.rows]
        ]
        if 104 in offsets:
            raise DamagedJournalError("it ends inside a column", at=(chunk.journal, 104))
        assert (offsets, epoch) == ([4, 204], 3)
        return decoded(schema, [insert(d=1, n="a"), insert(d=2, n="b")], first_place=1)

    monkeypatch.setattr(decoding, "decode_rows", decode)
    lenient, strict = (RunDecoder(epoch=3, erased=NOTHING_ERASED) for _ in range(2))
    rule = {"tables": ["*.*"], "on_bad_row": "quarantine"}
    lenient._targets = targets_at(config(targets=[rule]), None)
    strict._targets = targets_at(config(), None)
    bad: list[BadRows] = []
    assert len(lenient._decoded(parts, SCHEMA, bad=bad)) == 2
    sink = _sink(tmp_path / "lake")
    _put(sink, 1, *bad)
    (entry,) = _entries(sink)
    assert (entry.offset, entry.error, entry.rows()) == (104, "DamagedJournalError", None)
    assert entry.raw == bytes(range(7, 14))
    assert int(entry.seq) == pack_seq(3, 1, 4, 0, 0, 0)
    for decoder, given in ((lenient, None), (strict, [])):
        with pytest.raises(DamagedJournalError):
            decoder._decoded(parts, SCHEMA, bad=given)
