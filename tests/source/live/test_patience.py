"""A reader that waits while a batch is merged is not thrown out by the server."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from cdc_pipeline.position.position import Position
from tests.support.live_source import live_source, position

_ROWS = 40
_STALL_S = 4.0  # four times the server's own limit


@pytest.mark.parametrize(
    "flavor", [pytest.param(f, marks=getattr(pytest.mark, f)) for f in ("mysql", "mariadb")]
)
def test_a_stalled_reader_is_waited_for(start_server: Any, flavor: str) -> None:
    server = start_server(flavor, net_write_timeout=1, max_allowed_packet=64 << 20)
    server.execute_all("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, b LONGBLOB)")
    source = live_source(server)
    start = position(server)
    for row in range(_ROWS):
        server.execute("INSERT INTO d.t VALUES (%s, REPEAT('x', 1048576))", (row,))
    end: Position = position(server)
    chunks = source.chunks(start, end)
    seen = [next(chunks)]
    # The socket's buffers are full now, and the server waits in a write: longer than its own limit.
    threading.Event().wait(_STALL_S)
    assert server.query("SELECT 1") == [(1,)]
    seen += chunks
    source.close()
    assert seen[-1].end_offset == end.offset
    assert sum(len(chunk.data) for chunk in seen) > _ROWS << 20
