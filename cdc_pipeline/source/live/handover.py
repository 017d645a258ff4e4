"""Let pymysqlreplication connect, register and send the dump command, then take over its socket.

Rules:
- The library is asked for one event. It opens its connection through our factory, sets up the
  session, registers as a replica and writes the dump command; at that write an exception that it
  does not know returns control to us. It has read nothing since its last answer, so none of its
  buffers can hold a byte of the stream.
- It never reads an event, opens its second connection, or reconnects: a reconnection is a new run.
- Its request is replaced if it cannot carry what is needed: every request to MariaDB (its own has
  one byte too many, ignores journal and offset, and requests no annotate events) and GTID sets with
  tags.
- Names of the two libraries that begin with an underscore are known here, in `answers`, `login` and
  `source.rows.table_reader` alone.

Source: MySQL client/server protocol, COM_BINLOG_DUMP, COM_BINLOG_DUMP_GTID, COM_REGISTER_SLAVE;
MariaDB "Replication Protocol" (@slave_connect_state, @mariadb_slave_capability).
"""

from __future__ import annotations

import contextlib
import socket
import struct
from dataclasses import dataclass
from typing import Any, Final, cast

import pymysql
from numpy.typing import NDArray
from pymysqlreplication import BinLogStreamReader

from cdc_pipeline.binlog.framing import receiving
from cdc_pipeline.binlog.seq import journal_number
from cdc_pipeline.config.pipeline_config import LiveSourceConfig
from cdc_pipeline.errors import CdcError, PositionError, ServerAnswerError
from cdc_pipeline.position.position import Flavor
from cdc_pipeline.source.live import server_errors
from cdc_pipeline.source.live.answers import BoundedConnection
from cdc_pipeline.source.live.connection import open_connection

_DUMP: Final = 0x12
_DUMP_GTID: Final = 0x1E
_NON_BLOCKING: Final = 0x01
# MariaDB only; for MySQL the same bit requests heartbeats of version 2.
_SEND_ANNOTATE: Final = 0x02
_THROUGH_GTID: Final = 0x04
_OFFSET_MAX: Final = (1 << 32) - 1

# Announced before the dump: without it the server refuses journals with checksums. The library
# announces the server's present setting, which says nothing about older journals.
_ANNOUNCE_CHECKSUMS: Final = (
    "SET @source_binlog_checksum = 'CRC32', @master_binlog_checksum = 'CRC32'"
)


@dataclass(frozen=True, slots=True)
class ReplicaName:
    """How a capture introduces itself: id and uuid are unique among the server's replicas (MySQL
    distinguishes two readers of one id by uuid); `host` appears in SHOW REPLICAS, at most 60 bytes.
    """

    server_id: int
    uuid: str
    host: str


@dataclass(frozen=True, slots=True)
class DumpRequest:
    """Where a dump starts: at a journal and offset, or after a GTID set (`gtid_set` not empty;
    `journal` is only informative then).

    `gtid_bytes` is the binary form of a set with tags, which the library cannot encode.
    """

    flavor: Flavor
    journal: str
    offset: int
    gtid_set: str = ""
    gtid_bytes: bytes = b""

    def own_command(self, server_id: int) -> bytes | None:
        """The packet to send instead of the library's; None if the library's is right."""
        if self.flavor == "mariadb":
            name = b"" if self.gtid_set else self.journal.encode()
            offset = 4 if self.gtid_set else self.offset
            flags = _NON_BLOCKING | _SEND_ANNOTATE
            return _packet(struct.pack("<BIHI", _DUMP, offset, flags, server_id) + name)
        if self.gtid_bytes:
            head = struct.pack("<BHIIQ", _DUMP_GTID, _NON_BLOCKING | _THROUGH_GTID, server_id, 0, 4)
            return _packet(head + struct.pack("<I", len(self.gtid_bytes)) + self.gtid_bytes)
        return None


def _packet(payload: bytes) -> bytes:
    return struct.pack("<I", len(payload)) + payload


class _CommandSent(Exception):
    """Carries control out of the library."""


class _HandedOver(BoundedConnection):
    """Hands over its socket when the dump command is written."""

    own_command: bytes | None = None

    def _write_bytes(self, data: bytes) -> None:
        # Sequence id 0 begins a command; packets of the login have higher ones.
        if len(data) > 4 and data[3] == 0 and data[4] in (_DUMP, _DUMP_GTID):
            super()._write_bytes(self.own_command or bytes(data))  # type: ignore[misc]
            raise _CommandSent
        super()._write_bytes(data)  # type: ignore[misc]


class DumpSocket:
    """The socket of a running dump. `read` and `stop` may be called from different threads."""

    def __init__(self, connection: _HandedOver, *, address: str, read_timeout_s: float) -> None:
        self.address = address
        self._connection = connection  # its destructor closes the socket
        self._socket: socket.socket = connection._sock  # type: ignore[attr-defined]
        self._socket.settimeout(read_timeout_s)

    def read(self, block: NDArray[Any]) -> int:
        """Read what is available, at least a byte; 0 if the other side closed. Raises OSError:
        the connection broke, or nothing came for the read timeout (TimeoutError).
        """
        return self._socket.recv_into(memoryview(block))  # type: ignore[arg-type]

    @property
    def descriptor(self) -> int | None:
        """Of the socket, which does not block, for compiled code; None if it is encrypted."""
        if self.encrypted or not receiving.is_possible:
            return None
        return self._socket.fileno()

    @property
    def encrypted(self) -> bool:
        return hasattr(self._socket, "cipher")

    def stop(self) -> None:
        """Make a blocked `read` return. May be called from any thread."""
        with contextlib.suppress(OSError):
            # Not SSLSocket.shutdown: it throws the TLS state away under the reading thread.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """Without a quit command: the server is still sending. From the reading thread."""
        # What was read after `stop` opened no window: without a reset the server would wait to
        # send, and MariaDB lets no other dump of the replica's id begin meanwhile.
        with contextlib.suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._connection._force_close()  # type: ignore[attr-defined]


def open_dump(config: LiveSourceConfig, request: DumpRequest, replica: ReplicaName) -> DumpSocket:
    """Start a non-blocking dump: it ends with an EOF packet at the present end of the log. Raises
    PositionError: an offset that the command cannot carry; ServerUnreachableError,
    MissingGrantError, SourceError: as the server answered.
    """
    if not request.gtid_set and request.offset > _OFFSET_MAX:
        raise PositionError(
            "the dump command cannot carry an offset of this size",
            at=request,
            expected=f"at most {_OFFSET_MAX}",
            next_step="start at a GTID set, or read this journal from an archive; keep "
            "max_binlog_size at 1 GiB",
        )
    journal_number(request.journal)
    opened: list[_HandedOver] = []

    def connect(**settings: Any) -> _HandedOver:
        if opened:
            raise AssertionError("the library must not connect twice")
        connection = cast(_HandedOver, open_connection(config, _HandedOver, **settings))
        connection.query(_ANNOUNCE_CHECKSUMS)
        connection.own_command = request.own_command(replica.server_id)
        opened.append(connection)
        return connection

    by_mariadb_gtid = request.flavor == "mariadb" and bool(request.gtid_set)
    by_mysql_gtid = request.flavor == "mysql" and bool(request.gtid_set) and not request.gtid_bytes
    reader = BinLogStreamReader(
        connection_settings={"charset": "utf8mb4"},  # the rest is `open_connection`'s
        server_id=replica.server_id,
        blocking=False,
        resume_stream=True,
        log_file=request.journal,
        log_pos=request.offset,
        auto_position=request.gtid_set if by_mariadb_gtid or by_mysql_gtid else None,
        is_mariadb=by_mariadb_gtid,
        report_slave=(replica.host, "", "", 0),
        slave_uuid=replica.uuid,
        slave_heartbeat=max(1.0, min(30.0, config.read_timeout_s / 3)),
        pymysql_wrapper=connect,
        enable_logging=False,
    )
    try:
        reader.fetchone()
    except _CommandSent:
        return DumpSocket(opened[0], address=config.address, read_timeout_s=config.read_timeout_s)
    except ServerAnswerError:
        raise  # it has closed its connection
    except (pymysql.Error, OSError, RuntimeError) as error:
        for connection in opened:
            connection._force_close()  # type: ignore[attr-defined]
        raise _start_error(error, request, config, connected=bool(opened)) from None
    raise AssertionError("the library returned without a dump command")


def _start_error(
    error: Exception, request: DumpRequest, config: LiveSourceConfig, *, connected: bool
) -> CdcError:
    address = config.address
    number, text = server_errors.error_parts(error)
    if not connected or number is None:
        return server_errors.connect_error(error, address=address, user=config.user)
    if number in server_errors.DENIED_NUMBERS:
        # so both servers refuse to register a replica
        number = server_errors.ACCESS_DENIED_PRIVILEGE
    return server_errors.stream_error(number, text, at=request, address=address)
