"""Every charset against the server's own conversion: a sample of its codes, or all of them with
TORTURE_SWEEP=1."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from contextlib import closing

import numpy as np
import pytest

from cdc_pipeline.binlog.kernels.text import text
from cdc_pipeline.binlog.tables import charsets
from tests.campaigns.edges.evidence import Journal
from tests.servers import Server

SWEEP = bool(os.environ.get("TORTURE_SWEEP"))
TABLES = [
    name for name in charsets.known_charsets()
    if charsets.find_charset(name, is_mariadb=True).mode in (text.TABLE, text.GB18030)
]  # fmt: skip
ROWS_A_STATEMENT = 8192
# Codes that the server stores as they are although they have no character: it prints a question
# mark for each byte.
UNKNOWN_CODES = {("mysql", "eucjpms"): ["8ea0"], ("mysql", "ujis"): ["8ea0"]}


def sampled(codes: Sequence[int], count: int, seed: str) -> list[int]:
    return random.Random(seed).sample(list(codes), min(count, len(codes)))


def codes_of(name: str, *, is_mariadb: bool) -> list[bytes]:
    """Codes of a charset: all of one byte, a sample of longer ones; unknown characters included."""
    charset = charsets.find_charset(name, is_mariadb=is_mariadb)
    if charset.mode not in (text.TABLE, text.GB18030):
        return [bytes([code]) for code in range(128)]
    found = [bytes([code]) for code in range(256) if charset.one[code] < text.LEAD_BYTE]
    pairs = np.flatnonzero(charset.two < text.LEAD_BYTE).tolist() if len(charset.two) > 1 else []
    found += [code.to_bytes(2, "big") for code in sampled(pairs, 200, name)]
    if name == "gb18030":
        four = [
            b"\x81\x35\xf4\x37",
            b"\x84\x31\xa4\x39",
            b"\x84\x33\x81\x30",
            b"\x90\x30\x81\x30",
            b"\xe3\x32\x9a\x36",
        ]
        return found + four
    triples = (
        np.flatnonzero(charset.three < text.LEAD_BYTE).tolist() if len(charset.three) > 1 else []
    )
    return found + [b"\x8f" + code.to_bytes(2, "big") for code in sampled(triples, 100, name)]


def all_codes(name: str, *, is_mariadb: bool) -> list[bytes]:
    """Whatever may be a code: the server takes what it knows and refuses the rest."""
    charset = charsets.find_charset(name, is_mariadb=is_mariadb)
    found = [bytes([code]) for code in range(256)]
    if len(charset.two) > 1:
        found += [code.to_bytes(2, "big") for code in range(0x8000, 0x10000)]
    if len(charset.three) > 1 and charset.mode == text.TABLE:
        found += [b"\x8f" + code.to_bytes(2, "big") for code in range(0xA000, 0x10000)]
    if name == "gb18030":
        for linear in [*range(39_420), *range(189_000, 1_237_576, 97)]:
            rest, fourth = divmod(linear, 10)
            rest, third = divmod(rest, 126)
            first, second = divmod(rest, 10)
            found.append(bytes([0x81 + first, 0x30 + second, 0x81 + third, 0x30 + fourth]))
    return found


def test_every_charset_with_a_table(server: Server, fresh_database: str) -> None:
    is_mariadb = server.flavor == "mariadb"
    expected: dict[str, list[str]] = {}
    with (
        closing(server.root_connection(database=fresh_database)) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("SET NAMES utf8mb4")
        cursor.execute("SET sql_mode = ''")
        for name in TABLES:
            if is_mariadb and name == "gb18030":
                continue
            codes = (all_codes if SWEEP else codes_of)(name, is_mariadb=is_mariadb)
            cursor.execute(
                f"CREATE TABLE `{name}` (id INT PRIMARY KEY, c VARCHAR(9) CHARACTER SET {name})"
            )
            for first in range(0, len(codes), ROWS_A_STATEMENT):
                part = codes[first : first + ROWS_A_STATEMENT]
                rows = ", ".join(
                    f"({first + number}, x'{code.hex()}')" for number, code in enumerate(part)
                )
                cursor.execute(f"INSERT IGNORE INTO `{name}` VALUES {rows}")
            cursor.execute(f"SELECT CONVERT(c USING utf8mb4) FROM `{name}` ORDER BY id")
            expected[name] = [value for (value,) in cursor.fetchall()]
            assert len(expected[name]) == len(codes)
    journal = Journal(server, fresh_database)
    found: dict[tuple[str, str], list[str]] = {}
    for name, texts in expected.items():
        decoded = journal.rows(name)
        got = decoded.after.column("c").to_pylist()
        # What the server has taken as text and then prints as question marks only is no text: its
        # bytes are listed.
        unknown = {value.row: value.text for value in decoded.invalid}
        assert all(set(texts[row]) == {"?"} for row in unknown), name
        if unknown:
            found[server.flavor, name] = list(unknown.values())
        assert [value or "" for row, value in enumerate(got) if row not in unknown] == [
            value for row, value in enumerate(texts) if row not in unknown
        ], name
    assert all(set(codes) <= set(UNKNOWN_CODES.get(place, ())) for place, codes in found.items()), (
        found
    )


@pytest.mark.parametrize("charset", ["ucs2", "utf16", "utf16le", "utf32", "utf8mb3", "utf8mb4"])
def test_code_points_of_unicode(server: Server, fresh_database: str, charset: str) -> None:
    if charset in ("ucs2", "utf8mb3"):
        points = [point for point in range(0x10000) if point & 0xF800 != 0xD800]
    else:
        points = [point for point in range(0x110000) if point & 0x1FF800 != 0xD800]
    chosen = points if SWEEP else [*range(256), *sampled(points, 700, charset), points[-1]]
    texts = [chr(point) for point in chosen]
    with (
        closing(server.root_connection(database=fresh_database)) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("SET NAMES utf8mb4")
        cursor.execute(
            "CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, c VARCHAR(9) "
            f"CHARACTER SET {charset})"
        )
        for first in range(0, len(texts), 8 * ROWS_A_STATEMENT):
            part = texts[first : first + 8 * ROWS_A_STATEMENT]
            rows = ", ".join(f"(_utf8mb4 x'{character.encode().hex()}')" for character in part)
            cursor.execute(f"INSERT INTO t (c) VALUES {rows}")
    decoded = Journal(server, fresh_database).rows("t")
    assert decoded.after.column("c").to_pylist() == texts
    assert decoded.invalid == []
