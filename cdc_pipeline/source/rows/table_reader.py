"""Read tables of a live server as Arrow with our own compiled kernels.

Rules:
- Nothing on the server changes and nothing is locked: the session is read only, and a view is a
  consistent snapshot.
- The session is that of every connection (`source.live.session`), but for text, which is not
  converted. So a selected row and the same row in the log become the same Arrow values; a test
  proves this for every type.
- Rows come by the binary protocol: FLOAT in text has six digits, and numbers need no parsing.
- Memory is bounded by a batch's rows and bytes, whatever the table's size; see `binlog.result_set`.
- A view ends with its connection. Abandoning a result also closes its connection; the next
  statement outside of a view opens another one.

Source: MySQL manual "START TRANSACTION", "SET TRANSACTION", "Server SQL Modes"; MariaDB "START
TRANSACTION".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final, Self

from cdc_pipeline.binlog.rows.result_columns import ResultPlan, quoted, result_plan
from cdc_pipeline.binlog.rows.result_set import BATCH_BYTES, BATCH_ROWS, ResultSet
from cdc_pipeline.binlog.selected import SelectedRows
from cdc_pipeline.binlog.table_schema import TableSchema
from cdc_pipeline.config.pipeline_config import LiveSourceConfig
from cdc_pipeline.errors import SourceError, StatementError, TableReadInterruptedError, located
from cdc_pipeline.position.position import Flavor
from cdc_pipeline.source.live import server_errors
from cdc_pipeline.source.live.answers import AnswerRow, first_value, named
from cdc_pipeline.source.live.connection import Row
from cdc_pipeline.source.live.server_errors import table_error
from cdc_pipeline.source.rows.row_stream import RowConnection


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


class TableReader:
    """One connection that reads tables. A batch ends with the row that would exceed
    `batch_bytes`, as the server sends them. `found_by`: the columns by which rules find a table's
    rows.
    """

    def __init__(
        self,
        config: LiveSourceConfig,
        *,
        batch_bytes: int = BATCH_BYTES,
        found_by: Callable[[str], frozenset[str]] = lambda _table: frozenset(),
    ) -> None:
        self.config = config
        self._found_by = found_by
        self.address = f"{config.host}:{config.port}"
        self.in_view = False
        self._batch_bytes = batch_bytes
        self._connection: RowConnection | None = None
        self._flavor: Flavor | None = None
        self._reading = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def flavor(self) -> Flavor:
        self._open()
        assert self._flavor is not None
        return self._flavor

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
            if self._connection is not None and not self._connection.broken:
                self.query("COMMIT")

    def query(self, sql: str, arguments: Sequence[object] = ()) -> tuple[list[str], list[Row]]:
        """One small statement in this session, in the view if there is one. Raises CdcError:
        refused, or the connection broke.
        """
        try:
            return self.try_query(sql, arguments)
        except StatementError as error:
            raise SourceError(
                f"{self.address} refused a statement",
                got=f"error {error.number}: {error.text}",
                next_step="see the server's documentation of this error",
            ) from None

    def try_query(self, sql: str, arguments: Sequence[object] = ()) -> tuple[list[str], list[Row]]:
        """`query` that raises StatementError if the server refuses."""
        return self._open().query(sql, arguments)

    def rows(self, sql: str, arguments: Sequence[object] = ()) -> list[AnswerRow]:
        """By column name in lower case. Raises StatementError: refused; CdcError: the connection
        broke, or what came is no answer.
        """
        return named(*self.try_query(sql, arguments), address=self.address, asked=sql)

    def value(self, sql: str, arguments: Sequence[object] = ()) -> Any:
        """Of the first row. Raises CdcError: refused, the connection broke, or no row."""
        return first_value(self.query(sql, arguments)[1], address=self.address, asked=sql)

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
        connection = self._open()
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
                    connection.query(f"USE {quoted(plan.schema.database)}")
                with closing(connection.rows(sql, result)) as batches:  # type: ignore[type-var]
                    yield from batches
            assert result.end is not None
            if result.end.code:
                raise StatementError(result.end.code, result.end.message, address=self.address)
        except StatementError as error:
            raise table_error(
                error.number, error.text, address=self.address, table=table, where=where
            ) from None
        finally:
            self._reading = False

    def _open(self) -> RowConnection:
        connection = self._connection
        if connection is not None and not connection.broken:
            return connection
        if self.in_view:
            raise TableReadInterruptedError(
                f"the view of {self.address} ended with its connection",
                next_step="end the view, open another one and read again",
            )
        connection = RowConnection(self.config)
        try:
            connection.query("SET SESSION character_set_results = NULL")
            self._flavor = (
                "mariadb" if _knows(connection, "SELECT @@GLOBAL.gtid_binlog_pos") else "mysql"
            )
        except StatementError as error:
            connection.close()
            raise SourceError(
                f"{self.address} refuses the settings of the session that reads tables",
                got=f"error {error.number}: {error.text}",
                next_step="see the server's documentation of this error",
            ) from None
        connection.allow_slow_answers()
        self._connection = connection
        return connection

    def close(self) -> None:
        """The view ends. May be called twice."""
        self.in_view = False
        if self._connection is not None:
            self._connection.close()
            self._connection = None


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


def _knows(connection: RowConnection, sql: str) -> bool:
    try:
        connection.query(sql)
    except StatementError as error:
        if error.number != server_errors.UNKNOWN_VARIABLE:
            raise
        return False
    return True
