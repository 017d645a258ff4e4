"""What is taken out of the rules that attacks on the first version taught (K20 to K28), and the test that must fail then."""

# ruff: noqa: E501 - texts of the sources stand here as they do there

from __future__ import annotations

from typing import Final

from tests.mutations.runner import Mutation

# -- K20: text is data ----------------------------------------------------------------------------------------------
_K20: Final[tuple[Mutation, ...]] = ()

# -- K21: durable before named --------------------------------------------------------------------------------------
_K21: Final[tuple[Mutation, ...]] = ()

# -- K22: nobody wedges the source ----------------------------------------------------------------------------------
_K22: Final[tuple[Mutation, ...]] = ()

# -- K23: what decides a value is followed --------------------------------------------------------------------------
_K23: Final[tuple[Mutation, ...]] = ()

# -- K24: the same log ----------------------------------------------------------------------------------------------
_K24: Final[tuple[Mutation, ...]] = ()

# -- K25: bounded ---------------------------------------------------------------------------------------------------
_K25: Final[tuple[Mutation, ...]] = (
    Mutation(
        "K25", "facts of a table that did not change are referred to", "sink/table_facts.py",
        '    return before.facts if all(getattr(table, name) == getattr(before, name) for name in _FIELDS) else ""\n', '    return ""\n',
        "sink/test_table_facts.py::test_k25_a_table_whose_facts_are_the_same_is_referred_to_and_a_changed_one_is_written_alone",
    ),
    Mutation(
        "K25", "facts that a kept cut refers to stay", "sink/table_facts.py",
        " and name not in needed:\n", ":\n",
        "sink/test_table_facts.py::test_k25_facts_that_no_cut_refers_to_are_pruned",
    ),
    Mutation(
        "K25", "a run's lists of decisions have an end", "pipeline/summary.py",
        "entries[: ENTRIES_KEPT_MAX - len(kept)]", "entries",
        "sink/test_table_facts.py::test_k25_a_run_keeps_its_latest_cut_alone",
    ),
)  # fmt: skip

# -- K26: secrets stay out of text ----------------------------------------------------------------------------------
_K26: Final[tuple[Mutation, ...]] = ()

# -- K27: same input, same output -----------------------------------------------------------------------------------
_K27: Final[tuple[Mutation, ...]] = ()

# -- K28: a name shows its table ------------------------------------------------------------------------------------
_K28: Final[tuple[Mutation, ...]] = ()

ATTACKS: Final = (*_K20, *_K21, *_K22, *_K23, *_K24, *_K25, *_K26, *_K27, *_K28)
