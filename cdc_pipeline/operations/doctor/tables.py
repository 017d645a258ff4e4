"""Check the captured tables: changes that the log does not show, values that the lake cannot
hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from shlex import quote
from typing import Final

from cdc_pipeline.config.modes import MODES, keeps_every_change
from cdc_pipeline.errors import SchemaError
from cdc_pipeline.operations.doctor.context import Context, checks
from cdc_pipeline.operations.doctor.diagnosis import Verdict, error, note, ok, warning
from cdc_pipeline.run.plan.unmatched import nothing_matched
from cdc_pipeline.schema.catalog import SYSTEM_VERSIONED
from cdc_pipeline.schema.types import check_column_names, quoted_name, quoted_table
from cdc_pipeline.source.rows.commit_locks import CommitLocks, MetadataLocksHiddenError
from cdc_pipeline.targets.routes import Routes
from cdc_pipeline.text.wording import listed

# These keep nothing when a transaction is rolled back, or nothing at all.
_TRANSACTIONAL: Final = frozenset({"INNODB", "NDBCLUSTER", "ROCKSDB", "TOKUDB"})
_EMPTIED: Final = frozenset({"MEMORY", "BLACKHOLE"})
_NAMED_MAX: Final = 5


def _matching(context: Context) -> Iterator[Verdict]:
    include, account = context.config.tables.include, context.server.account
    names = [table.name for table in context.tables if table.has_rows]
    if not names:
        databases = sorted({pattern.exact_schema or "" for pattern in context.included})
        places = [f"{quoted_name(name)}.*" if name else "*.*" for name in databases]
        yield error(
            "no table is captured, because no table that this account can see matches",
            expected=f"a table that matches {listed(list(include))}",
            got="none",
            mend=" ".join(
                f"GRANT SELECT ON {place} TO {account};" for place in dict.fromkeys(places)
            )
            + " or correct tables.include",
        )
        return
    cut = context.cut if context.lake_is_open else None
    missing = nothing_matched(
        context.config, context.server.tables(), None if cut is None else cut.cursor
    )
    if missing is not None:
        yield Verdict.from_error(missing)  # as each run does at its end
    yield ok(f"{len(names)} table{'s are' if len(names) != 1 else ' is'} captured: {listed(names)}")


def _not_tables(context: Context) -> Iterator[Verdict]:
    views = [table.name for table in context.tables if table.kind == "VIEW"]
    if views:
        yield note("views are not captured, but the tables that they read are", got=listed(views))
    sequences = [table.name for table in context.tables if table.kind == "SEQUENCE"]
    if sequences:
        yield note("sequences are not captured: they are no tables", got=listed(sequences))


def _columns(context: Context) -> Iterator[Verdict]:
    from cdc_pipeline.binlog.tables.charsets import known_charsets
    from cdc_pipeline.schema.ddl.options import server_charset

    known = {*known_charsets(), "binary"}
    fine = 0
    for table in context.tables_with_rows:
        unknown = [column for column in table.columns if column.column is None]
        odd = [
            one for one in table.columns if one.charset and server_charset(one.charset) not in known
        ]
        for column in unknown:
            yield error(
                f"{table.name} has a column of an unknown type: it will be suspended",
                expected="a type listed in docs/reference/types.md",
                got=f"{column.name} {column.type_text}",
                mend=_change_or_exclude(table.name),
            )
        for column in odd:
            yield error(
                f"{table.name} has a column in an unknown charset: it will be suspended",
                expected="a charset that can be decoded, such as utf8mb4",
                got=f"{column.name} {column.type_text} CHARACTER SET {column.charset}",
                mend=f"ALTER TABLE {quoted_table(table.name)} MODIFY {quoted_name(column.name)} "
                "... CHARACTER SET utf8mb4;",
            )
        try:
            check_column_names(table.name, [column.name for column in table.columns])
        except SchemaError as failure:
            yield Verdict.from_error(failure)
            continue
        fine += not unknown and not odd
    yield ok(
        f"the columns of {fine} table{'s have' if fine != 1 else ' has'} types, charsets and names "
        "that Delta accepts"
    )


def _change_or_exclude(table: str) -> str:
    return f"change the column's type, or tables: {{exclude: [{_quoted([table])}]}}"


_KEYLESS: Final = {
    "changelog": ("note", "becomes a changelog, which keeps every change but cannot identify rows"),
    "row_hash": ("note", "becomes a mirror whose rows are identified by all of their values"),
    "stop": ("error", "stops, as its rule demands (keyless: stop)"),
}


def _keys(context: Context) -> Iterator[Verdict]:
    routes = Routes(context.config)
    keyless = [table for table in context.tables_with_rows if not table.has_key]
    for table in keyless:
        for route in routes.of_table(table.name):
            rule = route.rule
            if rule.key or not MODES[rule.mode].has_key:
                continue
            severity, becomes = _KEYLESS[rule.keyless]
            verdict = error if severity == "error" else note
            yield verdict(
                f"{table.name} has no key: it {becomes}",
                expected="a primary key, or a unique key without NULL",
                got="none",
                mend=f"ALTER TABLE {quoted_table(table.name)} ADD PRIMARY KEY (...); or set "
                "`keyless` or `key` in its rule",
            )
    if not keyless:
        yield ok("every captured table has a key")


def _exact_views(context: Context) -> Iterator[Verdict]:
    """K17: a change applied twice would leave a mark."""
    mode = context.variables.get("gtid_mode", "OFF").upper()
    if context.server.flavor != "mysql" or mode == "ON":
        return
    try:
        CommitLocks(context.server.rows).held()
    except MetadataLocksHiddenError as unseen:
        why = unseen.what
    else:
        return
    routes = Routes(context.config)
    names = [
        table.name
        for table in context.tables_with_rows
        if any(
            keeps_every_change(route.rule.mode, route.rule.key or (("",) if table.has_key else ()))
            for route in routes.of_table(table.name)
        )
    ]
    if names:
        yield warning(
            "some tables can neither be read row by row for a snapshot nor compared with them: "
            "histories, changelogs and tables without a key are read in one view at an "
            "exactly known position, which MySQL proves by GTIDs or its locks",
            expected="gtid_mode = ON, or metadata locks that the account can see",
            got=f"{mode}, and {why}: {listed(names)}",
            mend=f"GRANT SELECT ON performance_schema.* TO {context.server.account}; with "
            "performance_schema = ON; or switch GTIDs on; or keep these tables as "
            "mirrors with a key",
        )


def _cascades(context: Context) -> Iterator[Verdict]:
    from cdc_pipeline.source.live.cascades import SWITCH, unlogged_cascades

    cascades = unlogged_cascades(context.server, context.base_tables)
    switch = (
        f"SET PERSIST_ONLY {SWITCH} = OFF; and a restart, or: "
        if SWITCH in context.variables
        else ""
    )
    for one in cascades:
        table = quoted_table(one.table)
        yield warning(
            f"{one.table} is changed by the server without a log entry when rows of "
            f"{one.parent} are deleted or get another key: the lake keeps those rows as they "
            "were",
            expected="RESTRICT, or cascades that are logged (MySQL 9.6)",
            got=f"`{one.name}` {one.actions}",
            mend=f"{switch}ALTER TABLE {table} DROP FOREIGN KEY `{one.name}`; "
            f"ALTER TABLE {table} ADD CONSTRAINT `{one.name}` {one.definition};",
        )
    if not cascades:
        yield ok("no foreign key changes rows without logging it")


def _engines(context: Context) -> Iterator[Verdict]:
    fine = True
    for table in (one for one in context.tables_with_rows if one.engine):
        engine = table.engine.upper()
        if engine in _TRANSACTIONAL:
            continue
        fine = False
        what = (
            (
                f"{table.name} uses the engine {table.engine}, which loses its rows at a restart "
                "without row events"
            )
            if engine in _EMPTIED
            else f"{table.name} uses the engine {table.engine}: its changes remain when their "
            "transaction is rolled back"
        )
        yield warning(
            what,
            expected="a transactional engine",
            got=table.engine,
            mend=f"ALTER TABLE {quoted_table(table.name)} ENGINE = InnoDB;",
        )
    if fine:
        yield ok("every captured table uses a transactional engine")


def _partitions(context: Context) -> Iterator[Verdict]:
    names = [table.name for table in context.tables if table.is_partitioned]
    if not names:
        return
    routes = Routes(context.config)
    what = "DROP and TRUNCATE PARTITION remove rows without row events: such a statement "
    keeping = {
        name
        for name in names
        if all(route.policy.truncate == "keep" for route in routes.of_table(name))
    }
    if keeping:
        yield ok(f"{what}leaves those rows in the lake (schema_changes.truncate: keep)")
    if suspended := [name for name in names if name not in keeping]:
        yield note(
            f"{what}suspends its table",
            got=f"partitioned: {listed(suspended)}",
            mend="delete rows with DELETE before dropping their partition, or set "
            "schema_changes.truncate: keep",
        )


def _versioned(context: Context) -> Iterator[Verdict]:
    names = [table.name for table in context.tables if table.kind == SYSTEM_VERSIONED]
    if names:
        yield note(
            "of system-versioned tables the lake has the current rows, as SELECT returns them; "
            "earlier versions stay on the server",
            got=listed(names),
            mend="targets with mode: history keep earlier versions in the lake",
        )


def _partial(context: Context) -> Iterator[Verdict]:
    """K19: their earlier rows are missing."""
    cursor = context.cursor
    source = context.config.name
    targets = cursor.targets if cursor is not None else {}
    partial = sorted(
        {name for state in targets.values() if state.partial for name in state.source_names}
    )
    for names in [[name] for name in partial] if len(partial) <= _NAMED_MAX else [partial]:
        is_one = len(names) == 1
        yield warning(
            (
                f"{names[0]} is partial: it holds only the rows that have changed since "
                "its capture began"
            )
            if is_one
            else f"{len(names)} tables are partial: they hold only the rows that have changed "
            "since their capture began",
            expected="tables created within the log, or with a snapshot",
            got="first seen in the middle of the log" if is_one else listed(names),
            mend=_load(source, names),
        )
    known = {name for state in targets.values() for name in state.source_names}
    new = [name for name in context.base_tables if name not in known]
    if new:
        yield note(
            "some tables are not in the lake yet: a snapshot reads their existing rows, and later "
            "changes come from the log",
            got=listed(new),
            mend=_load(source, new),
        )
    elif not partial:
        yield ok("no table is partial")


def _load(source: str, names: Sequence[str]) -> str:
    named = "" if len(names) > _NAMED_MAX else "".join(f" --table {quote(name)}" for name in names)
    return f"cdc-pipeline snapshot {source}{named}"


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


CHECKS: Final = checks(
    "tables",
    matching=_matching,
    not_tables=_not_tables,
    columns=_columns,
    keys=_keys,
    exact_views=_exact_views,
    cascades=_cascades,
    engines=_engines,
    partitions=_partitions,
    system_versioned=_versioned,
    partial=_partial,
)
