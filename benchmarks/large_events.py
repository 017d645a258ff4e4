"""Events of a gigabyte: from the archive and live, with their lengths and hashes as the server
tells them.

    python -m benchmarks.large_events [--small]

On each server one row with a LONGBLOB of nearly 1 GiB (the largest that max_allowed_packet lets
through), and an update of a row of 600 MiB, whose event holds both images; the latter from the
archive only, since no server sends an event of more than 1 GiB. Each is decoded in a process of its
own. The bound of its peak memory, above that of an idle process: four times the largest event: the
bytes as they arrive, their copy where the buffer grows, and the decoded images. ``--small`` does
the same with a thirty-second of the bytes.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.processes import resident_mib, told_by
from benchmarks.report import Figure, report

GIB = 1 << 30
MARGIN_BYTES = 64 << 10
TIMES_THE_EVENT = 4.0


def main() -> int:
    if sys.argv[1:2] == ["child"]:
        return _child(json.loads(sys.argv[2]))
    from tests.servers import Server

    scale = 32 if "--small" in sys.argv else 1
    figures: list[Figure] = []
    for flavor in ("mysql", "mariadb"):
        with Server(flavor, {"max_allowed_packet": "1G"}) as server:
            user, password = server.create_replication_user()
            server.execute("CREATE DATABASE big")
            # MyISAM: no redo log limits the size of a row
            server.execute("CREATE TABLE big.t (id INT PRIMARY KEY, b LONGBLOB) ENGINE=MyISAM")
            for name, statements, size, ways in (
                ("insert", ["INSERT INTO big.t VALUES (1, REPEAT('0123456789abcdef', {n}))"],
                 GIB // scale - MARGIN_BYTES, ("archive", "live")),
                ("update", ["INSERT INTO big.t VALUES (2, REPEAT('x', {n} * 16))",
                            "UPDATE big.t SET b = REPEAT('fedcba9876543210', {n}) WHERE id = 2"],
                 600 * (1 << 20) // scale, ("archive",)),
            ):  # fmt: skip
                server.flush_journal()
                # a server goes on to the next by itself after a gigabyte
                journal = server.end_position()[0]
                for statement in statements:
                    server.execute(statement.format(n=size // 16))
                length, digest = server.query(
                    "SELECT LENGTH(b), SHA2(b, 256) FROM big.t WHERE id = "
                    f"{1 if name == 'insert' else 2}"
                )[0]
                end_offset = (server.datadir / journal).stat().st_size
                server.flush_journal()
                for way in ways:
                    asked: dict[str, Any] = {
                        "journal": journal,
                        "end": end_offset,
                        "file": str(server.datadir / journal),
                    }
                    if way == "live":
                        asked |= {
                            "host": server.host,
                            "port": server.port,
                            "user": user,
                            "password": password,
                        }
                    figures += _figures(f"{flavor} {name} {way}", asked, int(length), str(digest))
                server.execute("TRUNCATE TABLE big.t")
    return report("events of a gigabyte", figures)


def _figures(name: str, asked: dict[str, Any], length: int, digest: str) -> list[Figure]:
    found = told_by("benchmarks.large_events", "child", json.dumps(asked))
    if found["values"][-1] != [length, digest]:
        raise SystemExit(f"{name}: expected {length} bytes {digest}, got {found['values']}")
    event_mib = found["event_bytes"] / 2**20
    return [
        Figure(f"{name}: {event_mib:,.0f} MiB event, peak above idle",
            found["peak_mib"] - found["idle_mib"], "MiB",
               TIMES_THE_EVENT * event_mib + 64),
        Figure(f"{name}: seconds", found["seconds"], "s", 120.0),
    ]  # fmt: skip


def _child(asked: dict[str, Any]) -> int:
    """Decode a journal's rows; print the length and hash of every value of column b, and what it
    took."""
    from collections.abc import Iterator

    from cdc_pipeline.binlog.chunk import Chunk, EventSlice
    from cdc_pipeline.binlog.rows.rows import RowsSelection, decode_rows
    from cdc_pipeline.config.pipeline_config import LiveSourceConfig
    from cdc_pipeline.position.position import Position
    from cdc_pipeline.source.archive.files import read_journal
    from cdc_pipeline.source.live.live import LiveSource
    from cdc_pipeline.transaction.buffer import TransactionBuffer
    from cdc_pipeline.transaction.table_maps import TableMaps

    def chunks() -> Iterator[Chunk]:
        if "host" not in asked:
            yield from read_journal(Path(asked["file"]))
            return
        config = LiveSourceConfig(
            kind="live",
            host=asked["host"],
            port=asked["port"],
            user=asked["user"],
            password=asked["password"],
        )
        source = LiveSource(config, pipeline_name="large")
        yield from source.chunks(
            Position(asked["journal"], 4), Position(asked["journal"], asked["end"])
        )
        source.close()

    idle_mib, began_s = resident_mib(), time.monotonic()
    taken: list[EventSlice] = []
    buffer = TransactionBuffer(
        lambda slices: not taken.extend(slices),  # type: ignore[func-returns-value]  # None: go on
        is_isolated=lambda _query: False,
        source="",
    )
    maps = TableMaps(lambda _database, _table: True)
    values, event_bytes = [], 0
    for chunk in chunks():
        event_bytes = max(event_bytes, int(chunk.events["event_length"].max()))
        buffer.feed(chunk)
        while taken:
            piece = taken.pop(0)
            for group in maps.resolve(piece):
                assert group.schema is not None
                for row in group.rows:
                    rows = decode_rows(
                        [RowsSelection(piece.chunk, row.reshape(1))], group.schema, epoch=1
                    )
                    for value in rows.after.column(1):
                        view = value.as_buffer()
                        values.append([view.size, hashlib.sha256(view).hexdigest()])
    print(json.dumps({
        "values": values, "event_bytes": event_bytes, "idle_mib": idle_mib,
        "peak_mib": resident_mib(), "seconds": time.monotonic() - began_s,
    }))  # fmt: skip
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
