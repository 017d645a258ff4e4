"""What is taken out of the rule that a grammar is read whole or not at all (K33), and the test that
must fail then."""

# ruff: noqa: E501 - texts of the sources stand here as they do there

from __future__ import annotations

from typing import Final

from tests.mutations.runner import Mutation

_WHOLE: Final = "schema/history/test_read_whole.py::"
_ALTER: Final = "schema/ddl/test_alter.py::"
_TEXTS: Final = "pipeline/capture/test_ddl_texts.py::"
_POLICIES: Final = "schema/evolution/test_policies.py::"

GRAMMAR: Final[tuple[Mutation, ...]] = (
    Mutation(
        "K33", "CHAR SET is CHARACTER SET", "schema/ddl/options.py",
        '("CHARSET",), ("CHAR", "SET"))', '("CHARSET",))',
        _WHOLE + "test_k33_f75_a_charset_is_read_in_every_place_in_every_spelling",
    ),
    Mutation(
        "K33", "the charset of a database is read to the end of its options", "schema/ddl/options.py",
        "        if option is None:\n            return None\n        charset = charset.then",
        "        if option is None:\n            break\n        charset = charset.then",
        _WHOLE + "test_k33_what_is_left_over_in_a_clause_is_never_certain",
    ),
    Mutation(
        "K33", "an option that is not known leaves a CREATE TABLE uncertain", "schema/ddl/create.py",
        "        if option is None:\n            return None\n", "        if option is None:\n            break\n",
        _WHOLE + "test_k33_what_is_left_over_in_a_clause_is_never_certain",
    ),
    Mutation(
        "K33", "what stands behind a key's columns is read to its end", "schema/ddl/alter.py",
        "    if not known or not take_key_options(tokens):\n", "    if not known or not (take_key_options(tokens) or tokens.skip_to_comma() or True):\n",
        _WHOLE + "test_k33_what_is_left_over_in_a_clause_is_never_certain",
    ),
    Mutation(
        "K33", "an empty string may be NULL", "schema/ddl/columns.py",
        "    if not text and tokens.modes.empty_string_is_null:\n", "    if False:\n",
        _ALTER + "test_k33_f76_an_empty_string_may_be_null",
    ),
    Mutation(
        "K33", "a mode that is in no table leaves DDL uncertain", "schema/ddl/create.py",
        "    if options is None or modes.unknown_bits:\n", "    if options is None:\n",
        _WHOLE + "test_k33_ddl_under_a_mode_that_is_in_no_table_is_not_certain",
    ),
    Mutation(
        "K33", "utf8 may be utf8mb4", "schema/ddl/options.py",
        '            if charset == "utf8" and tokens.modes.utf8_is_utf8mb4:\n', "            if False:\n",
        _WHOLE + "test_k33_modes_that_change_types_and_charsets",
    ),
    Mutation(
        "K33", "a text of the server's in mode ANSI lacks the table's charset", "schema/history/apply_ddl.py",
        'outer = "" if created.omits_options else ', "outer = ",
        _WHOLE + "test_k33_modes_that_change_types_and_charsets",
    ),
    Mutation(
        "K33", "IF NOT EXISTS creates a table in a database that was created before", "schema/history/apply_ddl.py",
        "            else of_database is not None and of_database.why == CREATED\n", "            else False\n",
        _WHOLE + "test_k33_f84_a_table_is_created_if_it_certainly_was_not_there",
    ),
    Mutation(
        "K33", "labels that are written as bytes are those of the column's charset", "schema/ddl/types.py",
        "    if not _is_bytes(label):\n        return label\n", "    return label\n",
        _WHOLE + "test_k33_f84_what_servers_accept_is_read",
    ),
    Mutation(
        "K33", "a table that has its name again was not renamed", "schema/evolution/table_changes.py",
        "for new, old in came_from.items() if new != old}", "for new, old in came_from.items()}",
        _POLICIES + "test_k33_f82_a_table_that_has_its_name_again_keeps_its_rows",
    ),
    Mutation(
        "K33", "a column that a mode needs itself suspends its table", "pipeline/targets/keys.py",
        "    check_reserved(rule.mode, columns, source=source)\n", "",
        _TEXTS + "test_k33_f82_what_is_wrong_with_one_table_suspends_it_with_its_reason",
    ),
    Mutation(
        "K33", "a key of a column that may be NULL is none", "schema/evolution/alterations.py",
        "        if known.by_key and may_be_null and not self._context.is_mariadb:\n", "        if False:\n",
        _POLICIES + "test_k33_f82_a_unique_index_over_a_column_that_may_be_null_is_no_key",
    ),
    Mutation(
        "K33", "CREATE OR REPLACE DATABASE drops what it replaces", "schema/ddl/statement.py",
        "            kind is StatementKind.CREATE_DATABASE and self.or_replace\n", "            False\n",
        _POLICIES + "test_k33_a_database_that_is_created_in_the_place_of_another_is_dropped_first",
    ),
)  # fmt: skip
