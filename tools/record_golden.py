"""Record the golden journals again from real servers: ``python -m tools.record_golden [name ...]``.

Each ``tests/golden/<name>.sql`` says its server and options at its head, then its statements. Out
of it come ``<name>.000001``, the journal that the server wrote, and ``<name>.expected.json``: the
server's own SELECT of every table at the end, and the types of events that stand in the file.
Nothing of our decoder takes part. The server's id and uuid are fixed; only its clock differs
between two recordings.
"""

from __future__ import annotations

import json
import shutil
import struct
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Final

from tests.servers import Server

GOLDEN: Final = Path(__file__).parents[1] / "tests" / "golden"
SCHEMA: Final = "shop"
SERVER_ID: Final = 23
SERVER_UUID: Final = "601dc0de-0000-4000-8000-000000000001"

# What is selected instead of the plain column: FLOAT is printed with six digits, bytes are not
# text.
_SELECT: Final = {
    "float": "CAST(`{0}` AS DOUBLE)",
    "json": "CAST(`{0}` AS CHAR)",
    "bit": "CAST(`{0}` AS UNSIGNED)",
    "geometry": "LOWER(HEX(`{0}`))",
    **dict.fromkeys(
        ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), "LOWER(HEX(`{0}`))"
    ),
}


def statements_of(file: Path) -> tuple[dict[str, str], list[str]]:
    """Head (``-- name: value`` lines) and statements of a golden SQL file."""
    lines = file.read_text(encoding="utf-8").splitlines()
    head = dict(line.removeprefix("-- ").split(": ", 1) for line in lines if line.startswith("-- "))
    text = "\n".join(line for line in lines if not line.startswith("-- "))
    return head, [statement.strip() for statement in text.split(";\n") if statement.strip(" ;\n")]


def raw_event_types(data: bytes) -> dict[str, int]:
    """How many events of each number stand in a journal, by their headers alone."""
    counts: Counter[str] = Counter()
    at = 4
    while at < len(data):
        event_type, length = struct.unpack_from("<xxxxBxxxxI", data, at)
        counts[str(event_type)] += 1
        at += length
    return dict(sorted(counts.items(), key=lambda item: int(item[0])))


def selected(server: Server) -> dict[str, dict[str, Any]]:
    """Every table of the schema: the kinds of its columns and its rows, as the server prints
    them."""
    tables = {}
    for (table,) in server.query(
        "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s "
        "ORDER BY TABLE_NAME",
        (SCHEMA,),
    ):
        kinds = dict(
            server.query(
                "SELECT COLUMN_NAME, DATA_TYPE FROM information_schema.COLUMNS"
                " WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION",
                (SCHEMA, table),
            )
        )
        if server.flavor == "mariadb" and "doc" in kinds:
            kinds["doc"] = "longtext"  # JSON is an alias there
        names = ", ".join(_SELECT.get(kind, "`{0}`").format(name) for name, kind in kinds.items())
        connection = server.root_connection(conv={})
        with connection, connection.cursor() as cursor:
            cursor.execute(f"SELECT {names} FROM `{SCHEMA}`.`{table}` ORDER BY 1")
            tables[table] = {"columns": kinds, "rows": [list(row) for row in cursor.fetchall()]}
    return tables


def record(file: Path) -> None:
    head, statements = statements_of(file)
    options = dict(option.split("=", 1) for option in head.get("options", "").split())
    server = Server(head["server"], {"server_id": SERVER_ID, **options})  # type: ignore[arg-type]
    server.prepare()
    if head["server"] == "mysql":
        (server.datadir / "auto.cnf").write_text(
            f"[auto]\nserver-uuid={SERVER_UUID}\n", encoding="utf-8"
        )
    with server:
        server.flush_journal()
        connection = server.root_connection()
        with connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
        server.flush_journal()
        journal = server.journals()[-2]
        target = file.with_name(f"{file.stem}.000001")
        shutil.copyfile(journal, target)
        expected = {
            "event_types": raw_event_types(journal.read_bytes()),
            "tables": selected(server),
        }
        text = json.dumps(expected, ensure_ascii=False, indent=1)
        file.with_name(f"{file.stem}.expected.json").write_text(text + "\n", encoding="utf-8")
    print(f"{target.name}: {target.stat().st_size:,} bytes, event types {expected['event_types']}")


def main(names: list[str]) -> None:
    for file in sorted(GOLDEN.glob("*.sql")):
        if not names or file.stem in names:
            record(file)


if __name__ == "__main__":
    main(sys.argv[1:])
