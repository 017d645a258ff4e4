"""Record the shop again from a real MySQL server: ``python -m tools.record_demo``.

The rows are drawn from a fixed seed; the server's clock is the only thing that differs between two
recordings (it is in the journals, not in the rows). What counts as true afterwards is the server's
own SELECT, never this program's idea of its rows: the counts, too, are the server's affected rows.

Layout of the output: see `cdc_pipeline.demo`.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any, Final

from cdc_pipeline.demo import SHOP_DIRECTORY
from tests.servers import Server
from tools.shop_contents import TABLES
from tools.shop_story import Recorder, tell_the_story

SERVER_ID: Final = 17
SERVER_UUID: Final = "5d0c0ffe-0000-4000-8000-00000000cafe"

_EXACT_SELECT = {
    "float": "CAST(`{0}` AS DOUBLE)",
    "json": "CAST(`{0}` AS CHAR)",
    "bit": "CAST(`{0}` AS UNSIGNED)",
    "binary": "HEX(`{0}`)",
    "varbinary": "HEX(`{0}`)",
}
"""What is selected instead of the plain column: FLOAT is printed with six digits, bytes are not text."""  # noqa: E501


def read_table(server: Server, table: str) -> tuple[dict[str, Any], list[list[str | None]]]:
    """Header and rows of a shop table as the server prints them, in the order of the key."""
    columns = [
        {"name": name, "type": full_type, "select": _EXACT_SELECT.get(kind, "`{0}`").format(name)}
        for name, full_type, kind in server.query(
            "SELECT COLUMN_NAME, COLUMN_TYPE, DATA_TYPE FROM information_schema.COLUMNS"
            " WHERE TABLE_SCHEMA = 'shop' AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION",
            (table,),
        )
    ]
    key = [
        name
        for (name,) in server.query(
            "SELECT COLUMN_NAME FROM information_schema.KEY_COLUMN_USAGE WHERE TABLE_SCHEMA = "
            "'shop' AND TABLE_NAME = %s AND CONSTRAINT_NAME = 'PRIMARY' ORDER BY ORDINAL_POSITION",
            (table,),
        )
    ]
    selected = ", ".join(column["select"] for column in columns)
    order = ", ".join(f"`{name}`" for name in key)
    # without converters pymysql hands over the text that the server sent
    connection = server.root_connection(conv={})
    with connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT {selected} FROM shop.`{table}` ORDER BY {order}")
        rows = [list(row) for row in cursor.fetchall()]
    return {"table": table, "columns": columns, "key": key}, rows


def write_expected(server: Server, folder: Path) -> dict[str, int]:
    folder.mkdir(parents=True)
    counts = {}
    for table in TABLES:
        header, rows = read_table(server, table)
        counts[table] = len(rows)
        lines = [
            json.dumps(part, ensure_ascii=False, separators=(",", ":")) for part in (header, *rows)
        ]
        packed = io.BytesIO()
        with gzip.GzipFile(
            fileobj=packed, mode="wb", mtime=0, compresslevel=9, filename=""
        ) as file:
            file.write(("\n".join(lines) + "\n").encode())
        (folder / f"{table}.jsonl.gz").write_bytes(packed.getvalue())
    return counts


def record(output: Path) -> dict[str, Any]:
    points: dict[str, dict[str, Any]] = {}

    def take(name: str, folder: str) -> None:
        journal, offset = server.end_position()
        rows = write_expected(server, output / folder)
        points[name] = {
            "journal": journal,
            "offset": offset,
            "gtid_set": server.gtid_set(),
            "expected": folder,
            "rows": rows,
            "changes": {table: dict(counts) for table, counts in recorder.counts.items()},
        }

    server = Server("mysql", {"server_id": SERVER_ID, "default_time_zone": "+00:00"})
    server.prepare()
    (server.datadir / "auto.cnf").write_text(
        f"[auto]\nserver-uuid={SERVER_UUID}\n", encoding="utf-8"
    )
    with server:
        recorder = Recorder(server)
        tell_the_story(recorder, at_middle=lambda: take("middle", "expected_middle"))
        take("end", "expected")
        # an orderly stop: the last journal is closed by a STOP event
        server.stop()
        journals = server.copy_journals(output / "journals")
    recording = {
        "server": {
            "flavor": server.flavor,
            "version": server.installation.version_text,
            "server_uuid": SERVER_UUID,
        },
        "tables": list(TABLES),
        "journals": [
            {
                "name": j.name,
                "bytes": j.stat().st_size,
                "sha256": hashlib.sha256(j.read_bytes()).hexdigest(),
            }
            for j in journals
        ],
        "transactions": int(points["end"]["gtid_set"].rpartition("-")[2]),
        "shop_transactions": recorder.shop_transactions,
        "large_transaction": recorder.large_transaction,
        **points,
    }
    text = json.dumps(recording, indent=1, ensure_ascii=False) + "\n"
    (output / "recording.json").write_text(text, encoding="utf-8")
    return recording


def main() -> int:
    started = time.monotonic()
    unfinished = SHOP_DIRECTORY.with_name(SHOP_DIRECTORY.name + ".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    recording = record(unfinished)
    shutil.rmtree(SHOP_DIRECTORY, ignore_errors=True)
    unfinished.rename(SHOP_DIRECTORY)
    size = sum(file.stat().st_size for file in SHOP_DIRECTORY.rglob("*") if file.is_file())
    changes = sum(sum(ops.values()) for ops in recording["end"]["changes"].values())
    journal_bytes = sum(journal["bytes"] for journal in recording["journals"])
    print(f"{changes} row changes in {recording['shop_transactions']} transactions of the shop")
    print(f"{len(recording['journals'])} journals of {journal_bytes} bytes; {size} bytes in all")
    print(f"recorded in {time.monotonic() - started:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
