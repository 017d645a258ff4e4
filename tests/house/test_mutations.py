"""The list of rules that are taken out (`make campaign NAME=mutations`) is true: places and tests
exist, no rule is forgotten."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.house.test_spec_map import symbols
from tests.mutations.places import mutated
from tests.mutations.rules import MUTATIONS, Mutation

ROOT = Path(__file__).resolve().parents[2]
RULES = {f"K{number}" for number in range(1, 29)}


@cache
def _source(path: str) -> tuple[str, str]:
    """The text of a module, and its code as it is printed."""
    source = (ROOT / "cdc_pipeline" / path).read_text(encoding="utf-8")
    return source, ast.unparse(ast.parse(source))


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda one: f"{one.rule}: {one.what}")
def test_a_mutation_can_be_made_and_its_test_exists(mutation: Mutation) -> None:
    source, printed = _source(mutation.path)
    assert mutated(source, mutation.scope, mutation.edits) != printed
    file, _, name = mutation.test.partition("::")
    assert (ROOT / "tests" / file).is_file()
    assert not name or name in symbols(ROOT / "tests" / file)


def test_every_rule_is_taken_out() -> None:
    assert {mutation.rule for mutation in MUTATIONS} >= RULES
