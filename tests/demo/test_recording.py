"""The recorded shop is whole, as large and as varied as the demo needs, and its journals really
lead to its rows.

The journals are read here by a small walker of this file's own, and replayed into a fresh server by
the server's own `mysqlbinlog`: nothing of the package takes part, so the recording can judge the
package.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import struct
import subprocess
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cdc_pipeline.demo import SHOP_DIRECTORY
from tests.servers import Server, find_installation
from tools.record_demo import read_table, record

QUERY, STOP, ROTATE, XID, TABLE_MAP, GTID = 2, 3, 4, 16, 19, 33
WRITE_ROWS, UPDATE_ROWS, DELETE_ROWS = 30, 31, 32
RECORDING: dict[str, Any] = json.loads(
    (SHOP_DIRECTORY / "recording.json").read_text(encoding="utf-8")
)
JOURNALS = [SHOP_DIRECTORY / "journals" / journal["name"] for journal in RECORDING["journals"]]
POINTS = ("middle", "end")


class Event(NamedTuple):
    """One event of a journal; `body` has neither header nor checksum."""

    journal: str
    offset: int
    end: int
    type: int
    body: bytes


@cache
def events() -> tuple[Event, ...]:
    """All events of all journals."""
    found = []
    for journal in JOURNALS:
        data = journal.read_bytes()
        assert data[:4] == b"\xfebin"
        offset = 4
        while offset < len(data):
            kind, length = struct.unpack_from("<xxxxBxxxxI", data, offset)
            end = offset + length
            found.append(Event(journal.name, offset, end, kind, data[offset + 19 : end - 4]))
            offset = end
        assert offset == len(data), journal
    return tuple(found)


def statements() -> list[str]:
    """The text of each QUERY event."""
    texts = []
    for event in events():
        if event.type == QUERY:
            schema_length, status_length = (
                event.body[8],
                struct.unpack_from("<H", event.body, 11)[0],
            )
            texts.append(event.body[13 + status_length + schema_length + 1 :].decode())
    return texts


def expected(point: str, table: str) -> tuple[dict[str, Any], list[list[str | None]]]:
    """Header and rows of an expected file."""
    packed = (SHOP_DIRECTORY / RECORDING[point]["expected"] / f"{table}.jsonl.gz").read_bytes()
    header, *rows = (json.loads(line) for line in gzip.decompress(packed).decode().splitlines())
    return header, rows


def test_journals_are_as_recorded() -> None:
    assert len(JOURNALS) >= 3
    assert sorted(path.name for path in (SHOP_DIRECTORY / "journals").iterdir()) == [
        path.name for path in JOURNALS
    ]
    for path, journal in zip(JOURNALS, RECORDING["journals"], strict=True):
        data = path.read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (
            journal["bytes"],
            journal["sha256"],
        )


def test_size_is_between_two_and_six_megabytes() -> None:
    journal_bytes = sum(path.stat().st_size for path in JOURNALS)
    all_bytes = sum(path.stat().st_size for path in SHOP_DIRECTORY.rglob("*") if path.is_file())
    assert 2_000_000 <= journal_bytes <= 5_000_000
    assert 2_000_000 <= all_bytes <= 6_000_000


def test_each_journal_ends_in_order_and_the_end_is_the_last_transactions() -> None:
    last = {event.journal: event for event in events()}
    kinds = [last[path.name].type for path in JOURNALS]
    assert set(kinds[:-1]) == {ROTATE, STOP}, (
        "one journal ends with a restart of the server, the others with ROTATE"
    )
    assert kinds[-1] == STOP
    assert (RECORDING["end"]["journal"], RECORDING["end"]["offset"]) == (
        JOURNALS[-1].name,
        events()[-1].offset,
    )


@pytest.mark.parametrize("point", POINTS)
def test_points_stand_between_transactions(point: str) -> None:
    place = (RECORDING[point]["journal"], RECORDING[point]["offset"])
    position = [(event.journal, event.offset) for event in events()].index(place)
    before, after = events()[position - 1], events()[position]
    assert before.type in (XID, QUERY)
    assert after.type in (GTID, STOP)
    uuid, _, last = RECORDING[point]["gtid_set"].partition(":1-")
    assert uuid == RECORDING["server"]["server_uuid"]
    assert int(last) == sum(event.type == GTID for event in events()[:position])


def test_transactions_are_as_recorded() -> None:
    assert sum(event.type == GTID for event in events()) == RECORDING["transactions"]
    assert 0 < RECORDING["shop_transactions"] < RECORDING["transactions"]


def test_the_large_transaction_is_far_larger_than_a_small_ring() -> None:
    sizes: list[tuple[int, str]] = []
    for event in events():
        if event.type == GTID:
            sizes.append((0, event.journal))
        elif sizes:
            sizes[-1] = (sizes[-1][0] + 1, event.journal)
    largest, journal = max(sizes)
    assert largest >= 2 * RECORDING["large_transaction"]["statements"]
    assert largest > 10 * 1024
    assert journal == RECORDING["large_transaction"]["journal"]


def test_ddl_is_in_the_log() -> None:
    ddl = [text for text in statements() if text != "BEGIN"]
    for table in RECORDING["tables"]:
        assert any(text.startswith(f"CREATE TABLE shop.{table}") for text in ddl)
    words = Counter(" ".join(text.split()[:3]) for text in ddl)
    assert words["ALTER TABLE shop.orders"] == words["ALTER TABLE shop.customers"] == 1
    assert any("NULL DEFAULT 100" in text for text in ddl)
    assert words["CREATE INDEX by_customer"] == 1
    assert words["ALTER TABLE internal.jobs"] == 1


def test_transactions_span_tables_and_another_database_is_written() -> None:
    mapped: list[set[str]] = []
    for event in events():
        if event.type == GTID:
            mapped.append(set())
        elif event.type == TABLE_MAP:
            schema_end = 9 + event.body[8]
            table = event.body[schema_end + 2 : schema_end + 2 + event.body[schema_end + 1]]
            mapped[-1].add(f"{event.body[9:schema_end].decode()}.{table.decode()}")
    assert {"shop.orders", "shop.order_items", "shop.stock_movements"} in mapped
    assert {"internal.jobs"} in mapped
    assert set().union(*mapped) >= {f"shop.{table}" for table in RECORDING["tables"]}


@pytest.mark.parametrize("point", POINTS)
def test_counts_add_up(point: str) -> None:
    changes, rows = RECORDING[point]["changes"], RECORDING[point]["rows"]
    assert list(changes) == list(rows) == RECORDING["tables"]
    for table, ops in changes.items():
        assert ops["insert"] - ops["delete"] == rows[table], table
        assert len(expected(point, table)[1]) == rows[table]
    if point == "end":
        assert sum(sum(ops.values()) for ops in changes.values()) >= 50_000
        assert all(changes["orders"].values()), "every kind of change"


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("table", RECORDING["tables"])
def test_expected_rows_are_well_formed(point: str, table: str) -> None:
    header, rows = expected(point, table)
    names = [column["name"] for column in header["columns"]]
    assert header["table"] == table
    assert all(len(row) == len(names) for row in rows)
    places = [names.index(name) for name in header["key"]]
    keys = [tuple(int(row[place] or "") for place in places) for row in rows]
    assert keys == sorted(set(keys)), "in the order of the key, each key once"


def test_columns_added_in_the_middle_are_there_when_they_should_be() -> None:
    def names(point: str, table: str) -> list[str]:
        return [column["name"] for column in expected(point, table)[0]["columns"]]

    assert "coupon" in names("middle", "orders")
    assert "loyalty_points" not in names("middle", "customers")
    rows = expected("end", "customers")[1]
    assert names("end", "customers")[-1] == "loyalty_points"
    points = Counter(row[-1] for row in rows)
    assert points["100"] > 500, "old rows hold the default, though no row event said so"
    assert len(points) > 100


def test_types_and_values_are_varied() -> None:
    types: set[str] = set()
    nulls: set[str] = set()
    text = ""
    for table in RECORDING["tables"]:
        header, rows = expected("end", table)
        for place, column in enumerate(header["columns"]):
            types.add(column["type"].partition("(")[0])
            if any(row[place] is None for row in rows):
                nulls.add(f"{table}.{column['name']}")
        text += json.dumps(rows, ensure_ascii=False)
    wanted = (
        "int unsigned,bigint "
        "unsigned,bigint,smallint,decimal,varchar,char,date,datetime,timestamp,time,enum,set"
    )
    wanted += ",tinyint,bit,json,double,float,varbinary,binary,text"
    assert types >= set(wanted.split(","))
    assert len(nulls) >= 8
    for piece in ("👩‍🚀", "書籍", "18446744073709551615", "0.10000000149011612", '"-0'):
        assert piece in text
    assert "0000-00-00" not in text


@pytest.mark.mysql
def test_counts_are_those_of_the_row_events() -> None:
    """The recorder counted affected rows; the server's own tool counts the rows in the journals."""
    command = [
        *find_installation("mysql").tool("mysqlbinlog"),
        "--no-defaults",
        "--base64-output=decode-rows",
        "-v",
    ]
    shown = subprocess.run([*command, *map(str, JOURNALS)], capture_output=True, check=True).stdout
    lines = re.findall(
        rb"^### (INSERT INTO|UPDATE|DELETE FROM) `shop`\.`(\w+)`$", shown, re.MULTILINE
    )
    counted = Counter((table.decode(), verb.split()[0].decode().lower()) for verb, table in lines)
    changes = RECORDING["end"]["changes"]
    assert counted == Counter(
        {(table, op): rows for table, ops in changes.items() for op, rows in ops.items() if rows}
    )


@pytest.mark.mysql
@pytest.mark.whole
def test_a_new_recording_has_the_same_rows(tmp_path: Path) -> None:
    """The contents come from the seed alone."""
    again = record(tmp_path / "shop")
    for point in POINTS:
        assert again[point]["changes"] == RECORDING[point]["changes"]
        for file in sorted((SHOP_DIRECTORY / RECORDING[point]["expected"]).iterdir()):
            assert (
                tmp_path / "shop" / RECORDING[point]["expected"] / file.name
            ).read_bytes() == file.read_bytes()


@pytest.mark.mysql
def test_replaying_the_journals_gives_the_expected_rows(
    start_server: Callable[..., Server],
) -> None:
    """The server's own tools lead from the journals to the rows, at the middle and at the end."""
    server = start_server("mysql", default_time_zone="+00:00")
    middle = RECORDING["middle"]
    split = [path.name for path in JOURNALS].index(middle["journal"])
    _replay(server, [f"--stop-position={middle['offset']}", *map(str, JOURNALS[: split + 1])])
    _assert_rows(server, "middle")
    _replay(server, [f"--start-position={middle['offset']}", *map(str, JOURNALS[split:])])
    _assert_rows(server, "end")
    assert server.gtid_set() == RECORDING["end"]["gtid_set"]


def _replay(server: Server, arguments: list[str]) -> None:
    account = [f"--socket={server.socket}", "--user=root"]
    tool = server.installation.tool
    with subprocess.Popen(
        [*tool("mysqlbinlog"), "--no-defaults", *arguments], stdout=subprocess.PIPE
    ) as reader:
        subprocess.run([*tool("mysql"), "--no-defaults", *account], stdin=reader.stdout, check=True)
    assert reader.returncode == 0


def _assert_rows(server: Server, point: str) -> None:
    for table in RECORDING["tables"]:
        header, rows = expected(point, table)
        got_header, got_rows = read_table(server, table)
        assert got_header == header
        assert got_rows == rows, table
