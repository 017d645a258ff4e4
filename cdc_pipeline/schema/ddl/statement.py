"""A statement of the log as `ddl.py` parses it, once: plain values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from cdc_pipeline.schema.ddl.alter import Action, UniqueKey
from cdc_pipeline.schema.ddl.create import CreatedTable
from cdc_pipeline.schema.ddl.options import NamedCharset
from cdc_pipeline.schema.ddl.tokens import UNKNOWN_MODES, SqlModes

TableName = tuple[str, str]  # database, table


class StatementKind(StrEnum):
    EMPTY = "empty"  # nothing but comments (MariaDB's dummy events)
    CREATE_TABLE = "create_table"
    CREATE_TABLE_LIKE = "create_table_like"
    CREATE_TABLE_SELECT = "create_table_select"
    ALTER_TABLE = "alter_table"
    DROP_TABLE = "drop_table"
    RENAME_TABLE = "rename_table"
    TRUNCATE_TABLE = "truncate_table"
    CREATE_INDEX = "create_index"
    DROP_INDEX = "drop_index"
    CREATE_DATABASE = "create_database"
    ALTER_DATABASE = "alter_database"
    DROP_DATABASE = "drop_database"
    VIEW = "view"
    TRIGGER = "trigger"
    ROUTINE = "routine"  # procedure, function, package, event, library
    SEQUENCE = "sequence"
    ACCOUNT = "account"  # users, roles, grants
    MAINTENANCE = "maintenance"  # analyze, optimize, repair, check, checksum, flush
    STORAGE = "storage"  # tablespaces, servers, logfile groups, spatial reference systems
    ADMIN = "admin"  # plugins, components, replication, resource groups, locks, show ...
    SET = "set"
    BEGIN = "begin"
    COMMIT = "commit"
    ROLLBACK = "rollback"
    SAVEPOINT = "savepoint"
    ROLLBACK_TO_SAVEPOINT = "rollback_to_savepoint"
    RELEASE_SAVEPOINT = "release_savepoint"
    XA_START = "xa_start"
    XA_END = "xa_end"
    XA_PREPARE = "xa_prepare"
    XA_COMMIT = "xa_commit"
    XA_ROLLBACK = "xa_rollback"
    # changes of rows as text; `tables` is empty if the text does not show them (CALL, SELECT f())
    DML = "dml"
    UNKNOWN = "unknown"


_K = StatementKind
CREATES: Final = frozenset({_K.CREATE_TABLE, _K.CREATE_TABLE_LIKE, _K.CREATE_TABLE_SELECT})
# Kinds that change columns, keys or rows of the tables that they name.
TABLE_DDL: Final = CREATES | {
    _K.ALTER_TABLE,
    _K.DROP_TABLE,
    _K.RENAME_TABLE,
    _K.TRUNCATE_TABLE,
    _K.CREATE_INDEX,
    _K.DROP_INDEX,
    _K.DROP_DATABASE,
}


@dataclass(frozen=True, slots=True)
class Statement:
    """What a text says.

    Attributes:
        verb: its leading words for people: ``DROP TEMPORARY TABLE``.
        tables: tables that it creates, changes or removes; never those that it only reads, except
            that a table joined in DML counts too.
        renames: (old, new) of RENAME TABLE and ALTER TABLE ... RENAME; both are in `tables` too.
        reads: tables that CREATE TABLE ... LIKE takes its columns from.
        database: of CREATE, ALTER and DROP DATABASE.
        index: name of the index of DROP INDEX.
        name: of the savepoint of SAVEPOINT, ROLLBACK TO and RELEASE; canonical xid of XA
            statements; "" if it cannot be read.
        ignore: ALTER IGNORE TABLE (MariaDB), which drops rows that a new unique index refuses.
        unique: of CREATE UNIQUE INDEX.
        actions: of ALTER TABLE, in order.
        created: by a plain CREATE TABLE; None if its text leaves that uncertain.
        charset: of CREATE and ALTER DATABASE; None if it cannot be read.
        sql, default_database, is_mariadb, modes: what was parsed.
    """

    kind: StatementKind
    verb: str = ""
    tables: tuple[TableName, ...] = ()
    renames: tuple[tuple[TableName, TableName], ...] = ()
    reads: tuple[TableName, ...] = ()
    database: str = ""
    index: str = ""
    name: str = ""
    temporary: bool = False
    if_exists: bool = False
    if_not_exists: bool = False
    or_replace: bool = False
    ignore: bool = False
    unique: UniqueKey | None = None
    actions: tuple[Action, ...] = field(default=(), repr=False)
    created: CreatedTable | None = field(default=None, repr=False)
    charset: NamedCharset | None = None
    sql: str = field(default="", repr=False)
    default_database: str = ""
    is_mariadb: bool = False
    modes: SqlModes = UNKNOWN_MODES

    @property
    def drops_database(self) -> bool:
        """With its tables, to create it again or not."""
        kind = self.kind
        return kind is StatementKind.DROP_DATABASE or (
            kind is StatementKind.CREATE_DATABASE and self.or_replace
        )

    def is_isolated(self, captured: Callable[[str, str], bool]) -> bool:
        """Alone in its batch (SPEC S7, K9): DDL of a captured table, and unknown statements."""
        if self.kind is _K.UNKNOWN or self.drops_database:
            return True
        if self.kind not in TABLE_DDL or self.temporary:
            return False
        return any(captured(*table) for table in self.tables)

    @property
    def came_from(self) -> dict[TableName, TableName | None]:
        """The table that each name of `renames` has afterwards, by its name before; None if none.

        In order: RENAME TABLE a TO b, c TO a hands names over within one statement.
        """
        came_from: dict[TableName, TableName | None] = {}
        for old, new in self.renames:
            origin = came_from.get(old, old)
            came_from |= {old: None, new: origin}
        return came_from
