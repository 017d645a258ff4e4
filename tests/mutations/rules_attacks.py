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
_K25: Final[tuple[Mutation, ...]] = ()

# -- K26: secrets stay out of text ----------------------------------------------------------------------------------
_K26: Final[tuple[Mutation, ...]] = ()

# -- K27: same input, same output -----------------------------------------------------------------------------------
_K27: Final[tuple[Mutation, ...]] = ()

# -- K28: a name shows its table ------------------------------------------------------------------------------------
_RENAMES: Final = "pipeline/test_renames.py::"
_K28: Final[tuple[Mutation, ...]] = (
    Mutation(
        "K28",
        "rows go with the name unless a setting says otherwise",
        "schema_policy.py",
        '"stop"] = "by_name"',
        '"stop"] = "follow"',
        _RENAMES + "test_f26_k28_the_nightly_rebuild",
    ),
    Mutation(
        "K28",
        "a name that could not take over its table's rows is suspended",
        "pipeline/targets.py",
        "            lost.append(there.name)\n",
        "            pass\n",
        _RENAMES + "test_k28_rows_that_were_not_captured_suspend_the_name_until_it_is_loaded",
    ),
    Mutation(
        "K28",
        "rows of a suspended target are not those of its table",
        "pipeline/targets.py",
        "elif may_carry and change.known.name not in standing:",
        "elif may_carry:",
        _RENAMES + "test_k28_a_suspended_name_gets_the_rows_of_a_table_that_goes_on",
    ),
    Mutation(
        "K28",
        "rows that another rule made are not carried",
        "pipeline/carrying.py",
        "if _is_same(other.rule, route.rule) and _fits(other.rule, origin)]",
        "]",
        _RENAMES + "test_k28_rows_of_another_rule_or_history_need_a_load",
    ),
    Mutation(
        "K28",
        "tables that exchange their names take over what the other one held before",
        "pipeline/targets.py",
        "origin, source, name = before[change.known.name],",
        "origin, source, name = self._targets[change.known.name],",
        _RENAMES + "test_k28_tables_that_exchange_their_names_take_over_what_was_there_before",
    ),
    Mutation(
        "K28",
        "a target that cannot be given its rows waits for a load",
        "sink/delta.py",
        'left = left.model_copy(update={"needs_reload": True})',
        "pass",
        _RENAMES + "test_k28_a_target_that_could_not_be_given_its_rows_waits_for_a_load",
    ),
    Mutation(
        "K28",
        "rows that were read of a renamed table are no other table's",
        "pipeline/load_side.py",
        'if state.kind == "rebuild" else _leaving_renamed(config)',
        "if state else {}",
        "load/test_parts.py::test_k28_a_table_that_is_renamed_leaves_its_load",
    ),
)

ATTACKS: Final = (*_K20, *_K21, *_K22, *_K23, *_K24, *_K25, *_K26, *_K27, *_K28)
