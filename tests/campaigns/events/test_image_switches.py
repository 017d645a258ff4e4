"""Row images that a session switches in mid-stream: presence is told per change, and the rows are
the server's."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest

from cdc_pipeline.binlog.decoded import DELETE, INSERT, UPDATE, DecodedRows
from cdc_pipeline.binlog.rows.text_jsonl import jsonl_lines
from tests.servers import Server
from tests.support.decoded_journals import decode_last

COLUMNS = {
    "id": "INT PRIMARY KEY",
    "a": "INT DEFAULT 7",
    "note": "TEXT",
    "c": "VARCHAR(9) DEFAULT 'dflt'",
    "b": "BLOB",
}
DEFAULTS = {"a": 7, "note": None, "c": "dflt", "b": None}
IMAGES = ("FULL", "MINIMAL", "NOBLOB")


def _present(rows: DecodedRows, image: str) -> list[set[str]]:
    bits = np.unpackbits(getattr(rows, f"{image}_present"), axis=1, bitorder="little")
    return [{name for name, bit in zip(COLUMNS, row, strict=False) if bit} for row in bits]


def _write(server: Server, database: str, seed: int) -> list[str]:
    """Changes under images that switch before each statement, inside transactions too; the image of
    each change."""
    chosen = random.Random(seed)
    images, ids = [], list[int]()
    with (
        server.root_connection(database=database, autocommit=False) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute(
            f"CREATE TABLE t ({', '.join(f'{name} {kind}' for name, kind in COLUMNS.items())})"
        )
        server.flush_journal()
        for number in range(60):
            image = chosen.choice(IMAGES)
            cursor.execute(f"SET SESSION binlog_row_image = {image}")
            act = chosen.random()
            if act < 0.4 or not ids:
                values = {
                    "id": number,
                    "a": chosen.choice([None, 0, 7, number]),
                    "note": f"note {number}" * 30,
                }
                values |= (
                    {"c": chosen.choice(["", "x", None])}
                    if chosen.random() < 0.5
                    else {"b": b"\x00\xff" * 40}
                )
                marks = ", ".join(["%s"] * len(values))
                done = cursor.execute(
                    f"INSERT INTO t ({', '.join(values)}) VALUES ({marks})", [*values.values()]
                )
                ids.append(number)
            elif act < 0.85:
                old = chosen.choice(ids)
                change = chosen.choice(
                    ["a = 1000 + %s", "note = CONCAT('n', %s)", "c = %s", "b = x'0102', a = %s"]
                )
                if chosen.random() < 0.2:
                    change, ids[ids.index(old)] = "id = %s, c = NULL", number + 1000
                done = cursor.execute(f"UPDATE t SET {change} WHERE id = %s", [number + 1000, old])
            else:
                done = cursor.execute(
                    "DELETE FROM t WHERE id = %s", [ids.pop(chosen.randrange(len(ids)))]
                )
            images += [image] * done  # an update that changes nothing is no event
            if chosen.random() < 0.4:
                connection.commit()
        connection.commit()
    return images


def _replayed(rows: DecodedRows) -> dict[int, dict[str, Any]]:
    """The table as a merge makes it of the changes: absent columns of an update stay, those of an
    insert default."""
    events = int(rows.event_row.max()) + 1
    lines = jsonl_lines(rows, journal="j", offsets=np.zeros(events, np.int64), gtids=["g"] * events)
    table: dict[int, dict[str, Any]] = {}
    for op, line in zip(rows.op.tolist(), map(json.loads, lines), strict=True):
        before = {} if op == INSERT else table.pop(line["before"]["id"])
        for name, value in (line["before"] or {}).items():
            assert before[name] == value  # what the image tells of the old row is the old row
        if op != DELETE:
            after = (DEFAULTS if op == INSERT else before) | line["after"]
            table[after["id"]] = after
    return table


@pytest.mark.parametrize("seed", [1, 2])
def test_b15_images_that_switch_in_mid_stream_replay_to_the_servers_rows(
    server: Server, fresh_database: str, seed: int
) -> None:
    images = _write(server, fresh_database, seed)
    rows = decode_last(server, f"{fresh_database}.t")
    assert set(images) == set(IMAGES)
    presence = zip(
        rows.op.tolist(), images, _present(rows, "before"), _present(rows, "after"), strict=True
    )
    for op, image, before, after in presence:
        if image == "FULL":
            assert before == (set() if op == INSERT else set(COLUMNS))
            assert after == (set() if op == DELETE else set(COLUMNS))
        elif op == UPDATE:
            assert before == ({"id"} if image == "MINIMAL" else {"id", "a", "c"})
    assert not rows.all_present
    columns = ", ".join(COLUMNS)
    expected = {
        row[0]: dict(zip(COLUMNS, row, strict=True))
        for row in server.query(f"SELECT {columns} FROM `{fresh_database}`.t")
    }
    for row in expected.values():
        row["b"] = row["b"].hex() if row["b"] is not None else None
    assert _replayed(rows) == expected
