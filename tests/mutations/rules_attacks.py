"""What is taken out of the rules that attacks on the first version taught (K20 to K28), and the
test that must fail then."""

# ruff: noqa: E501 - texts of the sources stand here as they do there

from __future__ import annotations

from typing import Final

from tests.mutations.runner import Mutation

# -- K20: text is data -----------------------------------------------------------------------------
_NAMES: Final = "orchestration/test_names.py::"
_SECRETS: Final = "orchestration/test_secrets.py::"
_PAIRS: Final = "pipeline/targets/test_table_names.py::"
_TERMINAL: Final = "cli/test_terminal.py::"
_TEXT: Final = "sink/test_text_is_data.py::"
_K20: Final[tuple[Mutation, ...]] = (
    Mutation(
        "K20",
        "a schema with a dot is quoted in a table's name",
        "text/table_names.py",
        """if "." in schema or schema.startswith("`"):""",
        "if False:",
        _PAIRS + "test_k20_two_pairs_with_one_joined_text_are_two_targets",
    ),
    Mutation(
        "K20",
        "what stands in backticks is no pattern",
        "text/table_names.py",
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
        "orchestration/assets/check_assets.py",
        """{f"check_{number}": dg.Out(None, is_required=False) for number in range(len(specs))}""",
        """{spec.get_python_identifier(): dg.Out(None, is_required=False) for spec in specs}""",
        _NAMES + "test_k20_definitions_load_for_any_legal_name",
    ),
    Mutation(
        "K20",
        "a broken source takes no other with it",
        "orchestration/definitions.py",
        "        if loading is not None:\n            raise\n",
        "        raise\n",
        _NAMES + "test_k20_a_broken_source_names_its_error_and_the_others_load",
    ),
    Mutation(
        "K20",
        "an unset variable is missed by the run that needs it",
        "config/references.py",
        "        if value is None and self.keep:\n",
        "        if False:\n",
        _SECRETS + "test_k20_an_unset_variable_fails_the_run_of_its_own_source",
    ),
    Mutation(
        "K20",
        "a reference is no name of a table",
        "config/references.py",
        "item for index, item in enumerate(items) if (*path, str(index)) not in self.unset",
        "item for item in items",
        _SECRETS + "test_k20_any_setting_may_be_a_variable_that_is_unset",
    ),
    Mutation(
        "K20",
        "a string is no markup on the terminal",
        "cli/common/terminal.py",
        "markup=False, emoji=False",
        "markup=True, emoji=False",
        _TERMINAL + "test_k20_hostile_text_is_shown_wherever_it_stands",
    ),
    Mutation(
        "K20",
        "controls in a text are shown",
        "cli/common/terminal.py",
        """        return super().render(
            _escaped(renderable) if isinstance(renderable, Text) else renderable, options
        )
""",
        "        return super().render(renderable, options)\n",
        _TERMINAL + "test_k20_styles_stay_and_nothing_else_is_sent",
    ),
    Mutation(
        "K20",
        "a literal holds nothing that variable substitution reads",
        "text/spark_sql.py",
        '"\\\\\'\\"`${}"',
        '"\\\\\'\\"`"',
        _TEXT + "test_k20_a_literal_holds_no_character_of_a_second_language",
    ),
    Mutation(
        "K20",
        "settings that change what a text means are refused",
        "config/spark_config.py",
        "if name in SQL_SETTINGS or _OURS.fullmatch(name):",
        "if False:",
        _TEXT + "test_k20_settings_that_change_what_a_text_means_are_refused_by_name",
    ),
    Mutation(
        "K20",
        "ours win over the file's",
        "sink/spark/session.py",
        "        **jars,\n        **SQL_SETTINGS,\n",
        "        **jars,\n",
        _TEXT + "test_k20_our_settings_win_over_every_other",
    ),
    Mutation(
        "K20",
        "each further session has them",
        "sink/spark/session.py",
        "    _set_sql(made)\n",
        "",
        _TEXT + "test_k20_our_settings_win_over_every_other",
    ),
    Mutation(
        "K20",
        "so has one beside a session of the user's",
        "sink/spark/session.py",
        "return new_session(users)",
        "return users.newSession()",
        "sink/spark/test_own_session.py::test_k20_a_capture_in_a_session_of_the_users",
        spark=True,
    ),
    Mutation(
        "K20",
        "a lake's path is no pattern",
        "config/storage_config.py",
        "    if odd:\n",
        "    if False:\n",
        _TEXT + "test_k20_a_lake_path_that_hadoop_would_read_is_refused",
    ),
)

# -- K21: durable before named ---------------------------------------------------------------------
_DURABILITY: Final = "sink/durable/test_durability.py::"
_K21: Final[tuple[Mutation, ...]] = (
    Mutation(
        "K21",
        "the disk is waited for before the cut",
        "sink/lake_sink.py",
        " | self._tables.make_durable(record, previous, applied.there)",
        "",
        _DURABILITY + "test_k21_the_disk_has_all_that_a_cut_names_before_it_has_the_cut",
    ),
    Mutation(
        "K21",
        "folders are waited for, too",
        "sink/durable/durability.py",
        """        _collect(
            [(name, threads.submit(_sync_folder, folder)) for folder, name in folders.items()],
            failures,
        )
""",
        """        _collect([(name, threads.submit(_sync_folder, folder)) for folder, name in ()], failures)
""",
        _DURABILITY + "test_k21_the_disk_has_all_that_a_cut_names_before_it_has_the_cut",
    ),
    Mutation(
        "K21",
        "a torn checksum file makes a whole file unreadable",
        "sink/durable/durability.py",
        '        _sync(file.path.parent / f".{file.path.name}.crc", os.O_RDONLY)\n',
        "        pass\n",
        _DURABILITY + "test_k21_the_disk_has_all_that_a_cut_names_before_it_has_the_cut",
    ),
    Mutation(
        "K21",
        "a wait that failed is not believed the second time",
        "sink/delta_sink.py",
        "            distrust(self._paths)\n",
        "            pass\n",
        _DURABILITY + "test_k21_a_file_that_the_disk_refuses_is_not_named_and_is_made_again",
    ),
    Mutation(
        "K21",
        "after a power cut a log that looks whole proves nothing",
        "sink/durable/power_cut.py",
        "if any(",
        "if False and any(",
        _DURABILITY + "test_k21_a_batch_that_a_power_cut_tore_is_applied_again",
    ),
    Mutation(
        "K21",
        "what a vacuum relies on stays",
        "sink/durable/power_cut.py",
        "(first == 0 or _is_whole(table, first - 1))",
        "True",
        _DURABILITY + "test_k21_what_a_vacuum_relies_on_is_not_undone",
    ),
    Mutation(
        "K21",
        "a cut takes over what the disk has",
        "sink/durable/retention.py",
        """            if version != named and make_durable(
                {name: Commits(path, named, version)}, lake=paths.lake
            ):
""",
        "            if False:\n",
        _DURABILITY + "test_k21_a_cut_takes_over_a_maintenance_that_the_disk_has",
    ),
    Mutation(
        "K16",
        "a file is replaced as this process has read it",
        "lake/storage/object_storage.py",
        "seen = self._seen[key] if key in self._seen else self._present_tag(key)",
        "seen = self._present_tag(key)",
        "lake/storage/test_state.py::test_k16_a_paused_writer_sets_no_file_back",
    ),
    Mutation(
        "K16",
        "the lock is looked at once it is known what to remove",
        "lake/storage/storage.py",
        "        sizes = at.store.sizes(at.key)\n        check()\n",
        "        check()\n        sizes = at.store.sizes(at.key)\n",
        "lake/storage/test_state.py::test_k16_who_has_lost_the_lock_removes_nothing_of_its_new_holder",
    ),
)

# -- K22: nobody wedges the source -----------------------------------------------------------------
_WEDGE: Final = "pipeline/capture/test_wedge.py::"

_K22: Final[tuple[Mutation, ...]] = (
    Mutation(
        "K22",
        "a table whose files are damaged keeps no other from being compared",
        "pipeline/verify/verify.py",
        "if not is_of_one_table(error):",
        "if True:",
        "cli/test_damaged_tables.py::test_k22_f109_a_damaged_table_costs_itself_alone_and_its_way_out_is_named",
        spark=True,
    ),
    Mutation(
        "K22",
        "a pattern that never matched fails the run",
        "pipeline/capture/capture.py",
        "        _check_matched(context.config, state, resolved)\n",
        "",
        "pipeline/plan/test_unmatched.py::test_k22_a_run_that_has_read_an_archive_to_its_end_fails_on_a_typo",
    ),
    Mutation(
        "K22",
        "what the operating system refuses has a name",
        "pipeline/capture/capture.py",
        "with files_failing(config.sink.lake_path), sink.lock()",
        "with sink.lock()",
        "pipeline/capture/test_file_failures.py::test_k22_a_full_disk_at_any_step_of_a_run_is_named",
    ),
    Mutation(
        "K22",
        "a name that is too long for a folder is shortened",
        "lake/paths.py",
        "    if escaped and len(escaped) <= _FOLDER_NAME_BYTES_MAX:\n",
        "    if escaped:\n",
        "lake/test_paths.py::test_k22_every_name_has_a_plain_folder_that_fits",
    ),
    Mutation(
        "K22",
        "a shortened name carries a hash of the whole",
        "lake/paths.py",
        "hashlib.sha256(name.encode())",
        "hashlib.sha256(name[:8].encode())",
        "lake/test_paths.py::test_k22_two_names_never_share_a_folder",
    ),
    Mutation(
        "K22",
        "a log with a commit is no remains of a CREATE",
        "sink/delta/log.py",
        "    return all(name == _FIRST_COMMIT and not (log / name).stat().st_size for name in others)\n",
        "    return True\n",
        "sink/delta/test_half_made.py::test_k22_whatever_else_lies_there_stays",
    ),
    Mutation(
        "K22",
        "a batch that is taken up again suspends what fails again",
        "sink/lake_sink.py",
        "            if is_of_the_machine(failure) or (failure.retryable and not recovered):\n",
        "            if is_of_the_machine(failure) or failure.retryable:\n",
        _WEDGE + "test_k22_a_step_that_fails_suspends_its_target",
    ),
    Mutation(
        "K22",
        "a full disk suspends nobody",
        "sink/lake_sink.py",
        "            if is_of_the_machine(failure) or (failure.retryable and not recovered):\n",
        "            if failure.retryable and not recovered:\n",
        _WEDGE + "test_k22_what_the_machine_fails_suspends_nobody",
    ),
    Mutation(
        "K22",
        "what is caught up and fails again keeps nobody else from it",
        "sink/lake_sink.py",
        'again = recovered or record.kind == "catch_up"',
        "again = recovered",
        _WEDGE + "test_k22_a_table_that_fails_for_good_does_not_keep_others_from_catching_up",
    ),
    Mutation(
        "K22",
        "a load's damaged file stops no capture",
        "lake/loads.py",
        "            found.append(_damaged(folder, error))\n            continue\n",
        "            raise\n",
        "cli/test_ways_out.py::test_k22_a_table_that_others_changed_is_rebuilt_from_the_archive",
    ),
)

# -- K23: what decides a value is followed ---------------------------------------------------------
_K23: Final[tuple[Mutation, ...]] = (
    Mutation(
        "K23",
        "a column that no image of an update has may have changed",
        "pipeline/decode/decoding.py",
        "return (decoded.op == INSERT)[:, None] & ~after, updates",
        "return (decoded.op == INSERT)[:, None] & ~after, updates & False",
        "pipeline/decode/test_unlogged.py::test_k23_f120_a_column_that_no_image_has_is_not_taken_for_unchanged",
    ),
    Mutation(
        "K23",
        "a log inside InnoDB is no log of journals",
        "source/archive/files.py",
        "if _INNODB_NAME.fullmatch(name):",
        "if False:",
        "source/archive/test_inside_innodb.py::test_k5_files_of_a_log_inside_innodb_are_refused",
    ),
    Mutation(
        "K23",
        "a change of a generated column's base stops the table",
        "schema/evolution/alterations.py",
        "(name for name in (column.name.lower(), *column.bases) if name in changed)",
        "(name for name in ())",
        "schema/test_generated.py::test_k23_a_change_of_a_base_is_never_said_to_leave_the_table_as_it_is",
    ),
    Mutation(
        "K23",
        "a table of which nobody knows whether it has generated columns stops",
        "schema/evolution/alterations.py",
        'if changed and self._use("generated_columns") == "stop":',
        "if False:",
        "schema/test_generated.py::test_k23_a_table_that_may_have_generated_columns_needs_a_word",
    ),
    Mutation(
        "K23",
        "what a copy of the table computes again stops it",
        "schema/evolution/alterations.py",
        "if reading.recomputes and not column.is_steady:",
        "if False:",
        "schema/test_generated.py::test_k23_a_change_of_a_base_is_never_said_to_leave_the_table_as_it_is",
    ),
    Mutation(
        "K23",
        "bits of negative numbers are another number",
        "schema/evolution/value_changes.py",
        "if whole is not None and whole[0] < 0 and column.kind is Kind.BIT:",
        "if False:",
        "schema/evolution/test_value_changes.py::test_k23_bits_of_negative_numbers_are_another_number",
    ),
    Mutation(
        "K23",
        "AUTO_INCREMENT numbers NULLs in strict mode too",
        "schema/evolution/value_changes.py",
        "gives_values = new.auto_increment or is_timestamp or not modes.strict",
        "gives_values = is_timestamp or not modes.strict",
        "schema/evolution/test_value_changes.py::test_k23_auto_increment_numbers_nulls",
    ),
)

# -- K24: the same log -----------------------------------------------------------------------------
_SAME_LOG: Final = "position/start/test_same_log.py::"

_K24: Final[tuple[Mutation, ...]] = (
    Mutation(
        "K24",
        "the cursor's journal is as long as its offset",
        "position/start/same_log.py",
        "    if position.offset > sizes[position.journal]:",
        "    if False:",
        _SAME_LOG
        + "test_k24_a_cursor_of_an_earlier_version_is_checked_by_length_and_creation_time",
    ),
    Mutation(
        "K24",
        "the event that ends there is the one that ended there",
        "position/start/same_log.py",
        "    if found != event:",
        "    if found is None:",
        _SAME_LOG
        + "test_k24_f5_a_log_that_is_another_one_by_now_is_refused_and_the_same_one_is_not",
    ),
    Mutation(
        "K24",
        "a cursor remembers the last events before it",
        "pipeline/capture/progress.py",
        "last_event=self._last_event[1],",
        "last_event=None,",
        _SAME_LOG + "test_k24_pieces_of_an_open_transaction_move_neither_the_place_nor_its_event",
    ),
    Mutation(
        "K24",
        "a log that goes on by GTIDs has the last transaction that was read",
        "position/start/last_transaction.py",
        "if found is None or found == known:",
        "if found is not None or found == known:",
        "position/start/test_last_transaction.py::"
        "test_k24_another_server_with_another_transaction_of_that_gtid_is_refused",
    ),
    Mutation(
        "K24",
        "a MariaDB server holds the very transaction, not one of its number",
        "source/live/log_positions.py",
        "state.last.get(key, 0) < number <= reached",
        "number <= 0 <= reached",
        _SAME_LOG
        + "test_k24_a_mariadb_server_must_hold_the_very_transaction_and_not_one_of_its_number",
    ),
)

# -- K25: bounded ----------------------------------------------------------------------------------
_SIZES: Final = "binlog/framing/test_size_limits.py::"

_K25: Final[tuple[Mutation, ...]] = (
    Mutation(
        "K25",
        "an event of many packets is bounded as a whole",
        "binlog/framing/packets_kernel.py",
        "if total + length > state[LIMIT]:",
        "if length > state[LIMIT]:",
        _SIZES + "test_k25_f18_an_event_of_many_packets_stops_where_they_exceed_the_limit",
    ),
    Mutation(
        "K25",
        "a row of many packets is bounded as a whole",
        "binlog/rows/result_set.py",
        "if total_bytes > self._packet_bytes_max:",
        "if length > self._packet_bytes_max:",
        "binlog/kernels/test_result_rows.py::test_k25_f18_a_row_larger_than_the_limit_stops_at_its_header",
    ),
    Mutation(
        "K25",
        "what a compressed event claims to unpack to is bounded",
        "binlog/framing/compressed.py",
        "    if len(large):",
        "    if False:",
        _SIZES + "test_k25_f18_a_compressed_event_may_not_claim_to_unpack_to_more_than_the_limit",
    ),
    Mutation(
        "K25",
        "a table map has no more labels than a table can have",
        "binlog/tables/table_map_metadata.py",
        "if len(columns) == count or labels > _LABELS_MAX:",
        "if False:",
        _SIZES + "test_k25_a_table_map_with_counts_that_no_table_has_is_refused",
    ),
    Mutation(
        "K25", "facts of a table that did not change are referred to", "lake/table_facts.py",
        'reference = table.facts or ("" if before is None else before.facts)',
        "reference = table.facts",
        "lake/test_table_facts.py::test_k25_a_table_whose_facts_are_the_same_is_referred_to_and_a_changed_one_is_written_alone",
    ),
    Mutation(
        "K25", "facts that a kept cut refers to stay", "lake/table_facts.py",
        " and name not in needed:\n", ":\n",
        "lake/test_table_facts.py::test_k25_facts_that_no_cut_refers_to_are_pruned",
    ),
    Mutation(
        "K25", "a run's lists of decisions have an end", "pipeline/capture/summary.py",
        "entries[: ENTRIES_KEPT_MAX - len(kept)]", "entries",
        "pipeline/capture/test_summary.py::test_k25_a_run_keeps_its_latest_cut_alone",
    ),
)  # fmt: skip

# -- K26: secrets stay out of text -----------------------------------------------------------------
_JVM: Final = "sink/spark/test_jvm.py::"
_K26: Final[tuple[Mutation, ...]] = (
    Mutation(
        "K26",
        "the longest secret of a text is replaced first",
        "text/hide.py",
        "sorted(forms, key=len, reverse=True)",
        "list(forms)",
        "config/test_secrets.py::test_k26_f110_a_variable_that_contains_another_leaves_nothing",
    ),
    Mutation(
        "K26",
        "a host has no credentials",
        "config/pipeline_config.py",
        r"""[^\s@/:]+""",
        ".+",
        "config/test_secrets.py::test_k26_f110_a_host_with_credentials_is_refused_and_not_shown",
    ),
    Mutation(
        "K26",
        "a server whose TLS was taken out is not told to do without",
        "source/live/server_errors.py",
        """if it has one, find out "
            "what between this machine and the server takes TLS out of its greeting",""",
        """or set "
            "source.tls.mode to off",""",
        "config/test_secrets.py::test_k26_f111_nobody_is_told_to_do_without_tls",
    ),
    Mutation(
        "K26",
        "half of a surrogate pair is found when the file is read",
        "config/references.py",
        """.encode("utf-16", "surrogatepass").decode("utf-16")""",
        "",
        "config/test_secrets.py::test_k26_f111_half_a_pair_is_a_mistake_and_not_shown",
    ),
    Mutation(
        "K26",
        "a secret of the settings is no argument of the JVM",
        "sink/spark/session.py",
        "for name, value in settings.items() if not is_secret(name, value)}",
        "for name, value in settings.items()}",
        _JVM + "test_k26_secrets_are_no_arguments_and_are_given_to_spark",
    ),
    Mutation(
        "K26",
        "a secret that only arguments can carry is refused",
        "config/spark_config.py",
        "if _OF_START.fullmatch(name) and is_secret(name, text):",
        "if False:",
        _JVM + "test_k26_a_secret_that_only_arguments_can_carry_is_refused",
    ),
    Mutation(
        "K26",
        "definitions hold references in place of secrets",
        "config/references.py",
        "if self.keep and path[-1] in _SECRETS_OF_RUNS:",
        "if False:",
        _SECRETS + "test_k26_definitions_hold_references_in_place_of_secrets",
    ),
    Mutation(
        "K26",
        "Dagster's resource takes names of variables, and no value",
        "orchestration/resource.py",
        "if not isinstance(text, str) or not VARIABLE.fullmatch(text):",
        "if not isinstance(text, str):",
        _SECRETS + "test_k26_a_resource_takes_no_value",
    ),
    Mutation(
        "K26",
        "clear text is sent over checked TLS alone",
        "source/live/login.py",
        "(name in _CLEAR_TEXT and _is_verified(connection))",
        "name in _CLEAR_TEXT",
        "source/live/test_login.py::test_k26_clear_text_is_never_sent_to_an_unchecked_server",
    ),
    Mutation(
        "K26",
        "every connection asks what a server may see of the password",
        "source/live/connection.py",
        '        "auth_plugin_map": LoginPlugins(),\n',
        "",
        "source/live/test_login.py::test_k26_clear_text_is_never_sent_to_an_unchecked_server",
    ),
    Mutation(
        "K26",
        "no key is taken from another machine without TLS",
        "source/live/login.py",
        "takes_key = connection._secure or",
        "takes_key = True or",
        "source/live/test_login.py::test_k26_no_key_is_taken_from_another_machine_without_tls",
    ),
    Mutation(
        "K26",
        "a literal is replaced in what is published of a statement",
        "schema/ddl/published.py",
        'return "?" if is_literal else None',
        "return None",
        "schema/ddl/test_published.py::test_k26_no_literal_is_in_what_is_published",
    ),
    Mutation(
        "K26",
        "what cannot be read with certainty is published without its text",
        "schema/ddl/published.py",
        "        if breaks_off:\n            return None\n",
        "",
        "schema/ddl/test_published.py::test_k26_broken_and_random_texts_give_nothing_away",
    ),
    Mutation(
        "K26",
        "what a server quotes goes",
        "text/server_messages.py",
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
        "test_private_folder.py::test_k26_a_spill_folder_of_another_user_is_refused",
    ),
    Mutation(
        "K26",
        "a link in the place of the spill folder is not followed",
        "private_folder.py",
        "os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC",
        "os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC",
        "test_private_folder.py::test_k26_a_link_in_the_place_of_the_spill_folder_is_not_followed",
    ),
    Mutation(
        "K26",
        "a jar that is served has the checksum of the package",
        "sink/spark/jars.py",
        "if pinned.get(jar.name) != sha256:",
        "if jar.name not in pinned:",
        "sink/spark/test_java_and_jars.py::test_k26_a_jar_that_another_source_serves_is_refused",
    ),
    Mutation(
        "K26",
        "the lake's own folder is closed",
        "lake/storage/lock.py",
        """        # rows in staging, quarantine and prepared transactions are below it (K26)
        make_private(path.parent)
""",
        """        path.parent.mkdir(
            parents=True, exist_ok=True
        )  # rows in staging, quarantine and prepared transactions are below it (K26)
""",
        "test_private_folder.py::test_k26_a_lakes_own_folder_is_closed_at_the_next_run",
    ),
    Mutation(
        "K26",
        "a secret of the settings is no argument of the JVM",
        "sink/spark/session.py",
        "for name, value in settings.items() if not is_secret(name, value)}",
        "for name, value in settings.items()}",
        _JVM + "test_k26_secrets_are_no_arguments_and_are_given_to_spark",
    ),
    Mutation(
        "K26",
        "a secret that only arguments can carry is refused",
        "config/spark_config.py",
        "if _OF_START.fullmatch(name) and is_secret(name, text):",
        "if False:",
        _JVM + "test_k26_a_secret_that_only_arguments_can_carry_is_refused",
    ),
)

# -- K27: same input, same output ------------------------------------------------------------------
_K27: Final[tuple[Mutation, ...]] = (
    Mutation(
        "K27",
        "a function that is not known to be deterministic is refused",
        "config/expressions.py",
        "name not in _FUNCTIONS and name not in _OPERATORS",
        "False",
        "config/test_rules.py::test_k27_what_can_give_something_else_the_next_time_is_refused",
    ),
    Mutation(
        "K27",
        "a constant is no time of evaluation",
        "config/expressions.py",
        "and _TIME_WORD.fullmatch(str(node.this))",
        "and False",
        "config/test_rules.py::test_k27_what_can_give_something_else_the_next_time_is_refused",
    ),
    Mutation(
        "K27",
        "nor is what a function makes of constants",
        "config/expressions.py",
        "and not _may_be_constant(node)",
        "and False",
        "config/test_rules.py::test_k27_what_can_give_something_else_the_next_time_is_refused",
    ),
)

# -- K28: a name shows its table -------------------------------------------------------------------
_RENAMES: Final = "pipeline/targets/test_renames.py::"
_K28: Final[tuple[Mutation, ...]] = (
    Mutation(
        "K28",
        "rows go with the name unless a setting says otherwise",
        "config/schema_policy.py",
        '"stop"] = "by_name"',
        '"stop"] = "follow"',
        _RENAMES + "test_f26_k28_the_nightly_rebuild",
    ),
    Mutation(
        "K28",
        "a name that could not take over its table's rows is suspended",
        "pipeline/targets/targets.py",
        "            lost.append(existing.name)\n",
        "            pass\n",
        _RENAMES + "test_k28_rows_that_were_not_captured_suspend_the_name_until_it_is_loaded",
    ),
    Mutation(
        "K28",
        "rows of a suspended target are not those of its table",
        "pipeline/targets/targets.py",
        "elif may_carry and change.known.name not in standing:",
        "elif may_carry:",
        _RENAMES + "test_k28_a_suspended_name_gets_the_rows_of_a_table_that_goes_on",
    ),
    Mutation(
        "K28",
        "rows that another rule made are not carried",
        "pipeline/targets/carrying.py",
        """    alike = [
        other for other in routes if _is_same(other.rule, route.rule) and _fits(other.rule, origin)
    ]
""",
        "    alike = [other for other in routes]\n",
        _RENAMES + "test_k28_rows_of_another_rule_or_history_need_a_load",
    ),
    Mutation(
        "K28",
        "tables that exchange their names take over what the other one held before",
        "pipeline/targets/targets.py",
        "origin = before[change.known.name]",
        "origin = self._targets[change.known.name]",
        _RENAMES + "test_k28_tables_that_exchange_their_names_take_over_what_was_there_before",
    ),
    Mutation(
        "K28",
        "a target that cannot be given its rows waits for a load",
        "sink/next_cut.py",
        'left = left.model_copy(update={"needs_reload": True})',
        "pass",
        _RENAMES + "test_k28_a_target_that_could_not_be_given_its_rows_waits_for_a_load",
    ),
    Mutation(
        "K28",
        "rows that were read of a renamed table are no other table's",
        "pipeline/load/side.py",
        'if state.kind == "rebuild" else _leaving_renamed(config)',
        "if state else {}",
        "pipeline/load/test_parts.py::test_k28_a_table_that_is_renamed_leaves_its_load",
    ),
)

# -- K29: a statement may carry rows ---------------------------------------------------------------
_REACH: Final = "schema/evolution/test_reach.py::"
_K29: Final[tuple[Mutation, ...]] = (
    Mutation(
        "K29",
        "what a statement does not name may be reached",
        "schema/evolution/reach.py",
        """    return named + _through_programs(context, statement, named)


def _created(""",
        """    return named


def _created(""",
        _REACH + "test_k29_without_a_proof_every_table_may_be_reached",
    ),
    Mutation(
        "K29",
        "a SELECT in a CREATE TABLE carries rows",
        "schema/evolution/reach.py",
        "    if statement.kind is _K.CREATE_TABLE_SELECT:\n",
        "    if False:\n",
        _REACH + "test_k29_mysqls_create_table_select_writes_its_own_table_alone",
    ),
    Mutation(
        "K29",
        "the empty name among an event's databases stands for any",
        "binlog/events/query.py",
        'if not names or b"" in names:',
        "if not names:",
        "binlog/events/test_parsers.py::test_k29_the_databases_of_a_statement",
    ),
    Mutation(
        "K29",
        "a trigger writes what its body names",
        "schema/programs.py",
        "                    named |= program.body\n                    if program.may_write(writes):",
        "                    named |= program.body\n                    if False:",
        _REACH + "test_k29_f72_programs_prove_what_a_statement_leaves_alone",
    ),
    Mutation(
        "K29",
        "what was dropped since is not in the catalog",
        "schema/programs.py",
        "            (number, at) > place and (not table or table <= writes)",
        "            False and (number, at) > place and (not table or table <= writes)",
        _REACH + "test_k29_a_catalog_proves_nothing_of_what_was_changed_since",
    ),
    Mutation(
        "K29",
        "rows that are unknown under one name are unknown under the next",
        "pipeline/targets/targets.py",
        "            if existing is None and is_unknown:\n",
        "            if False:\n",
        "pipeline/capture/test_statement_rows.py::test_k29_k28_a_table_whose_rows_are_unknown_takes_that_to_its_new_name",
    ),
    Mutation(
        "K4",
        "a suspended table takes its suspension to its new name",
        "pipeline/targets/targets.py",
        "            if any(route.target in self._suspended for route in",
        "            if any(False for route in",
        "pipeline/capture/test_statement_rows.py::test_k4_k28_a_suspended_table_takes_its_suspension_to_its_new_name",
    ),
    Mutation(
        "K29",
        "a query may call a stored function, or read a view that does",
        "schema/evolution/reach.py",
        "is_query and not _may_call(context)",
        "is_query",
        _REACH + "test_k29_a_query_that_calls_no_stored_function_writes_nothing",
    ),
    Mutation(
        "K29",
        "a join's USING is not where the tables of a statement end",
        "schema/ddl/dml.py",
        '{"SET", "WHERE", "ORDER"',
        '{"USING", "SET", "WHERE", "ORDER"',
        "schema/ddl/test_classify.py::test_kind_and_tables",
    ),
    Mutation(
        "K29",
        "an account that may not see all programs sees none",
        "source/live/programs.py",
        '    return granted >= _NEEDED or "ALL PRIVILEGES" in granted',
        "    return True",
        "pipeline/capture/test_statement_rows.py::test_k29_an_account_that_sees_no_triggers_proves_nothing",
    ),
    Mutation(
        "K22",
        "a table that is created again replaces what the batch has of it",
        "sink/staging/staging.py",
        "            _discard(self._targets.pop(target.name).part, self._paths.lake)\n",
        "            pass\n",
        "pipeline/capture/test_statement_rows.py::test_k22_f114_a_table_that_is_created_again_with_its_rows_replaces_what_the_batch_has",
    ),
    Mutation(
        "K22",
        "a statement among rows empties no target",
        "pipeline/capture/interpret.py",
        "        if change.empties:\n",
        "        if False:\n",
        "pipeline/capture/test_statement_rows.py::test_k22_f114_a_table_that_is_created_again_with_its_rows_replaces_what_the_batch_has",
    ),
)

# -- K32: what the server adds is the server's -----------------------------------------------------
_STATEMENT_OBJECTS: Final[tuple[Mutation, ...]] = (
    Mutation(
        "K32",
        "objects that are no base tables are known after any options",
        "schema/ddl/ddl.py",
        """        if tokens.skip_group():
            continue
        tokens.next()
        if tokens.take("="):""",
        """        if tokens.next().key not in _SHOWN_OPTIONS:
            return None
        if tokens.take("="):""",
        "schema/ddl/test_classify.py::test_k32_f81_what_is_no_base_table_is_known_after_any_options",
    ),
)
_MARKS: Final = "binlog/tables/test_server_columns.py::"
_SERVERS: Final = "pipeline/capture/test_server_columns.py::"
_SERVER_COLUMNS: Final[tuple[Mutation, ...]] = (
    Mutation(
        "K32",
        "how a file is kept does not stop a dump",
        "binlog/framing/framing.py",
        "                if self.dump and status == Status.STOP_TYPE and",
        "                if False and",
        "campaigns/events/test_event_types.py::test_k32_f77_a_dump_is_in_plain_behind_start_encryption",
    ),
    Mutation(
        "K32",
        "the column of a hash key is the server's",
        "binlog/tables/server_columns.py",
        "        while own > 1 and _may_be_hash(columns[own - 1], own_names):\n",
        "        while False:\n",
        _MARKS + "test_k32_f79_the_column_of_a_hash_key_is_no_column_of_the_table",
    ),
    Mutation(
        "K32",
        "a column that the table is known to have is its own",
        "binlog/tables/server_columns.py",
        "        and column.name.lower() not in own_names\n",
        "",
        _MARKS + "test_k32_f79_a_column_that_the_table_is_known_to_have_is_its_own",
    ),
    Mutation(
        "K32",
        "the end of a period leaves every key",
        "binlog/tables/server_columns.py",
        "        if index < len(columns) and columns[index].name.lower() != row_end.lower()\n",
        "        if index < len(columns)\n",
        _MARKS + "test_k32_f80_a_declared_period_is_the_tables_own_and_leaves_the_key",
    ),
    Mutation(
        "K32",
        "nothing is guessed of columns that look like a period",
        "binlog/tables/server_columns.py",
        "    if is_known or key:  #",
        "    if True:  #",
        _MARKS + "test_k32_f80_the_servers_period_is_marked_by_the_key_or_by_what_is_known",
    ),
    Mutation(
        "K32",
        "earlier versions are no rows",
        "binlog/rows/current_rows.py",
        "_of_current_rows(logged, schema.row_end) if schema.row_end else logged",
        "logged",
        _MARKS + "test_k32_f80_current_rows_are_the_rows_of_the_table",
    ),
    Mutation(
        "K32",
        "a sequence is no table",
        "transaction/table_maps.py",
        "    _leaves_out_sequences = True\n",
        "    _leaves_out_sequences = False\n",
        _SERVERS + "test_k32_f79_f80_from_the_log_and_then_a_snapshot",
    ),
    Mutation(
        "K32",
        "the catalog shows which keys are hashes",
        "schema/catalog.py",
        """        elif str(row["index_type"]).upper() == "HASH":\n""",
        "        elif False:\n",
        _SERVERS + "test_k32_f79_f80_from_a_snapshot_and_then_the_log",
    ),
)

# -- K30: names are compared as the server compares them -------------------------------------------
_CASE: Final = "pipeline/capture/test_names.py::"
_IN_ANY_CASE: Final = _CASE + "test_k30_f73_a_statement_means_the_table_in_any_case"
_K30: Final[tuple[Mutation, ...]] = (
    Mutation(
        "K30",
        "a statement's tables are those that the server means",
        "schema/ddl/tokens.py",
        "return None if second is None else self.modes.names.pair(first, second)",
        "return None if second is None else (first, second)",
        _IN_ANY_CASE,
    ),
    Mutation(
        "K30",
        "patterns mean what the server means",
        "text/table_names.py",
        "_part(names.fold(match[part]))",
        "_part(match[part])",
        _CASE + "test_k30_every_command_compares_alike",
    ),
    Mutation(
        "K30",
        "a name stands for one table in any case of a log",
        "binlog/tables/table_map.py",
        "return TableName(*names.pair(database, table), reader.at)",
        "return TableName(database, table, reader.at)",
        _CASE + "test_k30_names_that_a_server_stores_as_given_are_one_table",
    ),
    Mutation(
        "K30",
        "letters are lowered as the servers lower them",
        "text/table_names.py",
        "name.translate(_lower_case())",
        "name.lower()",
        _CASE + "test_k30_letters_are_lowered_as_the_server_lowers_them",
    ),
    Mutation(
        "K30",
        "a source that compares otherwise is not read in silence",
        "pipeline/plan/planning.py",
        "if not differing:",
        "if True:",
        _CASE + "test_k30_a_source_that_compares_otherwise_is_not_read_in_silence",
    ),
    Mutation(
        "K30",
        "a table that a person names is the one that the server means",
        "pipeline/targets/table_filter.py",
        "name if name in known else names.fold(name)",
        "name",
        _IN_ANY_CASE,
    ),
)

ATTACKS: Final = (
    *(*_K20, *_K21, *_K22, *_K23, *_K24, *_K25, *_K26, *_K27, *_K28),
    *_K29,
    *_STATEMENT_OBJECTS,
    *_SERVER_COLUMNS,
    *_K30,
)
