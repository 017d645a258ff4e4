"""Read tables of a live server as Arrow with our own compiled kernels.

Rules:
- Nothing on the server changes and nothing is locked: the session is read only, and a view is a
  consistent snapshot.
- The session is that of every connection (`source.live.session`), but for text, which is not
  converted. So a selected row and the same row in the log become the same Arrow values; a test
  proves this for every type.
- Rows come by the binary protocol: FLOAT in text has six digits, and numbers need no parsing. So a
  SELECT is a prepared statement, and its rows are read from the socket: between results pymysql has
  read all that the server sent, so that none of its buffers can hold a byte of a result.
- Memory is bounded by a batch's rows and bytes, whatever the table's size; see `binlog.result_set`.
- A view ends with its connection. If a result is abandoned before its end, the connection is in the
  middle of it: it is killed on the server through another one, then closed. The next statement
  outside of a view opens a new one.

Source: MySQL manual "START TRANSACTION", "SET TRANSACTION", "Server SQL Modes"; MariaDB "START
TRANSACTION"; MySQL client/server protocol, "Prepared Statements": COM_STMT_PREPARE,
COM_STMT_EXECUTE, COM_STMT_CLOSE.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import pymysql

from cdc_pipeline.binlog.rows.result_columns import ResultPlan, result_plan
from cdc_pipeline.binlog.rows.result_set import BATCH_BYTES, BATCH_ROWS, ResultSet
from cdc_pipeline.binlog.selected import SelectedRows
from cdc_pipeline.binlog.table_schema import TableSchema
from cdc_pipeline.config.pipeline_config import LiveSourceConfig
from cdc_pipeline.errors import (
    CdcError,
    SourceError,
    StatementError,
    TableReadInterruptedError,
    located,
)
from cdc_pipeline.source.live import server_errors
from cdc_pipeline.source.live.answers import BoundedConnection, unexpected
from cdc_pipeline.source.live.connection import ServerConnection, connected
from cdc_pipeline.source.live.server_errors import table_error
from cdc_pipeline.text.table_names import quoted

_PREPARE: Final = 0x16
_EXECUTE: Final = 0x17
_CLOSE: Final = 0x19
_PREPARED_BYTES: Final = 12  # of the answer: a mark, the statement's id and its numbers
_INTERRUPTED: Final = 1317  # a statement was killed; its connection lives on

# A server that sorts or filters sends nothing for a long time; TCP detects that a peer is gone.
_KEEPALIVE: Final = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 6))


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The rows with after < key <= upto: an SQL literal for each column of the key, None if
    open. `key` is () for the primary key of the schema that the range is used with.
    """

    after: tuple[str, ...] | None
    upto: tuple[str, ...] | None
    key: tuple[str, ...] = ()

    def condition(self, key: Sequence[str]) -> str:
        """As SQL over the columns `key`, in parentheses; "" for all rows."""
        parts = []
        if self.after is not None:
            parts.append(_beyond(key, self.after, ">", ">"))
        if self.upto is not None:
            parts.append(_beyond(key, self.upto, "<", "<="))
        return f"({' AND '.join(parts)})" if parts else ""


ALL_ROWS: Final = KeyRange(None, None)


def _beyond(key: Sequence[str], bound: Sequence[str], strict: str, last: str) -> str:
    """``key <strict> bound`` in a form that uses an index; `last` compares the last column."""
    if len(key) != len(bound) or not key:
        raise ValueError(f"a bound of {len(bound)} values for a key of {len(key)} columns")
    name, literal = quoted(key[-1]), bound[-1]
    condition = f"{name} {last} {literal}"
    for column, value in list(zip(key, bound, strict=True))[-2::-1]:
        name = quoted(column)
        # The first part is redundant: it gives the optimizer one range of the key's first column.
        condition = (
            f"{name} {strict}= {value} AND ({name} {strict} {value} OR ({name} = {value} "
            f"AND {condition}))"
        )
    return f"({condition})"


class TableReader(ServerConnection):
    """One connection that reads tables. A batch ends with the row that would exceed
    `batch_bytes`, as the server sends them. A lost connection is never replaced behind a statement.
    `found_by`: the columns by which rules find a table's rows.
    """

    _tries = 1
    _lost_numbers = server_errors.LOST_NUMBERS - {_INTERRUPTED}

    def __init__(
        self,
        config: LiveSourceConfig,
        *,
        batch_bytes: int = BATCH_BYTES,
        found_by: Callable[[str], frozenset[str]] = lambda _table: frozenset(),
    ) -> None:
        super().__init__(config)
        self._found_by = found_by
        self.in_view = False
        self._batch_bytes = batch_bytes
        self._reading = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def begin_view(self) -> None:
        """Until `end_view` everything selected is of the moment at which this returns. Raises
        ServerUnreachableError, SourceError: as the server answered.
        """
        if self.in_view:
            raise SourceError("a view is open already", next_step="end it first")
        self.query("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
        self.in_view = True

    def end_view(self) -> None:
        if self.in_view:
            self.in_view = False
            if self._connection is not None:
                self.query("COMMIT")

    def select(
        self,
        schema: TableSchema,
        *,
        bounds: KeyRange | None = None,
        where: str = "",
        batch_rows: int = BATCH_ROWS,
    ) -> Iterator[SelectedRows]:
        """Yield all columns of a table, in batches of `batch_rows`, fewer if it has very many
        columns; without a view the whole result is one consistent view of its own. Closing the
        iterator early stops the statement on the server, and ends the view.

        Args:
            bounds: the keys to read; the rows come in key order then. Its `key` names the key's
                columns; if it has none, they are the schema's primary key.
            where: the user's own condition, in the server's SQL: it is passed on as written, in
                parentheses, and can do what the account's SELECT right can do.

        Raises:
            TableChangedError: the table's columns are not the schema's.
            UnknownColumnTypeError: a column that cannot be decoded.
            MissingGrantError, ConfigError (of `where`), TableReadInterruptedError,
                ServerUnreachableError, TableReadError: as the server answered; earlier batches are
                complete.
        """
        plan = result_plan(schema, self._found_by(schema.full_name))
        return self._select(
            plan, _select_statement(plan, bounds=bounds, where=where), where, batch_rows
        )

    def _select(
        self, plan: ResultPlan, sql: str, where: str, batch_rows: int
    ) -> Iterator[SelectedRows]:
        table = plan.schema.full_name
        if self._reading:
            raise SourceError(
                "another result is still being read by this connection",
                table=table,
                next_step="read it to its end",
            )
        result = ResultSet(
            plan,
            is_mariadb=self.flavor == "mariadb",
            batch_rows=batch_rows,
            batch_bytes=self._batch_bytes,
            packet_bytes_max=self.config.packet_bytes_max,
        )
        self._reading = True
        try:
            with located(table=table):
                if where:
                    # names in the condition are its
                    self.query(f"USE {quoted(plan.schema.database)}")
                yield from self._batches(sql, result)
        except StatementError as error:
            raise table_error(
                error.number, error.text, address=self.address, table=table, where=where
            ) from None
        finally:
            self._reading = False

    def _batches(self, sql: str, result: ResultSet) -> Iterator[SelectedRows]:
        connection: Any = self._open()
        with self._answering():
            statement = self._prepared(connection, sql)
            connection._execute_command(_EXECUTE, struct.pack("<IBI", statement, 0, 1))
        # Rows are read past pymysql, which would set its own timeout before each answer.
        connection._sock.settimeout(connection._read_timeout)
        connection._current_timeout = connection._read_timeout
        try:
            while True:
                batch = result.take()
                if batch is not None:
                    yield batch
                elif result.end is not None:
                    break
                else:
                    with self._answering():
                        result.commit(self._received(connection._sock, result))
        finally:
            if result.end is None:
                self._abandon()
        # A broken connection is noticed at the next statement.
        with contextlib.suppress(pymysql.Error, OSError):
            connection._execute_command(_CLOSE, struct.pack("<I", statement))
        if result.end.code:
            with self._answering():
                raise pymysql.err.OperationalError(result.end.code, result.end.message)

    def _prepared(self, connection: Any, sql: str) -> int:
        connection._execute_command(_PREPARE, sql)
        head = connection._read_packet()._data
        if len(head) < _PREPARED_BYTES or head[0]:
            raise unexpected(
                self.address, sql, expected="a prepared statement", got=f"{len(head)} other bytes"
            )
        statement, columns, parameters = struct.unpack_from("<IHH", head, 1)
        for count in (parameters, columns):
            for _ in range(count + 1 if count else 0):  # each, and an end
                connection._read_packet()
        return int(statement)

    @staticmethod
    def _received(wire: socket.socket, result: ResultSet) -> int:
        count = wire.recv_into(memoryview(result.room()))  # type: ignore[arg-type]
        if not count:
            raise OSError("the server closed the connection")
        return count

    def _abandon(self) -> None:
        """Make the server stop working on a running result, and close the connection."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        # A server that computes does not notice a closed socket until it sends.
        with (
            contextlib.suppress(pymysql.Error, OSError, RuntimeError, CdcError),
            contextlib.closing(connected(self.config)) as other,
        ):
            other.query(f"KILL {connection.thread_id():d}")  # type: ignore[no-untyped-call]
        connection._force_close()  # type: ignore[attr-defined]

    def _connect(self) -> BoundedConnection:
        if self.in_view:
            raise TableReadInterruptedError(
                f"the view of {self.address} ended with its connection",
                next_step="end the view, open another one and read again",
            )
        connection: Any = super()._connect()
        for name, value in _KEEPALIVE:
            if hasattr(socket, name):  # not on every system
                connection._sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        self._connection = connection
        with self._answering():
            connection.query("SET SESSION character_set_results = NULL")
        # From now on the server computes over whole tables.
        connection._read_timeout = max(self.config.read_timeout_s, self.config.row_timeout_s)
        opened: BoundedConnection = connection
        return opened

    def _lost(self, error: Exception) -> CdcError:
        number, text = server_errors.error_parts(error)
        return server_errors.lost_table_connection(
            self.address, text if number is None else f"error {number}: {text}"
        )

    def close(self) -> None:
        """The view ends. May be called twice, and more may be read after it."""
        super().close()
        self.in_view = self._closed = False


def _select_statement(plan: ResultPlan, *, bounds: KeyRange | None = None, where: str = "") -> str:
    schema = plan.schema
    table = f"{quoted(schema.database)}.{quoted(schema.table)}"
    sql = f"SELECT {', '.join(plan.expressions)} FROM {table}"  # noqa: S608
    conditions = []
    key: tuple[str, ...] = ()
    if bounds is not None:
        key = bounds.key or schema.key_names
        condition = bounds.condition(key)
        conditions += [condition] if condition else []
    if where:
        conditions.append(f"({where}\n)")  # a comment at its end ends with its line
    if conditions:
        sql += " WHERE " + " AND ".join(conditions)
    if key:
        sql += " ORDER BY " + ", ".join(quoted(name) for name in key)
    return sql
