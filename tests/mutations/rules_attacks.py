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
_K26: Final[tuple[Mutation, ...]] = ()

# -- K27: same input, same output -----------------------------------------------------------------------------------
_K27: Final[tuple[Mutation, ...]] = ()

# -- K28: a name shows its table ------------------------------------------------------------------------------------
_K28: Final[tuple[Mutation, ...]] = ()

ATTACKS: Final = (*_K20, *_K21, *_K22, *_K23, *_K24, *_K25, *_K26, *_K27, *_K28)
