"""A session that changes its row image in mid-stream: what is present says what changed, and SELECT
agrees (K10)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cdc_pipeline.binlog.decoded import DELETE, INSERT, DecodedRows
from tests.schema.history.reading import Reading, selected
from tests.servers import Server

pytestmark = [pytest.mark.mysql, pytest.mark.mariadb]


def present(bits: np.ndarray, columns: int) -> np.ndarray:
    return np.unpackbits(bits, axis=1, bitorder="little", count=columns).astype(bool)


def replay(table: dict[int, dict[str, Any]], rows: DecodedRows) -> set[tuple[bool, ...]]:
    names = rows.schema.column_names
    before, after = rows.before.to_pylist(), rows.after.to_pylist()
    before_there = present(rows.before_present, len(names))
    after_there = present(rows.after_present, len(names))
    for at, op in enumerate(rows.op.tolist()):
        new = {
            name: after[at][name]
            for name, there in zip(names, after_there[at], strict=True)
            if there
        }
        if op == INSERT:
            table[new["id"]] = new
            continue
        assert before_there[at][names.index("id")]
        old = table.pop(before[at]["id"])
        if op != DELETE:
            table[new.get("id", old["id"])] = old | new
    return {tuple(row) for row in after_there.tolist()}


def test_b_the_image_is_switched_inside_a_stream_and_a_transaction(
    server: Server, fresh_database: str, tmp_path: Path
) -> None:
    server.execute_all(
        "SET GLOBAL binlog_row_metadata = 'MINIMAL'",
        f"USE `{fresh_database}`",
        "CREATE TABLE t (id INT PRIMARY KEY, a INT UNSIGNED, b VARCHAR(9) CHARACTER SET "
        "latin1, x TEXT, y BLOB)",
    )
    try:
        reading = Reading(server, fresh_database, tmp_path)
        number = 0
        for image in ("FULL", "MINIMAL", "NOBLOB", "FULL", "NOBLOB", "MINIMAL"):
            server.execute_all(
                f"SET SESSION binlog_row_image = '{image}'",
                f"INSERT INTO t VALUES ({number}, 4294967295, 'ä', 'x', 'y'), ({number + 1}, 1, "
                "NULL, NULL, NULL)",
                f"UPDATE t SET a = a - 1 WHERE id >= {number - 1} AND a > 0",
                f"UPDATE t SET b = NULL, y = 'z{number}' WHERE id = {number}",
                f"UPDATE t SET id = id + 1000, x = NULL WHERE id = {number + 1}",
                f"DELETE FROM t WHERE id = {number - 5}",
            )
            number += 3
        # Within one transaction, too: each statement has the image of its own moment.
        server.execute_all(
            "BEGIN",
            "UPDATE t SET a = 5, x = 'q' WHERE id = 0",
            "SET SESSION binlog_row_image = 'FULL'",
            "UPDATE t SET y = 'w' WHERE id = 3",
            "SET SESSION binlog_row_image = 'NOBLOB'",
            "UPDATE t SET y = 'v', a = 6 WHERE id = 3",
            "COMMIT",
        )
        reading.run()
        table: dict[int, dict[str, Any]] = {}
        shapes: set[tuple[bool, ...]] = set()
        for rows in reading.changes:
            shapes |= replay(table, rows)
        wanted = {row["id"]: row for row in selected(server, fresh_database, "t")}
        assert table == wanted
        assert len(shapes) > 4  # all of them, none, and several parts
    finally:
        server.execute("SET GLOBAL binlog_row_metadata = 'FULL'")
