from __future__ import annotations

import time

from tests.servers.server import Server

DEADLINE_S = 300


def at_rest(server: Server) -> tuple[str, int]:
    """Until someone writes: MariaDB ends the beginning of a journal, in its own time, with a
    checkpoint event that names the journal itself.
    """
    journal, _ = server.end_position()
    deadline = time.monotonic() + DEADLINE_S
    while server.flavor == "mariadb":
        marks = server.query(f"SHOW BINLOG EVENTS IN '{journal}'")
        if any((row[2], row[5]) == ("Binlog_checkpoint", journal) for row in marks):
            break
        assert time.monotonic() < deadline, marks
    return server.end_position()
