"""Find foreign keys whose cascades a server executes without logging them: a mirror of the child
table would diverge.

Rules:
- MariaDB logs the rows of the parent table only, and so does MySQL if InnoDB itself executes the
  cascades (before 9.6, or with innodb_native_foreign_keys=ON). A replica executes them again; a
  lake cannot.
- Each constraint is a warning, not an error: the parents' rows may never be deleted or change their
  key.
- SHOW CREATE TABLE is used, since an account that may only read sees no constraint in
  information_schema (MariaDB). A table that the account cannot see, or that does not exist yet, has
  no warning.

Source: binary logs of MySQL 9.7, which has the rows of the child, and of MariaDB 10.11, which has
not; MySQL manual "innodb_native_foreign_keys", "SHOW CREATE TABLE Statement".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from cdc_pipeline.errors import CdcError, StatementError
from cdc_pipeline.source.live.connection import ServerConnection
from cdc_pipeline.source.live.server_checks import Finding
from cdc_pipeline.text.table_names import quoted, quoted_table, split_table_name

_SWITCH: Final = "innodb_native_foreign_keys"
# One line of SHOW CREATE TABLE; a name may hold doubled backticks.
_CONSTRAINT: Final = re.compile(
    r"^  CONSTRAINT `(?P<name>(?:[^`]|``)+)` (?P<definition>FOREIGN KEY .* REFERENCES "
    r"(?P<parent>`.+`) \(.*\))(?P<actions>(?: ON (?:DELETE|UPDATE) (?:CASCADE|SET NULL|SET DEFAULT|"
    r"NO ACTION|RESTRICT))+),?$",
    re.MULTILINE,
)
_CHANGES: Final = ("CASCADE", "SET NULL", "SET DEFAULT")


def cascade_findings(server: ServerConnection, tables: Sequence[str]) -> list[Finding]:
    """`tables` are ``schema.table``. Raises ServerUnreachableError, SourceError: no connection."""
    switch = server.variables([_SWITCH]) if tables else {_SWITCH: "OFF"}
    if switch.get(_SWITCH, "").upper() == "OFF":
        return []
    return [
        _finding(match, table, can_log=bool(switch))
        for table in tables
        for match in _CONSTRAINT.finditer(_created(server, table))
        if any(change in match["actions"] for change in _CHANGES)
    ]


def _created(server: ServerConnection, table: str) -> str:
    with suppress(StatementError):
        rows = server.rows(f"SHOW CREATE TABLE {quoted_table(table)}")
        return str(rows[0].get("create table", "")) if rows else ""  # a view has another column
    return ""


def _finding(match: re.Match[str], table: str, *, can_log: bool) -> Finding:
    definition, parent, name = match["definition"], match["parent"], match["name"]
    if "`.`" not in parent:  # it is of the child's database
        database = quoted(split_table_name(table)[0])
        definition = definition.replace(
            f" REFERENCES {parent} (", f" REFERENCES {database}.{parent} ("
        )
    switch = f"SET PERSIST_ONLY {_SWITCH} = OFF; and a restart, or: " if can_log else ""
    return Finding(
        CdcError(
            f"{table} is changed by the server without a log entry when rows of {parent} are "
            f"deleted or get another key (`{name}` {match['actions'].strip()}): the lake keeps "
            "those rows as they were",
            expected="RESTRICT, or cascades that are logged (MySQL 9.6)",
            next_step=f"{switch}ALTER TABLE {quoted_table(table)} DROP FOREIGN KEY `{name}`; "
            f"ALTER TABLE {quoted_table(table)} ADD CONSTRAINT `{name}` {definition};",
        ),
        "warning",
    )
