"""A connection whose rows we read ourselves: pymysql connects and logs in, prepared statements run
on its socket.

Rules:
- Between results the connection belongs to pymysql, which has then read all that the server sent,
  so none of its buffers can hold a byte of a result. From COM_STMT_EXECUTE to the end of its result
  the socket is ours.
- If a result is abandoned before its end, the connection is in the middle of it: it is killed on
  the server through a second connection, then closed, and never used again.
- Besides `source/live/handover.py` and `login` only this module knows names of pymysql that begin
  with an underscore.

Source: MySQL client/server protocol, "Prepared Statements": COM_STMT_PREPARE, COM_STMT_EXECUTE,
COM_STMT_CLOSE.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pymysql

from cdc_pipeline.binlog.rows.result_set import ResultSet
from cdc_pipeline.binlog.selected import SelectedRows
from cdc_pipeline.config.pipeline_config import LiveSourceConfig
from cdc_pipeline.errors import CdcError, ServerAnswerError, StatementError
from cdc_pipeline.source.live import server_errors
from cdc_pipeline.source.live.answers import unexpected
from cdc_pipeline.source.live.connection import Row, connected

_PREPARE: Final = 0x16
_EXECUTE: Final = 0x17
_CLOSE: Final = 0x19
_PREPARED_BYTES: Final = 12  # of the answer: a mark, the statement's id and its numbers
_INTERRUPTED: Final = 1317  # a statement was killed; its connection lives on

# A server that sorts or filters sends nothing for a long time; TCP detects that a peer is gone.
_KEEPALIVE: Final = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 6))


class RowConnection:
    """One connection to a server, for statements and for results as Arrow."""

    def __init__(self, config: LiveSourceConfig) -> None:
        self.address = f"{config.host}:{config.port}"
        self.broken = False
        self._config = config
        self._connection = connected(config)
        self._socket: socket.socket = self._connection._sock  # type: ignore[attr-defined]
        self._thread_id: int = self._connection.thread_id()  # type: ignore[no-untyped-call]
        for name, value in _KEEPALIVE:
            if hasattr(socket, name):  # not on every system
                self._socket.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    def allow_slow_answers(self) -> None:
        """From now on the server computes over whole tables."""
        self._connection._read_timeout = max(  # type: ignore[attr-defined]
            self._config.read_timeout_s, self._config.row_timeout_s
        )

    @property
    def encrypted(self) -> bool:
        return hasattr(self._socket, "cipher")

    def query(self, sql: str, arguments: Sequence[object] = ()) -> tuple[list[str], list[Row]]:
        """As pymysql reads them. Raises StatementError, ServerUnreachableError."""
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(sql, tuple(arguments) or None)
                names = [column[0] for column in cursor.description or ()]
                return names, list(cursor.fetchall())
        except ServerAnswerError:
            self.broken = True
            raise
        except RuntimeError:  # as pymysql refuses LOAD DATA LOCAL
            self.broken = True
            raise server_errors.asks_for_file(self.address) from None
        except (pymysql.Error, OSError) as error:
            raise self._failed(error) from None

    def rows(self, sql: str, result: ResultSet) -> Iterator[SelectedRows]:
        """Yield the batches of one SELECT; `result` takes its bytes. What ended it, also an error
        in the middle of the rows, is in `result.end`. Raises StatementError: the server refused it;
        ServerUnreachableError: the connection broke; TableChangedError, BinlogError: as
        `ResultSet.take`.
        """
        try:
            statement = self._prepare(sql)
            self._connection._execute_command(_EXECUTE, struct.pack("<IBI", statement, 0, 1))
        except ServerAnswerError:
            self.broken = True
            raise
        except (pymysql.Error, OSError) as error:
            raise self._failed(error) from None
        # Rows are read past pymysql, which would set its own timeout before each answer.
        self._socket.settimeout(self._connection._read_timeout)  # type: ignore[attr-defined]
        self._connection._current_timeout = self._connection._read_timeout  # type: ignore[attr-defined]
        try:
            while True:
                batch = result.take()
                if batch is not None:
                    yield batch
                elif result.end is not None:
                    break
                else:
                    result.commit(self._read(result))
        finally:
            if result.end is None:
                self.abandon()
        if result.end.code in server_errors.LOST_NUMBERS - {_INTERRUPTED}:
            self.broken = True
        # A broken connection is noticed at the next statement.
        with contextlib.suppress(pymysql.Error, OSError):
            self._connection._execute_command(_CLOSE, struct.pack("<I", statement))

    def _prepare(self, sql: str) -> int:
        connection: Any = self._connection
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

    def _read(self, result: ResultSet) -> int:
        try:
            count = self._socket.recv_into(memoryview(result.room()))  # type: ignore[arg-type]
        except OSError as error:
            raise self._failed(error) from None
        if not count:
            raise self._failed(OSError("the server closed the connection"))
        return count

    def _failed(self, error: Exception) -> Exception:
        number, text = server_errors.error_parts(error)
        if number is not None and number not in server_errors.LOST_NUMBERS - {_INTERRUPTED}:
            return StatementError(number, text, address=self.address)
        self.broken = True
        return server_errors.lost_table_connection(
            self.address, text if number is None else f"error {number}: {text}"
        )

    def abandon(self) -> None:
        """Make the server stop working on a running result, and close the connection."""
        if self.broken:
            self._connection._force_close()  # type: ignore[attr-defined]
            return
        self.broken = True
        # A server that computes does not notice a closed socket until it sends.
        with (
            contextlib.suppress(pymysql.Error, OSError, RuntimeError, CdcError),
            contextlib.closing(connected(self._config)) as other,
        ):
            other.query(f"KILL {self._thread_id:d}")
        self._connection._force_close()  # type: ignore[attr-defined]

    def close(self) -> None:
        """May be called twice."""
        if not self.broken:
            self.broken = True
            with contextlib.suppress(pymysql.Error, OSError):
                self._connection.close()
