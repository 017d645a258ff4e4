"""Map a server's error numbers to errors of reading a table.

Rules: as in `server_errors`. An error that the same read can overcome when started again (a lock, a
kill, a lost connection) is retryable; for an altered table its new columns must be read.

Source: MySQL 9.7 "Server Error Message Reference", MariaDB "Error Codes".
"""

from __future__ import annotations

import re
from typing import Final

from cdc_pipeline.errors import (
    CdcError,
    ConfigError,
    MissingGrantError,
    TableChangedError,
    TableReadError,
    TableReadInterruptedError,
)
from cdc_pipeline.schema.types import quoted_table
from cdc_pipeline.source.live import server_errors
from cdc_pipeline.text.server_messages import said_by_server

# Lock wait, deadlock, interrupted (killed), max_execution_time, max_statement_time, row limits of
# the moment.
_INTERRUPTED: Final = frozenset({1205, 1213, 1317, 3024, 1969, 3572})
_DENIED: Final = frozenset({1142, 1143})
# No such table, unknown column, definition changed, needs a new preparation, no such database.
_CHANGED: Final = frozenset({1146, 1054, 1412, 1615, 1049, 1051, 1932})
_UNKNOWN_COLUMN: Final = 1054
_IN_WHERE: Final = re.compile(r" in '(where clause|WHERE)'$")
_OF_THE_CONDITION: Final = frozenset(
    {1064, 1305, 1370, 1111, 1242, 1241, 1267, 1149, 1630, 4161, 1253}
)


def table_error(number: int, text: str, *, address: str, table: str, where: str = "") -> CdcError:
    """The error for a SELECT of `table` that the server refused or broke off; `where` is the
    user's own condition.
    """
    got = f"error {number}: {said_by_server(number, text)}"
    if where and (
        number in _OF_THE_CONDITION or (number == _UNKNOWN_COLUMN and _IN_WHERE.search(text))
    ):
        return ConfigError(
            f"the server does not accept the condition for {table}",
            setting="where",
            expected="a condition in the server's SQL over the table's columns",
            got=got,
            next_step=f"try it on the server: SELECT COUNT(*) FROM {quoted_table(table)} "  # noqa: S608
            "WHERE (the condition)",
        )
    if number in _DENIED:
        return MissingGrantError(
            "the account may not read the table",
            table=table,
            setting="SELECT",
            got=got,
            next_step=f"GRANT SELECT ON {quoted_table(table)} TO the account",
        )
    if number in _INTERRUPTED:
        return TableReadInterruptedError(
            f"{address} interrupted the reading of the table",
            table=table,
            got=got,
            next_step="run again; rows that were read and kept are not read again",
        )
    if number in _CHANGED:
        return TableChangedError(
            "the table was altered, renamed or dropped, before or while it was being read",
            table=table,
            got=got,
            next_step="capture the source past the DDL, then read the table with its new columns",
        )
    if number in server_errors.LOST_NUMBERS:
        return server_errors.lost_table_connection(address, got, table=table)
    return TableReadError(
        f"{address} refuses to read the table",
        table=table,
        got=got,
        next_step="see the server's documentation of this error",
    )
