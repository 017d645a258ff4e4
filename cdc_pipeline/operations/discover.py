"""List the tables of a live server, and say whether and how each would be captured.

Rules:
- Reads the server's catalog alone: no log, no rows, no lake. Nothing is written.
- What a run would refuse is said in the words of the run's own error.
"""

from __future__ import annotations

from contextlib import closing
from typing import Final, Literal

from cdc_pipeline.binlog.table_schema import Column
from cdc_pipeline.config.modes import MODES, key_label
from cdc_pipeline.config.pipeline_config import LiveSourceConfig, PipelineConfig
from cdc_pipeline.errors import CdcError, ConfigError
from cdc_pipeline.frozen_model import FrozenModel
from cdc_pipeline.run.plan.starting import choose
from cdc_pipeline.schema.types import check_column_names, delta_type
from cdc_pipeline.source.live.connection import ServerConnection
from cdc_pipeline.source.live.table_facts import ColumnFacts, TableFacts, read_table_facts
from cdc_pipeline.targets.keys import identity_of
from cdc_pipeline.targets.routes import Routes
from cdc_pipeline.targets.table_filter import TableFilter
from cdc_pipeline.text.table_names import NameRule, split_table_name

Verdict = Literal["captured", "refused", "left_out"]

# These keep nothing when a transaction is rolled back, or nothing at all.
_UNSAFE_ENGINES: Final = frozenset({"MEMORY", "BLACKHOLE", "MYISAM", "ARIA"})
# Delta types that say the same as the source's, where the names differ.
_SAME: Final = frozenset({("datetime", "timestamp_ntz"), ("text", "string"), ("year", "smallint")})


class DiscoveredTable(FrozenModel):
    """`kind`: as the catalog names it, such as ``BASE TABLE``; `rows_estimated`, `bytes_estimated`:
    -1 unknown; `key`: in the order of the table; `notable`: columns whose type in the lake differs
    from the source's, as ``name: type -> type``, or is not known; `verdict`: ``refused`` if a run
    would suspend the table or stop; `how`: the targets with mode and key, or why not, in words.
    """

    table: str
    kind: str
    engine: str
    rows_estimated: int
    bytes_estimated: int
    key: tuple[str, ...]
    notable: tuple[str, ...]
    verdict: Verdict
    how: str


class Discovery(FrozenModel):
    source: str
    server: str
    account: str
    lower_case_table_names: NameRule
    tables: tuple[DiscoveredTable, ...]


def discover(config: PipelineConfig) -> Discovery:
    """From the standby if the primary does not answer; ConfigError: an archive has no catalog."""
    if not isinstance(config.source, LiveSourceConfig):
        raise ConfigError(
            "an archive has no catalog: its tables are known by their changes alone",
            setting="source.kind",
            expected="live",
            got="archive",
            next_step="see which tables its journals change: `cdc-pipeline binlog "
            f"{config.source.directory}`",
        )
    source = choose(config).config.source
    assert isinstance(source, LiveSourceConfig)
    with closing(ServerConnection(source)) as server:
        config = config.comparing(server.identity.names)
        facts = read_table_facts(server, lambda _database, _table: True)
        return Discovery(
            source=config.name,
            server=f"{server.flavor} {server.text('SELECT VERSION() AS version')} at "
            f"{server.address}",
            account=server.account,
            lower_case_table_names=server.identity.names,
            tables=tuple(_discovered(config, table) for table in facts),
        )


def _discovered(config: PipelineConfig, table: TableFacts) -> DiscoveredTable:
    verdict, how = _verdict(config, table)
    return DiscoveredTable(
        table=table.name,
        kind=table.kind,
        engine=table.engine,
        rows_estimated=table.rows_estimated if table.has_rows else -1,
        bytes_estimated=table.bytes_estimated if table.has_rows else -1,
        key=_key(table),
        notable=tuple(filter(None, map(_notable, table.columns))),
        verdict=verdict,
        how=how,
    )


def _key(table: TableFacts) -> tuple[str, ...]:
    return tuple(column.name for column in table.columns if column.is_key)


def _verdict(config: PipelineConfig, table: TableFacts) -> tuple[Verdict, str]:
    out = _left_out(config, table)
    if out:
        return "left_out", out
    unknown = [column for column in table.columns if column.column is None]
    if unknown:
        return "refused", (
            f"column {unknown[0].name} has a type that is not known: {unknown[0].type_text}"
        )
    columns = tuple(column.name for column in table.columns)
    said = []
    try:
        check_column_names(table.name, columns)
        for route in Routes(config).of_table(table.name):
            identity = identity_of(
                route.rule, source=table.name, columns=columns, source_key=_key(table)
            )
            name = "" if route.target == table.name else f"{route.target}: "
            key = key_label(identity.mode, identity.key)
            by = f" by {key}" if MODES[identity.mode].has_key else ""
            said.append(f"{name}{MODES[identity.mode].label}{by}")
    except CdcError as error:
        return "refused", error.what
    if table.engine.upper() in _UNSAFE_ENGINES:
        said.append(f"{table.engine} does not roll back what the log may undo")
    return "captured", "; ".join(said)


def _left_out(config: PipelineConfig, table: TableFacts) -> str:
    database, name = split_table_name(table.name)
    filtered = TableFilter(config)
    if not table.has_rows:
        return f"a {table.kind.lower()} has no rows in the log"
    if filtered.captured(database, name):
        return ""
    if not any(pattern.matches(database, name) for pattern in filtered.include):
        return "no pattern of tables.include matches"
    for pattern in filtered.exclude:
        if pattern.matches(database, name):
            return f"tables.exclude has {pattern.text}"
    base = filtered.shadowed(database, name)
    return f"it looks like an online schema change of {base}: name it in tables.include if not"


def _notable(column: ColumnFacts) -> str:
    """How a column's type changes on its way into the lake; "" if it stays the same."""
    if column.column is None:
        return f"{column.name}: {column.type_text} is not known"
    delta = delta_type(column.column)
    if _is_same(column.column, delta):
        return ""
    return f"{column.name}: {column.type_text} -> {delta}"


def _is_same(column: Column, delta: str) -> bool:
    source, target = str(column.kind), delta.partition("(")[0]
    both_integers = source.endswith("int") and target.endswith("int")
    return source == target or both_integers or (source, target) in _SAME
