"""Every type at its edges: what the journal gives is what SELECT prints
(docs/reference/types.md), in images before and after, and reals keep every bit.

Charsets, unusual tables and MariaDB's own types are in the files beside this one; JSON and
journals with less than full row metadata have tests of their own.
"""

from __future__ import annotations

import datetime as dt
import json

import numpy as np
import pyarrow as pa
import pytest

from tests.campaigns.edges.cases import CASES, REALS
from tests.campaigns.edges.evidence import Case, Evidence

BOTH = [case for case in CASES if not case.flavor]


def test_select_and_journal_agree(evidence: Evidence) -> None:
    for case in BOTH:
        told = evidence.tell(str(case))
        assert told.got == told.expected, case
        assert any(value is not None for value in told.got), case
        if case.declared.startswith(("DATE", "TIME", "YEAR")):
            is_date = case.declared.startswith(("DATE", "TIMESTAMP"))
            assert told.invalid == [
                row
                for row, text in enumerate(told.expected)
                if is_date and not _is_in_calendar(text)
            ], case


def _is_in_calendar(text: str | None) -> bool:
    """Whether Delta can hold a date: no year, month or day of zero, no 31st of February."""
    try:
        return text is None or bool(dt.date.fromisoformat(text[:10]))
    except ValueError:
        return False


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


@pytest.mark.parametrize(
    "declared", ["VARBINARY(16)", "BLOB", "TINYBLOB", "VARCHAR(9) CHARACTER SET binary"]
)
def test_empty_bytes_are_bytes(evidence: Evidence, declared: str) -> None:
    told = evidence.tell(declared)
    assert evidence.values(declared)[told.got.index("")] == b""


@pytest.mark.mysql
def test_vector(mysql_evidence: Evidence) -> None:
    assert mysql_evidence.values("VECTOR(3)")[0] == [1.0, 2.5, -0.125]
    assert mysql_evidence.values("VECTOR(9999)")[0] == [-1.5] * 9999
