"""What is taken out of the rules about a server as it is set up, and about what a run leaves behind
(K31, K32, K35), and the test that must fail then."""

from __future__ import annotations

from typing import Final

from tests.mutations.runner import Mutation

_SESSION: Final = "source/live/test_session.py::"
_WHOLE: Final = "source/live/test_whole_log.py::"
_SUSPENDED: Final = "orchestration/test_suspended.py::"
_COMMANDS: Final = "cli/test_commands.py::"
SERVERS: Final[tuple[Mutation, ...]] = (
    Mutation(
        "K31",
        "what a server's init_connect did is undone",
        "source/live/session.py",
        "_RESET_CONNECTION: Final = 0x1F",
        "_RESET_CONNECTION: Final = 0x0E",
        _SESSION + "test_k31_f83_hostile_settings_change_no_answer",
    ),
    Mutation(
        "K31",
        "every connection has the same session",
        "source/live/connection.py",
        "        session.prepare(connection)\n",
        "        pass\n",
        _SESSION + "test_k31_f83_hostile_settings_change_no_answer",
    ),
    Mutation(
        "K31",
        "a replica that does not log what it replicates is refused",
        "source/live/server_checks.py",
        'if values.get(logs, "ON").upper() != "ON":',
        "if False:",
        _WHOLE + "test_k31_f74_a_replica_that_does_not_log_what_it_replicates_is_refused",
    ),
    Mutation(
        "K31",
        "a log of some databases is refused",
        "source/live/server_checks.py",
        "        if row.get(option)\n",
        "        if not option\n",
        _WHOLE + "test_k31_f74_a_log_of_some_databases_is_refused",
    ),
    Mutation(
        "K31",
        "a snapshot that finds no table fails",
        "pipeline/load/load.py",
        "        if tables is None:\n            self._check_matched()\n",
        "",
        "pipeline/plan/test_unmatched.py::test_k31_f86_a_snapshot_that_finds_no_table_fails_as_a_run_does",
    ),
    Mutation(
        "K31",
        "a start that no source can have is refused",
        "pipeline/plan/planning.py",
        "        check_start(config)\n",
        "        pass\n",
        _COMMANDS + "test_k31_f87_a_start_or_bound_that_no_source_can_have_has_one_answer",
    ),
    Mutation(
        "K31",
        "what one source knows of a server, all its sources know",
        "pipeline/targets/shared.py",
        "        names = at_server.setdefault(_server(one), {})\n",
        "        names = at_server.setdefault(_server(one) + one.name, {})\n",
        _COMMANDS + "test_k31_f87_validate_names_two_sources_that_capture_one_server_into_one_lake",
    ),
    Mutation(
        "K31",
        "a run refuses what another file writes",
        "pipeline/targets/route_checks.py",
        "or shared_targets(\n            config, cut, tables\n        )",
        "or []",
        _COMMANDS + "test_k31_f87_validate_names_two_sources_that_capture_one_server_into_one_lake",
    ),
    Mutation(
        "K31",
        "a source with a cut goes on beside a new file",
        "pipeline/targets/shared.py",
        " and (cut is None or cuts[name][1] is not None)",
        "",
        _COMMANDS + "test_k31_f87_a_source_with_a_cut_goes_on_beside_a_new_file_for_its_tables",
    ),
    Mutation(
        "K35",
        "a run that leaves a table suspended fails",
        "orchestration/assets/capture_asset.py",
        "        fails = config.dagster.fail_on_suspended or tables is not None\n",
        "        fails = tables is not None\n",
        _SUSPENDED
        + "test_k35_f88_a_run_that_leaves_a_table_suspended_fails_and_what_follows_is_green",
    ),
    Mutation(
        "K35",
        "what follows is green in a run that fails",
        "orchestration/events/recorder.py",
        "        selected = run_fails and self._context.has_assets_def\n",
        "        selected = False\n",
        _SUSPENDED
        + "test_k35_f88_a_run_that_leaves_a_table_suspended_fails_and_what_follows_is_green",
    ),
    Mutation(
        "K32",
        "a value that is not UTF-8 does not cost the whole answer",
        "source/live/answers.py",
        "        self.encoding = _ENCODING\n",
        "",
        _SESSION + "test_k32_f78_a_default_that_is_no_text_hides_no_foreign_key",
    ),
)
