"""Ask a server which XA transactions are prepared.

Source: XA RECOVER of MySQL 9.7 (CONVERT XID) and MariaDB 10.11 (FORMAT='SQL'); MySQL refuses it
without XA_RECOVER_ADMIN as XAER_RMERR, whatever is prepared.
"""

from __future__ import annotations

from typing import Final

from cdc_pipeline.binlog.events.xa import xid_text
from cdc_pipeline.errors import StatementError
from cdc_pipeline.schema.ddl.session import canonical_xid
from cdc_pipeline.source.live.answers import AnswerRow
from cdc_pipeline.source.live.connection import ServerConnection
from cdc_pipeline.source.live.server_errors import ACCESS_DENIED_PRIVILEGE

_XAER_RMERR: Final = 1401


def prepared_xids(server: ServerConnection) -> frozenset[str] | None:
    """None if the account may not ask. Raises ServerUnreachableError, ServerAnswerError: no
    answer, or none that can be read.
    """
    is_mysql = server.flavor == "mysql"
    statement = "XA RECOVER CONVERT XID" if is_mysql else "XA RECOVER FORMAT='SQL'"
    try:
        rows = server.rows(statement)
    except StatementError as error:
        if error.number in (_XAER_RMERR, ACCESS_DENIED_PRIVILEGE):
            return None
        raise server.unexpected(error) from None
    xids = [_of_hex(row) if is_mysql else canonical_xid(row.text("data")) for row in rows]
    # A text that is no xid says nothing of which one it is.
    return frozenset(xids) if all(xids) else None


def _of_hex(row: AnswerRow) -> str:
    text, length = row.text("data"), row.number("gtrid_length")
    try:
        data = bytes.fromhex(text.removeprefix("0x"))
    except ValueError:
        return ""
    return xid_text(row.number("formatid"), data[:length], data[length:])
