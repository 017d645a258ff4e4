"""The hand-over of the library's connection: one connection, no byte of the stream lost, requests
that are whole."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from cdc_pipeline.binlog.framing.framing import EventFramer
from cdc_pipeline.errors import DamagedJournalError
from cdc_pipeline.position.position import Position
from cdc_pipeline.source.live.handover import DumpRequest, open_dump
from cdc_pipeline.source.live.live import _Stream
from tests.servers import Server
from tests.support.live_source import live_source, position


def test_the_library_connects_once_and_leaves_the_stream_whole(server: Server) -> None:
    source = live_source(server)
    end = position(server)

    def connections() -> int:
        return int(server.query("SHOW GLOBAL STATUS LIKE 'Connections'")[0][1])

    before = connections()
    dump = open_dump(source.config, DumpRequest(server.flavor, end.journal, 4), source.replica)
    block = np.zeros(1 << 16, dtype=np.uint8)
    assert dump.read(block) > 5
    assert connections() == before + 1
    dump.close()
    # The first packet after the command: sequence id 1, an event, of type ROTATE.
    assert block[3] == 1
    assert block[4] == 0
    assert block[5 + 4] == 4


@pytest.mark.parametrize(
    "request_",
    [
        DumpRequest("mariadb", "binlog.000001", 4),
        DumpRequest("mariadb", "binlog.000123", (1 << 32) - 1),
        DumpRequest("mariadb", "binlog.000001", 4, gtid_set="0-1-5"),
        DumpRequest("mysql", "binlog.000001", 4, gtid_set="x:tag:1", gtid_bytes=b"12345678" * 5),
    ],
)
def test_our_own_commands_are_whole_packets(request_: DumpRequest) -> None:
    command = request_.own_command(4_000_000_000)
    assert command is not None
    assert int.from_bytes(command[:3], "little") == len(command) - 4
    assert command[3] == 0
    assert command[4] == (0x1E if request_.gtid_bytes else 0x12)


def test_the_librarys_command_is_kept_where_it_is_right() -> None:
    assert DumpRequest("mysql", "binlog.000001", 4).own_command(1) is None
    assert DumpRequest("mysql", "binlog.000001", 4, gtid_set="a:1-5").own_command(1) is None


def test_a_gap_in_a_dump_by_offset_is_told(mysql_server: Server, mysql_database: str) -> None:
    """By offset a server skips nothing: whatever is missing was lost."""
    mysql_server.execute(f"CREATE TABLE {mysql_database}.t (a INT PRIMARY KEY)")
    source = live_source(mysql_server)
    path = mysql_server.journals()[-1]
    chunk, _ = EventFramer(path.name).feed(np.frombuffer(path.read_bytes(), dtype=np.uint8)[4:])
    assert chunk is not None
    start, end = Position(path.name, 4), position(mysql_server)
    dump = open_dump(
        source.config, DumpRequest("mysql", start.journal, start.offset), source.replica
    )
    try:
        for row in (0, 2, len(chunk.events) // 2):
            holed = dataclasses.replace(chunk, events=np.delete(chunk.events, row))
            stream = _Stream(source, dump, start=start, end=end, by_gtid=False)
            with pytest.raises(DamagedJournalError, match="omitted") as caught:
                stream._check_contiguous(holed)
            assert caught.value.offset == chunk.events["offset"][row]
        _Stream(source, dump, start=start, end=end, by_gtid=False)._check_contiguous(chunk)
    finally:
        dump.close()
