"""Every event type is on the page of docs/reference/events.md, and every row of this folder's
README.md has tests that exist."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from cdc_pipeline.binlog.event_types import ROWS_TYPES, STOP_REASONS, EventType
from tests.house.test_spec_map import symbols

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "reference" / "events.md").read_text(encoding="utf-8")
FACTS = {
    row: re.findall(r"`([^`]+)`", tests)
    for row, tests in re.findall(
        r"^\| (B\d\d) \|[^|]*\| (.*) \|$",
        Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
        re.M,
    )
}


def test_facts_b_has_all_its_rows() -> None:
    assert list(FACTS) == [f"B{number:02d}" for number in range(1, 21)]


@pytest.mark.parametrize("row", FACTS)
def test_facts_b_tests_exist(row: str) -> None:
    assert FACTS[row]
    for name in FACTS[row]:
        path, _, pattern = name.partition("::")
        assert any(fnmatchcase(test, pattern) for test in symbols(ROOT / "tests" / path)), name


def test_tests_that_cite_a_row_are_in_its_line() -> None:
    for file in (ROOT / "tests" / "campaigns" / "events").glob("test_*.py"):
        for test in symbols(file):
            for row in re.findall(r"(?<=_)b\d\d(?=_)", test):
                patterns = [name.partition("::") for name in FACTS[row.upper()]]
                assert any(
                    p == f"campaigns/events/{file.name}" and fnmatchcase(test, t)
                    for p, _, t in patterns
                ), test


def test_every_event_type_is_on_the_page() -> None:
    obsolete = {event_type for event_type in STOP_REASONS if event_type < EventType.INCIDENT}
    grouped = {
        *ROWS_TYPES,
        *(t for t in EventType if "COMPRESSED" in t.name),
        EventType.PARTIAL_UPDATE_ROWS,
    }
    named = set(re.findall(r"[A-Z][A-Z_0-9]{2,}", PAGE))
    assert {t.name for t in EventType if t not in obsolete | grouped} <= named
