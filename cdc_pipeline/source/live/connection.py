"""The control connection to a live server: its identity, the end of its log, its tables.

Rules:
- Read only: no statement here changes the server. What a server can do is found by trying, never
  from its version text.
- A journal position and its GTID set are one pair: both come from one statement (MySQL) or the set
  is computed by the server from the position (MariaDB).
- All results are plain values; errors of the server become CdcErrors with a next step
  (`server_errors`).
- One connection, guarded by a lock; it is opened at first use and once more if the server closed it
  meanwhile.

Source: both servers' answers; MySQL manual "SHOW BINARY LOG STATUS", "XA RECOVER", MariaDB
"BINLOG_GTID_POS", "XA RECOVER".
"""

from __future__ import annotations

import contextlib
import re
import struct
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Final, cast

import pymysql
from pymysql.constants import COMMAND

from cdc_pipeline.binlog.events.xa import xid_text
from cdc_pipeline.config.pipeline_config import LiveSourceConfig
from cdc_pipeline.errors import (
    CdcError,
    ConfigError,
    JournalMissingError,
    MissingGrantError,
    ServerAnswerError,
    ServerSettingError,
    ServerUnreachableError,
    SourceError,
    StatementError,
)
from cdc_pipeline.position.position import Flavor, Position, ServerIdentity
from cdc_pipeline.position.start.context import JournalInfo
from cdc_pipeline.position.start.same_log import begin_again
from cdc_pipeline.schema.catalog import TABLE_TYPES
from cdc_pipeline.schema.ddl.session import canonical_xid
from cdc_pipeline.source.live import login, server_errors, session
from cdc_pipeline.source.live.answers import (
    AnswerRow,
    BoundedConnection,
    loose_text,
    named,
    number_of,
    text_of,
    unexpected,
)
from cdc_pipeline.source.live.managed import ManagedService
from cdc_pipeline.text.table_names import SYSTEM_SCHEMAS, NameRule, table_name

Row = tuple[Any, ...]

_STATUS_STATEMENTS: Final = ("SHOW BINARY LOG STATUS", "SHOW MASTER STATUS")
_REPLICA_STATEMENTS: Final = ("SHOW REPLICAS", "SHOW SLAVE HOSTS")
# MariaDB's other statements tell of one of its connections alone.
_REPLICATION_STATEMENTS: Final = {
    "mysql": ("SHOW REPLICA STATUS", "SHOW SLAVE STATUS"),
    "mariadb": ("SHOW ALL SLAVES STATUS",),
}
_XAER_RMERR: Final = 1401  # without XA_RECOVER_ADMIN, whatever is prepared
# What every query calls the names of tables and schemas in its answer.
_TABLE_NAMES: Final = {"table_schema", "table_name"}
# An encrypted journal has a header of this size before its events, which positions do not count.
_ENCRYPTION_HEADER_BYTES: Final = 512


def open_connection(
    config: LiveSourceConfig,
    kind: type[BoundedConnection] = BoundedConnection,
    **more: Any,
) -> BoundedConnection:
    """Connect, log in and prepare the session (K31), with `connect_timeout_s` for each answer on
    the way (K25); later ones may take `read_timeout_s`. Every connection to a server is made here.

    Raises:
        pymysql.Error, OSError, RuntimeError: `server_errors.connect_error` says what they mean.
        ServerAnswerError: what it says is not the protocol.
        SourceError: it refuses the session.
    """
    arguments = {
        "host": config.host,
        "port": config.port,
        "user": config.user,
        # Bytes: pymysql would encode text as latin1. `LoginPlugins` decides which servers see it.
        "password": login.password(config),
        "charset": "utf8mb4",
        "connect_timeout": config.connect_timeout_s,
        "autocommit": True,
        "program_name": "cdc_pipeline",
        "auth_plugin_map": login.LoginPlugins(),
        **login.tls_arguments(config.tls),
        **more,
        "read_timeout": config.connect_timeout_s,
        "write_timeout": config.connect_timeout_s,
    }
    connection: Any = kind(answer_bytes_max=config.packet_bytes_max, **arguments)
    try:
        session.prepare(connection)
    except BaseException:
        connection._force_close()
        raise
    # A server that sends no greeting must not be waited for as long as one that sorts a table.
    connection._read_timeout = config.read_timeout_s
    connection._write_timeout = config.read_timeout_s
    return cast(BoundedConnection, connection)


def status_privilege(flavor: str) -> str:
    """What lets an account list the journals and see the end of the log."""
    return "BINLOG MONITOR" if flavor == "mariadb" else "REPLICATION CLIENT"


def connected(config: LiveSourceConfig) -> BoundedConnection:
    """As `open_connection`. Raises SourceError, ServerUnreachableError."""
    try:
        return open_connection(config)
    except (pymysql.Error, OSError, RuntimeError) as error:
        raise server_errors.connect_error(error, address=config.address, user=config.user) from None


class ServerConnection:
    """A live server as one control connection sees it."""

    _tries = 2
    _lost_numbers = server_errors.LOST_NUMBERS

    def __init__(self, config: LiveSourceConfig, *, pipeline_name: str = "") -> None:
        self.config = config
        self.pipeline_name = pipeline_name
        self.begin_again = begin_again(pipeline_name)
        self.address = config.address
        self._connection: BoundedConnection | None = None
        self._lock = threading.RLock()
        self._closed = False
        self._statement_of: dict[tuple[str, ...], str] = {}

    # -- statements --------------------------------------------------------------------------------

    def query(self, sql: str, arguments: Sequence[object] = ()) -> tuple[list[str], list[Row]]:
        """Column names and rows of one read-only statement. Raises StatementError: the server
        refused it; ServerAnswerError: what it sent is no answer; ServerUnreachableError,
        SourceError: no connection.
        """
        with self._lock:
            for tries_left in reversed(range(self._tries)):
                connection = self._open()
                try:
                    with self._answering(), connection.cursor() as cursor:
                        cursor.execute(sql, tuple(arguments) or None)
                        names = [column[0] for column in cursor.description or ()]
                        return names, list(cursor.fetchall())
                except ServerUnreachableError:
                    # Read-only statements can be sent again: the server closes idle connections
                    # (wait_timeout).
                    if not tries_left:
                        raise
            raise AssertionError("unreachable")

    @contextlib.contextmanager
    def _answering(self) -> Iterator[None]:
        """What pymysql raises in this block as our own; after all but a refusal the connection is
        dropped.
        """
        try:
            yield
        except ServerAnswerError:
            self._drop()
            raise
        except RuntimeError:  # as pymysql refuses LOAD DATA LOCAL
            self._drop()
            raise server_errors.asks_for_file(self.address) from None
        except (pymysql.Error, OSError) as error:
            number, text = server_errors.error_parts(error)
            if number is not None and number not in self._lost_numbers:
                raise StatementError(number, text, address=self.address) from None
            self._drop()
            raise self._lost(error) from None

    def _lost(self, error: Exception) -> CdcError:
        return server_errors.connect_error(error, address=self.address, user=self.config.user)

    def rows(self, sql: str, arguments: Sequence[object] = ()) -> list[AnswerRow]:
        """By column name in lower case (servers differ in case); the names of tables and schemas
        in them as they are compared (K30).
        """
        answer_rows = named(*self.query(sql, arguments), address=self.address, asked=sql)
        for column in _TABLE_NAMES & answer_rows[0].keys() if answer_rows else ():
            names = self.identity.names
            for row in answer_rows:
                if isinstance(row[column], str):
                    row[column] = names.fold(row[column])
        return answer_rows

    def value(self, sql: str, arguments: Sequence[object] = ()) -> Any:
        """Of the one column of the first row. Raises as `query`; ServerAnswerError: no such."""
        return self._row(sql, arguments)[0]

    def text(self, sql: str, arguments: Sequence[object] = ()) -> str:
        """Gives "" for NULL. Raises as `value`."""
        value = self.value(sql, arguments)
        return "" if value is None else self._text(value, sql)

    def first_known(self, statements: tuple[str, ...]) -> list[AnswerRow]:
        """Of the first of `statements` that this server knows; remembered."""
        known = self._statement_of.get(statements)
        for statement in (known,) if known else statements:
            try:
                rows = self.rows(statement)
            except StatementError as error:
                if error.number == server_errors.PARSE_ERROR and statement != statements[-1]:
                    continue
                if error.number != server_errors.PARSE_ERROR:
                    self._statement_of[statements] = statement
                raise
            self._statement_of[statements] = statement
            return rows
        raise AssertionError("unreachable")

    def _open(self) -> BoundedConnection:
        if self._closed:
            raise SourceError("the source was closed", next_step="open it again")
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def _connect(self) -> BoundedConnection:
        return connected(self.config)

    @property
    def encrypted(self) -> bool:
        return bool(self._open()._secure)  # type: ignore[attr-defined]

    @property
    def service(self) -> ManagedService | None:
        return self._open().service

    def _drop(self) -> None:
        """Without a quit command, behind which a server that computes does not see that its client
        is gone.
        """
        connection, self._connection = self._connection, None
        if connection is not None:
            connection._force_close()  # type: ignore[attr-defined]

    def close(self) -> None:
        """Later calls fail. May be called twice."""
        self._closed = True
        with contextlib.suppress(Exception):
            if self._connection is not None:
                self._connection.close()
        self._connection = None

    # -- who it is ---------------------------------------------------------------------------------

    @cached_property
    def flavor(self) -> Flavor:
        """Only MariaDB has its own GTID variable. Raises ConfigError: the other is configured."""
        try:
            self.value("SELECT @@GLOBAL.gtid_binlog_pos")
            flavor: Flavor = "mariadb"
        except StatementError as error:
            if error.number != server_errors.UNKNOWN_VARIABLE:
                raise self.unexpected(error) from None
            flavor = "mysql"
        if self.config.flavor not in ("auto", flavor):
            raise ConfigError(
                f"{self.address} is not the kind of server that the configuration names",
                setting="source.flavor",
                expected=self.config.flavor,
                got=flavor,
                next_step="remove source.flavor, or check source.host and source.port",
            )
        return flavor

    @cached_property
    def identity(self) -> ServerIdentity:
        columns = "@@GLOBAL.server_id, @@GLOBAL.lower_case_table_names" + (
            ", @@GLOBAL.server_uuid" if self.flavor == "mysql" else ""
        )
        with self.no_refusal():
            row = self._row(f"SELECT {columns}", columns=len(columns.split(",")))
        uuid = self._text(row[2], "server_uuid") if self.flavor == "mysql" else ""
        server_id = number_of(row[0], address=self.address, asked="SELECT @@server_id")
        return ServerIdentity(self.flavor, server_id, uuid, self.address, self._names(row[1]))

    def _names(self, value: object) -> NameRule:
        asked = "SELECT @@lower_case_table_names"
        number = number_of(value, address=self.address, asked=asked)
        if number not in set(NameRule):
            raise unexpected(self.address, asked, expected="0, 1 or 2", got=str(number))
        return NameRule(number)

    @cached_property
    def account(self) -> str:
        """That the server chose for this connection, quoted for GRANT: ``'cdc'@'%'``."""
        with self.no_refusal():
            user, _, host = self.text("SELECT CURRENT_USER()").rpartition("@")
        return "@".join(
            "'" + part.replace("\\", "\\\\").replace("'", "''") + "'" for part in (user, host)
        )

    def variables(self, names: Sequence[str] = ()) -> dict[str, str]:
        """By lower-case name, all for (); those that the server lacks are left out."""
        only = " WHERE Variable_name IN %s" if names else ""
        with self.no_refusal():
            return self.pairs(f"SHOW GLOBAL VARIABLES{only}", (tuple(names),) if names else ())

    def pairs(self, sql: str, arguments: Sequence[object] = ()) -> dict[str, str]:
        names, rows = self.query(sql, arguments)
        if rows and (len(names) != 2 or any(len(row) != 2 for row in rows)):
            raise unexpected(
                self.address, sql, expected="names and values", got=f"{len(names)} columns"
            )
        return {self._text(row[0], sql).lower(): loose_text(row[1]) for row in rows}

    @property
    def uses_gtids(self) -> bool:
        """MySQL: gtid_mode ON; MariaDB: always."""
        return (
            self.flavor == "mariadb"
            or self.variables(["gtid_mode"]).get("gtid_mode", "OFF").upper() == "ON"
        )

    # -- where its log stands ----------------------------------------------------------------------

    def end_position(self) -> Position:
        """With the GTID set executed up to exactly there. Raises ServerSettingError: the server
        writes no log; MissingGrantError: REPLICATION CLIENT (MySQL) or BINLOG MONITOR (MariaDB) is
        missing.
        """
        uses_gtids = self.uses_gtids
        row = self.log_status()
        at, gtid_set = place_of_status(row), ""
        if self.flavor == "mariadb":
            gtid_set = self.mariadb_gtid_position(at)
        elif uses_gtids:
            gtid_set = compact_set(row.optional_text("executed_gtid_set"))
        return replace(at, gtid_set=gtid_set)

    def log_status(self) -> AnswerRow:
        """The one row of SHOW BINARY LOG STATUS or SHOW MASTER STATUS. Raises as `end_position`."""
        with self.no_refusal():
            rows = self.first_known(_STATUS_STATEMENTS)
        if not rows:
            raise ServerSettingError(
                f"{self.address} writes no binary log",
                setting="log_bin",
                next_step=self.setting_step(
                    "log_bin",
                    "ON",
                    "set log_bin = binlog in the server's configuration and restart it",
                ),
            )
        return rows[0]

    def mariadb_gtid_position(self, at: Position) -> str:
        """After all transactions before the place; "" if the server knows no such place."""
        try:
            return compact_set(self.text("SELECT BINLOG_GTID_POS(%s, %s)", (at.journal, at.offset)))
        except StatementError as error:
            raise server_errors.stream_error(
                error.number, error.text, at=at, address=self.address
            ) from None

    def gtid_purged(self) -> str:
        with self.no_refusal():
            return compact_set(self.text("SELECT @@GLOBAL.gtid_purged"))

    def journals(self) -> list[JournalInfo]:
        """Oldest first; sizes as positions count them. JournalMissingError: there is none."""
        with self.no_refusal():
            rows = self.rows("SHOW BINARY LOGS")
        if not rows:
            raise JournalMissingError(
                f"{self.address} lists no journals",
                setting="log_bin",
                next_step="enable the binary log",
            )
        return [
            JournalInfo(
                journal=row.text("log_name"),
                size_bytes=row.number("file_size")
                - (
                    _ENCRYPTION_HEADER_BYTES
                    if str(row.get("encrypted", "No")).lower() == "yes"
                    else 0
                ),
            )
            for row in rows
        ]

    def tables(self) -> list[str]:
        """Base tables as ``schema.table``, without the system schemas. Without SELECT on a table
        an account does not see it: fewer names, no error.
        """
        rows = self.rows(
            "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE TABLE_TYPE IN %s "
            "AND TABLE_SCHEMA NOT IN %s ORDER BY TABLE_SCHEMA, TABLE_NAME",
            (TABLE_TYPES, SYSTEM_SCHEMAS),
        )
        return [table_name(row.text("table_schema"), row.text("table_name")) for row in rows]

    # -- replicas ----------------------------------------------------------------------------------

    def replicas(self) -> list[AnswerRow] | None:
        """Those registered with the server; None if the account may not see them."""
        return self._shown(_REPLICA_STATEMENTS)

    def replication(self) -> list[AnswerRow] | None:
        """How the server itself replicates, a row a source; None if the account may not see it."""
        return self._shown(_REPLICATION_STATEMENTS[self.flavor])

    def _shown(self, statements: tuple[str, ...]) -> list[AnswerRow] | None:
        try:
            return self.first_known(statements)
        except StatementError as error:
            if error.number == server_errors.ACCESS_DENIED_PRIVILEGE:
                return None
            raise self.unexpected(error) from None

    def prepared_xids(self) -> frozenset[str] | None:
        """Of XA transactions, as the session's own statements have them; None if the account may
        not ask, or one is no xid: nothing says of which one it is.
        """
        is_mysql = self.flavor == "mysql"
        try:
            rows = self.rows("XA RECOVER CONVERT XID" if is_mysql else "XA RECOVER FORMAT='SQL'")
        except StatementError as error:
            if error.number in (_XAER_RMERR, server_errors.ACCESS_DENIED_PRIVILEGE):
                return None
            raise self.unexpected(error) from None
        xids = [_xid_of_hex(row) if is_mysql else canonical_xid(row.text("data")) for row in rows]
        return frozenset(xids) if all(xids) else None

    def may_register_replica(self, server_id: int, host: str) -> bool:
        """Try COM_REGISTER_SLAVE on a separate connection: the server demands REPLICATION SLAVE
        for it.

        It is tried under the name of the dump, `host`: a server that has not yet noticed the end
        of this connection would list it to the dump as another reader of the same id.
        """
        name = host.encode()
        payload = struct.pack("<IB", server_id, len(name)) + name
        payload += struct.pack("<BBHII", 0, 0, 0, 0, 0)
        probe = connected(self.config)
        try:
            probe._execute_command(COMMAND.COM_REGISTER_SLAVE, payload)
            probe._read_packet()
        except (pymysql.Error, OSError) as error:
            number, text = server_errors.error_parts(error)
            if number in (server_errors.ACCESS_DENIED_PRIVILEGE, 1045):
                return False
            if number is None or number in server_errors.LOST_NUMBERS:
                raise self._lost(error) from None
            raise SourceError(
                f"{self.address} registers no readers of the log",
                setting="source.host",
                got=f"error {number}: {text}",
                next_step="name the server itself, if this is a proxy: RDS Proxy, ProxySQL and "
                "the like hand on statements alone",
            ) from None
        finally:
            with contextlib.suppress(Exception):
                probe.close()
        return True

    # -- helpers -----------------------------------------------------------------------------------

    def setting_step(self, variable: str, value: str, own: str) -> str:
        """What sets a variable: `own`, or what the managed service has in its place."""
        return own if self.service is None else self.service.step(variable, value)

    def grant_error(self, privileges: str, got: object) -> MissingGrantError:
        return MissingGrantError(
            f"the account {self.account} lacks {privileges}",
            setting=privileges,
            got=got,
            next_step=f"GRANT {privileges} ON *.* TO {self.account};",
        )

    @property
    def status_privilege(self) -> str:
        return status_privilege(self.flavor)

    @contextlib.contextmanager
    def no_refusal(self) -> Iterator[None]:
        """What the server refuses in this block, no caller expects."""
        try:
            yield
        except StatementError as error:
            raise self.unexpected(error) from None

    def unexpected(self, error: StatementError) -> CdcError:
        """For a refused statement that no caller expects."""
        if error.number == server_errors.ACCESS_DENIED_PRIVILEGE:
            privileges = _named_privileges(error.text) or self.status_privilege
            return self.grant_error(privileges, error.got)
        return error

    def _row(self, sql: str, arguments: Sequence[object] = (), *, columns: int = 1) -> Row:
        rows = self.query(sql, arguments)[1]
        if not rows or len(rows[0]) != columns:
            raise unexpected(
                self.address,
                sql,
                expected=f"a row of {columns}",
                got=f"a row of {len(rows[0])}" if rows else "no row",
            )
        return rows[0]

    def _text(self, value: object, asked: str) -> str:
        return text_of(value, address=self.address, asked=asked)


def compact_set(text: str) -> str:
    """Servers print long sets over several lines."""
    return re.sub(r"\s+", "", text)


def place_of_status(row: AnswerRow) -> Position:
    return Position(row.text("file"), row.number("position"))


def _named_privileges(text: str) -> str:
    """Of error 1227's text, "... you need (at least one of) the X, Y privilege(s) ..."."""
    match = re.search(r"the (.+?) privilege", text)
    if match is None:
        return ""
    names = [name.strip() for name in re.split(r",| OR ", match[1])]
    for wanted in ("REPLICATION SLAVE", "BINLOG MONITOR", "REPLICATION CLIENT"):
        if wanted in names:
            return wanted
    return ""


def _xid_of_hex(row: AnswerRow) -> str:
    text, length = row.text("data"), row.number("gtrid_length")
    try:
        data = bytes.fromhex(text.removeprefix("0x"))
    except ValueError:
        return ""
    return xid_text(row.number("formatid"), data[:length], data[length:])
