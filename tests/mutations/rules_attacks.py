"""What is taken out of the rules that attacks on the first version taught (K20 to K28), and the test that must fail then."""

# ruff: noqa: E501 - texts of the sources stand here as they do there

from __future__ import annotations

from typing import Final

from tests.mutations.runner import Mutation

# -- K20: text is data ----------------------------------------------------------------------------------------------
_TEXT: Final = "sink/test_text_is_data.py::"
_K20: Final[tuple[Mutation, ...]] = (
    Mutation(
        "K20",
        "a literal holds nothing that variable substitution reads",
        "schema/spark_text.py",
        '"\\\\\'\\"`${}"',
        '"\\\\\'\\"`"',
        _TEXT + "test_k20_a_literal_holds_no_character_of_a_second_language",
    ),
    Mutation(
        "K20",
        "settings that change what a text means are refused",
        "spark_config.py",
        "if name in SQL_SETTINGS or _OURS.fullmatch(name):",
        "if False:",
        _TEXT + "test_k20_settings_that_change_what_a_text_means_are_refused_by_name",
    ),
    Mutation(
        "K20",
        "ours win over the file's",
        "sink/spark.py",
        "        **jars,\n        **SQL_SETTINGS,\n",
        "        **jars,\n",
        _TEXT + "test_k20_our_settings_win_over_every_other",
    ),
    Mutation(
        "K20",
        "each further session has them",
        "sink/spark.py",
        "    _set_sql(made)\n",
        "",
        _TEXT + "test_k20_our_settings_win_over_every_other",
    ),
    Mutation(
        "K20",
        "a lake's path is no pattern",
        "storage_config.py",
        "    if odd:\n",
        "    if False:\n",
        _TEXT + "test_k20_a_lake_path_that_hadoop_would_read_is_refused",
    ),
)

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
_JVM: Final = "sink/test_jvm.py::"
_K26: Final[tuple[Mutation, ...]] = (
    Mutation(
        "K26",
        "a secret of the settings is no argument of the JVM",
        "sink/spark.py",
        "for name, value in settings.items() if not is_secret(name, value)}",
        "for name, value in settings.items()}",
        _JVM + "test_k26_secrets_are_no_arguments_and_are_given_to_spark",
    ),
    Mutation(
        "K26",
        "a secret that only arguments can carry is refused",
        "spark_config.py",
        "if _OF_START.fullmatch(name) and is_secret(name, text):",
        "if False:",
        _JVM + "test_k26_a_secret_that_only_arguments_can_carry_is_refused",
    ),
)

# -- K27: same input, same output -----------------------------------------------------------------------------------
_K27: Final[tuple[Mutation, ...]] = (
    Mutation(
        "K27",
        "a function that is not known to be deterministic is refused",
        "expressions.py",
        "name not in _FUNCTIONS and name not in _OPERATORS",
        "False",
        "routing/test_rules.py::test_k27_what_can_give_something_else_the_next_time_is_refused",
    ),
    Mutation(
        "K27",
        "a constant is no time of evaluation",
        "expressions.py",
        "and _TIME_WORD.fullmatch(str(node.this))",
        "and False",
        "routing/test_rules.py::test_k27_what_can_give_something_else_the_next_time_is_refused",
    ),
    Mutation(
        "K27",
        "nor is what a function makes of constants",
        "expressions.py",
        "and not _may_be_constant(node)",
        "and False",
        "routing/test_rules.py::test_k27_what_can_give_something_else_the_next_time_is_refused",
    ),
)

# -- K28: a name shows its table ------------------------------------------------------------------------------------
_K28: Final[tuple[Mutation, ...]] = ()

ATTACKS: Final = (*_K20, *_K21, *_K22, *_K23, *_K24, *_K25, *_K26, *_K27, *_K28)
