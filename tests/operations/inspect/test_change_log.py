"""Transactions whose end is not known yet, and table maps that tell little, as
`cdc-pipeline binlog` shows them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cdc_pipeline.binlog.chunk import Chunk
from cdc_pipeline.binlog.event_types import EventType
from cdc_pipeline.binlog.events.gtid_columns import Gtids
from cdc_pipeline.binlog.rows.rows import RowsSelection
from cdc_pipeline.binlog.table_schema import Column, Kind, TableSchema
from cdc_pipeline.binlog.tables import table_map
from cdc_pipeline.demo import SHOP_DIRECTORY
from cdc_pipeline.errors import DamagedJournalError
from cdc_pipeline.operations.inspect import change_log
from cdc_pipeline.operations.inspect.bare_table_maps import parse_bare
from cdc_pipeline.operations.inspect.change_files import ChangeFiles, change_table, file_stem
from cdc_pipeline.operations.inspect.change_log import ChangeLog
from cdc_pipeline.operations.inspect.inputs import read_all
from cdc_pipeline.operations.inspect.inspect import Inspection
from cdc_pipeline.operations.inspect.selection import Selection
from cdc_pipeline.position.position import Position
from cdc_pipeline.source.archive.files import read_journal
from tests.binlog.rows.test_jsonl import rows_of
from tests.servers import Server
from tests.support.memory_shop import GOLDEN

JOURNALS = SHOP_DIRECTORY / "journals"


def chunks_into_the_large_transaction() -> list[Chunk]:
    """binlog.000003 up to the middle of its transaction of 8,000 rows."""
    found = []
    for chunk in read_journal(JOURNALS / "binlog.000003", chunk_bytes=1 << 16):
        found.append(chunk)
        if chunk.end_offset > 1_000_000:
            return found
    raise AssertionError


def rows_shown(log: ChangeLog, chunks: list[Chunk]) -> int:
    return sum(
        len(table.rows) for chunk in chunks for piece in log.feed(chunk) for table in piece.tables
    )


def test_t4_rows_of_an_abandoned_transaction_do_not_come_out() -> None:
    chunks = chunks_into_the_large_transaction()
    log = ChangeLog()
    before = rows_shown(log, chunks)
    assert log.is_open
    rows_shown(log, list(read_journal(JOURNALS / "binlog.000004")))
    assert (log.counts.abandoned, log.counts.shown_too_early) == (1, 0)
    other = ChangeLog()
    last = int(chunks[-1].events["tx_offset"][-1])
    whole = [chunk for chunk in chunks if chunk.end_offset <= last]
    assert before < rows_shown(other, [*whole, *read_journal(JOURNALS / "binlog.000004")])
    assert before >= rows_shown(ChangeLog(), whole)


def test_a_transaction_larger_than_what_is_held_comes_out_early_and_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chunks = chunks_into_the_large_transaction()
    held = rows_shown(ChangeLog(), chunks)
    monkeypatch.setattr(change_log, "HELD_BYTES_MAX", 1 << 17)
    log = ChangeLog()
    assert rows_shown(log, chunks) > held + 500
    log.finish()
    assert log.counts.shown_too_early == 1
    assert log.counts.unfinished == "binlog.000003:420184"
    behind = ChangeLog(Selection(to_position=Position("binlog.000003", 420184)))
    assert rows_shown(behind, chunks) == held
    behind.finish()
    assert behind.counts.shown_too_early == 0  # none of it was asked for


def test_decoding_in_parts_gives_the_same_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    def lines() -> bytes:
        found = Inspection()
        return b"".join(
            map(bytes, found.lines(read_all([JOURNALS / "binlog.000002"], found.selection)))
        )

    whole = lines()
    monkeypatch.setattr(change_log, "DECODE_BYTES", 10_000)
    assert lines() == whole


# -- Parquet ---------------------------------------------------------------------------------------


def test_parquet_rows_tell_what_is_absent_and_what_was_rescued() -> None:
    rows = rows_of(9)
    gtids = Gtids(["0-1-"], np.array([0, -1, 0, 0, 0], np.int32), np.array([7, 0, 8, 9, 10]))
    table = change_table(rows, journal="b.000001", offsets=np.arange(5) * 100, gtids=gtids)
    table.validate(full=True)
    found = table.to_pylist()
    assert [row["_cdc_op"] for row in found[:3]] == ["insert", "update", "delete"]
    assert [row["_cdc_gtid"] for row in found[:5]] == ["0-1-7", "0-1-7", None, None, "0-1-8"]
    assert found[0]["before"] is None
    assert found[2]["after"] is None
    assert dict(found[1]["_cdc_rescued"]) == {
        "after.größe": "0000-00-00",
        'before.odd "name"\n': 'ff"',
    }
    names = rows.schema.column_names
    for row, got in enumerate(found):
        expected = []
        for image, bits, op in (
            ("before", rows.before_present, 1),
            ("after", rows.after_present, 3),
        ):
            if rows.op[row] != op:
                expected += [
                    f"{image}.{name}" for at, name in enumerate(names) if not bits[row, 0] >> at & 1
                ]
        assert got["_cdc_absent"] == (expected or None)


def test_file_names_are_safe_for_any_table() -> None:
    def stem(database: str, table: str) -> str:
        return file_stem(TableSchema(database, table, (Column("a", Kind.INT8, 1, 0, True),)))

    assert stem("shop", "order_items") == "shop.order_items"
    assert stem("..", "../../etc/passwd") == "%2E%2E.%2E%2E%2F%2E%2E%2Fetc%2Fpasswd"
    assert stem("a", "b.c") != stem("a.b", "c")
    long = [stem("d" * 64, "ä" * 63 + letter) for letter in "öü"]
    assert len(set(long)) == 2
    assert max(map(len, long)) < 220


def test_files_are_rolled_by_size_and_hold_all_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cdc_pipeline.operations.inspect.change_files.GROUP_BYTES", 100_000)
    found = Inspection(Selection(tables=("shop.orders",)))
    with ChangeFiles(tmp_path, file_bytes_max=20_000) as files:
        found.write(read_all([JOURNALS], found.selection), files)
        assert list(tmp_path.glob("*.partial")) or files.files
    assert not list(tmp_path.glob("*.partial"))
    assert len(files.files) > 3
    tables = [pq.read_table(tmp_path / name) for name in files.files]
    assert sum(map(len, tables)) == sum(files.files.values()) == 8_020 + 9_037 + 463
    of_first = pa.concat_tables(
        [pq.read_table(path) for path in sorted(tmp_path.glob("shop.orders.v1-*"))]
    )
    seqs = of_first["_cdc_seq"].to_pylist()
    assert seqs == sorted(seqs)


# -- row metadata below FULL -----------------------------------------------------------------------


def test_a_table_map_without_metadata_is_read_by_rule() -> None:
    """The shop's own table maps with their metadata cut off."""
    seen = 0
    for chunk in read_journal(JOURNALS / "binlog.000001"):
        for row in np.flatnonzero(chunk.events["event_type"] == EventType.TABLE_MAP).tolist():
            body = bytes(chunk.body(row))
            full = table_map.parse(body, journal="j.000001", offset=4)
            parse = partial(table_map.parse, journal="j.000001", offset=4)
            name = table_map.table_name(body)
            same, missing = parse_bare(name, partial(parse, body))
            assert (same, missing) == (full, ())
            metadata_at = table_map._columns_of(body, name.end, False)[3].at
            bare, missing = parse_bare(name, partial(parse, body[:metadata_at]))
            has_text = any(column.kind in (Kind.TEXT, Kind.BINARY) for column in full.columns)
            assert {"names", "signs"} <= set(missing)
            assert ("charsets" in missing) == has_text
            assert bare.column_names == tuple(
                f"@{number + 1}" for number in range(len(full.columns))
            )
            for one, other in zip(bare.columns, full.columns, strict=True):
                assert (one.wire_type, one.wire_meta) == (other.wire_type, other.wire_meta)
                assert one.kind == other.kind or other.kind in (Kind.ENUM, Kind.SET, Kind.BINARY)
                expected = other if other.kind not in (Kind.ENUM, Kind.SET, Kind.BINARY) else one
                assert replace(
                    one, name="", unsigned=False, charset="", char_length_max=0, visible=True
                ) == replace(
                    expected, name="", unsigned=False, charset="", char_length_max=0, visible=True
                )
            seen += 1
    assert seen > 50


@pytest.mark.parametrize(
    ("flavor", "setting"),
    [
        pytest.param("mysql", "MINIMAL", marks=pytest.mark.mysql),
        pytest.param("mariadb", "NO_LOG", marks=pytest.mark.mariadb),
    ],
)
def test_facts_a22_rows_without_full_metadata_are_shown_and_noted(
    start_server: Callable[..., Server], flavor: str, setting: str
) -> None:
    server = start_server(flavor, binlog_row_metadata=setting)
    server.execute_all(
        "CREATE DATABASE shop",
        "CREATE TABLE shop.t (id INT UNSIGNED PRIMARY KEY, e ENUM('a','b'), s SET('x','y','z'), n "
        "VARCHAR(20) CHARACTER SET utf8mb4, l VARCHAR(20) CHARACTER SET latin1, b VARBINARY(9), d "
        "DECIMAL(8,2), at DATETIME(3))",
        "FLUSH BINARY LOGS",
        "INSERT INTO shop.t VALUES (4294967295, 'b', 'x,z', 'grün', 'grün', x'ff00', -1.5, "
        "'2024-01-02 03:04:05.678')",
    )
    server.flush_journal()
    found = Inspection(Selection(tables=("shop.*",)))
    (after,) = inserted(found, [server.journals()[1]])
    is_told = setting == "MINIMAL"
    assert after == {
        "@1": 4294967295 if is_told else -1,
        "@2": 2,
        "@3": 5,
        "@4": "grün",
        "@5": "grün" if is_told else {"hex": "grün".encode("latin1").hex()},
        "@6": "ff00" if is_told else {"hex": "ff00"},
        "@7": "-1.50",
        "@8": "2024-01-02 03:04:05.678",
    }
    missing = ("names", "labels") if is_told else ("names", "signs", "charsets", "labels")
    assert found.bare_tables.missing == {"shop.t": missing}
    whole = Inspection(Selection(tables=("shop.*",)))
    (after,) = inserted(whole, server.journals()[:2])
    assert after == {
        "id": 4294967295, "e": "b", "s": "x,z", "n": "grün", "l": "grün", "b": "ff00", "d": "-1.50",
        "at": "2024-01-02 03:04:05.678",
    }  # fmt: skip
    assert whole.bare_tables.missing == {}


def inserted(found: Inspection, journals: list[Path]) -> list[dict[str, object]]:
    blocks = b"".join(map(bytes, found.lines(read_all(journals, found.selection))))
    changes = [json.loads(line) for line in blocks.splitlines()]
    return [line["after"] for line in changes if line["op"] == "insert"]


@pytest.mark.parametrize(
    ("flavor", "setting"),
    [
        pytest.param("mysql", "MINIMAL", marks=pytest.mark.mysql),
        pytest.param("mariadb", "NO_LOG", marks=pytest.mark.mariadb),
    ],
)
def test_facts_a22_statements_of_the_journals_tell_what_table_maps_do_not(
    start_server: Callable[..., Server], flavor: str, setting: str
) -> None:
    server = start_server(flavor, binlog_row_metadata=setting)
    is_mariadb = flavor == "mariadb"
    server.execute_all(
        "CREATE DATABASE shop CHARACTER SET latin1",
        "CREATE TABLE shop.made (a INT UNSIGNED, t VARCHAR(20))",
        "INSERT INTO shop.made VALUES (3000000000, 'ä')",
        # The same table map, another table.
        "ALTER TABLE shop.made RENAME COLUMN a TO b",
        "INSERT INTO shop.made VALUES (1, 'ö')",
        "RENAME TABLE shop.made TO shop.other",
        "INSERT INTO shop.other VALUES (2, 'ü')",
        "CREATE TABLE shop.copied AS SELECT * FROM shop.other WHERE b = 2",
        "SET sql_log_bin = 0",
        "ALTER TABLE shop.other ADD COLUMN unseen INT",
        "SET sql_log_bin = 1",
        "INSERT INTO shop.other VALUES (3, 'x', 4)",
    )
    if is_mariadb:
        server.execute_all(
            "CREATE TABLE shop.kinds (u UUID, i INET4, j INET6, b BINARY(16))",
            "INSERT INTO shop.kinds VALUES ('123e4567-e89b-12d3-a456-426655440000', "
            "'10.0.0.1', '::1', x'00')",
        )
    server.flush_journal()
    found = Inspection()
    got = inserted(found, [server.journals()[0]])
    assert got[:3] == [{"a": 3000000000, "t": "ä"}, {"b": 1, "t": "ö"}, {"b": 2, "t": "ü"}]
    assert [list(row.values()) for row in got[3:5]] == [[2, "ü"], [3, "x", 4]]
    assert list(got[4]) == ["@1", "@2", "@3"]
    assert "history" in found.bare_tables.missing["shop.other"]
    if is_mariadb:
        assert got[5:] == [
            {"u": "123e4567-e89b-12d3-a456-426655440000", "i": "10.0.0.1", "j": "::1",
                "b": "00" * 16}
        ]  # fmt: skip
    only = Inspection(Selection(tables=("shop.other",)))
    assert inserted(only, [server.journals()[0]]) == [got[2], got[4]]


# -- compressed, tagged, prepared ------------------------------------------------------------------


@pytest.mark.mysql
def test_compressed_and_tagged_transactions_and_xa_are_shown(
    start_server: Callable[..., Server],
) -> None:
    server = start_server("mysql", binlog_transaction_compression=True)
    server.execute_all(
        "CREATE DATABASE shop",
        "CREATE TABLE shop.t (a INT PRIMARY KEY, b TEXT)",
        "INSERT INTO shop.t VALUES (1, REPEAT('abc', 2000)), (2, NULL)",
        "SET gtid_next = 'AUTOMATIC:tag'",
        "UPDATE shop.t SET b = 'x' WHERE a = 1",
        "XA START 'q'",
        "INSERT INTO shop.t VALUES (3, 'xa')",
        "XA END 'q'",
        "XA PREPARE 'q'",
        "XA COMMIT 'q'",
    )
    server.flush_journal()
    journal = server.journals()[0]
    source = server.query("SELECT @@server_uuid")[0][0]

    def lines(selection: Selection) -> list[dict[str, object]]:
        found = Inspection(selection)
        blocks = b"".join(map(bytes, found.lines(read_all([journal], selection))))
        return [json.loads(line) for line in blocks.splitlines()]

    shown = [line.get("kind", line["op"]) for line in lines(Selection())]
    assert shown == [
        "create_database", "create_table", "insert", "insert", "update", "xa_start", "insert",
        "xa_end", "xa_prepare",
        "xa_commit",
    ]  # fmt: skip
    tagged = lines(Selection(gtids=f"{source}:tag:1"))
    assert [(line["op"], line["gtid"]) for line in tagged] == [("update", f"{source}:tag:1")]
    summary = Inspection().summary(read_all([journal], Selection()))
    assert (summary.transactions, summary.prepared, summary.error) == (5, 1, None)
    (info,) = summary.journals
    assert info.unpacked_bytes > 10 * info.packed_bytes > 0
    assert info.last_gtid == f"{source}:tag:3"


def test_f85_an_error_behind_the_reading_has_the_journals_own_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "copy.bin"
    copy.write_bytes((GOLDEN / "mysql-common.000001").read_bytes())

    def fails(pieces: list[RowsSelection], *_: object, **__: object) -> None:
        raise DamagedJournalError("damaged", at=(pieces[0].chunk.journal, 4))

    monkeypatch.setattr(change_log, "decode_rows", fails)
    with pytest.raises(DamagedJournalError) as told:
        list(Inspection().lines(read_all([copy], Selection())))
    assert told.value.journal == "copy.bin"
