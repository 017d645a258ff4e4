"""Every type at its edges: what the journal gives is what SELECT prints
(docs/reference/types.md); and the values that other decoders get wrong, one by one.

Characters of East Asian charsets and MariaDB's own types are in the files beside this
one; JSON and journals with less than full row metadata have tests of their own.
"""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

from tests.campaigns.edges.cases import CASES, FRACTIONS, LABEL_CHARSETS, REALS, TIMES
from tests.campaigns.edges.evidence import Case, Evidence, Told

BOTH = [case for case in CASES if not case.flavor]


@pytest.mark.parametrize("case", BOTH, ids=str)
def test_select_and_journal_agree(evidence: Evidence, case: Case) -> None:
    told = evidence.tell(str(case))
    assert told.got == told.expected
    assert any(value is not None for value in told.got)


@pytest.mark.mariadb
@pytest.mark.parametrize("case", [case for case in CASES if case.flavor == "mariadb"], ids=str)
def test_mariadb_alone(mariadb_evidence: Evidence, case: Case) -> None:
    told = mariadb_evidence.tell(str(case))
    assert told.got == told.expected


@pytest.mark.mysql
@pytest.mark.parametrize("case", [case for case in CASES if case.flavor == "mysql"], ids=str)
def test_mysql_alone(mysql_evidence: Evidence, case: Case) -> None:
    told = mysql_evidence.tell(str(case))
    if case.declared.startswith("VECTOR"):  # the server prints 2.50000e+00
        assert [value and json.loads(value) for value in told.got] == [
            value and json.loads(value) for value in told.expected
        ]
    else:
        assert told.got == told.expected


@pytest.mark.parametrize("case", REALS, ids=str)
def test_reals_keep_every_bit(evidence: Evidence, case: Case) -> None:
    told = evidence.tell(str(case))
    width = np.float32 if case.declared.startswith("FLOAT") else np.float64
    assert [value and width(value).tobytes() for value in told.got] == [
        value and width(value).tobytes() for value in told.expected
    ]


@pytest.mark.parametrize("declared", ["DATE", *(f"DATETIME({digits})" for digits in range(7))])
def test_dates_that_delta_cannot_hold_are_listed(evidence: Evidence, declared: str) -> None:
    told = evidence.tell(declared)
    assert [told.expected[row][:10] for row in told.invalid if told.expected[row]][:4] == [
        "0000-00-00", "2024-00-00", "2024-02-00", "0000-01-01",
    ]  # fmt: skip
    assert all(told.expected[row] is not None for row in told.invalid)


def test_before_images_hold_the_same(evidence: Evidence) -> None:
    """Each row was inserted, updated in its key, and deleted."""
    for table, count in evidence.rows_inserted.items():
        rows = evidence.journal.rows(table)
        assert len(rows) == 3 * count
        for index in range(1, len(rows.schema.columns)):
            before, after = rows.before.column(index), rows.after.column(index)
            inserted = after.slice(0, count)
            for image in (
                before.slice(count, count),
                after.slice(count, count),
                before.slice(2 * count, count),
            ):
                assert same_values(image, inserted), (table, index)
            assert (
                before.slice(0, count).null_count
                == after.slice(2 * count, count).null_count
                == count
            )


def same_values(one: pa.Array, other: pa.Array) -> bool:
    """Equal, also where the rows of a deletion come in the order of their changed keys."""
    return bool(one.equals(other)) or sorted(map(repr, one.to_pylist())) == sorted(
        map(repr, other.to_pylist())
    )


def agreed(evidence: Evidence, name: str) -> Told:
    told = evidence.tell(name)
    assert told.got == told.expected
    return told


def test_negative_fractional_time(evidence: Evidence) -> None:
    told = agreed(evidence, "TIME(6)")
    assert told.got[: len(TIMES)] == [
        "-00:00:00.100000", "-12:34:56.987654", "-838:59:59.000000", "838:59:59.000000",
        "00:00:00.000000",
        "-00:59:00.000001", "100:00:00.500000", "-00:00:00.000001", "-00:00:01.000000",
        "-00:01:00.000000",
        "-01:00:00.000000", "23:59:59.999999", "-838:59:58.999999",
    ]  # fmt: skip
    assert told.invalid == []
    for digits, tail in enumerate(FRACTIONS):
        assert f"-00:00:01{tail}" in agreed(evidence, f"TIME({digits})").got


@pytest.mark.parametrize("digits", range(7))
def test_zero_timestamp(evidence: Evidence, digits: int) -> None:
    told = agreed(evidence, f"TIMESTAMP({digits}) NULL")
    assert told.got[0] == "0000-00-00 00:00:00" + ("." + "0" * digits if digits else "")
    assert told.invalid == [0]


@pytest.mark.mariadb
@pytest.mark.parametrize("digits", range(1, 7))
def test_second_zero_with_a_fraction_is_an_instant(mariadb_evidence: Evidence, digits: int) -> None:
    told = agreed(mariadb_evidence, f"TIMESTAMP({digits}) NULL /* second 0 */")
    assert told.got[0] == "1970-01-01 00:00:00" + FRACTIONS[digits]
    assert told.invalid == []


def test_year_zero(evidence: Evidence) -> None:
    assert agreed(evidence, "YEAR").got[:4] == ["0", "1901", "1970", "2155"]


def test_zero_and_partial_dates(evidence: Evidence) -> None:
    told = agreed(evidence, "DATE")
    assert told.got[:4] == ["0000-00-00", "2024-00-00", "2024-02-00", "0000-01-01"]
    assert told.invalid[:4] == [0, 1, 2, 3]
    told = agreed(evidence, "DATETIME(3)")
    assert told.got[:4] == [
        f"{date} 00:00:00.000" for date in ("0000-00-00", "2024-00-00", "2024-02-00", "0000-01-01")
    ]
    assert {0, 1, 2, 3} <= set(told.invalid)


def test_impossible_dates(evidence: Evidence) -> None:
    told = agreed(evidence, "DATE")
    assert told.got[6] == "2023-02-31"
    assert told.got[10] == "1900-02-29"
    assert {6, 10} <= set(told.invalid)
    told = agreed(evidence, "DATETIME(0)")
    assert told.got[9] == "2023-02-31 00:00:00"
    assert 9 in told.invalid


def test_binary_is_padded(evidence: Evidence) -> None:
    told = agreed(evidence, "BINARY(16)")
    assert told.got[:2] == ["61626300" + "00" * 12, "00" * 16]
    assert agreed(evidence, "BINARY(255)").got[0] == "01" + "00" * 254


@pytest.mark.parametrize(
    "declared", ["VARBINARY(16)", "BLOB", "TINYBLOB", "VARCHAR(9) CHARACTER SET binary"]
)
def test_empty_bytes_are_bytes(evidence: Evidence, declared: str) -> None:
    told = agreed(evidence, declared)
    assert "" in told.got
    assert evidence.values(declared)[told.got.index("")] == b""


def test_empty_set_is_not_null(evidence: Evidence) -> None:
    told = agreed(evidence, "SET('a','b','cä')")
    assert told.got[0] == ""
    assert told.got[-1] is None


@pytest.mark.parametrize("charset", LABEL_CHARSETS)
def test_labels_in_any_charset(evidence: Evidence, charset: str) -> None:
    character = LABEL_CHARSETS[charset]
    assert agreed(evidence, f"ENUM in {charset}").got[:3] == ["x", character, f"{character}x"]
    assert agreed(evidence, f"SET in {charset}").got[:3] == [
        "",
        character,
        f"x,{character},{character}x",
    ]


def test_codes_without_a_character(evidence: Evidence) -> None:
    told = agreed(evidence, "latin1 81")
    assert told.got[:5] == ["\x81", "\x8d", "\x8f", "\x90", "\x9d"]
    assert agreed(evidence, "cp1251 98").got[0] == "?"


def test_utf16_is_big_endian(evidence: Evidence) -> None:
    for declared in ("VARCHAR(20)", "CHAR(20)", "TEXT"):
        assert agreed(evidence, f"{declared} CHARACTER SET utf16").got[:4] == [
            "abc",
            "ä漢",
            "",
            "😀x",
        ]


def test_utf32(evidence: Evidence) -> None:
    for declared in ("VARCHAR(20)", "CHAR(20)", "TEXT"):
        assert agreed(evidence, f"{declared} CHARACTER SET utf32").got[:4] == [
            "abc",
            "ä漢",
            "",
            "😀x",
        ]


def test_ucs2_and_utf16le(evidence: Evidence) -> None:
    """The other charsets of this row are in test_every_charset_with_a_table."""
    assert agreed(evidence, "VARCHAR(20) CHARACTER SET ucs2").got[:3] == ["abc", "ä漢", ""]
    assert agreed(evidence, "VARCHAR(20) CHARACTER SET utf16le").got[:4] == [
        "abc",
        "ä漢",
        "",
        "😀x",
    ]


@pytest.mark.mysql
def test_vector(mysql_evidence: Evidence) -> None:
    told = mysql_evidence.tell("VECTOR(3)")
    assert [value and json.loads(value) for value in told.got] == [
        value and json.loads(value) for value in told.expected
    ]
    assert mysql_evidence.values("VECTOR(3)")[0] == [1.0, 2.5, -0.125]
    assert mysql_evidence.values("VECTOR(9999)")[0] == [-1.5] * 9999
