"""The list of rules that are taken out (`make campaign NAME=mutations`) is true: places and tests
exist, no rule is forgotten."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from tests.house.test_spec_map import symbols
from tests.mutations.places import changes
from tests.mutations.rules import MUTATIONS

ROOT = Path(__file__).resolve().parents[2]
RULES = {f"K{number}" for number in range(1, 29)}


def test_mutations_can_be_made_and_their_tests_exist() -> None:
    parsed = cache(lambda path: ast.parse((ROOT / "cdc_pipeline" / path).read_text("utf-8")))
    for mutation in MUTATIONS:
        for change in changes(parsed(mutation.path), mutation.scope, mutation.edits):
            new = change.new()
            text = "\n".join(map(ast.unparse, new)).strip()
            assert text != ast.unparse(change.node).strip(), mutation
            assert len(new) == 1 or isinstance(getattr(change.parent, change.field), list), mutation
        file, _, name = mutation.test.partition("::")
        assert (ROOT / "tests" / file).is_file(), mutation
        assert not name or name in symbols(ROOT / "tests" / file), mutation


def test_every_rule_is_taken_out() -> None:
    assert {mutation.rule for mutation in MUTATIONS} >= RULES
