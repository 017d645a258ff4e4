"""The specification of the commit protocol: its models hold, each of its rules is needed, and what
it names is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.house.test_spec_map import symbols
from tests.model.models import MODELS, TAKEN_OUT, Model, TakenOut
from tests.model.tlc import MODULE, check

ROOT = Path(__file__).resolve().parents[2]
TEXT = MODULE.read_text(encoding="utf-8")
SMALL = [model for model in MODELS if model.is_small]


def _actions() -> dict[str, str]:
    """Each action with its text: what `Next` and `Works` choose from."""
    chosen = TEXT.split("\nWorks(r) ==")[1].split("\nSpec ==")[0]
    names = set(re.findall(r"\b([A-Z]\w+)(?=\(|\s|$)", chosen)) - {
        "Works",
        "Next",
        "Runs",
        "Tables",
    }
    found = {}
    for name in names:
        match = re.search(rf"^{name}(?:\([\w, ]+\))? ==\n(.*?)(?=\n\n|\Z)", TEXT, re.M | re.S)
        assert match is not None, name
        found[name] = match[1]
    return found


def test_what_the_actions_name_is_there() -> None:
    named = re.findall(r"\b([\w/]+\.py)::([\w.]+)", TEXT)
    assert len(named) > 40
    for file, name in named:
        path = ROOT / "cdc_pipeline" / file
        assert path.is_file(), file
        assert name in symbols(path), f"{file}::{name}"


def test_each_action_names_the_function_that_does_it() -> None:
    without = {name for name, text in _actions().items() if ".py::" not in text}
    # What machines and people do has no function.
    assert without == {"PowerCut", "RestoreState", "RestoreLake", "RestoreTable", "RestoreCommand"}


def test_each_rule_is_taken_out() -> None:
    assert sorted(one.rule for one in TAKEN_OUT) == sorted(
        set(re.findall(r'Rule\("([^"]+)"\)', TEXT))
    )


@pytest.mark.whole
@pytest.mark.parametrize("model", SMALL, ids=[model.name for model in SMALL])
def test_a_small_model_holds(model: Model) -> None:
    found = check(model.constants, is_progress=model.is_progress)
    assert found.violated == "", " -> ".join(found.steps)
    assert found.states > 1000


@pytest.mark.nightly
@pytest.mark.parametrize("without", TAKEN_OUT, ids=[one.rule for one in TAKEN_OUT])
def test_without_a_rule_an_invariant_fails(without: TakenOut) -> None:
    found = check({**without.constants, "Without": frozenset({without.rule})}, workers=1)
    assert found.violated == without.violated
