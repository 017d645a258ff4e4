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
_K23: Final[tuple[Mutation, ...]] = (
    Mutation(
        "K23",
        "a change of a generated column's base stops the table",
        "schema/alterations.py",
        "(name for name in (column.name.lower(), *column.bases) if name in changed)",
        "(name for name in ())",
        "schema/test_generated.py::test_k23_a_change_of_a_base_is_never_said_to_leave_the_table_as_it_is",
    ),
    Mutation(
        "K23",
        "a table of which nobody knows whether it has generated columns stops",
        "schema/alterations.py",
        'if changed and self._use("generated_columns") == "stop":',
        "if False:",
        "schema/test_generated.py::test_k23_a_table_that_may_have_generated_columns_needs_a_word",
    ),
    Mutation(
        "K23",
        "what a copy of the table computes again stops it",
        "schema/alterations.py",
        "if reading.recomputes and not column.is_steady:",
        "if False:",
        "schema/test_generated.py::test_k23_a_change_of_a_base_is_never_said_to_leave_the_table_as_it_is",
    ),
    Mutation(
        "K23",
        "bits of negative numbers are another number",
        "schema/value_changes.py",
        "if whole is not None and whole[0] < 0 and column.kind is Kind.BIT:",
        "if False:",
        "schema/test_value_changes.py::test_k23_bits_of_negative_numbers_are_another_number",
    ),
    Mutation(
        "K23",
        "AUTO_INCREMENT numbers NULLs in strict mode too",
        "schema/value_changes.py",
        "gives_values = new.auto_increment or is_timestamp or not modes.strict",
        "gives_values = is_timestamp or not modes.strict",
        "schema/test_value_changes.py::test_k23_auto_increment_numbers_nulls",
    ),
)

# -- K24: the same log ----------------------------------------------------------------------------------------------
_K24: Final[tuple[Mutation, ...]] = ()

# -- K25: bounded ---------------------------------------------------------------------------------------------------
_K25: Final[tuple[Mutation, ...]] = ()

# -- K26: secrets stay out of text ----------------------------------------------------------------------------------
_K26: Final[tuple[Mutation, ...]] = ()

# -- K27: same input, same output -----------------------------------------------------------------------------------
_K27: Final[tuple[Mutation, ...]] = ()

# -- K28: a name shows its table ------------------------------------------------------------------------------------
_K28: Final[tuple[Mutation, ...]] = ()

ATTACKS: Final = (*_K20, *_K21, *_K22, *_K23, *_K24, *_K25, *_K26, *_K27, *_K28)
