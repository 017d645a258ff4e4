"""Journals made to do harm: numbers near 2**63, bombs, loops without bytes, lengths behind the end.

All are whole events with right checksums; each ends in a CdcError with journal and offset, or in
rows, within MEMORY_BYTES_MAX. What loops for ever meets the suite's timeout.
"""

from __future__ import annotations

import json
import resource
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cdc_pipeline.binlog.event_types import EventType as T
from cdc_pipeline.binlog.framing.compressed import UNPACKED_BYTES_MAX
from cdc_pipeline.errors import CdcError
from cdc_pipeline.source.archive.files import read_head, read_journal
from tests.campaigns.frame import address_space_bytes
from tests.campaigns.fuzz import judge
from tests.support.event_builder import gtid_body, query_body
from tests.support.journal_builder import JournalBuilder
from tests.support.packing import child, length_encoded, payload, record
from tests.support.shown_journals import changes

MEMORY_BYTES_MAX = 300 << 20
GOLDEN = Path(__file__).parents[2] / "golden"
HUGE = (2**32 - 1, 2**32, 2**60, 2**62, 2**63 - 8, 2**63 - 1, 2**63, 2**64 - 1)
LONG, SHORT_TEXT, ENUM, SET, STRING, JSON, DOUBLE, FLOAT = 3, 15, 247, 248, 254, 245, 5, 4


def wide(value: int) -> bytes:
    return b"\xfe" + struct.pack("<Q", value)


def text(raw: bytes) -> bytes:
    return length_encoded(len(raw)) + raw


def map_body(
    types: bytes, meta: bytes = b"", *, table: bytes = b"t", more: bytes = b"", count: bytes = b""
) -> bytes:
    """A table map of columns with the types given; `more` are fields of its optional metadata
    besides the names."""
    names = b"".join(text(b"c%d" % index) for index in range(len(types)))
    numeric = sum(kind in (LONG, DOUBLE, FLOAT) for kind in types)
    signs = b"\x01" + text(bytes((numeric + 7) // 8)) if numeric else b""
    return (
        (9).to_bytes(6, "little") + b"\x01\0" + text(b"shop") + b"\0" + text(table) + b"\0"
        + (count or length_encoded(len(types))) + types + text(meta) + b"\xff" * ((len(types) + 7) // 8)  # noqa: E501
        + signs + b"\x04" + text(names) + more
    )  # fmt: skip


def rows_body(columns: bytes, rows: bytes) -> bytes:
    """A WRITE_ROWS body from its column count on; its table is the one of `map_body`."""
    return (9).to_bytes(6, "little") + b"\x01\0\x02\0" + columns + rows


class Attack:
    def __init__(self, *, mariadb: bool = False, begin: bool = True) -> None:
        self.builder = JournalBuilder()
        if mariadb:
            self.builder.format_description(server_version="10.11.19-MariaDB", types=171)
        else:
            self.builder.format_description()
        if begin:
            self.add(T.QUERY, query_body("BEGIN"))

    def add(self, kind: int, body: bytes) -> Attack:
        self.builder.event(kind, body)
        return self

    def bytes(self) -> bytes:
        return bytes(self.add(T.XID, bytes(8)).builder.data)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    for file in sorted(GOLDEN.glob("*.000001")):
        for read in judge.READERS:
            with suppress(CdcError):
                read(file, file.read_bytes())
        assert list(changes([file]))


@contextmanager
def little_memory() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (address_space_bytes() + MEMORY_BYTES_MAX, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def outcome(folder: Path, data: bytes) -> tuple[list[dict[str, Any]], CdcError | None]:
    file = folder / judge.JOURNAL
    file.write_bytes(data)
    with little_memory():
        return _outcome(file, data)


def _outcome(file: Path, data: bytes) -> tuple[list[dict[str, Any]], CdcError | None]:
    for read in judge.READERS:
        try:
            read(file, data)
        except CdcError as error:
            judge.check_error(error)
    lines: list[str] = []
    failure = None
    try:
        lines.extend(changes([file]))
    except CdcError as error:
        failure = error
        judge.check_error(error)
    return [judge.parse_line(line) for line in lines], failure


def refused(folder: Path, attack: Attack, words: str = "") -> None:
    found, failure = outcome(folder, attack.bytes())
    assert failure is not None
    assert words in failure.what
    assert found == []


# -- numbers that overflow -------------------------------------------------------------------------


@pytest.mark.parametrize("number", HUGE)
def test_column_counts_of_eight_bytes(folder: Path, number: int) -> None:
    good = map_body(bytes([LONG]))
    refused(folder, Attack().add(T.TABLE_MAP, map_body(bytes([LONG]), count=wide(number))))
    body = rows_body(wide(number), b"\xff\0" + bytes(4))
    for kind in (T.WRITE_ROWS_V2, T.UPDATE_ROWS_V2, T.DELETE_ROWS_V2):
        refused(folder, Attack().add(T.TABLE_MAP, good).add(kind, body))
    packed = (
        (9).to_bytes(6, "little") + b"\x01\0" + wide(number) + b"\xff" + record(b"\0" + bytes(4))
    )
    refused(
        folder,
        Attack(mariadb=True).add(T.TABLE_MAP, good).add(T.MARIADB_WRITE_ROWS_COMPRESSED_V1, packed),
    )


@pytest.mark.parametrize("number", HUGE)
@pytest.mark.parametrize("field", [1, 3, 4, 5, 6, 8, 9, 10, 12, 13, 200])
def test_lengths_and_numbers_in_metadata(folder: Path, field: int, number: int) -> None:
    for more in (
        bytes([field]) + wide(number),
        bytes([field]) + text(wide(number)),
        bytes([field]) + text(wide(number) * 3),
    ):
        found, failure = outcome(
            folder, Attack().add(T.TABLE_MAP, map_body(bytes([LONG]), more=more)).bytes()
        )
        # Numbers that are not looked at may be anything; the rest is refused.
        assert failure is not None or found == []


@pytest.mark.parametrize("number", HUGE)
def test_payload_fields(folder: Path, number: int) -> None:
    inside = child(T.XID, bytes(8))
    packed = pa.Codec("zstd").compress(inside, asbytes=True)
    for fields in (
        wide(number),
        b"\x02" + wide(number),
        b"\x02\x01\x00\x03\x09"
        + wide(number)
        + b"\x01"
        + text(length_encoded(len(packed)))
        + b"\0"
        + packed,
        b"\x02\x01\x00\x03"
        + text(length_encoded(len(inside)))
        + b"\x01\x09"
        + wide(number)
        + b"\0"
        + packed,
        b"\x02\x09" + wide(number) + b"\x03" + text(length_encoded(len(inside))) + b"\0" + packed,
    ):
        refused(
            folder,
            Attack(begin=False).add(T.GTID, gtid_body()).add(T.TRANSACTION_PAYLOAD, fields),
            "damaged",
        )


@pytest.mark.parametrize("number", HUGE)
def test_sets_at_the_head_of_a_journal(folder: Path, number: int) -> None:
    sid = bytes(range(16))
    one = struct.pack("<qq", 1, 5)
    varlen = b"\xff" + struct.pack("<Q", number)
    low, tagged = struct.pack("<Q", number), struct.pack("<Q", 1 << 56 | 1 << 8 | 1)
    for body in (
        low + sid + struct.pack("<Q", 1) + one,
        struct.pack("<Q", 1) + sid + low + one,
        struct.pack("<Q", 1) + sid + struct.pack("<Q", 1) + low + low,
        struct.pack("<Q", 1 << 56 | min(number, 2**48 - 1) << 8 | 1)
        + sid
        + b"\0"
        + struct.pack("<Q", 1)
        + one,
        tagged + sid + varlen + b"tag" + struct.pack("<Q", 1) + one,
    ):
        attack = Attack(begin=False).add(T.PREVIOUS_GTIDS, body)
        file = folder / judge.JOURNAL
        file.write_bytes(attack.bytes())
        with pytest.raises(CdcError) as error:
            read_head(file)
        assert (error.value.journal, error.value.offset) == (
            judge.JOURNAL,
            4 + 19 + 57 + 42 + 1 + 4,
        )
        outcome(folder, attack.bytes())
    listed = struct.pack("<I", number & 0xFFFFFFFF) + struct.pack("<IIQ", 0, 1, number)
    outcome(folder, Attack(mariadb=True, begin=False).add(T.MARIADB_GTID_LIST, listed).bytes())


@pytest.mark.parametrize("field", [4, 6, 7, 8])
@pytest.mark.parametrize("number", HUGE)
def test_a_tagged_gtid(folder: Path, field: int, number: int) -> None:
    """Times that no clock shows must not reach the text of a time."""

    def varlen(value: int) -> bytes:
        return bytes([value << 1]) if value < 128 else b"\xff" + struct.pack("<Q", value)

    fields = (
        varlen(0)
        + varlen(1)
        + varlen(1)
        + b"".join(varlen(byte) for byte in range(16))
        + varlen(2)
        + varlen(2)
    )
    fields += varlen(3) + varlen(0) + varlen(field) + varlen(number)
    head = varlen(1) + varlen(0) + varlen(0)
    body = varlen(1) + varlen(len(fields) + len(head)) + varlen(0) + fields
    attack = Attack(begin=False).add(T.GTID_TAGGED, body).add(T.QUERY, query_body("BEGIN"))
    attack.add(T.TABLE_MAP, map_body(bytes([LONG]))).add(
        T.WRITE_ROWS_V2, rows_body(b"\x01\x01", b"\0" + bytes(4))
    )
    found, failure = outcome(folder, attack.bytes())
    assert (failure is None) == (field in (4, 8) or number < 1 << 56)
    assert len(found) == (failure is None)


@pytest.mark.parametrize("length", [-1, 0, 13, 2**31 - 1, -(2**31)])
def test_xids_longer_than_their_event(folder: Path, length: int) -> None:
    for body in (
        struct.pack("<Biii", 0, 1, length, 0),
        struct.pack("<Biii", 0, 1, 1, length) + b"g",
    ):
        attack = Attack().add(T.XA_PREPARE, body)
        outcome(folder, bytes(attack.builder.data))
    gtid = struct.pack("<QIB", 1, 0, 0x40) + struct.pack("<IBB", 1, 255, 255) + b"short"
    outcome(folder, Attack(mariadb=True, begin=False).add(T.MARIADB_GTID, gtid).bytes())


@pytest.mark.parametrize("at", [8, 11, 12])
def test_queries_longer_than_their_event(folder: Path, at: int) -> None:
    body = bytearray(query_body("INSERT INTO t VALUES (1)"))
    body[at] = 0xFF
    refused(folder, Attack(begin=False).add(T.QUERY, bytes(body)))


# -- loops and bombs -------------------------------------------------------------------------------


def test_a_table_without_columns(folder: Path) -> None:
    refused(
        folder,
        Attack().add(T.TABLE_MAP, map_body(b"")).add(T.WRITE_ROWS_V2, rows_body(b"\0", bytes(50))),
        "table map",
    )


@pytest.mark.parametrize("columns", [4_096, 4_097, 65_535])
def test_thousands_of_columns_and_an_event_of_one_byte(folder: Path, columns: int) -> None:
    """Neither server makes a table of more than 4,096 columns."""
    attack = Attack().add(T.TABLE_MAP, map_body(bytes([LONG]) * columns))
    words = "a rows event ends inside" if columns <= 4_096 else "table map"
    refused(folder, attack.add(T.WRITE_ROWS_V2, rows_body(length_encoded(columns), b"\xff")), words)


def test_rows_that_hold_no_column(folder: Path) -> None:
    """Images without columns take no bytes: they must not go on for ever."""
    attack = Attack().add(T.TABLE_MAP, map_body(bytes([LONG])))
    refused(
        folder,
        attack.add(T.DELETE_ROWS_V2, rows_body(b"\x01\0", bytes(9))),
        "a rows event ends inside",
    )


def test_thousands_of_rows_of_null(folder: Path) -> None:
    """A byte a row: what they take is bounded by the rows, not by the columns that could be
    there."""
    attack = Attack().add(T.TABLE_MAP, map_body(bytes([LONG]) * 8))
    data = attack.add(T.WRITE_ROWS_V2, rows_body(b"\x08\xff", b"\xff" * 20_000)).bytes()
    found, failure = outcome(folder, data)
    assert failure is None
    assert len(found) == 20_000


@pytest.mark.parametrize("kind", [DOUBLE, FLOAT])
def test_what_is_no_number_is_an_invalid_value(folder: Path, kind: int) -> None:
    size = 8 if kind == DOUBLE else 4
    for tail in (b"\xf0\x7f", b"\xf8\xff") if kind == DOUBLE else (b"\x80\x7f", b"\xc0\xff"):
        raw = bytes(size - 2) + tail
        attack = Attack().add(T.TABLE_MAP, map_body(bytes([kind]), bytes([size])))
        found, failure = outcome(
            folder, attack.add(T.WRITE_ROWS_V2, rows_body(b"\x01\x01", b"\0" + raw)).bytes()
        )
        assert failure is None
        assert found[0]["after"] == {"c0": {"hex": raw.hex()}}


def bomb(unpacked_bytes: int) -> bytes:
    return payload(child(28, bytes(unpacked_bytes - 19), flags=0x80))


def test_a_zstd_bomb_that_does_not_fit_into_memory(folder: Path) -> None:
    attack = (
        Attack(begin=False).add(T.GTID, gtid_body()).add(T.TRANSACTION_PAYLOAD, bomb(700 << 20))
    )
    refused(folder, attack, "does not fit into memory")


def test_many_payloads_are_unpacked_one_after_another(folder: Path) -> None:
    """Together they would take far more than there is; the events behind them arrive."""
    body, count = bomb(20 << 20), 20
    attack = Attack()
    for _ in range(count):
        attack.add(T.TRANSACTION_PAYLOAD, body)
    attack.add(T.TABLE_MAP, map_body(bytes([LONG]))).add(
        T.WRITE_ROWS_V2, rows_body(b"\x01\x01", b"\0" + bytes(4))
    )
    data = attack.bytes()
    assert len(data) < 200_000
    file = folder / judge.JOURNAL
    file.write_bytes(data)
    sizes, events = [], 0
    with little_memory():
        for chunk in read_journal(file):
            sizes.append(len(chunk.data))
            events += len(chunk.events)
    assert events == 2 + 2 * count + 3
    assert max(sizes) <= UNPACKED_BYTES_MAX + (1 << 20)
    found, failure = outcome(folder, data)
    assert failure is None
    assert len(found) == 1


def test_payloads_that_declare_a_terabyte(folder: Path) -> None:
    packed = pa.Codec("zstd").compress(bytes(1 << 20), asbytes=True)
    for size in (1 << 40, (1 << 40) + 1, 1 << 31, len(packed) << 15):
        body = payload(b"", packed=packed, unpacked_bytes=size)
        refused(
            folder, Attack(begin=False).add(T.GTID, gtid_body()).add(T.TRANSACTION_PAYLOAD, body)
        )


def test_a_zlib_bomb_that_declares_little(folder: Path) -> None:
    packed = zlib.compress(bytes(330 << 20), level=1)
    for kind, head in (
        (T.MARIADB_QUERY_COMPRESSED, query_body("")),
        (T.MARIADB_WRITE_ROWS_COMPRESSED_V1, bytes(8) + b"\1\1"),
    ):
        body = head + record(b"", size=100, packed=packed)
        refused(folder, Attack(mariadb=True).add(kind, body), "decompressed size")


def test_an_events_length_asks_for_no_memory(folder: Path) -> None:
    data = bytearray(Attack(begin=False).bytes())
    for at in (4, 4 + 19 + 57 + 42 + 1 + 4):
        damaged = data.copy()
        damaged[at + 9 : at + 13] = (1 << 30).to_bytes(4, "little")
        found, failure = outcome(folder, bytes(damaged))
        assert found == []
        assert failure is not None


# -- JSON ------------------------------------------------------------------------------------------


def json_rows(folder: Path, document: bytes) -> tuple[list[dict[str, Any]], CdcError | None]:
    attack = Attack().add(T.TABLE_MAP, map_body(bytes([JSON]), b"\x04"))
    body = rows_body(b"\x01\x01", b"\0" + struct.pack("<I", len(document)) + document)
    return outcome(folder, attack.add(T.WRITE_ROWS_V2, body).bytes())


def array(entries: list[tuple[int, int]], size: int) -> bytes:
    """A small array of (type, offset) entries that says it has `size` bytes."""
    return struct.pack("<HH", len(entries), size) + b"".join(
        struct.pack("<BH", *entry) for entry in entries
    )


def test_arrays_that_hold_themselves(folder: Path) -> None:
    """An entry that points back to its own array, and layers that all point to the next: no growth
    without bound."""
    for document in (
        b"\x02" + array([(2, 0)] * 100, 304),
        b"\x02" + array([(2, 4)] * 100, 304),
        b"\x02" + array([(2, 304)] * 100, 30_000) + array([(2, 304)] * 100, 29_000) * 90,
    ):
        found, failure = json_rows(folder, document + bytes(40_000))
        assert failure is None
        assert len(json.dumps(found)) < 100 * len(document) + 200_000


@pytest.mark.parametrize(
    "make", [lambda n: b"\x0c" + n, lambda n: b"\x0f\xfc" + n, lambda n: b"\x0f\xf6" + n]
)
def test_lengths_of_strings_and_opaque_values(folder: Path, make: Callable[[bytes], bytes]) -> None:
    for number in (
        b"\xff" * 5,
        b"\xff\xff\xff\xff\x0f",
        b"\xff\xff\xff\xff\x7f",
        b"\x80" * 9,
        b"\x7f",
    ):
        found, failure = json_rows(folder, make(number) + b"xyz")
        assert failure is None
        (value,) = found[0]["after"].values()
        assert value == {"hex": (make(number) + b"xyz").hex()}


def test_the_limit_of_these_tests_holds() -> None:
    with little_memory(), pytest.raises(MemoryError):
        bytearray(2 * MEMORY_BYTES_MAX)
