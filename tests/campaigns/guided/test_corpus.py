"""What the guided fuzzer found worth keeping, over the compiled kernels and without the fuzzer."""

from __future__ import annotations

import pytest

from tests.campaigns.guided import corpus
from tests.campaigns.guided.targets import TARGETS, beginnings, run


@pytest.mark.parametrize("name", TARGETS)
def test_an_input_is_taken_or_refused(name: str) -> None:
    """K25: no bytes make a parser fail in another way than by an error of ours."""
    kept = corpus.inputs(name)
    assert kept
    for data in kept:
        run(name, data)


@pytest.mark.parametrize("name", TARGETS)
def test_the_fuzzer_begins_with_inputs_that_are_taken(name: str) -> None:
    taken = 0
    for data in beginnings(name):
        try:
            TARGETS[name](data)
        except Exception:
            continue
        taken += 1
    assert taken > 1
