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
from dataclasses import dataclass
from typing import Final

from cdc_pipeline.errors import CdcError, StatementError
from cdc_pipeline.schema.types import quoted_name, quoted_table
from cdc_pipeline.source.live.connection import ServerConnection
from cdc_pipeline.source.live.server_checks import Finding
from cdc_pipeline.text.table_names import split_table_name

_SWITCH: Final = "innodb_native_foreign_keys"
# One line of SHOW CREATE TABLE; a name may hold doubled backticks.
_CONSTRAINT: Final = re.compile(
    r"^  CONSTRAINT `(?P<name>(?:[^`]|``)+)` (?P<definition>FOREIGN KEY .* REFERENCES "
    r"(?P<parent>`.+`) \(.*\))(?P<actions>(?: ON (?:DELETE|UPDATE) (?:CASCADE|SET NULL|SET DEFAULT|"
    r"NO ACTION|RESTRICT))+),?$",
    re.MULTILINE,
)
_CHANGES: Final = ("CASCADE", "SET NULL", "SET DEFAULT")


@dataclass(frozen=True, slots=True)
class Cascade:
    """A foreign key whose cascades change `table` (``schema.table``) without a row event.

    `parent` is quoted as the server writes it, `actions` are ``ON DELETE CASCADE ON UPDATE SET
    NULL``; `definition` is the constraint as SHOW CREATE TABLE has it, from FOREIGN KEY on,
    without actions; the parent with its database.
    """

    table: str
    name: str
    parent: str
    actions: str
    definition: str


def unlogged_cascades(server: ServerConnection, tables: Sequence[str]) -> list[Cascade]:
    """`tables` are ``schema.table``. Raises ServerUnreachableError, SourceError: no connection."""
    if not tables or server.variables([_SWITCH]).get(_SWITCH, "").upper() == "OFF":
        return []
    cascades = []
    for table in tables:
        try:
            created = server.rows(f"SHOW CREATE TABLE {quoted_table(table)}")
        except StatementError:
            continue
        # A view has another column.
        text = str(created[0].get("create table", "")) if created else ""
        for match in _CONSTRAINT.finditer(text):
            actions = match["actions"].strip()
            if any(change in actions for change in _CHANGES):
                cascades.append(
                    Cascade(
                        table, match["name"], match["parent"], actions, _with_database(match, table)
                    )
                )
    return cascades


def _with_database(match: re.Match[str], table: str) -> str:
    """A parent without a database is one of the child's."""
    definition, parent = match["definition"], match["parent"]
    if "`.`" in parent:
        return definition
    database = quoted_name(split_table_name(table)[0])
    return definition.replace(f" REFERENCES {parent} (", f" REFERENCES {database}.{parent} (")


def cascade_findings(server: ServerConnection, tables: Sequence[str]) -> list[Finding]:
    """Of `unlogged_cascades`; raises as that."""
    cascades = unlogged_cascades(server, tables)
    can_log = cascades and _SWITCH in server.variables([_SWITCH])
    switch = f"SET PERSIST_ONLY {_SWITCH} = OFF; and a restart, or: " if can_log else ""
    return [
        Finding(
            CdcError(
                f"{one.table} is changed by the server without a log entry when rows of "
                f"{one.parent} are deleted or get another key (`{one.name}` {one.actions}): the "
                "lake keeps those rows as they were",
                expected="RESTRICT, or cascades that are logged (MySQL 9.6)",
                next_step=f"{switch}ALTER TABLE {quoted_table(one.table)} DROP FOREIGN KEY "
                f"`{one.name}`; ALTER TABLE {quoted_table(one.table)} ADD CONSTRAINT `{one.name}` "
                f"{one.definition};",
            ),
            "warning",
        )
        for one in cascades
    ]
