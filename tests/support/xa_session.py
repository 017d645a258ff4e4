"""XA transactions on a real server, one session each."""

from __future__ import annotations

import pymysql

from tests.servers import Server


class XaSession:
    """Started at once in a session of its own; `xid` as SQL: ``'a'`` or ``X'00',X'01',7``."""

    def __init__(self, server: Server, database: str, xid: str) -> None:
        self.xid = xid
        self._server = server
        self._connection = server.root_connection(database=database)
        self.run(f"XA START {xid}")

    def run(self, *statements: str) -> XaSession:
        with self._connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
        return self

    def prepare(self) -> XaSession:
        """The transaction is everybody's now."""
        self.run(f"XA END {self.xid}", f"XA PREPARE {self.xid}")
        self._connection.close()
        return self

    def commit_one_phase(self) -> None:
        self.run(f"XA END {self.xid}", f"XA COMMIT {self.xid} ONE PHASE")
        self._connection.close()

    def commit(self) -> None:
        self._finish("COMMIT")

    def rollback(self) -> None:
        self._finish("ROLLBACK")

    def _finish(self, verb: str) -> None:
        # The server detaches a prepared transaction some time after its session has gone.
        with self._server.root_connection() as connection, connection.cursor() as cursor:
            for attempt in range(10_000):
                try:
                    cursor.execute(f"XA {verb} {self.xid}")
                except pymysql.err.MySQLError as error:
                    if error.args[0] != 1397 or attempt == 9_999:
                        raise
                else:
                    return
