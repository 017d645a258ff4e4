"""Framing ahead: whatever was framed while it came, the chunks are those of all bytes at once."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_pipeline.binlog.chunk import EVENT_DTYPE
from cdc_pipeline.binlog.framing import ahead as framed_ahead
from cdc_pipeline.binlog.framing.framing import EventFramer
from cdc_pipeline.binlog.framing.framing_kernel import PREFIX_BYTES
from cdc_pipeline.binlog.framing.packets import PacketBuffer
from cdc_pipeline.binlog.framing.receiving import Received
from cdc_pipeline.binlog.native.block_pool import BlockPool
from cdc_pipeline.errors import CdcError
from tests.binlog.framing.test_packets import EOF_PACKET, packets
from tests.support.journal_builder import JournalBuilder

JOURNAL = "binlog.000001"
XID, IGNORABLE, HEARTBEAT = 16, 0x80, 27


def dump_of(sizes: Sequence[int], *, heartbeat_at: int = -1, damaged_at: int = -1) -> list[bytes]:
    """A journal's events as a server sends them: rotate, format, events with bodies of these sizes;
    size 8 is an XID, others are unknown and ignorable. A heartbeat and an event with a wrong
    checksum are put at these places."""
    events: list[bytes] = []

    def added(builder: JournalBuilder, before: int) -> None:
        events.append(bytes(builder.data[before:]))

    head = JournalBuilder(data=bytearray())
    head.event(4, (4).to_bytes(8, "little") + JOURNAL.encode(), flags=0x20, log_position=0)
    added(head, 0)
    journal = JournalBuilder()
    at = len(journal.data)
    journal.format_description()
    added(journal, at)
    for number, size in enumerate(sizes):
        if number == heartbeat_at:
            beat = JournalBuilder(data=bytearray())
            beat.event(HEARTBEAT, JOURNAL.encode(), log_position=journal.offset)
            added(beat, 0)
        at = len(journal.data)
        if size == 8:
            journal.event(XID, bytes(size))
        else:
            journal.event(200, bytes(size), flags=IGNORABLE)
        added(journal, at)
        if number == damaged_at:
            events[-1] = events[-1][:-1] + bytes([events[-1][-1] ^ 1])
    return events


def read(
    events: Sequence[bytes], *, ahead: bool, goal_bytes: int, room_bytes: int
) -> tuple[np.ndarray, bytes, dict[int, int], int, str]:
    """Rows (by their own bytes), those bytes, ignored events, offset and error of one dump."""
    stream = packets([*(b"\0" + event for event in events), EOF_PACKET])
    framer = EventFramer("", dump=True, prefix_bytes=PREFIX_BYTES)
    buffer = PacketBuffer(BlockPool(1 << 16, spare_blocks_max=2), room_bytes=room_bytes)
    rows, data, error, end = [], b"", "", None
    server, client = socket.socketpair()
    with server, client:
        client.settimeout(10)
        server.sendall(stream)  # the socket holds it all
        while end is None:
            given_ahead = framer.ahead() if ahead else None
            end, received = buffer.receive(
                client.fileno(), goal_bytes, timeout_s=10, ahead=given_ahead
            )
            assert received is Received.ENOUGH
            try:
                while buffer.event_bytes:
                    chunk, used = framer.feed(buffer.events)
                    buffer.consume(used)
                    if chunk is not None:
                        for event in chunk.events:
                            start = int(event["start"])
                            data += chunk.data[start : start + int(event["event_length"])].tobytes()
                        rows.append(chunk.events.copy())
            except CdcError as failure:
                error = str(failure)
                break
    table = np.concatenate(rows) if rows else np.empty(0, EVENT_DTYPE)
    if len(table):
        table["start"] = 0
    return table, data, framer.ignored_events, framer.offset, error


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from([8, 0, 30, 700]), max_size=60),
    st.integers(-1, 60),
    st.one_of(st.just(-1), st.integers(0, 60)),
    st.sampled_from([1, 500, 1 << 14]),
    st.sampled_from([64, 1000, 1 << 14]),
)
def test_framed_ahead_or_at_once_is_the_same(
    sizes: list[int], heartbeat_at: int, damaged_at: int, goal_bytes: int, room_bytes: int
) -> None:
    events = dump_of(sizes, heartbeat_at=heartbeat_at, damaged_at=damaged_at)
    got = read(events, ahead=True, goal_bytes=goal_bytes, room_bytes=room_bytes)
    wanted = read(events, ahead=False, goal_bytes=1 << 15, room_bytes=1 << 14)
    assert got[0].tolist() == wanted[0].tolist()
    assert got[1:] == wanted[1:]
    if not 0 <= damaged_at < len(sizes):
        assert got[1] == b"".join(
            event for event in events[1:] if event[4] != HEARTBEAT
        )  # and that is what was sent


def test_a_chunk_of_small_events_ends_with_enough_rows() -> None:
    """Rows that do not fit any more are framed at once, and none is lost."""
    count = 5 * framed_ahead.ROWS_GOAL
    events = dump_of([8] * count)
    stream = packets([*(b"\0" + event for event in events), EOF_PACKET])
    framer = EventFramer("", dump=True, prefix_bytes=PREFIX_BYTES)
    buffer = PacketBuffer(BlockPool(8 << 20, spare_blocks_max=2), room_bytes=1 << 16)
    server, client = socket.socketpair()
    goal_bytes = 1000  # the first chunk: nothing is framed ahead before the format is known
    rows, most, end = 0, 0, None
    with server, client:
        client.settimeout(10)
        sender = threading.Thread(target=server.sendall, args=(stream,))
        sender.start()
        while end is None:
            end, _ = buffer.receive(client.fileno(), goal_bytes, timeout_s=10, ahead=framer.ahead())
            goal_bytes = 4 << 20
            while buffer.event_bytes:
                chunk, used = framer.feed(buffer.events)
                buffer.consume(used)
                if chunk is not None:
                    rows, most = rows + len(chunk.events), max(most, len(chunk.events))
        sender.join()
    assert rows == count + 1
    assert framed_ahead.ROWS_GOAL <= most < count


def test_without_rows_ahead_all_bytes_are_framed() -> None:
    journal = JournalBuilder()
    journal.format_description()
    framer = EventFramer(JOURNAL)
    assert framer.ahead().rows == 0
    chunk, used = framer.feed(np.frombuffer(bytes(journal.data[4:]), np.uint8))
    assert chunk is not None
    assert used == len(journal.data) - 4
    assert chunk.events["offset"].tolist() == [4]
