"""The list of rules that are taken out (`make campaign NAME=mutations`) is true: texts and tests
exist, no rule is forgotten."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.house.test_spec_map import symbols
from tests.mutations.rules import MUTATIONS, page
from tests.mutations.runner import Mutation

ROOT = Path(__file__).resolve().parents[2]
RULES = {f"K{number}" for number in range(1, 29)}


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda one: f"{one.rule}: {one.what}")
def test_a_mutation_can_be_made_and_its_test_exists(mutation: Mutation) -> None:
    text = (ROOT / "cdc_pipeline" / mutation.path).read_text(encoding="utf-8")
    assert text.count(mutation.old) == 1
    assert mutation.new != mutation.old
    file, _, name = mutation.test.partition("::")
    assert (ROOT / "tests" / file).is_file()
    assert not name or name in symbols(ROOT / "tests" / file)


def test_every_rule_is_taken_out() -> None:
    assert {mutation.rule for mutation in MUTATIONS} >= RULES


def test_the_page_is_that_of_the_list() -> None:
    assert (ROOT / "tests" / "mutations" / "README.md").read_text(encoding="utf-8") == page(), (
        "python -m tests.mutations"
    )
