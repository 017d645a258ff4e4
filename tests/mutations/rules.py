"""What is taken out of each rule that keeps the data right, and the test that must fail then.

What is held twice cannot be seen by taking one of the two out, and is not here: that a commit is
not made again is looked up before Spark is asked, before the commit, and by Delta itself under the
transaction id.
"""

# ruff: noqa: E501 - texts of the sources stand here as they do there

from __future__ import annotations

from typing import Final

from tests.mutations.rules_attacks import ATTACKS
from tests.mutations.rules_grammar import GRAMMAR
from tests.mutations.rules_loading import LOADING
from tests.mutations.rules_reading import READING
from tests.mutations.rules_servers import SERVERS
from tests.mutations.runner import Mutation

_STAGING: Final = "sink/staging/test_staging.py::"
_RECONCILE: Final = "pipeline/plan/test_reconcile.py::"
_EXACT: Final = "pipeline/targets/test_exact.py::"
_MASKING: Final = "pipeline/targets/test_masking.py::"

_WRITING: Final[tuple[Mutation, ...]] = (
    # -- K1: one total order -----------------------------------------------------------------------
    Mutation(
        "K1", "a seq tells the image before from the one after", "sink/modes/expand.py",
        "(after, arriving, op, with_after_bit(rows.seq)),", "(after, arriving, op, rows.seq),",
        _STAGING + "test_k11_expansion_equals_its_twin",
    ),
    Mutation(
        "K1", "the bit is set where the rows begin, in a slice too", "sink/modes/expand.py",
        '''    words = np.frombuffer(seq.buffers()[1], dtype="<u8")[
        2 * seq.offset : 2 * (seq.offset + len(seq))
    ].copy()
''', '    words = np.frombuffer(seq.buffers()[1], dtype="<u8")[: 2 * len(seq)].copy()\n',
        _STAGING + "test_k1_the_after_bit_is_set_on_slices_too",
    ),
    Mutation(
        "K1", "the row ordinal is part of a seq", "binlog/kernels/row_events.py",
        '''        seq[row, 0] = (
            (np.uint64(offset) & _LOW_OFFSET) << _OFFSET_SHIFT
            | np.uint64(event_ordinal) << _EVENT_SHIFT
            | np.uint64(row_ordinal[row]) << _ONE
        )
''', '''        seq[row, 0] = (np.uint64(offset) & _LOW_OFFSET) << _OFFSET_SHIFT | np.uint64(event_ordinal) << _EVENT_SHIFT
''',
        "binlog/rows/test_decode.py::test_k1_ops_places_and_seq_of_each_change",
    ),
    Mutation(
        "K1", "another server begins an epoch", "pipeline/plan/reconcile.py",
        "if stored.epoch == cut.cursor.epoch and not stored", "if not stored",
        _RECONCILE + "test_k1_a_cursor_that_has_moved_to_another_server_is_of_a_later_epoch",
    ),
    # -- K2: staged, recorded, then it acts --------------------------------------------------------
    Mutation(
        "K2", "a staged file is compared with its recorded checksum", "lake/staged_file.py",
        "if (size_bytes, found) != (file.size_bytes, file.sha256):", "if size_bytes < 0:",
        _STAGING + "test_k2_files_are_recorded_with_their_checksums",
    ),
    Mutation(
        "K2", "staged files without a record are garbage", "sink/lake_sink.py",
        "            if folder != keep:\n", "            if False:\n",
        _STAGING + "test_k2_what_has_no_record_is_garbage",
    ),
    Mutation(
        "K2", "the files of the recorded batch stay", "sink/lake_sink.py",
        "keep = None if pending is None else self.paths.staging(pending.batch_number)",
        "keep = None",
        _STAGING + "test_k2_what_has_no_record_is_garbage",
    ),
    Mutation(
        "K2", "the cursor follows each cut", "pipeline/publish.py",
        '''    reach("before_cursor")
    cursors.write(cut.cursor, {**cursor_metadata(cut.interval, cut), **(metadata or {})})
''',
        '''    reach("before_cursor")
''',
        "pipeline/capture/test_end_to_end.py::test_k2_bounded_runs_join_and_the_cursor_follows_each_cut", spark=True,
    ),
    Mutation(
        "K2", "each DML of a batch has an id of its own, 16 n + step", "sink/delta/commit.py",
        "return STEPS_PER_BATCH * batch_number + step", "return STEPS_PER_BATCH * batch_number",
        "sink/delta/test_table_checks.py::test_k2_each_statement_of_a_batch_has_an_id_of_its_own",
    ),
    Mutation(
        "K2", "a commit that is made here never takes another's place", "sink/delta/plain_commit.py",
        "if not storage_of(file).put_if_absent(file, text.encode()):",
        "if storage_of(file).replace(file, text.encode()):",
        "sink/delta/test_plain_commit.py::test_k2_a_version_that_exists_is_never_written",
    ),
    # -- K3: cursor and cut ------------------------------------------------------------------------
    Mutation(
        "K3", "a restore is one to its version", "sink/apply/external_writes.py",
        "        and commit.restored == target.restores\n", "",
        "sink/delta/test_batch_numbers.py::"
        "test_k3_a_restore_under_its_number_is_one_to_its_version_and_the_newest_change",
    ),
    Mutation(
        "K3", "a cursor ahead of the lake stops", "pipeline/plan/reconcile.py",
        "    if stored.batch_number > cut.batch_number:\n", "    if False:\n",
        _RECONCILE + "test_k3_cursor_ahead_of_the_lake_stops",
    ),
    Mutation(
        "K3", "a lost cursor is rebuilt from the last cut", "pipeline/plan/reconcile.py",
        'return Reconciled(cut.cursor, f"no cursor: rebuilt from cut {cut.batch_number}", True)',
        'return Reconciled(None, f"no cursor: rebuilt from cut {cut.batch_number}", True)',
        _RECONCILE + "test_k3_lost_cursor_is_rebuilt_from_the_last_cut",
    ),
    Mutation(
        "K3", "a cut that a short cursor was not written after does not make it whole",
        "position/short_cursor.py",
        "    return cursor if is_same else None\n", "    return cursor\n",
        _RECONCILE + "test_k3_a_short_cursor_later_than_another_cut_of_its_number_stops",
    ),
    Mutation(
        "K3", "only what the cut has is left out of a cursor", "position/short_cursor.py",
        "if getattr(cursor, name) and getattr(cursor, name) == getattr(at_cut, name)",
        "if getattr(cursor, name)",
        _RECONCILE + "test_k3_a_short_cursor_is_decided_like_the_whole_one",
    ),
    Mutation(
        "K3", "a record without its predecessor's cut stops", "lake/state.py",
        "ahead = [batch for batch in batches if batch > number + 1]", "ahead: list[int] = []",
        _STAGING + "test_k3_a_record_without_its_predecessors_cut_stops",
    ),
    Mutation(
        "K3", "a cut found by few reads is the one that reading all finds", "lake/cut_order.py",
        "        if _only_grows(previous, cut):\n", "        if True:\n",
        "lake/test_cut_order.py::test_it_is_the_cut_that_reading_every_one_finds",
    ),
    Mutation(
        "K3", "what was listed under the lock is forgotten with it", "sink/lake_sink.py",
        "                self._lock_check = None\n                self._known = None\n",
        "                self._lock_check = None\n",
        "sink/test_listings.py::test_what_another_run_wrote_is_seen_once_the_lock_is_held_again",
    ),
    Mutation(
        "K3", "the run of the cursor is never deleted from Dagster",
        "orchestration/jobs/run_retention.py",
        "kept = _runs_in_use(instance, source, translator) if old else set()",
        "kept: set[str] = set()",
        "orchestration/test_run_retention.py"
        "::test_the_runs_of_the_cursor_and_of_each_table_s_newest_event_stay",
    ),
    Mutation(
        "K3", "a cursor goes back only by a person's hand", "position/cursor.py",
        "        if not replace and latest is not None and _is_earlier(cursor, latest):\n",
        "        if False:\n",
        "position/test_cursor_stores.py::test_k3_only_a_persons_decision_goes_back",
    ),
    Mutation(
        "K3", "a cursor that another writer wrote is not overwritten", "position/cursor.py",
        "if self._has_seen and _sort_key(latest) != _sort_key(self._seen):", "if False:",
        "position/test_cursor_stores.py::test_k3_compare_and_swap_a_second_writer_is_refused",
    ),
    Mutation(
        "K3", "a damaged cursor is not a cursor", "position/cursor_file.py",
        '''        if (
            document.get("sha256") != _checksum(body)
            or not {"cursor", "metadata", "at_us"} <= body.keys()
        ):
''', '        if not {"cursor", "metadata", "at_us"} <= body.keys():\n',
        "position/test_cursor_files.py::test_k3_a_changed_byte_is_found_by_the_checksum",
    ),
    Mutation(
        "K3", "a table that was set back is noticed", "sink/delta/table_checks.py",
        "    if there.version < table.table_version:\n", "    if False:\n",
        "sink/delta/test_table_checks.py::test_k3_a_table_that_is_older_than_the_cut_is_noticed",
    ),
    Mutation(
        "K3", "what others wrote to a table is noticed", "sink/delta/table_checks.py",
        "if not any(is_of_batch(commit, app_id=app_id, batch_number=number) for number in own):",
        "if False:",
        "sink/delta/test_table_checks.py::test_k3_a_commit_of_others_is_noticed",
    ),
    Mutation(
        "K3", "a commit is of a batch whose record has the table", "sink/delta/table_checks.py",
        "        or any(made.table == name for made in read_record(paths, number).targets)\n",
        "        or read_record(paths, number) is not None\n",
        "sink/delta/test_batch_numbers.py::"
        "test_k3_a_commit_under_the_number_of_a_batch_without_the_target_is_of_others",
    ),
    Mutation(
        "K3", "only commits after the cut are of batches since then", "sink/delta/table_checks.py",
        "    if there is None or there.version <= cut.tables[name].table_version:\n",
        "    if existing is None:\n",
        "sink/delta/test_batch_numbers.py::"
        "test_k3_a_table_that_has_lost_the_batch_of_the_cut_is_noticed",
    ),
    Mutation(
        "K3", "what others wrote after a batch is not its own", "sink/apply/merge.py",
        "    if done and there is not None:\n", "    if False:\n",
        "sink/delta/test_batch_numbers.py::"
        "test_k3_what_others_wrote_after_a_batch_is_not_taken_for_it",
    ),
    Mutation(
        "K2", "a later batch in a table hides none", "sink/apply/merge.py",
        "    if newest > record.batch_number or (", "    if (",
        "sink/delta/test_batch_numbers.py::test_k2_a_later_batch_in_the_table_hides_none",
    ),
    Mutation(
        "K2", "a commit under its number is not a restore", "sink/apply/merge.py",
        " or (newest == record.batch_number and not has_id):", ":",
        "sink/delta/test_batch_numbers.py::test_k2_a_commit_under_its_number_is_not_the_restore",
    ),
    Mutation(
        "K4", "what a batch gave a target that it left behind is taken back",
        "pipeline/capture/catch_up.py",
        "            self._take_back(name)\n", "",
        "pipeline/capture/test_changelog_suspension.py::"
        "test_k4_what_fails_after_its_commit_is_caught_up_once",
    ),
    Mutation(
        "K4", "a run that has lost its lease gives a changelog no batch twice",
        "sink/apply/merge.py",
        "    check_taken_back(paths, record, target)\n", "",
        "sink/delta/test_batch_numbers.py::"
        "test_k4_a_run_that_has_lost_its_lease_gives_a_changelog_no_batch_twice",
    ),
    Mutation(
        "K4", "a target that catches up knows its table as of its own place",
        "pipeline/targets/targets.py",
        "                and self._catching_up not in led_to\n", "",
        "pipeline/capture/test_changelog_suspension.py::"
        "test_k4_a_second_target_of_a_table_catches_up_over_its_creation",
    ),
    Mutation(
        "K3", "a table is known to be as the cut says only while its log's folder is unchanged",
        "sink/delta/table_checks.py",
        "return self._known.get(name) == entry", "return name in self._known",
        "sink/delta/test_table_checks.py::"
        "test_k3_whatever_happens_to_a_table_is_noticed_by_the_next_comparison",
    ),
    Mutation(
        "K3", "a folder that has just changed is not remembered", "sink/delta/table_checks.py",
        "    if time.time_ns() - found.st_ctime_ns < _SETTLED_NS:\n", "    if False:\n",
        "sink/delta/test_table_checks.py::test_k3_a_folder_that_has_just_changed_is_not_known",
    ),
    Mutation(
        "K3", "a cut refers to a target's state only where it is the same", "lake/table_facts.py",
        'return reference if is_whole or _facts_at(folder, reference).state == state else ""',
        "return reference",
        "lake/test_table_facts.py::"
        "test_k3_a_cut_is_read_as_it_was_written_whatever_becomes_of_its_targets",
    ),
    # -- K4: a target that fails -------------------------------------------------------------------
    Mutation(
        "K4", "a suspended table is not read as of a cut", "sink/read/cuts.py",
        "if held is not None and not allow_suspended:", "if False:",
        "sink/read/test_finding.py::test_k4_a_table_suspended_in_the_cut_is_refused_with_its_own_place",
    ),
    Mutation(
        "K4", "views leave suspended tables out", "sink/read/read.py",
        "[name for name in cut.tables if name not in cut.cursor.suspended]", "list(cut.tables)",
        "sink/read/test_finding.py::test_k4_views_leave_suspended_tables_out_and_quote_every_name",
    ),
    Mutation(
        "K4", "a target that was left behind is caught up by keys", "sink/next_cut.py",
        'return was and follows and record.kind == "batch"', "return was",
        _EXACT + "test_k4_k12_standing_still_and_catching_up_end_it",
    ),
    Mutation(
        "K4", "what fails for one table suspends that table alone",
        "pipeline/capture/suspension.py",
        "    if not _is_of_one_table(error, stretch):\n", "    if True:\n",
        "pipeline/capture/test_suspension.py::test_k4_a_value_and_a_statement_suspend_their_tables_alone", spark=True,
    ),
    Mutation(
        "K4", "a target that fails in a batch is left where the batch begins", "sink/lake_sink.py",
        "                failing[name] = error\n", "                pass\n",
        "pipeline/capture/test_wedge.py::test_k22_a_step_that_fails_suspends_its_target",
    ),
    # -- K10, K11: reduction -----------------------------------------------------------------------
    Mutation(
        "K10", "an absent value is taken from the image before", "sink/modes/expand.py",
        "        after = filled(after, before, from_before)\n", "",
        _STAGING + "test_k10_absent_columns_are_marked_and_filled_from_the_before_image",
    ),
    Mutation(
        "K10", "what an image does not hold is marked", "sink/modes/expand.py",
        "there = (present if image is after else before_present)[chosen, index]",
        "there = np.ones(count, np.bool_)",
        _STAGING + "test_k10_absent_columns_are_marked_and_filled_from_the_before_image",
    ),
    Mutation(
        "K10", "a target's own columns do not make an image whole", "pipeline/targets/shape.py",
        "bits.append(np.packbits(np.hstack([of_source, of_added])",
        "bits.append(np.packbits(np.hstack([of_source | 1, of_added])",
        "pipeline/targets/test_shaping.py::test_k10_absent_columns_stay_absent",
    ),
    Mutation(
        "K10", "of a key each column has its last present value", "sink/modes/reduce.py",
        'columns.append(f", max_by(c{position}, CASE WHEN {there} THEN _seq END) AS c{position}")',
        'columns.append(f", max_by(c{position}, _seq) AS c{position}")',
        "sink/apply/test_merge_model.py::test_k10_k11_batches_equal_a_plain_model", spark=True,
    ),
    Mutation(
        "K10", "no limit of a date passes through another calendar", "config/spark_config.py",
        '"spark.sql.parquet.filterPushdown.date": "false"',
        '"spark.sql.parquet.filterPushdown.date": "true"',
        "sink/apply/test_calendar.py::test_k10_f66_a_merge_finds_keys_in_the_gap_of_the_gregorian_calendar", spark=True,
    ),
    Mutation(
        "K10", "the last row of a key counts", "sink/modes/reduce.py",
        'f"_seq DESC) AS _rank FROM {view}) WHERE _rank = 1"',
        'f"_seq) AS _rank FROM {view}) WHERE _rank = 1"',
        "sink/apply/test_merge_model.py::test_k10_k11_batches_equal_a_plain_model", spark=True,
    ),
    Mutation(
        "K10", "a history has every version, not the last one alone", "sink/modes/versions.py",
        "WHERE _op = {THERE} OR _there IS NULL OR _seq > _there", "WHERE _op <> {UPDATE}",
        "sink/modes/test_modes_model.py::test_k10_k11_every_mode_equals_its_twin", spark=True,
    ),
    Mutation(
        "K11", "a key update leaves the old key", "sink/modes/expand.py",
        "else updated & _key_differs(before, after, [names.index(name) for name in key])",
        "else (updated & False) & _key_differs(before, after, [names.index(name) for name in key])",
        _STAGING + "test_k11_expansion_equals_its_twin",
    ),
    Mutation(
        "K11", "keys are compared byte by byte, NULL with NULL", "sink/modes/expand.py",
        "            False\n",
        "            True\n",
        _STAGING + "test_k11_expansion_equals_its_twin",
    ),
    Mutation(
        "K11", "values of a row follow it through several keys", "sink/modes/reduce.py",
        "        jump = further\n", "        break\n",
        "sink/modes/test_reduce.py::test_k11_a_row_is_followed_through_a_chain_of_keys",
    ),
    # -- K12: plain appends ------------------------------------------------------------------------
    Mutation(
        "K12", "only a table made in the log is exact", "pipeline/targets/targets.py",
        "exact = decision.row_logged and not created.may_exist and _is_plain(route.rule)",
        "exact = True",
        _EXACT + "test_k12_not_exact_where_rows_may_be_older_or_go_without_row_events",
    ),
    Mutation(
        "K12", "a shard, a filter or a masked key is not exact", "schema/target_spec.py",
        "return not (self.shard_column or self.filter or masked & {name.lower() for name in key})",
        "return True",
        "pipeline/targets/test_shaping.py::test_k12_what_keeps_a_target_from_plain_appends",
    ),
    Mutation(
        "K12", "a statement that may change rows in silence ends it", "pipeline/targets/targets.py",
        "            self.lose_exactness(decision.ddl.tables)\n", "            pass\n",
        _EXACT + "test_k12_statements_that_may_change_rows_in_silence_end_it",
    ),
    Mutation(
        "K12", "it ends in a batch of its own", "pipeline/targets/targets.py",
        "                self.has_lost_exactness |= not target.is_new\n", "",
        _EXACT + "test_k12_statements_that_may_change_rows_in_silence_end_it",
    ),
    Mutation(
        "K12", "a cursor that a person set ends it", "sink/next_cut.py",
        'states[name] = state.model_copy(update={"exact": False})', "states[name] = state",
        _EXACT + "test_k3_k12_a_cursor_set_by_a_person_ends_it",
    ),
    Mutation(
        "K12", "inserts are appended only to what is exact", "sink/apply/append.py",
        '''    return (
        target.exact
        and record.kind in ("batch", "load")
        and not target.rows_updated
        and not target.rows_deleted
    )
''',
        '''    return record.kind in ("batch", "load") and not target.rows_updated and not target.rows_deleted
''',
        "sink/apply/test_append.py::test_k12_inserts_are_appended_once_and_only_where_the_target_is_exact", spark=True,
    ),
    # -- K13: DDL ----------------------------------------------------------------------------------
    Mutation(
        "K13", "a table map confirms the columns", "schema/evolution/changes.py",
        '''        f"`{name}` is {expected[name]} in the lake and {actual[name]} in the table map"
        for name in expected
        if name in actual and actual[name] != expected[name]
''', '''        f"`{name}` is {expected[name]} in the lake and {actual[name]} in the table map" for name in expected if False
''',
        "schema/evolution/test_changes.py::test_k13_a_contradiction_stops_with_both_versions",
    ),
    Mutation(
        "K13", "a column that is not known stops", "schema/evolution/changes.py",
        '''    differences += [f"`{name}` is not in the lake" for name in actual if name not in expected]
''',
        "",
        "schema/evolution/test_changes.py::test_k13_a_renamed_column_does_not_pass",
    ),
    Mutation(
        "K13", "a value of the ALTER's own time is not back-filled", "schema/evolution/backfill.py",
        "    if definition.default is DefaultKind.NOW:\n", "    if False:\n",
        "schema/ddl/test_alter.py::test_k13_a_value_that_the_text_does_not_tell_is_refused",
    ),
    Mutation(
        "K13", "a value that each row has of its own is not back-filled",
        "schema/evolution/backfill.py",
        "    if definition.generated:\n", "    if False:\n",
        "schema/ddl/test_alter.py::test_k13_a_value_that_the_text_does_not_tell_is_refused",
    ),
    Mutation(
        "K13", "what keeps the past is not emptied for another table",
        "pipeline/targets/targets.py",
        "        if change.empties:\n", "        if False:\n",
        "pipeline/targets/test_renamed_targets.py::"
        "test_k13_what_keeps_the_past_stops_at_a_create_whose_columns_only_a_table_map_will_tell",
    ),
    # -- K14: filters and masks --------------------------------------------------------------------
    Mutation(
        "K14", "a hash hides its value", "pipeline/targets/masks.py",
        '    if mask.kind == "hash":\n        return hashed(array, _key(mask))\n', "",
        _MASKING + "test_k14_each_mask_in_both_images",
    ),
    Mutation(
        "K14", "both images are masked", "pipeline/targets/masks.py",
        "for image, without in ((rows.before, INSERT), (rows.after, DELETE)):\n            is_present = rows.op != without",
        "for image, without in ((rows.before, INSERT), (rows.after, DELETE)):\n"
        "            if without == DELETE:\n                images.append(image)\n                continue\n"
        "            is_present = rows.op != without",
        _MASKING + "test_k14_each_mask_in_both_images",
    ),
    Mutation(
        "K14", "a column that no target takes is emptied", "pipeline/targets/masks.py",
        "        return _UNUSED if routes else None\n", "        return None\n",
        _MASKING + "test_k14_a_column_that_no_target_takes_is_emptied",
    ),
    Mutation(
        "K14", "errors do not tell a hidden value", "pipeline/targets/masks.py",
        "invalid.append(value._replace(text=HIDDEN))", "invalid.append(value)",
        _MASKING + "test_k14_invalid_values_are_not_told",
    ),
    Mutation(
        "K14", "rescue does not tell a hidden value", "pipeline/targets/row_policies.py",
        "if not rows.invalid or not hidden:", "if True:",
        "pipeline/targets/test_rescued_rows.py::test_k14_the_text_of_a_hidden_column_goes_nowhere",
    ),
    Mutation(
        "K14", "expressions have the columns that they read", "pipeline/targets/shape.py",
        "    if not lacking.any():\n        return\n", "    return\n",
        "pipeline/targets/test_shaping.py::test_k14_expressions_need_the_columns_that_they_read",
    ),
    Mutation(
        "K14", "a row that leaves a filter is deleted", "sink/modes/shape.py",
        "IF({passes}, {value}, CAST({DELETE} AS tinyint))", "{value}",
        "pipeline/capture/test_routing.py::test_k14_every_rule_in_one_pipeline", spark=True,
    ),
    Mutation(
        "K14", "a mask that hides nothing is found before the first run",
        "pipeline/plan/planning.py",
        "    check_masked_columns(config, source=source, tables=captured, cut=cut)\n", "",
        "pipeline/plan/test_catalog_columns.py::"
        "test_k14_a_first_run_refuses_a_mask_of_a_column_that_no_table_has",
    ),
    Mutation(
        "K14", "the spill is private", "private_folder.py",
        "        os.fchmod(folder, 0o700)\n", "        os.fchmod(folder, 0o755)\n",
        "store/segments/test_file.py::test_k14_the_spill_is_private_and_gone_after_stop",
    ),
    Mutation(
        "K14", "the next start removes what a crash left of it", "store/segments/folder.py",
        "            if name != _LOCK_NAME and _OWN_NAME.fullmatch(name):\n",
        "            if False:\n",
        "store/segments/test_file.py::test_k14_the_next_start_removes_what_a_crash_left",
    ),
    # -- K15: retention ----------------------------------------------------------------------------
    Mutation(
        "K15", "a cut goes only when the next one is older than the retention",
        "lake/cut_retention.py",
        "            published_us = state.read_cut(paths, following).published_at_us\n",
        "            published_us = state.read_cut(paths, number).published_at_us\n",
        "sink/read/test_finding.py::test_k15_a_cut_goes_when_the_next_one_is_older_than_the_retention",
    ),
    Mutation(
        "K15", "a cut's time that cannot be right says nothing", "lake/cut_retention.py",
        "            if not latest_us <= published_us <= at_us:\n", "            if False:\n",
        "sink/read/test_finding.py::"
        "test_k15_a_clock_that_was_wrong_takes_no_young_cut_and_keeps_no_old_one",
    ),
    Mutation(
        "K15", "the last cut of a suspended table stays", "lake/cut_retention.py",
        "                if expired not in kept:\n", "                if True:\n",
        "sink/read/test_finding.py::test_k15_the_last_cut_that_a_suspended_table_was_part_of_stays",
    ),
    Mutation(
        "K15", "the retention is the tables' own", "sink/durable/retention.py",
        "FILE_RETENTION: text, LOG_CLEANUP", "LOG_CLEANUP",
        "sink/durable/test_retention.py::test_k15_the_retention_is_set_for_log_and_files",
    ),
    # -- K16: one writer ---------------------------------------------------------------------------
    Mutation(
        "K16", "one process holds the lock", "lake/storage/lock.py",
        "            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)\n",
        "            pass\n",
        "lake/storage/test_lock.py",
    ),
    Mutation(
        "K16", "one writer puts a number", "lake/storage/storage.py",
        "                    os.link(temporary, path)\n                except FileEx",
        "                    os.replace(temporary, path)\n                    temporary.touch()\n                except FileEx",
        "lake/test_paths.py::test_k16_of_many_writers_one_puts_its_file",
    ),
    Mutation(
        "K16", "another writer's table is left alone", "sink/delta/log.py",
        "    if there.app_id == app_id and there.properties.get(TABLE_PROPERTY) == table:\n        return\n", "    return\n",
        "sink/delta/test_table_checks.py::test_k16_a_table_of_somebody_else_is_noticed",
    ),
    Mutation(
        "K16", "two stores never share a spill", "store/segments/folder.py",
        "            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)\n", "            pass\n",
        "store/segments/test_file.py::test_k16_two_stores_never_share_a_directory",
    ),
    Mutation(
        "K16", "a lease that was taken over stops its holder", "lake/storage/lease.py",
        "        if self._is_lost():\n            raise LockError(\n",
        "        if False:\n            raise LockError(\n",
        "lake/storage/test_lease.py::test_k16_a_lease_is_renewed_and_a_stolen_one_stops_its_holder",
    ),
    Mutation(
        "K16", "a lease that lives is not taken over", "lake/storage/lease.py",
        "            if 0 <= age_s < time_s / 3:\n", "            if False:\n",
        "lake/storage/test_lease.py::test_k16_the_holder_is_named_and_its_expiry",
    ),
    Mutation(
        "K16", "a lease is watched before it is taken", "lake/storage/lease.py",
        "            self._see_that_nobody_renews(content, time_s)\n", "",
        "lake/storage/test_lease.py::"
        "test_k16_a_stores_clock_that_is_set_takes_no_lease_from_a_writer_that_lives",
    ),
)  # fmt: skip

MUTATIONS: Final = tuple(
    sorted(
        (*_WRITING, *READING, *LOADING, *ATTACKS, *SERVERS, *GRAMMAR),
        key=lambda one: int(one.rule[1:]),
    )
)


def page() -> str:
    """tests/mutations/README.md."""
    spark = sum(one.spark for one in MUTATIONS)
    lines = [
        "# Rules taken out",
        "",
        "Each line takes something out of a rule that keeps the data right ([SPEC](../SPEC.md)), as a careless edit might,",
        "and names the test that fails then. `make campaign NAME=mutations` does it, one line at a time, in a copy of the project, and",
        "exits with 1 where a test does not see it, or does not pass with all rules in place.",
        "",
        f"There are {len(MUTATIONS)} lines; the tests of {spark} of them start Spark (marked *S*). Each was seen to make its test",
        "fail. On two cores, with ten to thirty other processes at work on them, one took 15 s, with Spark 15 to 180 s;",
        "all together take about an hour.",
        "",
        "```sh",
        "make campaign NAME=mutations                  # all",
        "make campaign NAME=mutations ARGS=spark=none  # or only: those alone",
        "make campaign NAME=mutations ARGS=rule=K17    # of this rule alone",
        "python -m tests.mutations                      # writes this page from tests/mutations/rules*.py",
        "```",
        "",
        "What is held twice is not here, since nobody can see one of the two go. `tests/house/test_mutations.py`, a part of",
        "the suite, sees that each text is there exactly once and each test exists, so that an edit of a rule leads here.",
        "",
        "| rule | what is taken out | in | seen by |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {one.rule} | {one.what} | `{one.path}` | `{one.test}`{' *S*' if one.spark else ''} |"
        for one in MUTATIONS
    ]
    return "\n".join(lines) + "\n"
