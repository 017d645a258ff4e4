"""Check the account: exactly the privileges that a capture needs, each missing one with its
GRANT.

Rules:
- In a grant on all tables of a database `_` and `%` are wildcards, unless a backslash precedes
  them; with MySQL's partial_revokes a name is taken as it is, backslashes included. The name in a
  grant on one table always is.
- REVOKE takes back only what it names as the grant does.

Source: MySQL 9.7 and MariaDB 11.8, each form granted and tried; MySQL manual, "GRANT Statement".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from cdc_pipeline.errors import StatementError
from cdc_pipeline.operations.doctor.context import Check, Context, shown
from cdc_pipeline.operations.doctor.diagnosis import Verdict, error, note
from cdc_pipeline.source.live.connection import status_privilege
from cdc_pipeline.source.live.server_checks import grant_findings
from cdc_pipeline.targets.table_filter import TableFilter
from cdc_pipeline.text.table_names import TablePattern, quoted, quoted_table
from cdc_pipeline.text.wording import listed

_GRANT: Final = re.compile(r"GRANT (?P<privileges>.+?) ON (?P<place>\S+|`.+?`\.\S+) TO ")
_REVOKED: Final = re.compile(r"REVOKE (?P<privileges>.+?) ON `(?P<database>.+)`\.\* FROM ")
_WILDCARDS: Final = {"_": ".", "%": ".*"}
_IN_BRACES: Final = re.compile(r"\([^)]*\)")
# Privileges that a capture uses, and those that only let it see who else reads the log.
_NEEDED: Final = frozenset(
    {
        "USAGE", "SELECT", "REPLICATION SLAVE", "REPLICATION CLIENT", "BINLOG MONITOR",
        "SLAVE MONITOR", "REPLICA MONITOR", "REPLICATION REPLICA", "REPLICATION MASTER ADMIN",
        "SHOW VIEW",
    }
)  # fmt: skip


def _select(context: Context) -> Iterator[Verdict]:
    account = context.server.account
    tables = {table.name for table in context.tables}

    def lacks(name: str, what: str, got: str) -> Verdict:
        grant = f"GRANT SELECT ON {quoted_table(name)} TO {account};"
        return error(what, expected=f"SELECT on {name}", got=got, next_step=grant)

    for name in [table.name for table in context.tables if table.has_rows]:
        try:
            context.server.query(f"SELECT * FROM {quoted_table(name)} LIMIT 0")  # noqa: S608  (quoted)
        except StatementError as refused:
            what = (
                f"{account} cannot read {name}: no snapshot or comparison of it, and the catalog "
                "does not show its columns"
            )
            yield lacks(name, what, f"error {refused.number}")
    for name in sorted(_named_tables(context) - tables):
        what = f"{account} does not see {name}: it does not exist, or SELECT on it is missing"
        yield lacks(name, what, "not in the catalog")


def _named_tables(context: Context) -> set[str]:
    named = {pattern.exact for pattern in context.included if pattern.exact is not None}
    cut = context.cut if context.lake_is_open else None
    for target, table in (cut.tables if cut is not None else {}).items():
        named.update(
            name for name, recorded in table.spec.sources_of(target).items() if not recorded.gone
        )
    return set(TableFilter(context.config).captured_names(list(named)))


def _more_than_needed(context: Context) -> Iterator[Verdict]:
    account, databases = context.server.account, _databases_of(context.included)
    least = f"REPLICATION SLAVE, {status_privilege(context.server.flavor)}"
    texts = [str(row[0]) if row else "" for row in context.server.query("SHOW GRANTS")[1]]
    revoked = [
        match["database"]
        for match in filter(None, map(_REVOKED.match, texts))
        if "SELECT" in _named(match)
    ]
    for match in filter(None, map(_GRANT.match, texts)):  # others are roles and proxies
        place = match["place"]
        named = _named(match)
        extra = [name for name in named if name not in _NEEDED]
        if extra:
            # SELECT is granted together with any of them.
            again = f" GRANT {least} ON *.* TO {account}; {select_on(context)}"
            yield note(
                f"{account} has more privileges than a capture needs",
                expected=f"SELECT, {least}",
                got=f"{listed(extra, most=6)} on {place}",
                next_step=f"REVOKE {', '.join(extra)} ON {place} FROM {account};"
                + (again if "ALL PRIVILEGES" in extra else ""),
            )
        if "SELECT" in named and place == "*.*" and databases:
            yield note(
                f"{account} may read every database",
                expected=f"SELECT on {', '.join(databases)}",
                got="SELECT on *.*" + (f", except {listed(revoked)}" if revoked else ""),
                next_step=f"{select_on(context)} REVOKE SELECT ON *.* FROM {account};",  # noqa: S608
            )
        elif "SELECT" in named and (others := _others(context, place, databases)):
            yield note(
                f"{account} may read other databases too: in its grant _ and % are wildcards",
                expected=f"SELECT on {', '.join(databases)}",
                got=f"SELECT on {place}, which covers {listed(others)}",
                next_step=f"{select_on(context)} REVOKE SELECT ON {place} FROM {account};",  # noqa: S608
            )


def _named(match: re.Match[str]) -> list[str]:
    return [part.strip().upper() for part in _IN_BRACES.sub("", match["privileges"]).split(",")]


def _others(context: Context, place: str, databases: Sequence[str]) -> list[str]:
    """Databases that are not captured, but covered by the wildcards of a grant's place."""
    match = re.fullmatch(r"`(.+)`\.\*", place)
    if match is None or not databases or context.variables.get("partial_revokes") == "ON":
        return []
    pattern = re.sub(
        r"\\?(.)",
        lambda part: _WILDCARDS.get(part[0], re.escape(part[1])),
        match[1].replace("``", "`"),
        flags=re.DOTALL,
    )
    seen = [str(row[0]) for row in context.server.query("SHOW DATABASES")[1]]
    return [name for name in seen if name not in databases and re.fullmatch(pattern, name)]


def select_on(context: Context) -> str:
    databases, account = _databases_of(context.included), context.server.account
    is_literal = context.variables.get("partial_revokes") == "ON"
    return " ".join(_selects(databases, account, is_literal=is_literal))


def _selects(databases: Sequence[str], account: str, *, is_literal: bool = False) -> list[str]:
    escaped = databases if is_literal else [re.sub(r"([\\_%])", r"\\\1", x) for x in databases]
    places = [f"{quoted(name)}.*" for name in escaped] or ["*.*"]
    return [f"GRANT SELECT ON {place} TO {account};" for place in places]


def _databases_of(patterns: Sequence[TablePattern]) -> list[str]:
    """Those of the patterns if each names one."""
    schemas = {pattern.exact_schema for pattern in patterns}
    return [] if None in schemas else sorted(name for name in schemas if name is not None)


def account_statements(flavor: str, user: str, include: Sequence[TablePattern]) -> list[str]:
    """What an administrator runs once, so that `doctor` has nothing to say about the account."""
    account = f"{_literal(user)}@'%'"
    persist = "SET GLOBAL" if flavor == "mariadb" else "SET PERSIST"
    selects = _selects(_databases_of(include), account)
    if flavor != "mariadb" and any("\\" in select for select in selects):
        selects = ["-- Without the backslashes if @@partial_revokes is 1:", *selects]
    return [
        f"CREATE USER {account} IDENTIFIED BY 'choose-one';",
        f"GRANT REPLICATION SLAVE, {status_privilege(flavor)} ON *.* TO {account};",
        *selects,
        f"{persist} binlog_row_metadata = 'FULL';",
    ]


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


CHECKS: Final = (
    Check(
        "grants",
        "privileges",
        lambda context: shown(grant_findings(context.server, context.live.replica)),
        "the account may read the log and its state",
    ),
    Check("grants", "select", _select, "the account may read the captured tables"),
    Check(
        "grants",
        "more than needed",
        _more_than_needed,
        "the account has no more privileges than it needs",
    ),
)
