"""tests/FINDINGS.md names a rule and tests for each finding, and the tests exist."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

from tests.house.test_spec_map import symbols

ROOT = Path(__file__).resolve().parents[2]
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "tests" / "FINDINGS.md").read_text(encoding="utf-8").splitlines()
    if re.match(r"\| F\d", line)
]


def test_every_finding_is_there_with_its_rule() -> None:
    numbers = {int(number) for row in ROWS for number in re.findall(r"F(\d+)", row[0])}
    assert numbers >= set(range(1, 71))
    assert all(len(row) == 5 and re.fullmatch(r"(K\d+(, K\d+)*|-)", row[1]) for row in ROWS), ROWS


def test_every_test_that_a_finding_names_exists() -> None:
    for row in ROWS:
        names = re.findall(r"`tests/([^`:]+)::([^`]+)`", row[4])
        assert names or row[4].startswith("open: "), f"{row[0]} names no test"
        for file, pattern in names:
            found = symbols(ROOT / "tests" / file)
            assert any(fnmatchcase(test, pattern) for test in found), f"{row[0]}: {file}::{pattern}"
