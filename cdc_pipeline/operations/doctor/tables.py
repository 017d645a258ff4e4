"""Check the captured tables: changes that the log does not show, values that the lake cannot
hold."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote
from typing import Final

from cdc_pipeline.binlog.tables.charsets import known_charsets
from cdc_pipeline.config.modes import MODES, keeps_every_change
from cdc_pipeline.errors import SchemaError
from cdc_pipeline.operations.doctor.context import Check, Context, shown
from cdc_pipeline.operations.doctor.diagnosis import Verdict, error, note, ok, warning
from cdc_pipeline.operations.doctor.grants import select_on
from cdc_pipeline.run.plan.needs_snapshot import needing
from cdc_pipeline.run.plan.unmatched import nothing_matched
from cdc_pipeline.schema.catalog import SYSTEM_VERSIONED
from cdc_pipeline.schema.ddl.options import server_charset
from cdc_pipeline.schema.types import check_column_names
from cdc_pipeline.source.live.cascades import cascade_findings
from cdc_pipeline.source.rows.commit_locks import CommitLocks, MetadataLocksHiddenError
from cdc_pipeline.text.table_names import quoted, quoted_table
from cdc_pipeline.text.wording import by_reason, listed

# These keep nothing when a transaction is rolled back, or nothing at all.
_TRANSACTIONAL: Final = frozenset({"INNODB", "NDBCLUSTER", "ROCKSDB", "TOKUDB"})
_EMPTIED: Final = frozenset({"MEMORY", "BLACKHOLE"})
_NAMED_MAX: Final = 5


def _matching(context: Context) -> Iterator[Verdict]:
    names = [table.name for table in context.tables if table.has_rows]
    if not names:
        yield error(
            "no table is captured, because no table that this account can see matches",
            expected=f"a table that matches {listed(list(context.config.tables.include))}",
            got="none",
            next_step=f"{select_on(context)} or correct tables.include",
        )
        return
    cut = context.cut if context.lake_is_open else None
    missing = nothing_matched(
        context.config, context.server.tables(), None if cut is None else cut.cursor
    )
    if missing is not None:
        yield Verdict.from_error(missing)  # as each run does at its end
    yield ok(f"captured: {listed(names)}")


def _not_tables(context: Context) -> Iterator[Verdict]:
    views = [table.name for table in context.tables if table.kind == "VIEW"]
    if views:
        yield note("views are not captured, but the tables that they read are", got=listed(views))
    sequences = [table.name for table in context.tables if table.kind == "SEQUENCE"]
    if sequences:
        yield note("sequences are not captured: they are no tables", got=listed(sequences))


def _columns(context: Context) -> Iterator[Verdict]:
    known = {*known_charsets(), "binary"}
    for table in context.tables_with_rows:
        for column in table.columns:
            got = f"{column.name} {column.type_text}"
            if column.column is None:
                yield error(
                    f"{table.name} has a column of an unknown type: it will be suspended",
                    expected="a type that this version knows",
                    got=got,
                    next_step=f'change its type, or tables: {{exclude: ["{table.name}"]}}',
                )
            if column.charset and server_charset(column.charset) not in known:
                table_text, column_text = quoted_table(table.name), quoted(column.name)
                yield error(
                    f"{table.name} has a column in an unknown charset: it will be suspended",
                    expected="a charset that can be decoded, such as utf8mb4",
                    got=f"{got} CHARACTER SET {column.charset}",
                    next_step=f"ALTER TABLE {table_text} MODIFY {column_text} ... CHARACTER SET "
                    "utf8mb4;",
                )
        try:
            check_column_names(table.name, [column.name for column in table.columns])
        except SchemaError as failure:
            yield Verdict.from_error(failure)


_KEYLESS: Final = {
    "changelog": ("note", "becomes a changelog, which keeps every change but cannot identify rows"),
    "row_hash": ("note", "becomes a mirror whose rows are identified by all of their values"),
    "stop": ("error", "stops, as its rule demands (keyless: stop)"),
}


def _keys(context: Context) -> Iterator[Verdict]:
    for table in (one for one in context.tables_with_rows if not one.has_key):
        for rule in (route.rule for route in context.routes(table.name)):
            if rule.key or not MODES[rule.mode].has_key:
                continue
            severity, becomes = _KEYLESS[rule.keyless]
            verdict = error if severity == "error" else note
            yield verdict(
                f"{table.name} has no key: it {becomes}",
                expected="a primary key, or a unique key without NULL",
                got="none",
                next_step=f"ALTER TABLE {quoted_table(table.name)} ADD PRIMARY KEY (...); or set "
                "`keyless` or `key` in its rule",
            )


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
    names = [
        table.name
        for table in context.tables_with_rows
        if any(
            keeps_every_change(route.rule.mode, route.rule.key or (("",) if table.has_key else ()))
            for route in context.routes(table.name)
        )
    ]
    if names:
        yield warning(
            "some tables can neither be read row by row for a snapshot nor compared with them: "
            "histories, changelogs and tables without a key are read in one view at an "
            "exactly known position, which MySQL proves by GTIDs or its locks",
            expected="gtid_mode = ON, or metadata locks that the account can see",
            got=f"{mode}, and {why}: {listed(names)}",
            next_step=f"GRANT SELECT ON performance_schema.* TO {context.server.account}; with "
            "performance_schema = ON; or switch GTIDs on; or keep these tables as "
            "mirrors with a key",
        )


def _cascades(context: Context) -> Iterator[Verdict]:
    return shown(
        cascade_findings(context.server, [table.name for table in context.tables_with_rows])
    )


def _engines(context: Context) -> Iterator[Verdict]:
    for table in context.tables_with_rows:
        engine = table.engine.upper()
        if not engine or engine in _TRANSACTIONAL:
            continue
        yield warning(
            f"{table.name} uses the engine {table.engine}"
            + (
                ", which loses its rows at a restart without row events"
                if engine in _EMPTIED
                else ": its changes remain when their transaction is rolled back"
            ),
            expected="a transactional engine",
            got=table.engine,
            next_step=f"ALTER TABLE {quoted_table(table.name)} ENGINE = InnoDB;",
        )


def _partitions(context: Context) -> Iterator[Verdict]:
    what = "DROP and TRUNCATE PARTITION remove rows without row events: such a statement "
    names = [table.name for table in context.tables if table.is_partitioned]
    suspended = [
        name
        for name in names
        if any(route.policy.truncate != "keep" for route in context.routes(name))
    ]
    if suspended:
        yield note(
            f"{what}suspends its table",
            got=f"partitioned: {listed(suspended)}",
            next_step="delete rows with DELETE before dropping their partition, or set "
            "schema_changes.truncate: keep",
        )
    elif names:
        yield ok(f"{what}leaves those rows in the lake (schema_changes.truncate: keep)")


def _versioned(context: Context) -> Iterator[Verdict]:
    names = [table.name for table in context.tables if table.kind == SYSTEM_VERSIONED]
    if names:
        yield note(
            "of system-versioned tables the lake has the current rows, as SELECT returns them; "
            "earlier versions stay on the server",
            got=listed(names),
            next_step="targets with mode: history keep earlier versions in the lake",
        )


def _partial(context: Context) -> Iterator[Verdict]:
    config, known = context.config, [table.name for table in context.tables_with_rows]
    cut = context.cut
    for why, names in by_reason(needing(config, cut, known)):
        # one that was never captured is only to be begun
        verdict = note if all(cut is None or name not in cut.tables for name in names) else warning
        some = names if len(names) <= _NAMED_MAX else []
        tables = "".join(f" --table {quote(name)}" for name in some)
        yield verdict(
            f"{listed(names)}: {why}",
            expected="tables created within the log, or with a snapshot",
            next_step=f"cdc-pipeline snapshot {config.name}{tables}",
        )


CHECKS: Final = (
    Check("tables", "matching", _matching),
    Check("tables", "not tables", _not_tables),
    Check(
        "tables", "columns", _columns, "Delta accepts all types, charsets and names of the columns"
    ),
    Check("tables", "keys", _keys, "every captured table has a key"),
    Check("tables", "exact views", _exact_views),
    Check("tables", "cascades", _cascades, "no foreign key changes rows without logging it"),
    Check("tables", "engines", _engines, "every captured table uses a transactional engine"),
    Check("tables", "partitions", _partitions),
    Check("tables", "system versioned", _versioned),
    Check("tables", "partial", _partial, "no table is partial"),
)
