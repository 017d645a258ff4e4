"""What is taken out of the rules of reading (K5 to K9), and the test that must fail then."""

# ruff: noqa: E501 - texts of the sources stand here as they do there

from __future__ import annotations

from typing import Final

from tests.mutations.runner import Mutation

_ENDS: Final = "source/live/test_journal_ends.py::"
_BUFFER: Final = "transaction/test_buffer.py::"
_SEARCH: Final = "position/start/test_search.py::"
_MATCH: Final = "position/test_overlap.py::"
_SWITCH: Final = "pipeline/plan/test_server_switch.py::"
_FAILOVER: Final = "pipeline/capture/test_failover.py::"
_ON_ANOTHER: Final = (
    "test_k4_on_another_server_a_suspended_table_meets_its_ddl_with_the_columns_before_it"
)
_XA: Final = "lake/test_prepared.py::"
_RING: Final = "store/test_memory.py"

READING: Final[tuple[Mutation, ...]] = (
    # -- K5: the end of a journal is proved --------------------------------------------------------
    Mutation(
        "K5", "the next journal's list must name the same transactions", "source/journal_ends.py",
        "            if is_known and not missing and not unknown:\n", "            if is_known:\n",
        _ENDS + "test_k5_a_journal_that_lost_its_tail_stops",
    ),
    Mutation(
        "K5", "what was executed before the start counts", "source/journal_ends.py",
        "        missing = theirs.subtract(read).subtract(base)\n",
        "        missing = theirs.subtract(read)\n",
        _ENDS + "test_k5_a_killed_servers_end_is_proved_by_the_next_set",
    ),
    Mutation(
        "K5",
        "a journal that is left out is missing",
        "source/journal_ends.py",
        "self._last_type not in _CLOSING or self._missing_before(chunk)",
        "self._last_type not in _CLOSING",
        "source/test_journal_gaps.py::test_k5_a_journal_that_was_taken_out_of_the_index_is_missing",
    ),
    Mutation(
        "K5", "without GTIDs an end is accepted by name alone", "source/journal_ends.py",
        "        if self._journal in self._accepted:\n", "        if True:\n",
        "source/archive/test_archive.py::test_k5_without_gtids_an_open_end_is_not_proved",
    ),
    Mutation(
        "K5", "an acceptance that is used is recorded", "source/journal_ends.py",
        "            self._on_accepted(AcceptedEnd(self._journal, offset, following.journal))\n",
        "",
        "pipeline/capture/test_accepted_journal_end.py::test_k5_an_acceptance_that_is_used_is_recorded",
    ),
    Mutation(
        "K5", "a transaction that did not end was never committed", "source/journal_ends.py",
        "        if not last_is_open:\n", "        if True:\n",
        _ENDS + "test_k5_an_unfinished_transaction_at_a_proved_end_never_was",
    ),
    Mutation(
        "K5", "nothing of the next journal comes before the proof", "source/journal_ends.py",
        "                if found:\n                    self._prove(held[0], text)\n                    yield from self._deliver(held)\n",
        "                if found:\n                    yield from held\n                    self._prove(held[0], text)\n                    self._passed(held[0])\n",
        _ENDS + "test_k5_a_journal_that_lost_its_tail_stops",
    ),
    Mutation(
        "K5", "an unfinished transaction is dropped", "transaction/buffer.py",
        "        self._pending = []\n        self._open_events = 0\n        if not is_announced:\n",
        "        self._open_events = 0\n        if not is_announced:\n",
        _BUFFER + "test_k5_an_unfinished_transaction_of_which_nothing_left_is_dropped_and_counted",
    ),
    Mutation(
        "K5", "pieces of it that have left are taken back", "transaction/buffer.py",
        "        if not is_announced:\n            return row\n", "        return row\n",
        _BUFFER + "test_k5_pieces_that_left_before_are_followed_by_an_abandoned_mark",
    ),
    Mutation(
        "K5", "an archive ends at its last whole transaction", "source/archive/archive.py",
        "last = chunk.events[whole - 1]\n", "last = chunk.events[grouped.rows - 1]\n",
        "source/archive/test_archive.py",
    ),
    # -- K6: search by time ------------------------------------------------------------------------
    Mutation(
        "K6", "commit times count, not those of headers", "position/start/search.py",
        'chunk.events["commit_ts_us"][starts] >= t_us',
        'SECOND_US * chunk.events["timestamp_s"][starts].astype(np.int64) >= t_us',
        _SEARCH + "test_k6_it_finds_the_first_around_every_moment_of_a_small_log",
    ),
    Mutation(
        "K6", "the first in the order of the log counts", "position/start/search.py",
        "int(np.min(found))", "int(np.max(found))",
        _SEARCH + "test_k6_it_finds_the_first_around_every_moment_of_a_small_log",
    ),
    Mutation(
        "K6", "the scan begins a journal before", "position/start/search.py",
        "first = max(0, (after.index(True) if True in after else len(names)) - 1)",
        "first = min(len(names) - 1, after.index(True) if True in after else len(names))",
        _SEARCH + "test_k6_it_finds_the_first_around_every_moment_of_a_small_log",
    ),
    Mutation(
        "K6", "a journal of the moment's own second counts as later", "position/start/search.py",
        "(created[index] + 1) * SECOND_US > t_us", "created[index] * SECOND_US > t_us + SECOND_US",
        _SEARCH + "test_k6_it_finds_the_first_around_every_moment_of_a_small_log",
    ),
    Mutation(
        "K6", "a journal after which the clock was set back is scanned", "position/start/search.py",
        '''    return JournalsToScan(
        tuple(index for index in range(first) if created[index + 1] < created[index]), first
    )
''', "    return JournalsToScan(tuple(index for index in range(first) if False), first)\n",
        _SEARCH + "test_k6_a_clock_that_was_set_back_loses_no_transaction",
    ),
    Mutation(
        "K6", "the fallback interval is taken off", "position/start/history.py",
        "    t_us = last_us - rules.fallback_interval_us\n", "    t_us = last_us\n",
        "position/start/test_start.py::test_p6_the_fallback_interval_and_the_cuts_commit_time_decide_where_the_search_begins",
    ),
    # -- K7: overlap without GTIDs -----------------------------------------------------------------
    Mutation(
        "K7", "from the first difference on nothing is skipped", "position/overlap.py",
        "return int(differs[0]) if len(differs) else len(first)",
        "return int((first == second).all(axis=1).sum())",
        _MATCH + "test_k7_nothing_is_skipped_from_the_first_difference_on",
    ),
    Mutation(
        "K7", "where alignments are alike the one that skips least wins", "position/overlap.py",
        "        rank = (is_whole, times, -same)\n", "        rank = (is_whole, times, same)\n",
        _MATCH + "test_k7_of_equal_alignments_the_times_decide_and_then_the_shortest",
    ),
    Mutation(
        "K7", "both hashes must agree", "position/overlap.py",
        "(first != second).any(axis=1)", "(first != second).all(axis=1)",
        _MATCH + "test_k7_two_transactions_are_the_same_by_both_halves_of_their_hash",
    ),
    Mutation(
        "K7", "what comes after the cursor is no history", "pipeline/plan/server_switch.py",
        "history = read_history(history_path(config)).up_to(*cursor.position.order)",
        "history = read_history(history_path(config))",
        _SWITCH + "test_k7_what_comes_after_the_cursor_is_no_history",
    ),
    Mutation(
        "K7", "a history with a gap before the start says nothing",
        "pipeline/plan/server_switch.py",
        "        joins = (kept.journal, kept.offset) == start.order\n", "        joins = True\n",
        _SWITCH + "test_k7_no_history_a_damaged_one_and_one_with_a_gap",
    ),
    Mutation(
        "K7", "an overlap that does not reach the history's end holds the cuts back",
        "pipeline/plan/server_switch.py",
        "        if match.is_whole and is_complete:\n", "        if is_complete:\n",
        _SWITCH + "test_k7_a_replica_that_lacks_some_holds_the_cuts_back",
    ),
    Mutation(
        "K7", "the history's checksum is looked at", "pipeline/plan/server_switch.py",
        '    if fields.get("sha256") != hashlib.sha256(body).hexdigest():\n',
        "    if not fields:\n",
        _SWITCH + "test_k7_no_history_a_damaged_one_and_one_with_a_gap",
    ),
    Mutation(
        "K7", "a run that ends in the overlap publishes nothing and fails",
        "pipeline/capture/drain.py",
        "        stretch.overlap.check_passed(stretch.place)\n", "",
        _FAILOVER + "test_k7_no_cut_is_published_inside_an_overlap_that_is_not_known", spark=True,
    ),
    Mutation(
        "K7", "what keeps every change waits for a decision", "pipeline/capture/stretch.py",
        "        if self._until_us is None or first_us > self._until_us:\n", "        if True:\n",
        _FAILOVER + "test_k7_no_cut_is_published_inside_an_overlap_that_is_not_known", spark=True,
    ),
    # -- K4: a suspended table, and another server ---------------------------------------------------
    Mutation(
        "K4", "another server's log goes on where its first transaction begins",
        "pipeline/capture/drain.py",
        "schemas.awaits_begin and (begin := first_begin(unit)) is not None:\n",
        "schemas.awaits_begin and (begin := self._stretch.section.run.start):\n",
        _FAILOVER + _ON_ANOTHER, spark=True,
    ),
    Mutation(
        "K4", "a catch-up on another server goes on from where its target was left",
        "pipeline/capture/catch_up.py",
        "LogSection(run, source, tables, cursor, left=left)",
        "LogSection(run, source, tables, cursor)",
        _FAILOVER + _ON_ANOTHER, spark=True,
    ),
    Mutation(
        "K7", "a run that only moves to another server takes the columns along",
        "pipeline/capture/capture.py",
        "        schemas.reached(at)\n", "",
        "campaigns/simulate/test_sample.py::"
        "test_k7_a_replica_takes_over_and_has_nothing_new_at_first",
    ),
    # -- K8: XA ------------------------------------------------------------------------------------
    Mutation(
        "K8", "prepared rows have the seq of their commit", "lake/prepared.py",
        '''            seq=with_transaction(
                rows.seq, epoch=self.epoch, journal=number, tx_offset=self.tx_offset
            ),
''', "            seq=rows.seq,\n",
        _XA + "test_k8_rows_come_back_whole_under_the_seq_of_the_commit",
    ),
    Mutation(
        "K8", "a cursor's prepared rows are durable before it", "lake/prepared.py",
        "            for parked in self._open.values():\n                self._make_durable(parked)\n        return tuple(",
        "            pass\n        return tuple(",
        _XA + "test_k8_rows_come_back_whole_under_the_seq_of_the_commit",
    ),
    Mutation(
        "K8", "parked rows are compared with their checksum", "lake/prepared.py",
        '        if found == f"{file.size_bytes} bytes, sha256 {file.sha256}":\n',
        "        if True:\n",
        _XA + "test_k8_a_missing_or_damaged_file_names_the_prepare",
    ),
    Mutation(
        "K8", "a prepare that is read again leaves the first one's file alone", "lake/prepared.py",
        'path = parked.folder / f"{number:04d}-{sha256[:16]}.arrow"',
        'path = parked.folder / f"{number:04d}.arrow"',
        _XA + "test_k8_a_prepare_that_is_read_again_does_not_touch_what_a_cursor_refers_to",
    ),
    Mutation(
        "K8", "parked files stay until the cut that contains their end", "lake/prepared.py",
        "        self._ended += parked.entry.files\n        self._discard(parked)\n",
        "        self._ended += parked.entry.files\n        self._discard(parked)\n        self.published()\n",
        _XA + "test_k8_files_stay_until_a_cut_contains_their_end",
    ),
    Mutation(
        "K8", "files that a cursor refers to are kept at a start", "lake/prepared.py",
        "            if path.relative_to(paths.lake).as_posix() not in kept:\n",
        "            if True:\n",
        _XA + "test_k8_files_stay_until_a_cut_contains_their_end",
    ),
    Mutation(
        "K8", "undone rows are not parked", "lake/prepared.py",
        "                kept = spool.keep_done(undone)\n",
        "                kept = spool.keep_done(undone[:0])\n",
        _XA + "test_k8_undone_rows_are_not_parked",
    ),
    Mutation(
        "K8", "rows that XA ROLLBACK ends never count", "pipeline/capture/xa.py",
        "        if end.is_commit:\n            self._place.count(\"transactions_applied\"",
        "        if True:\n            self._place.count(\"transactions_applied\"",
        "pipeline/capture/test_boundaries.py::"
        "test_k34_f71_every_one_of_many_small_xa_transactions_counts",
    ),
    Mutation(
        "K8", "a commit whose prepare was not seen stops", "pipeline/capture/xa.py",
        "        if end.is_commit and end.xid not in self._accepted:\n", "        if False:\n",
        "pipeline/capture/test_xa.py::test_k8_a_commit_whose_prepare_was_not_seen_stops_by_name",
        spark=True,
    ),
    # -- K34: boundaries ---------------------------------------------------------------------------
    Mutation(
        "K34", "the end of an XA transaction that two slices share counts",
        "pipeline/capture/interpret.py",
        "            xa=self._xa.plan(controls.waiting, controls.xa_ends, decoded.waiting),\n",
        "            xa=self._xa.plan(\n"
        "                controls.waiting,\n"
        "                () if controls.open else controls.xa_ends,\n"
        "                decoded.waiting,\n"
        "            ),\n",
        "pipeline/capture/test_boundaries.py::"
        "test_k34_f71_a_ring_of_any_size_and_runs_of_any_length_read_the_same",
    ),
    Mutation(
        "K34", "savepoints are carried from piece to piece",
        "pipeline/decode/transaction_control.py",
        "{opened.key: deepcopy(opened.savepoints)}\n", "{opened.key: Savepoints()}\n",
        "pipeline/decode/test_transaction_control.py::"
        "test_k34_f71_where_slices_are_cut_changes_nothing_of_what_is_read",
    ),
    Mutation(
        "K34", "histories with XA see an end that two slices share",
        "pipeline/decode/transaction_control.py",
        "            undone, _waiting(unit, undone, opened, ending), tuple(ends), opened, ending\n",
        "            undone, _waiting(unit, undone, opened, ending),\n"
        "            tuple(ends) if opened is None else (), opened, ending,\n",
        "campaigns/simulate/test_sample.py::"
        "test_k2_a_history_of_crashes_and_faults_ends_with_the_databases_rows",
    ),
    Mutation(
        "K8", "a catch-up waits for what was prepared on another server",
        "pipeline/capture/catch_up.py",
        "            is_elsewhere = any(xa.epoch != cursor.epoch for xa in cursor.open_xa)\n",
        "            is_elsewhere = False\n",
        "campaigns/simulate/test_sample.py::"
        "test_k4_k8_f113_a_suspended_table_waits_for_what_was_prepared_on_another_server",
    ),
    Mutation(
        "K34", "a transaction whose end is lost fails the run", "pipeline/capture/capture.py",
        "        if lost is not None:\n", "        if False:\n",
        "pipeline/capture/test_boundaries.py::"
        "test_k22_k34_f71_a_lake_whose_xa_transaction_lost_its_end_says_so_and_both_ways_out_work",
    ),
    # -- K9: store and memory ----------------------------------------------------------------------
    Mutation(
        "K9", "room is counted from what was released", "store/ring.py",
        "        if self._put_sequence + count - self._released_sequence > self._size:\n",
        "        if self._put_sequence + count - self._ack_sequence > self._size:\n",
        _RING,
    ),
    Mutation(
        "K9", "rollback returns to what was released", "store/ring.py",
        "            self._get_sequence = self._released_sequence\n",
        "            self._get_sequence = self._ack_sequence\n",
        _RING,
    ),
    Mutation(
        "K9", "what was not got cannot be released", "store/ring.py",
        "            if sequence > self._get_sequence:\n", "            if False:\n",
        _RING,
    ),
    Mutation(
        "K9", "ranges of released batches stay until they are acked", "store/ring.py",
        "            while retained and retained[0].last <= sequence:\n",
        "            while retained and retained[0].last <= self._released_sequence:\n",
        _RING,
    ),
    Mutation(
        "K9", "a merge batch ends by what it has staged", "pipeline/capture/commit.py",
        '''        return (
            batch.staged_bytes >= limits.merge_staged_bytes
            or batch.staged_rows >= limits.merge_rows
        )
''', "        return batch.staged_rows >= limits.merge_rows\n",
        "pipeline/capture/test_merge_batches.py::test_k9_merge_batches_are_bounded_by_staged_bytes_and_not_by_gets",
    ),
    Mutation(
        "K9", "DDL of tables that are not captured is no boundary", "schema/evolution/changes.py",
        "    return any(captured(*table) for table in statement.tables)\n", "    return True\n",
        "schema/evolution/test_changes.py::test_s7_ddl_of_captured_tables_stands_alone",
    ),
    Mutation(
        "K9", "a batch is not recorded inside a transaction", "sink/staging/staging.py",
        "        if self.has_open or self._recorded or", "        if self._recorded or",
        "sink/staging/test_staging.py::test_k9_open_pieces_join_or_are_gone",
    ),
)  # fmt: skip
