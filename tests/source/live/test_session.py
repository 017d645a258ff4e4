"""Every connection has one session, whatever the server's own settings are (K31, F83)."""

from __future__ import annotations

import ast
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pymysql
import pytest

import cdc_pipeline
from cdc_pipeline.binlog.table_schema import TableSchema
from cdc_pipeline.errors import ServerAnswerError, SourceError
from cdc_pipeline.source.live.cascades import cascade_findings
from cdc_pipeline.source.live.catalog import read_catalog
from cdc_pipeline.source.live.connection import ServerConnection, open_connection
from cdc_pipeline.source.live.session import SETTINGS
from cdc_pipeline.source.live.table_facts import read_table_facts
from cdc_pipeline.source.rows.marks import exact_view
from cdc_pipeline.source.rows.table_reader import ALL_ROWS, TableReader
from tests.servers import Server
from tests.source.rows.helpers import selected
from tests.support.live_source import live_config

# Each session variable that is not set, by the reason for which it cannot change an answer.
HARMLESS: Final[dict[str, str]] = {
    "what is written; a session writes nothing": """
        auto_increment_increment auto_increment_offset alter_algorithm big_tables
        binlog_alter_two_phase binlog_annotate_row_events binlog_direct_non_transactional_updates
        binlog_format binlog_row_image binlog_row_value_options binlog_rows_query_log_events
        binlog_transaction_compression binlog_transaction_compression_level_zstd
        bulk_insert_buffer_size check_constraint_checks column_compression_threshold
        column_compression_zlib_level column_compression_zlib_strategy column_compression_zlib_wrap
        default_master_connection default_storage_engine default_table_encryption
        default_tmp_storage_engine enable_cascade_triggers enforce_storage_engine
        explicit_defaults_for_timestamp external_table_secondary_storage_engine
        external_table_storage_engine foreign_key_checks generated_random_password_length
        gtid_domain_id gtid_next gtid_seq_no immediate_server_version innodb_compression_default
        innodb_ddl_buffer_size innodb_ddl_threads innodb_default_encryption_key_id
        innodb_ft_enable_stopword innodb_ft_user_stopword_table innodb_strict_mode insert_id
        keep_files_on_create last_insert_id identity low_priority_updates max_delayed_threads
        max_insert_delayed_threads max_relay_log_size old_alter_table old_passwords
        original_commit_timestamp original_server_version pseudo_replica_mode pseudo_slave_mode
        rbr_exec_mode require_row_format restrict_fk_on_non_standard_key server_id
        skip_parallel_replication skip_replication sql_generate_invisible_primary_key sql_if_exists
        sql_log_bin sql_require_primary_key sql_safe_updates sql_slave_skip_counter storage_engine
        system_versioning_alter_history system_versioning_insert_history transaction_allow_batching
        unique_checks updatable_views_with_limit wsrep_gtid_seq_no wsrep_on wsrep_osu_method
        wsrep_retry_autocommit wsrep_trx_fragment_size wsrep_trx_fragment_unit xa_detach_on_prepare
        """,
    "when a statement ends with an error, or how long it waits for others": """
        cte_max_recursion_depth connection_memory_chunk_size connection_memory_limit
        global_connection_memory_tracking group_replication_consistency
        idle_write_transaction_timeout innodb_lock_wait_timeout innodb_snapshot_isolation
        innodb_table_locks interactive_timeout lock_wait_timeout max_allowed_packet
        max_points_in_geometry max_session_mem_used max_sp_recursion_depth max_tmp_tables
        max_user_connections net_read_timeout net_retry_count parser_max_mem_size
        tmp_disk_table_size wsrep_causal_reads wsrep_dirty_reads wsrep_sync_wait
        deadlock_timeout_long deadlock_timeout_short deadlock_search_depth_long
        deadlock_search_depth_short
        """,
    "memory and speed": """
        analyze_max_length analyze_sample_percentage aria_repair_threads aria_sort_buffer_size
        aria_stats_method enable_secondary_engine_statistics eq_range_index_dive_limit
        expensive_subquery_limit histogram_generation_max_mem_size histogram_size histogram_type
        in_predicate_conversion_threshold innodb_parallel_read_threads innodb_tmpdir
        internal_tmp_mem_storage_engine join_buffer_size join_buffer_space_limit join_cache_level
        max_heap_table_size max_length_for_sort_data max_rowid_filter_size max_seeks_for_key
        mrr_buffer_size myisam_repair_threads myisam_sort_buffer_size myisam_stats_method
        net_buffer_length optimizer_adjust_secondary_key_costs optimizer_extra_pruning_depth
        optimizer_join_limit_pref_ratio optimizer_max_sel_arg_weight optimizer_max_sel_args
        optimizer_max_subgraph_pairs optimizer_prune_level optimizer_search_depth
        optimizer_selectivity_sampling_limit optimizer_switch optimizer_use_condition_selectivity
        preload_buffer_size query_alloc_block_size query_cache_strip_comments
        query_cache_wlock_invalidate query_prealloc_size range_alloc_block_size
        range_optimizer_max_mem_size read_buffer_size read_rnd_buffer_size rowid_merge_buff_size
        secondary_engine_cost_threshold select_into_buffer_size select_into_disk_sync
        select_into_disk_sync_delay set_operations_buffer_size sort_buffer_size sql_buffer_result
        tcp_nodelay thread_pool_priority tmp_memory_table_size tmp_table_size
        transaction_alloc_block_size transaction_prealloc_size use_stat_tables
        """,
    "logs, traces and warnings of the server": """
        end_markers_in_json explain_format explain_json_format_version log_disabled_statements
        log_queries_not_using_indexes log_slow_admin_statements log_slow_disabled_statements
        log_slow_filter log_slow_max_warnings log_slow_min_examined_row_limit log_slow_query
        log_slow_query_time log_slow_rate_limit log_slow_slave_statements log_slow_verbosity
        log_warnings long_query_time max_error_count min_examined_row_limit note_verbosity
        optimizer_trace optimizer_trace_features optimizer_trace_limit optimizer_trace_max_mem_size
        optimizer_trace_offset profiling profiling_history_size progress_report_time
        slow_query_log sql_log_off sql_notes sql_warnings
        """,
    "what is never asked for: accounts, files, estimates, the state of a session": """
        character_set_database character_set_filesystem character_set_server collation_database
        collation_server information_schema_stats_expiry print_identified_with_as_hex
        session_track_gtids session_track_schema session_track_state_change
        session_track_system_variables session_track_transaction_info
        """,
    "a new session has its own, which nothing global sets": """
        pseudo_thread_id rand_seed1 rand_seed2 resultset_metadata timestamp
        """,
}
# What a server could have been told by somebody who means harm. Those without a global value are
# set by `init_connect`.
HOSTILE: Final = {
    "sql_select_limit": "2",
    "max_join_size": "1",
    "sql_big_selects": "0",
    "sql_mode": "'ANSI_QUOTES,PAD_CHAR_TO_FULL_LENGTH,NO_BACKSLASH_ESCAPES,STRICT_ALL_TABLES,"
    "NO_ZERO_DATE,IGNORE_SPACE,HIGH_NOT_PRECEDENCE'",
    "old_mode": "'ZERO_DATE_TIME_CAST,UTF8_IS_UTF8MB3'",
    "time_zone": "'+05:30'",
    "character_set_client": "latin1",
    "character_set_connection": "latin1",
    "character_set_results": "latin1",
    "default_collation_for_utf8mb4": "utf8mb4_general_ci",
    "collation_connection": "latin1_bin",
    "lc_messages": "'de_DE'",
    "lc_time_names": "'ru_RU'",
    "block_encryption_mode": "'aes-256-cbc'",
    "default_regex_flags": "'EXTENDED'",
    "default_week_format": "3",
    "div_precision_increment": "0",
    "group_concat_max_len": "4",
    "sql_auto_is_null": "1",
    "windowing_use_high_precision": "0",
    "max_recursive_iterations": "1",
    "max_sort_length": "64",
    "standard_compliant_cte": "0",
    "system_versioning_asof": "'2001-01-01 00:00:00'",
    "use_secondary_engine": "FORCED",
    "show_create_table_skip_secondary_engine": "1",
    "show_create_table_verbosity": "1",
    "show_gipk_in_create_table_and_information_schema": "0",
    "sql_quote_show_create": "0",
    "terminology_use_previous": "BEFORE_8_0_26",
    "autocommit": "0",
    "completion_type": "2",
    "transaction_isolation": "'READ-UNCOMMITTED'",
    "tx_isolation": "'READ-UNCOMMITTED'",
    "max_execution_time": "1",
    "max_statement_time": "0.5",
    "idle_transaction_timeout": "1",
    "idle_readonly_transaction_timeout": "1",
    "net_write_timeout": "1",
    "wait_timeout": "1",
}
# Of other versions than those of the tests; or hostile is what every session has.
NOT_HERE: Final = {"old", "character_set_collations", "show_old_temporals"}
ALREADY_HOSTILE: Final = {"transaction_read_only", "tx_read_only", "query_cache_type"}


def session_variables(server: Server) -> set[str]:
    """The names of those that a session can have of its own."""
    found = set()
    for name, *_ in server.query("SHOW SESSION VARIABLES"):
        try:
            server.query(f"SELECT @@SESSION.`{name}`")
        except pymysql.err.OperationalError as error:
            if error.args[0] not in (1238, 1193):
                raise
        else:
            found.add(str(name))
    # A plugin's, or what only tells of the session.
    told = {"error_count", "warning_count", "proxy_user", "external_user", "in_transaction",
            "last_gtid", "gtid_owned", "statement_id"}  # fmt: skip
    return found - told


def test_k31_f83_every_session_variable_is_decided(server: Server) -> None:
    harmless = {name for names in HARMLESS.values() for name in names.split()}
    assert not harmless & SETTINGS.keys()
    assert session_variables(server) - harmless - SETTINGS.keys() == set()


def test_k31_f83_every_setting_has_a_hostile_value() -> None:
    assert HOSTILE.keys() | NOT_HERE | ALREADY_HOSTILE == SETTINGS.keys()


def test_k31_f83_every_connection_is_made_by_the_one_door() -> None:
    """Nobody else calls pymysql, or the class of its connections."""
    root = Path(cdc_pipeline.__file__).parent
    calls = [
        (file.relative_to(root).as_posix(), ast.unparse(node.func))
        for file in root.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func)
        in ("pymysql.connect", "Connection", "BoundedConnection", "_HandedOver", "session.prepare")
    ]
    assert calls == [("source/live/connection.py", "session.prepare")]


def test_k31_f83_hostile_settings_change_no_answer(
    start_server: Callable[..., Server],
) -> None:
    """Not one of them, and not all at once: which tables there are, their columns, rows, marks."""
    for flavor in ("mysql", "mariadb"):
        server = start_server(flavor, performance_schema=True)
        _fill(server)
        config = live_config(server)
        server.execute(f"GRANT CREATE TEMPORARY TABLES, LOCK TABLES ON *.* TO '{config.user}'@'%'")
        asked, calm = _variables(server), _answers(config)
        assert len(calm["tables"]) == 7
        known = {name: value for name, value in HOSTILE.items() if name in asked}
        for name, value in known.items():
            with _Set(server, {name: value}):
                assert _answers(config) == calm, name
                if name == "max_statement_time":  # what takes longer is not ended
                    with closing(ServerConnection(config)) as connection:
                        assert connection.value("SELECT SLEEP(0.6)") == 0
        with _Set(
            server,
            known,
            "USE decoy; CREATE TEMPORARY TABLE shop.t (x INT); SET @x = 1; START TRANSACTION; "
            "LOCK TABLES shop.u READ",
        ):
            assert _answers(config) == calm


def test_k31_f83_a_session_that_is_refused_is_an_error_that_names_it(
    mysql_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SETTINGS, "lc_time_names", "'xx'")
    with pytest.raises(SourceError, match="refuses the settings of a session") as caught:
        open_connection(live_config(mysql_server))
    assert "1649" in str(caught.value)


def test_k31_f83_connections_of_every_kind_have_the_session(server: Server) -> None:
    config = live_config(server)
    with closing(ServerConnection(config)) as control, TableReader(config) as reader:
        of_control = dict(control.query("SHOW SESSION VARIABLES")[1])
        of_reader = dict(reader.query("SHOW SESSION VARIABLES")[1])
    differ = {name for name in SETTINGS if str(of_control.get(name)) != _text(of_reader.get(name))}
    assert differ == {"character_set_results"}
    for name, (one, other) in {
        "time_zone": ("+00:00", "+00:00"),
        "sql_mode": ("ALLOW_INVALID_DATES", "ALLOW_INVALID_DATES"),
        "autocommit": ("ON", "ON"),
    }.items():
        assert (of_control[name], _text(of_reader[name])) == (one, other)


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _fill(server: Server) -> None:
    """Seven tables, one of which is the same as another but for its name."""
    server.execute_all(
        "CREATE DATABASE shop",
        "CREATE DATABASE decoy",
        "USE shop",
        "SET sql_mode = ''",
        "CREATE TABLE t (id INT PRIMARY KEY, c CHAR(9), m TIMESTAMP NULL, d DECIMAL(9, 3), "
        "e ENUM('ä', 'b') CHARACTER SET latin1, `q\"q` DATE)",
        "INSERT INTO t VALUES (1, 'a', '2024-01-01', 1, 'ä', '0000-00-00'), "
        "(2, 'b', NULL, 2, 'b', NULL), (3, 'жук', NULL, 3, 'b', '2024-02-30')",
        *(f"CREATE TABLE {name} (id INT PRIMARY KEY)" for name in "uvwxy"),
        "CREATE TABLE child (id INT PRIMARY KEY, t INT, CONSTRAINT of_t FOREIGN KEY (t) "
        "REFERENCES t (id) ON DELETE CASCADE)",
    )


def _variables(server: Server) -> set[str]:
    return {str(name) for name, *_ in server.query("SHOW SESSION VARIABLES")}


class _Set:
    """Global values, and an `init_connect` with those that have none, for a while."""

    def __init__(self, server: Server, values: dict[str, str], then: str = "") -> None:
        self._server, self._values, self._then = server, values, then
        self._before = {str(name): str(value) for name, value in server.query(
            "SHOW GLOBAL VARIABLES")}  # fmt: skip

    def __enter__(self) -> None:
        only_session = [
            f"SET SESSION {name} = {value}"
            for name, value in self._values.items()
            if name not in self._before
        ]
        for name, value in self._values.items():
            if name in self._before:
                self._server.execute(f"SET GLOBAL {name} = {value}")
        commands = "; ".join([*only_session, *([self._then] if self._then else [])])
        if commands:
            quoted = commands.replace("'", "''")
            self._server.execute(f"SET GLOBAL init_connect = '{quoted}'")

    def __exit__(self, *_: object) -> None:
        self._server.execute("SET GLOBAL init_connect = ''")
        for name in self._values:
            if name in self._before:
                value = self._before[name]
                plain = value if value.replace(".", "").isdigit() else repr(value)
                default = "DEFAULT" if value == "DEFAULT" else plain
                self._server.execute(f"SET GLOBAL {name} = {default}")


def _answers(config: Any) -> dict[str, Any]:
    """What a pipeline asks a server."""
    with closing(ServerConnection(config)) as control, TableReader(config) as reader:
        catalog = read_catalog(control, lambda schema, _table: schema == "shop")
        schema: TableSchema = catalog.tables["shop", "t"][0]
        rows, invalid = selected(reader, schema, ALL_ROWS)
        small, _ = selected(reader, schema, ALL_ROWS, where="d / 3 > 0.3333 AND id IS NOT NULL")
        mark = exact_view(reader, timeout_s=20)
        reader.end_view()
        return {
            "tables": control.tables(),
            "facts": [
                (one.name, one.kind, one.engine, one.has_key, one.columns)
                for one in read_table_facts(control, lambda schema, _table: schema == "shop")
            ],
            "catalog": catalog,
            "created": control.query("SHOW CREATE TABLE shop.child"),
            "rows": rows.to_pylist(),
            "invalid": invalid,
            "small": small.to_pylist(),
            "mark": mark,
            "end": control.end_position(),
            "journals": control.journals(),
            "replicas": control.replicas(),
            "log": control.variables(["log_bin", "binlog_format"]),
        }


# -- answers that are no UTF-8 ---------------------------------------------------------------------


def test_k32_f78_a_default_that_is_no_text_hides_no_foreign_key(
    mariadb_server: Server, mariadb_database: str
) -> None:
    """MariaDB shows a binary default as its bytes; the whole source could not be planned."""
    mariadb_server.execute_all(
        f"USE {mariadb_database}",
        "CREATE TABLE firm (id INT PRIMARY KEY)",
        "CREATE TABLE child (id INT PRIMARY KEY, b BINARY(16) DEFAULT 0x8F3AFE0A272020, firm INT, "
        "CONSTRAINT `größe` FOREIGN KEY (firm) REFERENCES firm (id) ON DELETE CASCADE)",
    )
    with closing(ServerConnection(live_config(mariadb_server))) as control:
        (found,) = cascade_findings(
            control, [f"{mariadb_database}.{name}" for name in ("child", "firm")]
        )
        assert f"{mariadb_database}.child is changed" in found.note
        assert "`größe` ON DELETE CASCADE" in found.note
        assert control.value("SELECT 1") == 1  # the connection can still be used


def test_k32_f78_bytes_that_are_no_text_come_back_and_are_refused_as_a_text(server: Server) -> None:
    with closing(ServerConnection(live_config(server))) as control:
        control.query("SET SESSION character_set_results = NULL")
        asked = "SELECT CONVERT('é' USING latin1) AS one, 'жук' AS other"
        row = control.rows(asked)[0]
        assert row.text("other") == "жук"
        assert control.value("SELECT HEX(%s)", (row["one"],)) == "E9"
        with pytest.raises(ServerAnswerError, match="cannot be used to: SELECT CONVERT") as caught:
            row.text("one")
        assert "a text in UTF-8" in str(caught.value)
