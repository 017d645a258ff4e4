"""Each command that an error names as the way out is tried by a test from the state that raises it
(K22).

The texts are found in the syntax tree: a new one without a test fails here. The doctor's commands
are left out: its checks look at states and raise no errors.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.house.sources import trees
from tests.house.test_spec_map import symbols

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGE: Final = ROOT / "cdc_pipeline"
_OTHER: Final = ("cli/", "demo/", "operations/doctor/")

_WAYS: Final = "cli/test_ways_out.py::"
_LISTS: Final = _WAYS + "test_k22_wrong_names_lead_to_the_lists_of_right_ones"
_REBUILT: Final = _WAYS + "test_k22_a_table_that_others_changed_is_rebuilt_from_the_archive"
_UNFINISHED: Final = (
    _WAYS + "test_k22_a_recorded_batch_is_finished_by_the_run_that_the_refusals_name"
)
_FIRST: Final = _WAYS + "test_k22_before_the_first_run_a_run_is_named"
_AHEAD: Final = _WAYS + "test_k22_a_cursor_ahead_of_the_lake_is_rebuilt"

# Where a command is named: file and place in it -> the test that tries it from there.
TRIED: Final[dict[str, str]] = {
    "config/pipeline_config.py::list_config_files": (
        "cli/test_init.py::test_a_project_for_a_server_is_valid_and_loads_in_dagster"
    ),
    "config/validation_errors.py::_check": _LISTS,
    "orchestration/runs/execute.py::LoadedSource.require_tables": _LISTS,
    "orchestration/runs/execute.py::load_source": _LISTS,
    "operations/backfill/lake.py::checked_tables": _LISTS,
    "run/bounds.py::not_understood": _LISTS,
    "run/capture/lost_xa.py::lost_end": (
        "run/capture/test_boundaries.py::test_k22_k34_f71_a_lake_whose_xa_transaction_lost_its_"
        "end_says_so_and_both_ways_out_work"
    ),
    "operations/rehearse/rehearse.py::rehearse": (
        "operations/test_rehearse.py::test_ddl_that_no_run_has_applied_is_told"
    ),
    "operations/cursor/cursor_change.py::_check_unmoved": (
        "cli/test_cursor.py::test_k3_a_cursor_that_moved_since_the_plan_is_not_set"
    ),
    "operations/erase/erase.py::_Erasing.found": (
        "operations/test_erase.py::test_k14_what_the_cursor_has_not_reached_is_left_out_too_and_"
        "what_is_there_is_refused"
    ),
    "targets/route_checks.py::": (
        "operations/test_remask.py::test_k14_new_masks_reach_the_rows_that_are_there_and_a_"
        "certificate_names_what_is_left"
    ),
    "run/plan/needs_snapshot.py::past_lost": (
        "operations/test_remask.py::test_k14_a_rebuild_masks_the_past_and_a_plain_snapshot_never_"
        "loses_it"
    ),
    "operations/snapshot/snapshot.py::take_snapshot": _REBUILT,
    "operations/snapshot/side.py::log_is_gone": (
        "operations/snapshot/test_edges.py::test_k14_k17_masks_shards_ddl_and_purged_journals_inside_a_load"
    ),
    "lake/long_operations.py::_read": _REBUILT,
    "lake/suspensions.py::snapshot_command": (
        "cli/test_damaged_tables.py::"
        "test_k22_f109_f179_a_damaged_table_costs_itself_alone_and_its_way_out_is_named"
    ),
    "operations/verify/rolling.py::_Run._repair": (
        "operations/verify/test_rolling.py::"
        "test_k4_k17_a_difference_suspends_if_that_is_set_until_it_is_repaired"
    ),
    "operations/discover.py::discover": ("cli/test_discover.py::test_an_archive_has_no_catalog"),
    "operations/quarantine_replay.py::_selected_entries": _LISTS,
    "operations/reset.py::named_targets": (
        "cli/test_reset.py::test_a_table_that_is_not_there_is_named_with_those_that_are"
    ),
    "run/plan/reconcile.py::_ahead": _AHEAD,
    "run/plan/reconcile.py::_replaced": "cli/test_cursor.py::"
    "test_k3_k22_rebuild_where_another_lake_has_a_cut_of_the_cursors_number",
    "run/plan/reconcile.py::reconcile": _WAYS + "test_k22_a_cursor_of_a_later_epoch_is_rebuilt",
    "run/admin_batch.py::AdminBatch.publish": (
        "operations/test_between.py::test_k35_f219_what_a_command_could_not_bring_to_a_target_fails_it"
    ),
    "run/admin_batch.py::finished_state": _UNFINISHED,
    "run/admin_batch.py::_nothing_captured": _FIRST,
    "position/cursor.py::CursorGuard.check_write": (
        "cli/test_cursor.py::test_k3_set_back_and_forward_leave_records_and_the_next_run_agrees"
    ),
    "position/start/same_log.py::begin_again": (
        "run/plan/test_same_log.py::test_k24_f5_the_way_out_that_the_error_names_makes_the_lake_equal_again"
    ),
    "sink/read/cuts.py::_not_found": _LISTS,
    "sink/read/cuts.py::source_of": _LISTS,
    "sink/delta/table_checks.py::_way_out": (
        "operations/verify/test_end_to_end.py::"
        "test_k3_k17_a_row_changed_by_hand_in_the_lake_is_told_and_put_back_also_while_others_write"
    ),
    "lake/suspensions.py::way_out": _REBUILT,
    "orchestration/events/table_checks.py::command_of": _REBUILT,
}

# Where none tries it from there, with the reason.
SEEN: Final[dict[str, str]] = {
    "lake/run_notes.py::changed_start": "a warning: the run goes on",
    "orchestration/component.py::": "a comment in a new file",
    "orchestration/cursor_store.py::DagsterCursorStore.write": (
        "only code meets it, outside of a run"
    ),
    "operations/cursor/cursor_change.py::apply_rebuild": "a look at the cursor",
    "operations/snapshot/begin.py::SnapshotBegin._cursor": "a run, on the server that it stands in",
    "operations/snapshot/main.py::MainLake.cursor": "a run: there is no cursor yet",
    "targets/known_tables.py::saved_sources": (
        "orchestration/test_live_source.py::"
        "test_f94_a_saved_pattern_has_its_tables_and_a_first_snapshot_before_any_run"
    ),
    "run/capture/suspension.py::suspended_error": "an examination",
    "run/plan/unmatched.py::nothing_matched": ("a load that may follow when the pattern is right"),
    "operations/verify/verify.py::_Verification._reason": "a note of a report",
    "operations/verify/read.py::_not_by_range": "a note of a report",
    "operations/verify/rolling.py::_Run._begin_tables": "a note of a report",
    "operations/verify/captures.py::Captures.source_state": "a run: there is no cut yet",
    "lake/long_operations.py::Operation.command": "the same command again",
    "operations/erase/remask.py::_Remasking._suspensions": "the same command again",
    "operations/erase/remask.py::check": "the same command again",
    "operations/plan_text.py::plan_rows": "a row of a plan, as its reason names it too",
    "position/gtid/errors.py::set_error": "a look at a journal",
    "binlog/column_types.py::_bit_delta": "a look at a journal",
    "binlog/column_types.py::_decimal_delta": "a look at a journal",
    "sink/spark/session.py::SparkProvider._start": "an examination",
    "run/plan/server_switch.py::build_overlap.overlap": "a reason of a start",
    "source/kept_journals.py::KeptJournals.compare": "a comparison, after a server was restored",
    "source/live/server_errors.py::stream_error": "an examination, after a run that goes on",
}


def _texts(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Texts of a module that are no docstrings, each with the place that they stand in."""

    def visit(node: ast.AST, place: str) -> Iterator[tuple[str, str]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield from visit(child, f"{place}.{child.name}" if place else child.name)
            elif isinstance(child, ast.Constant) and isinstance(child.value, str):
                yield place, child.value
            elif isinstance(child, ast.JoinedStr):
                yield (
                    place,
                    "".join(part.value for part in child.values if isinstance(part, ast.Constant)),
                )
            elif not (isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)):
                yield from visit(child, place)

    yield from visit(tree, "")


def test_f253_no_text_names_a_file_of_the_checkout() -> None:
    """A wheel has neither the documentation nor a Makefile."""
    named = {
        f"{file.relative_to(PACKAGE)}::{place}"
        for file, tree in trees(PACKAGE, "docs/|make dev")
        for place, text in _texts(tree)
        if "docs/" in text or "make dev" in text
    }
    assert not named


def named_in_the_package() -> set[str]:
    """Places with a text that names a command."""
    found = set()
    for file, tree in trees(PACKAGE, "cdc-pipeline "):
        relative = file.relative_to(PACKAGE).as_posix()
        if relative.startswith(_OTHER):
            continue
        for place, text in _texts(tree):
            if "cdc-pipeline " in text:
                found.add(f"{relative}::{place}")
    return found


def test_k22_every_command_that_an_error_names_has_a_test_that_tries_it() -> None:
    assert sorted(named_in_the_package()) == sorted({*TRIED, *SEEN})


def test_k22_the_tests_that_try_them_exist() -> None:
    for place, test in TRIED.items():
        file, _, name = test.partition("::")
        assert name in symbols(ROOT / "tests" / file), f"{place}: {test}"
