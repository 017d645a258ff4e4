"""What is taken out of the rules that attacks on the first version taught (K20 to K28), and the test that must fail then."""

# ruff: noqa: E501 - texts of the sources stand here as they do there

from __future__ import annotations

from typing import Final

from tests.mutations.runner import Mutation

# -- K20: text is data ----------------------------------------------------------------------------------------------
_NAMES: Final = "orchestration/test_names.py::"
_PAIRS: Final = "pipeline/test_table_names.py::"
_TERMINAL: Final = "cli/test_terminal.py::"
_K20: Final[tuple[Mutation, ...]] = (
    Mutation(
        "K20",
        "a schema with a dot is quoted in a table's name",
        "table_names.py",
        """if "." in schema or schema.startswith("`"):""",
        "if False:",
        _PAIRS + "test_k20_two_pairs_with_one_joined_text_are_two_targets",
    ),
    Mutation(
        "K20",
        "what stands in backticks is no pattern",
        "table_names.py",
        """    if text.startswith("`"):\n        name""",
        """    if False:\n        name""",
        _PAIRS + "test_k20_patterns_are_of_pairs",
    ),
    Mutation(
        "K20",
        "odd characters are escaped in Dagster's keys",
        "orchestration/names.py",
        """return _ODD.sub(lambda match: "".join(f"~{byte:02x}" for byte in match[0].encode()), name)""",
        "return name",
        _NAMES + "test_k20_a_name_has_one_form_in_dagster_and_comes_back",
    ),
    Mutation(
        "K20",
        "outputs of checks are numbered",
        "orchestration/check_assets.py",
        """{f"check_{number}": dg.Out(None, is_required=False) for number in range(len(specs))}""",
        """{spec.get_python_identifier(): dg.Out(None, is_required=False) for spec in specs}""",
        _NAMES + "test_k20_definitions_load_for_any_legal_name",
    ),
    Mutation(
        "K20",
        "a broken source takes no other with it",
        "orchestration/definitions.py",
        "            if loading is not None:\n                raise\n",
        "            raise\n",
        _NAMES + "test_k20_a_broken_source_names_its_error_and_the_others_load",
    ),
    Mutation(
        "K20",
        "a string is no markup on the terminal",
        "cli/terminal.py",
        "markup=False, emoji=False",
        "markup=True, emoji=False",
        _TERMINAL + "test_k20_hostile_text_is_shown_wherever_it_stands",
    ),
    Mutation(
        "K20",
        "controls in a text are shown",
        "cli/terminal.py",
        "super().render(_shown(renderable) if isinstance(renderable, Text) else renderable, options)",
        "super().render(renderable, options)",
        _TERMINAL + "test_k20_styles_stay_and_nothing_else_is_sent",
    ),
)

# -- K21: durable before named --------------------------------------------------------------------------------------
_K21: Final[tuple[Mutation, ...]] = ()

# -- K22: nobody wedges the source ----------------------------------------------------------------------------------
_K22: Final[tuple[Mutation, ...]] = (
    Mutation(
        "K22",
        "a pattern that never matched fails the run",
        "pipeline/capture.py",
        "            run.check_matched(resolved)\n",
        "",
        "pipeline/test_unmatched.py::test_k22_a_run_that_has_read_an_archive_to_its_end_fails_on_a_typo",
    ),
    Mutation(
        "K22",
        "what the operating system refuses has a name",
        "pipeline/capture.py",
        "with files_failing(config.sink.lake_path), sink.lock()",
        "with sink.lock()",
        "pipeline/test_file_failures.py::test_k22_a_full_disk_at_any_step_of_a_run_is_named",
    ),
)

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
_K28: Final[tuple[Mutation, ...]] = ()

ATTACKS: Final = (*_K20, *_K21, *_K22, *_K23, *_K24, *_K25, *_K26, *_K27, *_K28)
