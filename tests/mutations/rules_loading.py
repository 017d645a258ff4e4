"""What is taken out of the rules of first load, replay and proof (K17 to K19), and the test that
must fail then."""

# ruff: noqa: E501 - texts of the sources stand here as they do there

from __future__ import annotations

from typing import Final

from tests.mutations.runner import Mutation

_RULES: Final = "pipeline/load/test_rules.py::"
_MOVING: Final = (
    "pipeline/load/test_moving.py::"
    "test_k17_tables_are_swapped_in_behind_the_last_mark_and_only_where_both_lakes_stand_at_one_place"
)
_PARTS: Final = "pipeline/load/test_parts.py::"
_MARKS: Final = "source/rows/test_marks.py::"
_RANGES: Final = "source/rows/test_key_ranges.py::"
_READER: Final = "source/rows/test_table_reader.py::"
_INTO: Final = "pipeline/backfill/test_into.py::"
_PARALLEL: Final = "pipeline/backfill/test_parallel.py::"
_EXECUTORS: Final = "pipeline/capture/test_executors.py::"
_GAP: Final = "pipeline/backfill/test_gap.py::test_k18_a_gap_of_a_changelog_is_filled_once"
_REBUILD: Final = "pipeline/backfill/test_rebuild.py::"
_LAYOUTS: Final = "lake/test_earlier_layouts.py::"
_VERIFY: Final = "pipeline/verify/test_end_to_end.py::"
_COMPARE: Final = (
    "sink/verify/test_compare.py::test_k17_each_kind_is_told_and_keys_that_changed_are_left_out"
)

LOADING: Final[tuple[Mutation, ...]] = (
    # -- K17: low mark, then rows ------------------------------------------------------------------
    Mutation(
        "K2", "a side table is read in the name of the batch's session", "sink/replace/replace.py",
        "        make_active(session)\n", "",
        "sink/replace/test_mirror.py::"
        "test_k2_a_side_table_with_a_checkpoint_takes_a_targets_place", spark=True,
    ),
    Mutation(
        "K17", "a load waits until all before its low mark is committed", "pipeline/load/begin.py",
        "view, low = None, self._source.proved(cursor.position)",
        "view, low = None, cursor.position",
        _RULES + "test_k17_a_load_begins_when_all_before_its_low_mark_is_committed",
    ),
    Mutation(
        "K17", "earlier rows of a changelog are read by the key that they had",
        "lake/earlier_layouts.py",
        "    if not names and not keys:\n", "    if not names:\n",
        _LAYOUTS + "test_k10_f64_a_changelogs_earlier_names_and_keys_follow_its_ddl",
    ),
    Mutation(
        "K17", "what an earlier image lacks is known by its present name",
        "lake/earlier_layouts.py",
        "                if step.name in after:\n", "                if False:\n",
        _LAYOUTS + "test_k10_f63_what_became_of_a_columns_name",
    ),
    Mutation(
        "K17", "what is flushed and not committed is no low mark (MySQL)", "source/rows/marks.py",
        '''            return bool(
                server.value("SELECT GTID_SUBSET(%s, @@GLOBAL.gtid_executed)", (position.gtid_set,))
            )
''', "            return True\n",
        _MARKS + "test_k17_a_transaction_between_flush_and_commit_is_not_committed",
    ),
    Mutation(
        "K17", "a snapshot tells what is committed (MariaDB)", "source/rows/marks.py",
        "return _snapshot_place(connection).order >= position.order", "return True",
        _MARKS + "test_what_was_never_committed_is_no_low_mark",
    ),
    Mutation(
        "K17", "without GTIDs nobody may hold a lock of a commit", "source/rows/marks.py",
        "        return not CommitLocks(server.rows).held()\n", "        return True\n",
        _MARKS + "test_k17_mysql_without_gtids_proves_a_place_by_the_locks_of_those_who_commit",
    ),
    Mutation(
        "K17", "where these locks are not seen the newest journal's begin is the low mark",
        "source/rows/marks.py",
        "                return position\n    return _newest_journal(server)\n",
        "                return position\n    return position\n",
        _MARKS + "test_k17_mysql_without_gtids_has_an_earlier_boundary_where_its_locks_are_not_seen",
    ),
    Mutation(
        "K17", "a view without GTIDs is exact where nobody commits", "source/rows/marks.py",
        "    if not held:\n", "    if True:\n",
        _MARKS + "test_k17_mysql_without_gtids_proves_a_place_by_the_locks_of_those_who_commit",
    ),
    Mutation(
        "K17", "what is in flight and touches the table makes a view no proof",
        "source/rows/log_tail.py",
        'if touching is None or (touching and not self._is_in(",".join(touching), executed)):',
        "if touching is None:",
        _MARKS + "test_k17_an_exact_view_among_writers_of_other_tables",
    ),
    Mutation(
        "K17", "a view is exact where nothing was between flush and commit", "source/rows/marks.py",
        'if not owned and _value(reader, "SELECT @@GLOBAL.gtid_executed") == before:', "if True:",
        _MARKS + "test_k17_a_transaction_between_flush_and_commit_is_not_committed",
    ),
    Mutation(
        "K17", "where a side lake stands is proved before rows are read", "pipeline/load/chunks.py",
        "        if self._source.proved(at).order != at.order:\n", "        if False:\n",
        _RULES + "test_k17_where_nothing_proves_the_low_mark_no_row_is_read",
    ),
    Mutation(
        "K17", "no DDL lies between the low mark and the columns", "pipeline/load/begin.py",
        "        if changed & names:\n", "        if False:\n",
        _RULES + "test_k17_a_load_begins_behind_the_ddl_that_made_its_columns",
    ),
    Mutation(
        "K17", "no prepared transaction is open at the low mark", "pipeline/load/begin.py",
        "            if not cursor.open_xa:\n", "            if True:\n",
        _RULES + "test_k17_a_load_does_not_begin_while_prepared_transactions_are_open",
    ),
    Mutation(
        "K17", "what keeps every change is read in one view", "pipeline/load/begin.py",
        "                if keeps_every_change(how.mode, how.key):\n",
        "                if False:\n",
        _RULES + "test_k17_what_keeps_every_change_is_read_in_one_view_at_the_low_mark",
    ),
    Mutation(
        "K17", "a chunk's end mark is read behind its view", "pipeline/load/read_ahead.py",
        "        reader.begin_view()\n        high = end_mark(server).position\n",
        "        high = end_mark(server).position\n        reader.begin_view()\n",
        _RULES + "test_k17_no_change_that_a_chunk_shows_lies_behind_its_end_mark",
    ),
    Mutation(
        "K17", "a chunk's rows have the seq of where the side lake stands", "pipeline/load/side.py",
        "seq = seq_of_place(cursor.epoch, cursor.journal, cursor.offset)",
        "seq = seq_of_place(cursor.epoch, cursor.journal, cursor.offset + 1)",
        _RULES + "test_k17_rows_stand_where_the_side_lake_does_and_are_appended_only_at_its_begin",
    ),
    Mutation(
        "K17", "loaded rows stand before the first change at their place", "binlog/selected.py",
        "LOAD_EVENTS: Final = 2 ", "LOAD_EVENTS: Final = 3 ",
        _READER + "test_k17_places_go_on_from_batch_to_batch_and_end_before_the_first_change",
    ),
    Mutation(
        "K17", "they never reach the first change", "binlog/selected.py",
        '''        row_numbers = np.minimum(
            np.arange(start, start + count, dtype=np.uint64), np.uint64(LOAD_SEQS - 1)
        )
''',
        "        row_numbers = np.arange(start, start + count, dtype=np.uint64)\n",
        _READER + "test_k17_places_go_on_from_batch_to_batch_and_end_before_the_first_change",
    ),
    Mutation(
        "K17", "rows that are read after a capture of the side lake are merged",
        "pipeline/load/side.py",
        "exact=self._side.stands_at_begin and _comes_once(target)", "exact=_comes_once(target)",
        _RULES + "test_k17_rows_stand_where_the_side_lake_does_and_are_appended_only_at_its_begin",
    ),
    Mutation(
        "K17", "the side lake is captured to the main cursor and no further",
        "pipeline/load/side.py",
        "            self.capture(bound)\n", '            self.capture("end_of_log")\n',
        _RULES + "test_k17_a_side_lake_is_captured_to_its_bound_and_no_further",
    ),
    Mutation(
        "K17", "nothing is swapped in where the main lake has moved on", "pipeline/load/finish.py",
        '''        if (
            locked.cursor.position.order != side.cursor.position.order
            or locked.cursor.epoch != side.cursor.epoch
        ):
''',
        "        if False:\n",
        _MOVING, spark=True,
    ),
    Mutation(
        "K17", "nor before the last end mark", "pipeline/load/finish.py",
        "            if cursor.position.order < self._high.order:\n", "            if False:\n",
        _MOVING, spark=True,
    ),
    Mutation(
        "K17", "the highest end mark of all chunks counts", "pipeline/load/chunks.py",
        '                update = {"high_journal": chunk.high.journal, "high_offset": chunk.high.offset}\n',
        "                pass\n",
        _MOVING, spark=True,
    ),
    Mutation(
        "K17", "progress counts with the cut of its batch", "lake/loads.py",
        "counted = [number for number in list_numbers(self._progress) if number <= last]",
        "counted = list_numbers(self._progress)",
        _PARTS + "test_k17_progress_counts_with_the_cut_of_its_batch",
    ),
    Mutation(
        "K17", "each row is in one range", "source/rows/key_ranges.py",
        'parts.append(_beyond(key, self.upto, "<", "<="))',
        'parts.append(_beyond(key, self.upto, "<", "<"))',
        _RANGES + "test_each_row_is_in_exactly_one_range",
    ),
    Mutation(
        "K17", "and the next range begins behind it", "source/rows/key_ranges.py",
        'parts.append(_beyond(key, self.after, ">", ">"))',
        'parts.append(_beyond(key, self.after, ">", ">="))',
        _RANGES + "test_each_row_is_in_exactly_one_range",
    ),
    Mutation(
        "K17", "a float is compared in full", "source/rows/key_ranges.py",
        '        return f"{name} + 0e0"  # FLOAT alone is printed with six digits\n',
        "        return name\n",
        _RANGES + "test_each_row_is_in_exactly_one_range",
    ),
    Mutation(
        "K17", "a bound that does not move on stops", "source/rows/key_ranges.py",
        "        if upto is not None and upto == after:  # it would be found for ever\n",
        "        if upto is not None and upto == after:\n            return\n        if False:\n",
        _RANGES + "test_a_bound_that_is_not_beyond_the_one_before_it_stops_the_plan",
    ),
    Mutation(
        "K17", "a text is compared by its own collation", "source/rows/key_ranges.py",
        "{code} COLLATE {collation}", "{code} COLLATE {collation.split('_', 1)[0]}_bin",
        _RANGES + "test_each_row_is_in_exactly_one_range",
    ),
    Mutation(
        "K17", "an ENUM is compared by its number", "source/rows/key_ranges.py",
        '    if form in ("bits", "labels"):\n', '    if form == "bits":\n',
        _RANGES + "test_each_row_is_in_exactly_one_range",
    ),
    Mutation(
        "K17", "a key with NULL is no key", "source/rows/key_ranges.py",
        "if part and not part.nullable and", "if part and",
        _RANGES + "test_which_key_is_usable",
    ),
    Mutation(
        "K17", "a comparison is of a place behind its views", "pipeline/verify/view.py",
        "return self._captures.run(), False", "return self._captures.source_state(), False",
        _VERIFY + "test_k3_k17_a_row_changed_by_hand_in_the_lake_is_told_and_put_back_also_while_others_write", spark=True,
    ),
    Mutation(
        "K17", "a comparison of what changed meanwhile is not exact", "pipeline/verify/view.py",
        "exact or (self.is_proved and self._is_quiet(after))", "exact or self.is_proved",
        _VERIFY + "test_k3_k17_a_row_changed_by_hand_in_the_lake_is_told_and_put_back_also_while_others_write", spark=True,
    ),
    Mutation(
        "K17", "keys that changed meanwhile are known to a comparison", "pipeline/verify/read.py",
        "if exact",
        "if True",
        _VERIFY + "test_k3_k17_a_row_changed_by_hand_in_the_lake_is_told_and_put_back_also_while_others_write", spark=True,
    ),
    Mutation(
        "K17", "and are left out of it", "sink/verify/compare.py",
        '            sides_in[side] = f"{side}_still"\n', "            pass\n",
        _COMPARE, spark=True,
    ),
    Mutation(
        "K17", "a repaired row is newer than the lake's", "pipeline/verify/repair.py",
        "words[:, 0] = low | places.astype(np.uint64) << np.uint64(1) | coming",
        "words[:, 0] = low | coming",
        "pipeline/verify/test_parts.py::test_k17_repaired_rows_are_newer_than_the_lake_and_older_than_all_that_comes",
    ),
    # -- K18: replay -------------------------------------------------------------------------------
    Mutation(
        "K18", "old journals go beside the living tables", "pipeline/backfill/lake.py",
        "    if ours == theirs or inside or theirs in ours.parents:\n", "    if ours == theirs:\n",
        _INTO + "test_k18_what_a_side_lake_cannot_be",
    ),
    Mutation(
        "K18", "a lake that no backfill has made is left alone", "pipeline/backfill/lake.py",
        "        if storage.names(self.paths.cuts) or storage.names(self.paths.batches):\n",
        "        if False:\n",
        _INTO + "test_k18_what_a_side_lake_cannot_be",
    ),
    Mutation(
        "K18", "the end is fixed by the first run", "pipeline/backfill/lake.py",
        "        if record.end is not None:\n", "        if False:\n",
        _INTO + "test_k18_the_end_is_fixed_in_advance_and_what_is_done_is_not_read_again",
    ),
    Mutation(
        "K18", "a backfill that is done is not read again", "pipeline/backfill/backfill.py",
        "    if done is not None:\n", "    if False:\n",
        _INTO + "test_k18_the_end_is_fixed_in_advance_and_what_is_done_is_not_read_again",
    ),
    Mutation(
        "K18", "a side lake is of one range and the same tables", "pipeline/backfill/backfill.py",
        "    side.check_same(record, asked_from=start, asked_to=end, purpose=purpose)\n", "",
        _INTO + "test_k18_the_end_is_fixed_in_advance_and_what_is_done_is_not_read_again",
    ),
    Mutation(
        "K18", "a backfill reads as far as its range goes", "pipeline/backfill/lake.py",
        'update={"start": start, "bound": bound}', 'update={"start": start}',
        _INTO + "test_k18_the_end_is_fixed_in_advance_and_what_is_done_is_not_read_again",
    ),
    Mutation(
        "K18", "a rebuilt table is whole", "pipeline/backfill/rebuild.py",
        '''            if (
                state is not None
                and state.suspended is None
                and not state.partial
                and cut is not None
            ):
''', "            if True:\n",
        _REBUILD + "test_k18_a_rebuild_that_would_be_partial_is_refused",
    ),
    Mutation(
        "K18", "a DDL of the tables is read alone", "pipeline/capture/segments/pieces.py",
        "            for group in one.alone\n", "            for group in one.alone[:0]\n",
        _PARALLEL + "test_k5_k8_what_spans_journals_is_read_one_after_the_other",
    ),
    Mutation(
        "K18", "a prepared transaction and its end are in one piece", "pipeline/capture/segments/pieces.py",
        "_Gap(prepared.pop(group.xid, at), _At(number, group.stop)",
        "_Gap(at, _At(number, group.stop)",
        _PARALLEL + "test_k5_k8_what_spans_journals_is_read_one_after_the_other",
    ),
    Mutation(
        "K18", "a journal whose end is not proved is read one after the other",
        "pipeline/capture/segments/pieces.py",
        "        if not one.is_closed or one.failed:\n", "        if one.failed:\n",
        _PARALLEL + "test_k5_k8_what_spans_journals_is_read_one_after_the_other",
    ),
    Mutation(
        "K2", "what executors staged is there before a record names it",
        "pipeline/capture/segments/parallel.py",
        "        if not storage_of(lake / file.path).exists(lake / file.path):\n", "        if False:\n",
        _EXECUTORS + "test_k2_what_executors_staged_elsewhere_is_not_recorded",
    ),
    Mutation(
        "K1", "the GTIDs of all segments are executed", "pipeline/capture/segments/join.py",
        "    for result in results:\n        executed =",
        "    for result in results[-1:]:\n        executed =",
        _EXECUTORS + "test_k1_k13_segments_end_in_the_lake_that_one_reader_makes",
    ),
    Mutation(
        "K13", "the schema history learns what tasks saw", "pipeline/capture/segments/parallel.py",
        "            for seen in result.observed:\n", "            for seen in ():\n",
        _EXECUTORS + "test_k1_k13_segments_end_in_the_lake_that_one_reader_makes",
    ),
    Mutation(
        "K14", "a salt stays in its process", "pipeline/capture/segments/parallel.py",
        'update={"masks": without_salts(rule.masks)}', "update={}",
        _EXECUTORS + "test_k14_k26_tasks_get_no_salt_and_leave_hashed_columns_to_the_driver",
    ),
    Mutation(
        "K14", "nothing is hashed without a salt", "pipeline/targets/masks.py",
        "    if not salt:\n", "    if False:\n",
        _EXECUTORS + "test_k14_k26_tasks_get_no_salt_and_leave_hashed_columns_to_the_driver",
    ),
    Mutation(
        "K24", "a task reads the journal that was surveyed", "pipeline/capture/segments/segment.py",
        "    if source.journal_created_s(task.journal) != task.journal_created_s:\n",
        "    if False:\n",
        _EXECUTORS + "test_k24_a_task_refuses_another_journal_of_the_same_name",
    ),
    Mutation(
        "K18", "a gap that was filled is not filled again", "pipeline/backfill/gap.py",
        "            if not self._is_filled(first, last):\n", "            if True:\n",
        _GAP, spark=True,
    ),
    Mutation(
        "K18", "a changelog with changes of the range takes none", "pipeline/backfill/gap.py",
        "        if rows:\n", "        if False:\n",
        _GAP, spark=True,
    ),
    Mutation(
        "K18", "the cursor does not move while a gap is filled", "pipeline/backfill/gap.py",
        '"cursor_after": cursor.model_copy(update={"batch_number": number}),',
        '"cursor_after": part.cursor_after.model_copy(update={"batch_number": number}),',
        _GAP, spark=True,
    ),
    Mutation(
        "K18", "a quarantined row that was deleted since is not raised",
        "pipeline/operate/quarantine_replay.py",
        '        if gone and is_forgotten and not even_if_deleted:\n', "        if False:\n",
        "pipeline/operate/test_quarantine_way.py::test_bad_rows_wait_in_quarantine_and_are_replayed_where_nothing_newer_is", spark=True,
    ),
    # -- K19: partial ------------------------------------------------------------------------------
    Mutation(
        "K19", "a table that was not created in the log is partial", "pipeline/targets/targets.py",
        "target = self._follow(route, of_source, partial=source not in self._created_in_log)",
        "target = self._follow(route, of_source, partial=False)",
        "pipeline/targets/test_partial.py::test_k19_a_table_first_met_in_a_table_map_is_partial",
    ),
    Mutation(
        "K19", "so is one that may have been there before its CREATE",
        "pipeline/targets/targets.py",
        "self._follow(route, source, partial=created.may_exist, exact=exact)",
        "self._follow(route, source, partial=False, exact=exact)",
        "pipeline/targets/test_partial.py::test_k19_a_table_first_met_in_a_table_map_is_partial",
    ),
    Mutation(
        "K19", "a shard that was not made in the log makes its target partial",
        "pipeline/targets/targets.py",
        "partial=existing.state.partial or partial,", "partial=partial,",
        "pipeline/targets/test_partial.py::test_k19_a_target_is_partial_while_one_of_its_tables_is",
    ),
    Mutation(
        "K19", "what is partial needs a load", "pipeline/plan/needs_load.py",
        "    if state.partial:\n", "    if False:\n",
        _PARTS + "test_k19_what_needs_a_load",
    ),
    Mutation(
        "K19", "a gap in the log makes every table partial", "pipeline/operate/cursor_change.py",
        '    update: dict[str, object] = {"partial": True} if move.is_forward else {}\n',
        "    update: dict[str, object] = {}\n",
        "pipeline/operate/test_set_converges.py::test_k18_a_run_after_set_back_equals_the_servers_select_and_forward_marks_tables_partial",
        spark=True,
    ),
    Mutation(
        "K19", "the doctor names partial tables", "pipeline/doctor/tables.py",
        '''    partial = sorted(
        {name for state in targets.values() if state.partial for name in state.source_names}
    )
''',
        "    partial: list[str] = []\n",
        "pipeline/doctor/test_tables.py::test_k19_partial_tables_come_with_the_command_that_loads_them",
    ),
)  # fmt: skip
