"""Every type at its edges: what the journal gives is what SELECT prints (types.md)."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.torture.cases import CASES, REALS
from tests.torture.evidence import Case, Evidence

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
