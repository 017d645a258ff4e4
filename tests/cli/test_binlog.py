"""`cdc-pipeline binlog` on the shop's journals: filters, forms, standard input, damage,
following."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from cdc_pipeline.binlog.native.compiling import COMPILING
from cdc_pipeline.cli.app import cli
from cdc_pipeline.demo import SHOP_DIRECTORY

JOURNALS = SHOP_DIRECTORY / "journals"
FILES = sorted(JOURNALS.iterdir())
SCRIPT = str(Path(sys.executable).with_name("cdc-pipeline"))


def run(*arguments: object, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(cli, ["binlog", *map(str, arguments)], input=stdin)


def lines(*arguments: object, stdin: bytes | None = None) -> list[dict[str, Any]]:
    result = run("--format", "jsonl", *arguments, stdin=stdin)
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


@cache
def everything() -> tuple[dict[str, Any], ...]:
    return tuple(lines(JOURNALS))


def gtid_number(line: dict[str, Any]) -> int:
    return int(line["gtid"].rpartition(":")[2])


def place(line: dict[str, Any]) -> tuple[str, int]:
    return line["journal"], line["offset"]


def test_lines_are_in_the_order_of_the_log_and_hold_statements() -> None:
    found = everything()
    assert [place(line) for line in found] == sorted(place(line) for line in found)
    assert [gtid_number(line) for line in found] == sorted(gtid_number(line) for line in found)
    statements = [line for line in found if line["op"] == "statement"]
    assert {line["kind"] for line in statements} >= {
        "create_database",
        "create_table",
        "alter_table",
    }
    assert lines(JOURNALS, "--no-statements") == [
        line for line in found if line["op"] != "statement"
    ]


def test_tables_and_operations_choose_changes_and_their_statements() -> None:
    found = lines(JOURNALS, "--table", "shop.orders", "--table", "internal.*")
    wanted = ("shop.orders", "internal.jobs", "internal.scratch")
    assert [line for line in found if line["op"] != "statement"] == [
        line
        for line in everything()
        if line["op"] != "statement" and f"{line['schema']}.{line['table']}" in wanted
    ]
    statements = [line["sql"] for line in found if line["op"] == "statement"]
    assert any("orders" in sql for sql in statements)
    assert not any(sql.startswith("CREATE TABLE shop.customers") for sql in statements)
    assert lines(JOURNALS, "--op", "delete,insert") == [
        line for line in everything() if line["op"] in ("delete", "insert")
    ]


def test_times_choose_transactions_by_their_commit() -> None:
    found = everything()
    first, last = found[len(found) // 3]["ts"], found[len(found) // 2]["ts"]
    expected = [line for line in found if first <= line["ts"] <= last]
    assert 0 < len(expected) < len(found)
    assert lines(JOURNALS, "--from", first, "--until", last) == expected
    # Another zone, the same moment.
    eastern = datetime.fromisoformat(first).astimezone(UTC).isoformat().replace("+00:00", "-00:00")
    assert lines(JOURNALS, "--from", eastern, "--until", last) == expected


def test_journals_before_an_asked_time_are_skipped_only_with_a_margin() -> None:
    assert lines(JOURNALS, "--from", "2100-01-01T00:00:00Z") == []
    damaged = "2100-01-01T00:00:00Z"
    assert run(JOURNALS, "--from", damaged, "--json").exit_code == 0


def test_positions_choose_transactions_by_their_begin() -> None:
    numbers = [gtid_number(line) for line in everything()]
    summary = json.loads(run(JOURNALS, "--json").stdout)
    at = summary["largest"]  # a transaction's first event
    place_ = f"{at['journal']}:{at['offset']}"
    number = int(at["gtid"].rpartition(":")[2])
    result = run("--format", "jsonl", JOURNALS, "--from", place_)
    assert result.stderr in ("", COMPILING + "\n")
    assert [gtid_number(json.loads(line)) for line in result.stdout.splitlines()] == [
        n for n in numbers if n >= number
    ]
    assert [gtid_number(line) for line in lines(JOURNALS, "--until", place_)] == [
        n for n in numbers if n < number
    ]
    only = lines(JOURNALS, "--from", place_, "--until", f"{at['journal']}:{at['offset'] + 1}")
    assert {gtid_number(line) for line in only} == {number}
    assert len(only) == at["rows"] == 8000


def test_a_position_inside_a_transaction_is_moved_to_the_next_and_said() -> None:
    at = json.loads(run(JOURNALS, "--json").stdout)["largest"]
    number = int(at["gtid"].rpartition(":")[2])
    result = run(
        "--format", "jsonl", JOURNALS, "--from", f"{at['journal']}:{at['offset'] + 100_000}"
    )
    found = [gtid_number(json.loads(line)) for line in result.stdout.splitlines()]
    assert min(found) == number + 1
    assert f"moved to {at['offset'] + at['journal_bytes']}" in result.stderr


def test_gtid_sets_choose_transactions() -> None:
    source = everything()[0]["gtid"].rpartition(":")[0]
    numbers = [gtid_number(line) for line in everything()]
    found = [gtid_number(line) for line in lines(JOURNALS, "--gtid", f"{source}:5-20:400:600-900")]
    assert found == [n for n in numbers if 5 <= n <= 20 or n == 400]
    found = [
        gtid_number(line)
        for line in lines(JOURNALS, "--gtid", f"{source}:5-20", "--exclude-gtid", f"{source}:7-9")
    ]
    assert found == [n for n in numbers if 5 <= n <= 6 or 10 <= n <= 20]
    assert lines(JOURNALS, "--gtid", f"{source}:tag:1-900") == []
    assert len(lines(JOURNALS, "--exclude-gtid", f"{source}:tag:1-900")) == len(numbers)
    result = run(JOURNALS, "--gtid", "0-1-5")
    assert result.exit_code == 1  # MariaDB's form, MySQL's journals


def test_the_summary_counts_what_the_lines_show() -> None:
    source = everything()[0]["gtid"].rpartition(":")[0]
    choice = ["--gtid", f"{source}:100-420", "--table", "shop.*", "--op", "insert,update"]
    counted = json.loads(run(JOURNALS, *choice, "--json").stdout)
    shown = Counter(
        (f"{line['schema']}.{line['table']}", line["op"]) for line in lines(JOURNALS, *choice)
    )
    got = {
        (name, op): changed[f"{op}s"] for name,
        changed in counted["tables"].items() for op in ("insert", "update")
        if changed[f"{op}s"]
    }  # fmt: skip
    assert got == dict(shown)
    assert counted["transactions"] == 321
    assert all(changed["deletes"] == 0 for changed in counted["tables"].values())
    whole = json.loads(run(JOURNALS, "--json").stdout)
    assert whole["transactions"] == 549
    assert [info["ends"] for info in whole["journals"]] == [
        "rotated",
        "rotated",
        "stopped",
        "stopped",
    ]
    assert whole["journals"][1]["previous_gtids"] == f"{source}:1-149"
    assert whole["journals"][1]["first_gtid"] == f"{source}:150"
    assert sum(info["transactions"] for info in whole["journals"]) == 549


def test_the_summary_is_readable_on_100_columns() -> None:
    result = run(JOURNALS)
    tables = [
        line for line in result.stdout.splitlines() if "GTID" not in line and "largest" not in line
    ]
    assert max(map(len, tables)) <= 100
    assert "largest transaction: 1,456,661 bytes, 8,000 rows" in result.stdout


def test_standard_input_gives_what_the_file_gives() -> None:
    data = FILES[1].read_bytes()
    from_file = lines(FILES[1])
    assert [{**line, "journal": "stdin"} for line in from_file] == lines("-", stdin=data)
    counted = json.loads(run("-", "--json", stdin=data).stdout)
    assert counted["journals"][0]["journal"] == "stdin"
    assert counted["journals"][0]["size_bytes"] == len(data)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (FILES[0].read_bytes()[4:], "the file is not a journal"),
        (b"", "an empty file"),
        (b"\xfdbin" + bytes(600), "encrypted"),
        (FILES[0].read_bytes()[:50_000], "ends in the middle of an event"),
    ],
    ids=["without its magic number", "empty", "encrypted", "cut"],
)
def test_what_is_no_whole_journal_is_said(data: bytes, said: str) -> None:
    result = run("-", "--format", "jsonl", stdin=data)
    assert result.exit_code == 1
    assert said in result.stderr
    assert "stdin" in result.stderr
    assert "~.000000" not in result.stderr


def test_a_file_of_any_name_can_be_read(tmp_path: Path) -> None:
    copy = tmp_path / "saved copy"
    copy.write_bytes(FILES[0].read_bytes())
    assert lines(copy) == [{**line, "journal": "saved copy"} for line in lines(FILES[0])]


def test_damage_shows_what_came_before_in_every_form(tmp_path: Path) -> None:
    data = bytearray(FILES[0].read_bytes())
    data[len(data) // 2] ^= 0x40
    damaged = tmp_path / "binlog.000001"
    damaged.write_bytes(data)
    result = run("--format", "jsonl", damaged)
    assert result.exit_code == 1
    shown = [json.loads(line) for line in result.stdout.splitlines()]
    assert shown == list(everything())[: len(shown)]
    assert len(shown) > 100
    counted = run(damaged, "--json")
    assert counted.exit_code == 1
    assert json.loads(counted.stdout)["error"]["error"] == "DamagedJournalError"
    assert run(damaged).exit_code == 1
    files = run("--format", "parquet", "--output", tmp_path / "files", damaged)
    assert files.exit_code == 1
    rows = sum(pq.read_metadata(file).num_rows for file in (tmp_path / "files").glob("*.parquet"))
    assert rows == sum(line["op"] != "statement" for line in shown)


def test_parquet_holds_the_same_changes(tmp_path: Path) -> None:
    result = run(
        "--format",
        "parquet",
        "--output",
        tmp_path / "out",
        "--json",
        JOURNALS,
        "--table",
        "shop.[cp]*",
    )
    assert result.exit_code == 0, result.stderr
    files = json.loads(result.stdout)["files"]
    assert set(files) == {file.name for file in (tmp_path / "out").iterdir()}
    found = []
    for name, rows in files.items():
        table = pq.read_table(tmp_path / "out" / name)
        assert len(table) == rows
        assert table["_cdc_rescued"].null_count == table["_cdc_absent"].null_count == rows
        for row in table.to_pylist():
            image = row["after"] or row["before"]
            at = (row["_cdc_journal"], row["_cdc_offset"], row["_cdc_gtid"], row["_cdc_ts"])
            images = (image["id"], row["before"] is None, row["after"] is None)
            found.append((row["_cdc_seq"], name.split(".v")[0], row["_cdc_op"], *at, *images))
    expected = []
    for line in everything():
        if line.get("table") in ("customers", "products"):
            at = (*place(line), line["gtid"], datetime.fromisoformat(line["ts"]))
            images = (
                (line["after"] or line["before"])["id"],
                line["before"] is None,
                line["after"] is None,
            )
            expected.append((f"{line['schema']}.{line['table']}", line["op"], *at, *images))
    assert [row[1:] for row in sorted(found)] == expected
    again = run("--format", "parquet", "--output", tmp_path / "out", JOURNALS)
    assert again.exit_code == 2
    assert "already holds Parquet files" in again.stderr


@pytest.mark.parametrize(
    "options",
    [
        ["--format", "jsonl", "--json"],
        ["--format", "parquet"],
        ["--output", "somewhere"],
        ["--op", "truncate"],
        ["--from", "2026-01-31T08:00:00"],
        ["--until", "soon"],
        ["--from", "latest"],
        ["--until", "5d0c0ffe-0000-4000-8000-00000000cafe:5"],
        ["--from", "binlog.000001", "--from", "binlog.000002"],
        ["--until", "binlog:4"],
        ["--gtid", "everything"],
        ["--follow"],
        ["--annotations"],
        ["--follow", "--format", "jsonl", "-"],
    ],
)
def test_wrong_usage_is_code_2(options: list[str]) -> None:
    result = run(JOURNALS, *options)
    assert result.exit_code == 2
    assert result.stdout == ""


def test_help_tells_the_exit_codes() -> None:
    assert run("nowhere").exit_code == 2
    assert "1 a journal is damaged" in " ".join(run("--help").stdout.split())


class Follower:
    def __init__(self, *arguments: object) -> None:
        command = [
            SCRIPT,
            "binlog",
            "--format",
            "jsonl",
            "--follow",
            "--poll-interval",
            "0.02",
            *map(str, arguments),
        ]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def lines(self, count: int) -> list[dict[str, Any]]:
        assert self.process.stdout is not None
        return [json.loads(self.process.stdout.readline()) for _ in range(count)]

    def end(self, number: signal.Signals) -> tuple[int, bytes]:
        """Ask it to end: exit code, and what came behind the lines that were read."""
        self.process.send_signal(number)
        rest, errors = self.process.communicate(timeout=120)
        assert errors == b""
        return self.process.returncode, rest


def test_follow_goes_on_with_the_log_and_its_next_journal(tmp_path: Path) -> None:
    expected = list(everything())
    first, second = FILES[0].read_bytes(), FILES[1].read_bytes()
    of_first = [line for line in expected if line["journal"] == FILES[0].name]
    of_second = [line for line in expected if line["journal"] == FILES[1].name]
    # A cut in the middle of an event, behind the 40th transaction or so.
    middle = len(first) // 2
    whole = [line for line in of_first if line["offset"] < middle - 20_000]
    (tmp_path / FILES[0].name).write_bytes(first[:middle])
    follower = Follower(tmp_path)
    try:
        got = follower.lines(len(whole))
        with (tmp_path / FILES[0].name).open("ab") as file:
            file.write(first[middle:])
        got += follower.lines(len(of_first) - len(got))
        assert got == of_first
        (tmp_path / FILES[1].name).write_bytes(b"")
        (tmp_path / FILES[1].name).write_bytes(second)
        assert follower.lines(len(of_second)) == of_second
    finally:
        code, rest = follower.end(signal.SIGTERM)
    assert (code, rest) == (0, b"")


def test_ctrl_c_ends_following_quietly(tmp_path: Path) -> None:
    copy = tmp_path / FILES[3].name
    copy.write_bytes(FILES[3].read_bytes())
    expected = [line for line in everything() if line["journal"] == FILES[3].name]
    follower = Follower(copy)
    try:
        assert follower.lines(len(expected)) == expected
    finally:
        assert follower.end(signal.SIGINT) == (0, b"")


def test_a_journal_that_is_replaced_under_follow_is_said(tmp_path: Path) -> None:
    copy = tmp_path / FILES[3].name
    copy.write_bytes(FILES[3].read_bytes())
    count = sum(line["journal"] == FILES[3].name for line in everything())
    follower = Follower(copy)
    follower.lines(count)
    copy.write_bytes(FILES[3].read_bytes()[:1000])
    rest, errors = follower.process.communicate(timeout=120)
    assert follower.process.returncode == 1
    assert rest == b""
    assert b"replaced or truncated" in errors
