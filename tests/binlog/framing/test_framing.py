"""Framing against a slow twin, and everything that can be wrong with a journal's bytes."""

from __future__ import annotations

import itertools
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_pipeline.binlog.chunk import Chunk
from cdc_pipeline.binlog.event_types import FLAG_IGNORABLE, STOP_REASONS
from cdc_pipeline.binlog.framing.framing import EventFramer
from cdc_pipeline.errors import (
    BinlogError,
    CdcError,
    DamagedJournalError,
    TruncatedJournalError,
    UnknownEventError,
    UnsupportedEventError,
)
from tests.support.journal_builder import JournalBuilder, format_description_body, slow_rows

JOURNAL = "binlog.000001"
Row = dict[str, int]


def array(data: bytes) -> np.ndarray:
    return np.frombuffer(bytes(data), dtype=np.uint8)


def rows_of(chunk: Chunk, *, absolute_start: int = 0) -> list[Row]:
    rows = [
        dict(zip(chunk.events.dtype.names or (), map(int, event), strict=True))
        for event in chunk.events
    ]
    for row in rows:
        row["start"] += absolute_start
    return rows


def small_journal(*, checksum: bool = True, events: int = 6) -> JournalBuilder:
    builder = JournalBuilder(checksum=checksum)
    builder.format_description(flags=1)
    builder.event(35, bytes(8), flags=FLAG_IGNORABLE)
    for number in range(events):
        builder.rows(100 + (1 << 40) * (number % 2), bytes(range(number * 7)))
    builder.event(19, (77).to_bytes(6, "little") + b"\1\0\3")
    builder.event(16, (9).to_bytes(8, "little"))
    builder.event(4, (4).to_bytes(8, "little") + b"binlog.000002")
    return builder


def frame_all(
    data: bytes, *, cuts: list[int] | None = None, framer: EventFramer | None = None
) -> tuple[list[Row], CdcError | None]:
    """Rows of all chunks of bytes that come in pieces, and the error that ended them."""
    framer = framer or EventFramer(JOURNAL)
    rows: list[Row] = []
    pending, done = b"", 0
    bounds = [0, *sorted(cuts or []), len(data)]
    try:
        for first, stop in itertools.pairwise(bounds):
            pending += data[first:stop]
            while True:
                chunk, consumed = framer.feed(array(pending))
                if chunk is not None:
                    rows += rows_of(chunk, absolute_start=done)
                pending, done = pending[consumed:], done + consumed
                if not consumed:
                    break
        framer.finish(len(pending))
    except CdcError as error:
        return rows, error
    return rows, None


@pytest.mark.parametrize("checksum", [True, False])
def test_rows_equal_the_slow_twin(checksum: bool) -> None:
    data = bytes(small_journal(checksum=checksum).data[4:])
    rows, error = frame_all(data)
    assert error is None
    assert rows == slow_rows(data, checksum_bytes=4 if checksum else 0)
    assert len(rows) == 11
    assert {row["table_id"] for row in rows} == {-1, 77, 100, 100 + (1 << 40)}


@settings(max_examples=60)
@given(st.lists(st.integers(0, 600), max_size=12))
def test_any_split_of_the_bytes_gives_the_same_rows(cuts: list[int]) -> None:
    data = bytes(small_journal().data[4:])
    assert frame_all(data, cuts=[cut for cut in cuts if cut < len(data)]) == (slow_rows(data), None)


def test_every_bit_flip_stops_with_everything_before_it() -> None:
    data = bytes(small_journal(events=3).data[4:])
    good = slow_rows(data)
    for at in range(len(data)):
        for bit in (0, 3, 7):
            damaged = bytearray(data)
            damaged[at] ^= 1 << bit
            rows, error = frame_all(bytes(damaged))
            if at == 17 and bit == 0:  # the in-use flag is no part of the checksum
                assert error is None
                continue
            assert isinstance(error, BinlogError), (at, bit)
            before = [row for row in good if row["next_offset"] <= at + 4]
            assert rows == before, (at, bit)
            assert error.journal == JOURNAL
            assert error.offset == 4 + sum(row["event_length"] for row in before)


def test_truncation_at_every_byte_names_the_offset_and_delivers_what_is_before() -> None:
    data = bytes(small_journal(events=2).data[4:])
    good = slow_rows(data)
    boundaries = {row["next_offset"] - 4 for row in good}
    for size in range(len(data)):
        rows, error = frame_all(data[:size])
        whole = [row for row in good if row["next_offset"] - 4 <= size]
        assert rows == whole
        if size in boundaries:
            assert error is None
        else:
            assert isinstance(error, TruncatedJournalError)
            assert error.offset == (whole[-1]["next_offset"] if whole else 4)


@pytest.mark.parametrize("event_type", sorted(STOP_REASONS))
def test_stop_types_stop_with_the_way_out_after_what_is_before_them(event_type: int) -> None:
    builder = small_journal()
    good = slow_rows(bytes(builder.data[4:]))
    offset = builder.offset
    builder.event(event_type, b"anything", flags=FLAG_IGNORABLE)
    rows, error = frame_all(bytes(builder.data[4:]))
    assert rows == good
    assert isinstance(error, UnsupportedEventError)
    assert error.offset == offset
    assert error.next_step == STOP_REASONS[event_type]  # type: ignore[index]


def test_an_unknown_type_stops_unless_it_is_ignorable() -> None:
    builder = small_journal()
    builder.event(99, b"x", flags=FLAG_IGNORABLE)
    builder.event(99, b"x", flags=FLAG_IGNORABLE)
    framer = EventFramer(JOURNAL)
    rows, error = frame_all(bytes(builder.data[4:]), framer=framer)
    assert error is None
    assert framer.ignored_events == {99: 2}
    assert [row["event_type"] for row in rows[-2:]] == [99, 99]
    offset = builder.offset
    builder.event(99, b"x")
    _, error = frame_all(bytes(builder.data[4:]))
    assert isinstance(error, UnknownEventError)
    assert error.offset == offset
    assert "99" in str(error)


def test_the_error_is_raised_again_and_again() -> None:
    framer = EventFramer(JOURNAL)
    builder = small_journal()
    builder.event(99)
    data = array(builder.data[4:])
    chunk, consumed = framer.feed(data)
    assert chunk is not None
    for _ in range(2):
        with pytest.raises(UnknownEventError):
            framer.feed(data[consumed:])
    with pytest.raises(UnknownEventError):
        framer.finish(0)


def test_positions_of_zero_are_computed_and_others_must_agree() -> None:
    builder = JournalBuilder()
    builder.format_description()
    builder.event(16, bytes(8), log_position=0)
    builder.event(16, bytes(8))
    assert frame_all(bytes(builder.data[4:])) == (slow_rows(bytes(builder.data[4:])), None)
    builder.event(16, bytes(8), log_position=builder.offset + 1)
    rows, error = frame_all(bytes(builder.data[4:]))
    assert len(rows) == 3
    assert isinstance(error, DamagedJournalError)


def test_offsets_above_four_gibibytes() -> None:
    head = JournalBuilder()
    head.format_description()
    first = EventFramer(JOURNAL)
    first.feed(array(head.data[4:]))
    builder = JournalBuilder(base=(1 << 32) - 60, data=bytearray())
    for _ in range(4):
        builder.event(16, bytes(8))
    framer = EventFramer(JOURNAL, offset=(1 << 32) - 60, journal_format=first.journal_format)
    chunk, consumed = framer.feed(array(builder.data))
    assert chunk is not None
    assert consumed == len(builder.data)
    assert chunk.events["next_offset"].tolist() == [
        (1 << 32) - 60 + 31 * number for number in range(1, 5)
    ]
    assert chunk.end_offset == framer.offset == (1 << 32) + 64


def test_a_journal_begins_with_its_format_and_has_no_other() -> None:
    builder = JournalBuilder()
    builder.event(16, bytes(8))
    rows, error = frame_all(bytes(builder.data[4:]))
    assert rows == []
    assert isinstance(error, DamagedJournalError)
    assert "FORMAT_DESCRIPTION" in str(error)
    builder = small_journal()
    builder.format_description()
    rows, error = frame_all(bytes(builder.data[4:]))
    assert len(rows) == 11
    assert isinstance(error, DamagedJournalError)
    with pytest.raises(BinlogError):
        EventFramer(JOURNAL, offset=200)
    assert isinstance(frame_all(b"")[1], TruncatedJournalError)


def test_format_of_servers_without_checksums_and_with_short_table_ids() -> None:
    builder = JournalBuilder(checksum=False)
    body = format_description_body(server_version="5.1.3", types=27, table_map_header=6)[:-1]
    builder.event(15, body, checksum=False)
    builder.event(19, (5).to_bytes(4, "little") + b"\xff\xff\3")
    framer = EventFramer(JOURNAL)
    rows, error = frame_all(bytes(builder.data[4:]), framer=framer)
    assert error is None
    assert framer.journal_format is not None
    assert framer.journal_format.checksum_bytes == 0
    assert rows[-1]["table_id"] == 5


def dump_stream(*, heartbeat_skip: int = 0) -> tuple[bytes, JournalBuilder]:
    """What a server sends for a dump from the start: artificial rotate, then the journal, then that
    of the next."""
    journal = small_journal()
    helper = JournalBuilder(data=bytearray())
    helper.event(4, (4).to_bytes(8, "little") + JOURNAL.encode(), flags=0x20, log_position=0)
    helper.data += journal.data[4:]
    helper.event(27, JOURNAL.encode(), log_position=journal.offset + heartbeat_skip)
    helper.event(4, (4).to_bytes(8, "little") + b"binlog.000002", flags=0x20, log_position=0)
    helper.data += small_journal().data[4:]
    return bytes(helper.data), journal


def test_a_dump_gives_the_rows_of_the_file_without_artificial_events() -> None:
    data, journal = dump_stream()
    framer = EventFramer("", dump=True)
    pending = array(data)
    chunks, artificial = [], []
    while len(pending):
        chunk, consumed = framer.feed(pending)
        assert consumed
        pending = pending[consumed:]
        artificial += [header.event_type for header in framer.artificial]
        if chunk is not None:
            chunks.append(chunk)
    expected = slow_rows(bytes(journal.data[4:]))
    assert [chunk.journal for chunk in chunks] == [JOURNAL, "binlog.000002"]
    for chunk in chunks:
        rows = rows_of(chunk)
        assert [{**row, "start": 0} for row in rows] == [{**row, "start": 0} for row in expected]
        assert chunk.end_offset == journal.offset
    assert artificial == [4, 27, 4]


def test_a_dump_that_skips_events_jumps_forward_and_never_back() -> None:
    builder = JournalBuilder()
    builder.format_description()
    builder.base = 5000
    builder.event(16, bytes(8))
    framer = EventFramer(JOURNAL, dump=True)
    data = bytes(builder.data[4:])
    chunk, _ = framer.feed(array(data))
    assert chunk is not None
    assert chunk.events["offset"].tolist() == [4, builder.offset - 31]
    assert chunk.end_offset == builder.offset
    heartbeat = JournalBuilder(data=bytearray())
    heartbeat.event(27, JOURNAL.encode(), log_position=builder.offset + 900)
    assert framer.feed(array(heartbeat.data)) == (None, len(heartbeat.data))
    assert framer.offset == builder.offset + 900
    back = JournalBuilder(data=bytearray())
    back.event(16, bytes(8), log_position=builder.offset)
    with pytest.raises(DamagedJournalError):
        framer.feed(array(back.data))


@pytest.mark.parametrize("by_gtid", [False, True])
@pytest.mark.parametrize("created_s", [0, 1])
def test_a_format_without_a_creation_time_of_a_dump_by_gtid_set_may_lack_its_checksum(
    by_gtid: bool, created_s: int
) -> None:
    data = bytearray()
    for name in (JOURNAL, "binlog.000002"):
        rotate = JournalBuilder(data=bytearray(), checksum=False)
        rotate.event(4, (4).to_bytes(8, "little") + name.encode(), flags=0x20, log_position=0)
        journal = small_journal(checksum=False).data[4:]
        journal[19 + 52] = created_s
        journal[19 + 57] ^= 1  # of the first post-header length
        data += rotate.data + journal
    rows, error = frame_all(bytes(data), framer=EventFramer("", dump=True, by_gtid=by_gtid))
    if by_gtid and not created_s:
        assert (len(rows), error) == (22, None)
    else:
        assert isinstance(error, DamagedJournalError)
        assert (error.journal, error.offset) == (JOURNAL, 4)


def test_a_dump_inside_a_journal_takes_its_format_from_the_artificial_event() -> None:
    helper = JournalBuilder(data=bytearray())
    helper.event(
        4,
        (777).to_bytes(8, "little") + JOURNAL.encode(),
        flags=0x20,
        log_position=0,
        checksum=False,
    )
    helper.format_description()
    start = len(helper.data) - (19 + 57 + 42 + 1 + 4)
    event = bytearray(helper.data[start:-4])
    event[13:17] = bytes(4)  # no position: the server made it up
    helper.data[start:] = bytes(event) + struct.pack("<I", zlib.crc32(event))
    tail = JournalBuilder(data=bytearray(), base=777)
    tail.event(16, bytes(8))
    framer = EventFramer("", dump=True)
    chunk, consumed = framer.feed(array(bytes(helper.data) + bytes(tail.data)))
    assert chunk is not None
    assert consumed == len(helper.data) + len(tail.data)
    assert chunk.journal == JOURNAL
    assert chunk.events["offset"].tolist() == [777]
    assert [header.event_type for header in framer.artificial] == [4, 15]
