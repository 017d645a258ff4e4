"""Read facts about tables from a server's catalog: kind, engine, partitions, key and columns.

Rules:
- Views and sequences that the patterns match are included: the log holds no rows of views, and
  unusual rows of sequences.
- The key is the one that both servers log (`catalog.is_of_key`).

Source: MySQL 9.7 manual, 28.3 (TABLES, COLUMNS); MariaDB "Information Schema TABLES Table".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from cdc_pipeline.binlog.table_schema import Column
from cdc_pipeline.schema.catalog import TABLE_TYPES, column_of
from cdc_pipeline.source.live.answers import AnswerRow
from cdc_pipeline.source.live.catalog import column_rows, is_of_key
from cdc_pipeline.source.live.connection import ServerConnection
from cdc_pipeline.text.table_names import SYSTEM_SCHEMAS, table_name


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """One column in the catalog.

    Attributes:
        charset: "" if the type has none.
        column: None if the type is not known.
        is_key: whether it belongs to the key, see the module.
    """

    name: str
    type_text: str
    charset: str
    column: Column | None
    is_key: bool = False


@dataclass(frozen=True, slots=True)
class TableFacts:
    """One table, view or sequence.

    Attributes:
        name: ``schema.table``.
        kind: TABLE_TYPE, such as ``BASE TABLE``, ``SYSTEM VERSIONED``, ``VIEW``, ``SEQUENCE``.
        engine: "" if there is none.
        has_key: see the module.
        rows_estimated, bytes_estimated: by the catalog; -1 unknown. InnoDB's rows may be off by
            half.
    """

    name: str
    kind: str
    engine: str
    is_partitioned: bool = False
    has_key: bool = False
    rows_estimated: int = -1
    bytes_estimated: int = -1
    columns: tuple[ColumnFacts, ...] = field(default=(), repr=False)

    @property
    def has_rows(self) -> bool:
        return self.kind in TABLE_TYPES


def read_table_facts(
    server: ServerConnection, captured: Callable[[str, str], bool]
) -> list[TableFacts]:
    """Captured tables, views and sequences that the account can see, by name. Raises
    ServerUnreachableError, SourceError: no connection.
    """
    listed = [
        row
        for row in server.rows(
            "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, ENGINE, CREATE_OPTIONS, TABLE_ROWS, "
            "DATA_LENGTH + INDEX_LENGTH AS bytes FROM information_schema.TABLES "
            "WHERE TABLE_SCHEMA NOT IN %s ORDER BY TABLE_SCHEMA, TABLE_NAME",
            (SYSTEM_SCHEMAS,),
        )
        if captured(row.text("table_schema"), row.text("table_name"))
    ]
    databases = sorted({str(row["table_schema"]) for row in listed})
    columns: dict[tuple[str, str], list[AnswerRow]] = {}
    for row in column_rows(server, databases) if databases else ():
        columns.setdefault((str(row["table_schema"]), str(row["table_name"])), []).append(row)
    is_mariadb = server.flavor == "mariadb"
    return [
        _facts(
            row,
            columns.get((str(row["table_schema"]), str(row["table_name"])), []),
            is_mariadb=is_mariadb,
        )
        for row in listed
    ]


def _facts(row: AnswerRow, columns: list[AnswerRow], *, is_mariadb: bool) -> TableFacts:
    return TableFacts(
        name=table_name(str(row["table_schema"]), str(row["table_name"])),
        kind=row.text("table_type"),
        engine=row.optional_text("engine"),
        is_partitioned="partitioned" in str(row["create_options"] or "").lower(),
        has_key=any(map(is_of_key, columns)),
        rows_estimated=row.optional_number("table_rows", -1),
        bytes_estimated=row.optional_number("bytes", -1),
        columns=tuple(
            ColumnFacts(
                name=column.text("column_name"),
                type_text=column.text("column_type"),
                charset=column.optional_text("character_set_name"),
                column=column_of(column, is_mariadb=is_mariadb),
                is_key=is_of_key(column),
            )
            for column in columns
        ),
    )
