"""tests/SPEC.md maps every clause and rule to code and tests: complete, and every name in it
exists (by the syntax tree, without importing anything)."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SIZES = {"S": 15, "T": 4, "C": 3, "P": 10, "K": 35}
NOT_MAPPED_YET: set[str] = set()
CLAUSES = [
    clause
    for group, size in SIZES.items()
    for clause in (f"{group}{number}" for number in range(1, size + 1))
    if clause not in NOT_MAPPED_YET
]
STATES = ("holds", "part", "open")


@dataclass(frozen=True)
class Entry:
    """One line of the map."""

    clause: str
    asks: str
    state: str
    code: tuple[str, ...]
    tests: tuple[str, ...]


def _names(cell: str) -> tuple[str, ...]:
    names = tuple(re.findall(r"`([^`]+)`", cell))
    assert cell == ", ".join(f"`{name}`" for name in names), f"not a list of `names`: {cell}"
    return names


def read_map(text: str) -> list[Entry]:
    """The map's lines: every table row that begins with a clause."""
    entries = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("|") and re.fullmatch(r"[A-Z]\d+", cells[0]):
            assert len(cells) == 5, line
            entries.append(Entry(cells[0], cells[1], cells[2], _names(cells[3]), _names(cells[4])))
    return entries


ENTRIES = read_map((ROOT / "tests" / "SPEC.md").read_text(encoding="utf-8"))


@cache
def symbols(file: Path) -> dict[str, str]:
    """Names that `file` defines at its top and in its classes (``Class.method``), with their
    docstrings."""
    found: dict[str, str] = {}

    def collect(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                found[prefix + node.name] = ast.get_docstring(node) or ""
            if isinstance(node, ast.ClassDef):
                collect(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.Assign):
                found.update(
                    {
                        prefix + target.id: ""
                        for target in node.targets
                        if isinstance(target, ast.Name)
                    }
                )
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                found[prefix + node.target.id] = ""

    collect(ast.parse(file.read_text(encoding="utf-8")).body, "")
    return found


def cites(clause: str, test: str, docstring: str) -> bool:
    """Whether a test's name (``test_s8_s14_...``) or docstring (``S8``) cites `clause`."""
    parts = test.rpartition(".")[2].split("_")[1:]
    numbers = parts[
        : next(
            (n for n, part in enumerate(parts) if not re.fullmatch(r"[a-z]\d+", part)), len(parts)
        )
    ]
    return clause.lower() in numbers or re.search(rf"\b{clause}\b", docstring) is not None


def test_every_clause_is_mapped_once_and_in_order() -> None:
    assert [entry.clause for entry in ENTRIES] == CLAUSES


def test_a_clause_says_what_it_asks_where_it_is_done_and_what_proves_it() -> None:
    for entry in ENTRIES:
        assert entry.asks, entry
        assert entry.state in STATES, entry
        assert bool(entry.code) == (entry.state != "open"), entry
        if entry.state == "holds":
            assert entry.tests, f"what holds is proved by a test: {entry}"
        if entry.state == "part":
            assert "here: " in entry.asks, f"a part says what is there, or not there: {entry}"
        if entry.state == "open":
            assert not entry.tests, entry


def test_every_name_of_the_code_exists() -> None:
    for name in (name for entry in ENTRIES for name in entry.code):
        path, _, symbol = name.partition("::")
        file = ROOT / "cdc_pipeline" / path
        assert file.is_file(), name
        assert not symbol or symbol in symbols(file), name


def test_every_named_test_exists_and_cites_its_clause() -> None:
    for clause, name in ((entry.clause, name) for entry in ENTRIES for name in entry.tests):
        path, _, pattern = name.partition("::")
        file = ROOT / "tests" / path
        assert file.is_file(), name
        fitting = {test: text for test, text in symbols(file).items() if fnmatchcase(test, pattern)}
        assert fitting, f"no test is named {name}"
        for test, docstring in fitting.items():
            assert test.rpartition(".")[2].startswith("test_"), name
            assert cites(clause, test, docstring), f"{path}::{test} does not cite {clause}"


def test_the_clauses_of_the_specification_hold() -> None:
    """Of the rules (K) some belong to what is built later; of the specification none."""
    assert {e.clause for e in ENTRIES if e.state != "holds" and e.clause[0] != "K"} == set()


def test_the_map_is_read_strictly() -> None:
    """A name without quotes, or a line with a cell too many, does not pass in silence."""
    row = "| S1 | asks | holds | `a.py::b` | `c.py::test_s1_d` |"
    assert read_map(row) == [Entry("S1", "asks", "holds", ("a.py::b",), ("c.py::test_s1_d",))]
    for wrong in (
        row.replace("`a.py::b`", "a.py::b"),
        row + " more |",
        row.replace("`a.py::b`", "`a.py` `b.py`"),
    ):
        with pytest.raises(AssertionError):
            read_map(wrong)
    assert cites("S8", "C.test_s8_s14_x", "")
    assert cites("S14", "test_s8_s14_x", "")
    assert not cites("S1", "test_s14_x", "")
    assert not cites("S1", "test_x_s1", "")
    assert cites("K16", "test_x", "K16: the lock")
    assert not cites("K1", "test_x", "K16: the lock")
