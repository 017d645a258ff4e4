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
_SAME_LOG: Final = "position/test_same_log.py::"

_K24: Final[tuple[Mutation, ...]] = (
    Mutation(
        "K24",
        "the cursor's journal is as long as its offset",
        "position/same_log.py",
        "    if position.offset > sizes[position.journal]:",
        "    if False:",
        _SAME_LOG + "test_k24_a_cursor_of_an_earlier_version_is_checked_by_length_and_creation_time",
    ),
    Mutation(
        "K24",
        "the event that ends there is the one that ended there",
        "position/same_log.py",
        "    if found != event:",
        "    if found is None:",
        _SAME_LOG + "test_k24_f5_a_log_that_is_another_one_by_now_is_refused_and_the_same_one_is_not",
    ),
    Mutation(
        "K24",
        "a cursor remembers the last event before it",
        "pipeline/place.py",
        "self.position = replace(self.position, last_event=self._last_event[1])",
        "pass",
        _SAME_LOG + "test_k24_pieces_of_an_open_transaction_move_neither_the_place_nor_its_event",
    ),
    Mutation(
        "K24",
        "a MariaDB server holds the very transaction, not one of its number",
        "source/server_positions.py",
        "state.last.get(key, 0) < number <= reached",
        "number <= 0 <= reached",
        _SAME_LOG + "test_k24_a_mariadb_server_must_hold_the_very_transaction_and_not_one_of_its_number",
    ),
)

# -- K25: bounded ---------------------------------------------------------------------------------------------------
_SIZES: Final = "binlog_framing/test_size_limits.py::"

_K25: Final[tuple[Mutation, ...]] = (
    Mutation(
        "K25",
        "an event of many packets is bounded as a whole",
        "binlog/packets_kernel.py",
        "if state[TOTAL] + length > state[LIMIT]:",
        "if length > state[LIMIT]:",
        _SIZES + "test_k25_f18_an_event_of_many_packets_stops_where_they_exceed_the_limit",
    ),
    Mutation(
        "K25",
        "a row of many packets is bounded as a whole",
        "binlog/result_set.py",
        "if total_bytes > self._packet_bytes_max:",
        "if length > self._packet_bytes_max:",
        "table_reader/test_kernels.py::test_k25_f18_a_row_larger_than_the_limit_stops_at_its_header",
    ),
    Mutation(
        "K25",
        "what a compressed event claims to unpack to is bounded",
        "binlog/compressed.py",
        "    if len(large):",
        "    if False:",
        _SIZES + "test_k25_f18_a_compressed_event_may_not_claim_to_unpack_to_more_than_the_limit",
    ),
    Mutation(
        "K25",
        "a table map has no more labels than a table can have",
        "binlog/table_map_metadata.py",
        "if len(columns) == count or labels > _LABELS_MAX:",
        "if False:",
        _SIZES + "test_k25_a_table_map_with_counts_that_no_table_has_is_refused",
    ),
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
_K26: Final[tuple[Mutation, ...]] = (
    Mutation(
        "K26",
        "clear text is sent over checked TLS alone",
        "source/login.py",
        "(name in _CLEAR_TEXT and _is_verified(connection))",
        "name in _CLEAR_TEXT",
        "source_live/test_login.py::test_k26_clear_text_is_never_sent_to_an_unchecked_server",
    ),
    Mutation(
        "K26",
        "every connection asks what a server may see of the password",
        "source/server.py",
        '        "auth_plugin_map": LoginPlugins(),\n',
        "",
        "source_live/test_login.py::test_k26_clear_text_is_never_sent_to_an_unchecked_server",
    ),
    Mutation(
        "K26",
        "no key is taken from another machine without TLS",
        "source/login.py",
        "takes_key = connection._secure or",
        "takes_key = True or",
        "source_live/test_login.py::test_k26_no_key_is_taken_from_another_machine_without_tls",
    ),
    Mutation(
        "K26",
        "a literal is replaced in what is published of a statement",
        "schema/published.py",
        'return "?" if is_literal else None',
        "return None",
        "schema/test_published.py::test_k26_no_literal_is_in_what_is_published",
    ),
    Mutation(
        "K26",
        "what cannot be read with certainty is published without its text",
        "schema/published.py",
        "        if breaks_off:\n            return None\n",
        "",
        "schema/test_published.py::test_k26_broken_and_random_texts_give_nothing_away",
    ),
    Mutation(
        "K26",
        "what a server quotes goes",
        "foreign_words.py",
        'return _QUOTED.sub("?", text)',
        "return text",
        "house/test_foreign_words.py::test_k26_a_server_error_tells_no_value",
    ),
    Mutation(
        "K26",
        "a spill folder's parent belongs to this user",
        "private_folder.py",
        "if found.st_uid not in ours:",
        "if False:",
        "store/test_private_folder.py::test_k26_a_spill_folder_of_another_user_is_refused",
    ),
    Mutation(
        "K26",
        "a link in the place of the spill folder is not followed",
        "private_folder.py",
        "os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC",
        "os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC",
        "store/test_private_folder.py::test_k26_a_link_in_the_place_of_the_spill_folder_is_not_followed",
    ),
    Mutation(
        "K26",
        "a jar that is served has the checksum of the package",
        "sink/jars.py",
        "if pinned.get(jar.name) != sha256:",
        "if jar.name not in pinned:",
        "sink/test_java_and_jars.py::test_k26_a_jar_that_another_source_serves_is_refused",
    ),
    Mutation(
        "K26",
        "the lake's own folder is closed",
        "sink/lock.py",
        "make_private(path.parent)",
        "path.parent.mkdir(parents=True, exist_ok=True)",
        "store/test_private_folder.py::test_k26_a_lakes_own_folder_is_closed_at_the_next_run",
    ),
)

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
        _RENAMES + "test_k28_each_name_shows_its_table_after_any_statements",
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
