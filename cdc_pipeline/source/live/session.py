"""The session of every connection to a server: the only place that decides what could change an
answer (K31).

Rules:
- A new connection is reset, so that nothing is left of what the server's `init_connect` did to it:
  a temporary table in a table's place, a lock, a transaction, a variable.
- Then each variable of `SETTINGS` that the server has gets its value, whatever its global one is.
  Which ones it has is asked, never found from its version; one that it does not know it cannot
  apply either.
- Every variable of both servers is decided: one that is not in `SETTINGS` cannot change an answer
  (`tests/source/live/test_session.py` has the reasons). One that ends a statement with an error is
  not here, unless the time that it limits is ours to limit.
- A session writes nothing: its transactions are read only.
- The question for its variables asks for the marks of managed services too.

Source: both servers' manuals, "Server System Variables"; MySQL client/server protocol,
COM_RESET_CONNECTION.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pymysql

from cdc_pipeline.errors import SourceError
from cdc_pipeline.source.live import managed, server_errors

if TYPE_CHECKING:
    from cdc_pipeline.source.live.answers import BoundedConnection

_RESET_CONNECTION: Final = 0x1F
# A full buffer stops the reading of a dump while a batch is merged, and that of rows while they are
# staged; by default the server waits a minute, then ends it.
_TIMEOUT_S: Final = "21600"
_NO_LIMIT: Final = "18446744073709551615"

# Both servers have had them always: without them, the rest cannot be asked for.
_FIRST: Final = {
    "sql_select_limit": _NO_LIMIT,
    "max_join_size": _NO_LIMIT,
    "sql_big_selects": "1",  # after max_join_size, which sets it
    # ALLOW_INVALID_DATES: bounds of keys may be such dates. No ANSI_QUOTES, no
    # PAD_CHAR_TO_FULL_LENGTH, no NO_BACKSLASH_ESCAPES, no EMPTY_STRING_IS_NULL, nothing strict.
    "sql_mode": "'ALLOW_INVALID_DATES'",
}
# MariaDB ends any statement after this time, the question for the rest too; MySQL reads a comment.
_NO_TIME_LIMIT: Final = "/*M! , SESSION max_statement_time = 0 */"
SETTINGS: Final = {
    **_FIRST,
    "old_mode": "''",
    "old": "0",
    "time_zone": "'+00:00'",
    # Text.
    "character_set_client": "utf8mb4",
    "character_set_connection": "utf8mb4",
    "character_set_results": "utf8mb4",
    "character_set_collations": "''",
    "default_collation_for_utf8mb4": "utf8mb4_0900_ai_ci",
    "collation_connection": "utf8mb4_general_ci",
    "lc_messages": "'en_US'",  # privileges are read out of texts
    "lc_time_names": "'en_US'",
    # Values of expressions; a condition of the user may have any.
    "block_encryption_mode": "'aes-128-ecb'",
    "default_regex_flags": "''",
    "default_week_format": "0",
    "div_precision_increment": "4",
    "group_concat_max_len": "1073741824",
    "sql_auto_is_null": "0",
    "windowing_use_high_precision": "1",
    # Which rows, and in which order.
    "max_recursive_iterations": "4294967295",
    "max_sort_length": "4096",  # longer than the longest key
    "query_cache_type": "0",
    "standard_compliant_cte": "1",
    "system_versioning_asof": "DEFAULT",
    "use_secondary_engine": "OFF",
    # What the catalog shows.
    "show_create_table_skip_secondary_engine": "0",
    "show_create_table_verbosity": "0",
    "show_gipk_in_create_table_and_information_schema": "1",
    "show_old_temporals": "0",
    "sql_quote_show_create": "1",
    "terminology_use_previous": "NONE",
    # Transactions.
    "autocommit": "1",
    "completion_type": "0",
    "transaction_isolation": "'REPEATABLE-READ'",
    "tx_isolation": "'REPEATABLE-READ'",
    "transaction_read_only": "1",
    "tx_read_only": "1",
    # Time: how long an answer may take is decided by the source's settings.
    "max_execution_time": "0",
    "max_statement_time": "0",
    "idle_transaction_timeout": "0",
    "idle_readonly_transaction_timeout": "0",
    "net_write_timeout": _TIMEOUT_S,
    "wait_timeout": _TIMEOUT_S,
}


def prepare(connection: BoundedConnection) -> None:
    """Give a connection that has just logged in the session that every connection has, and its
    `service`. Raises ServerSettingError: what answers has no log; SourceError: the server refuses
    a setting; pymysql.Error, OSError, ServerAnswerError: as `open_connection`.
    """
    asking: Any = connection
    managed.refuse_without_log(
        str(asking.get_server_info()), f"{connection.host}:{connection.port}"
    )
    try:
        asking._execute_command(_RESET_CONNECTION, b"")
        asking._read_packet()
        connection.query(f"{_set_statement(_FIRST)} {_NO_TIME_LIMIT}")
        names = ", ".join(f"'{name}'" for name in (*SETTINGS, *managed.MARKS))
        likes = "".join(f" OR Variable_name LIKE '{like}'" for like in managed.MARK_PATTERNS)
        with connection.cursor() as cursor:
            cursor.execute(f"SHOW SESSION VARIABLES WHERE Variable_name IN ({names}){likes}")
            known = {str(row[0]).lower(): str(row[-1]) for row in cursor.fetchall() if row}
        connection.service = managed.managed_service(known, str(connection.host))
        connection.query(
            _set_statement({name: value for name, value in SETTINGS.items() if name in known})
        )
    except pymysql.Error as error:
        number, text = server_errors.error_parts(error)
        if number is None or number in server_errors.LOST_NUMBERS | server_errors.DENIED_NUMBERS:
            raise
        raise SourceError(
            f"{connection.host}:{connection.port} refuses the settings of a session",
            got=f"error {number}: {text}",
            next_step="see the server's documentation of this error",
        ) from None


def _set_statement(values: dict[str, str]) -> str:
    return "SET SESSION " + ", SESSION ".join(f"{name} = {value}" for name, value in values.items())
