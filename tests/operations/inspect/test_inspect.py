"""The `binlog` command's reading of journals, on the shop that ships with the package."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cdc_pipeline.binlog.event_types import EventType
from cdc_pipeline.demo import SHOP_DIRECTORY
from cdc_pipeline.errors import CdcError, DamagedJournalError
from cdc_pipeline.operations.inspect.annotations import lengths_bytes
from cdc_pipeline.operations.inspect.change_files import ChangeFiles
from cdc_pipeline.operations.inspect.change_log import ChangeLog
from cdc_pipeline.operations.inspect.inputs import read_all
from cdc_pipeline.operations.inspect.inspect import Inspection
from cdc_pipeline.operations.inspect.selection import Selection
from cdc_pipeline.source.archive.files import read_journal
from tests.support.shown_journals import changes
from tools.record_golden import GOLDEN

JOURNALS = SHOP_DIRECTORY / "journals"


def test_every_change_has_its_gtid_however_the_journal_is_cut() -> None:
    """The large transaction's rows come many chunks after its GTID event."""
    log = ChangeLog(Selection(tables=("*.stock_movements",)))
    found = []
    for chunk in read_journal(JOURNALS / "binlog.000003", chunk_bytes=4096):
        for piece in log.feed(chunk):
            for table in piece.tables:
                gtids = piece.gtids_of(table.rows)
                found += [gtids.text(index) for index in range(len(table.rows))]
    assert len(found) > 1000
    assert None not in found


def test_changes_before_damage_are_printed(tmp_path: Path) -> None:
    whole = list(changes([JOURNALS / "binlog.000001"]))
    data = bytearray((JOURNALS / "binlog.000001").read_bytes())
    data[len(data) // 2] ^= 0x40
    damaged = tmp_path / "binlog.000001"
    damaged.write_bytes(data)
    printed: list[str] = []
    with pytest.raises(DamagedJournalError) as caught:
        printed.extend(changes([damaged]))
    assert printed
    assert printed == whole[: len(printed)]
    assert caught.value.offset is not None
    assert json.loads(printed[-1])["offset"] < caught.value.offset


@pytest.mark.parametrize("event_type", [EventType.WRITE_ROWS_V2, EventType.TABLE_MAP])
def test_an_error_in_one_table_comes_after_the_earlier_rows_of_all(
    tmp_path: Path, event_type: EventType
) -> None:
    """An event with its right checksum and a wrong body, in the middle of a chunk."""
    journal = JOURNALS / "binlog.000001"
    whole = list(changes([journal]))
    *_, chunk = read_journal(journal)  # the first one is small
    rows = np.flatnonzero(chunk.events["event_type"] == event_type)
    event = chunk.events[rows[len(rows) // 2]]
    data, start, stop = (
        bytearray(journal.read_bytes()),
        int(event["offset"]),
        int(event["next_offset"]),
    )
    if event_type == EventType.TABLE_MAP:
        names = start + 19 + 8
        types = names + data[names] + 2
        data[types + data[types] + 3] = 0xF0
    else:
        data[start + 19 + 10] += 1  # its number of columns
    data[stop - 4 : stop] = struct.pack("<I", zlib.crc32(data[start : stop - 4]))
    damaged = tmp_path / "binlog.000001"
    damaged.write_bytes(data)
    printed: list[str] = []
    with pytest.raises(CdcError) as caught:
        printed.extend(changes([damaged]))
    assert caught.value.offset == start
    expected = [line for line in whole if json.loads(line)["offset"] < start]
    assert printed == expected
    assert len({json.loads(line)["table"] for line in printed}) > 2
    found = Inspection()
    with pytest.raises(CdcError), ChangeFiles(tmp_path / "out") as files:
        found.write(read_all([damaged], found.selection), files)
    assert sum(pq.read_metadata(file).num_rows for file in (tmp_path / "out").iterdir()) == len(
        expected
    )
    found = Inspection()
    summary = found.summary(read_all([damaged], found.selection))
    assert summary.error is not None
    assert sum(
        table.inserts + table.updates + table.deletes for table in summary.tables.values()
    ) == len(expected)


@pytest.mark.parametrize("name", ["mysql-common", "mariadb-common", "mysql-compressed-tagged-json"])
def test_annotations_are_the_statements_that_were_run(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lines(*, annotations: bool) -> list[dict[str, object]]:
        found = Inspection(annotations=annotations)
        blocks = b"".join(
            map(bytes, found.lines(read_all([GOLDEN / f"{name}.000001"], found.selection)))
        )
        return [json.loads(line) for line in blocks.splitlines()]

    told = lines(annotations=True)
    monkeypatch.setattr("cdc_pipeline.operations.inspect.change_lines.REPEATED_BYTES_MAX", 100)
    assert lines(annotations=True) == told
    words = {
        "insert": ("INSERT", "REPLACE", "LOAD", "CREATE"),
        "update": ("UPDATE", "INSERT", "REPLACE"),
    }
    with_one = [line for line in told if "statement" in line]
    assert len(with_one) > 5
    for line in with_one:
        said = str(line.pop("statement"))
        if line["op"] in words and line["table"] != "plain":  # whose rows are a trigger's
            assert said.split()[0] in words[str(line["op"])], line
    assert told == lines(annotations=False)


def test_lengths_of_statements_need_no_copy_of_them() -> None:
    texts = pa.array(["ab", "é"], pa.large_string())
    statements = pa.DictionaryArray.from_arrays(pa.array([0, None, 1, 1]), texts)
    assert lengths_bytes(statements).tolist() == [2, 0, 2, 2]
