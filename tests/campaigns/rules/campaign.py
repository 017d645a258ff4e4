"""Rules of targets under the DDL storm (K10, K13, K14), by `tests.campaigns.frame`.

A case is a server's kind and the rules of one or two tables, then statements: the changes of rows
and the DDL of `tests.campaigns.sink`, and dates that no Delta type holds. A rule has a mode, and
perhaps a filter, computed columns, other types, a key of its own, columns that are left out or
begin versions, or a shard column that makes one target of both tables.

Rules:
- The log is captured at some places into tables in memory. Each target that follows and is not
  partial then has the rows of the server's SELECT under the same expressions, with the texts that
  it prints where a rule keeps texts, and the texts of rescued values in their columns' places.
- A history of named columns has the versions that a changelog of its table begins, as long as no
  column got another name: two that exchange theirs leave each version with what was tracked then.
- A target may be suspended: what a statement must suspend is the matter of `tests/targets`.
"""

from __future__ import annotations

import random
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from copy import copy
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pymysql

from cdc_pipeline.config.modes import MODES
from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import CdcError, TargetSuspendedError
from cdc_pipeline.schema.target_spec import RecordedShape, RecordedSource, TargetSpec
from cdc_pipeline.sink.modes.mode_columns import RESCUED_COLUMN, SEQ_COLUMN, START_COLUMN
from cdc_pipeline.text.table_names import split_table_name
from tests.campaigns.frame import SERVERS, Campaign, Case, Play
from tests.campaigns.sink.capabilities import KINDS
from tests.campaigns.sink.column_types import plain, shown
from tests.campaigns.sink.ddl import random_change
from tests.campaigns.sink.statements import random_transaction
from tests.campaigns.sink.tables import Column, Table, quoted, random_table
from tests.servers import Flavor, Server
from tests.support.captures import live
from tests.support.comparison import present
from tests.support.memory_modes import Row
from tests.support.memory_shop import MemoryShop
from tests.support.spark_expressions import NotInMemoryError

CAPTURE: Final = "capture"
_SCHEMA: Final = "rules"
_LOG: Final = "_log"  # how targets end that are changelogs
_STEPS_MAX: Final = 7
_KINDS: Final = KINDS - {"drop_database", "uncaptured", "convert_charset"} | {"reprint"}
_LONG_DECIMAL: Final = re.compile(r"-?\d+\.\d{20,}")
_RENAMES: Final = re.compile(r"^ALTER TABLE .*\b(RENAME|CHANGE) COLUMN ")
_MIDNIGHT: Final = "T00:00:00"
_AS_TEXT: Final = ("INT", "SMALLINT", "BIGINT", "DECIMAL(10,2)", "DATE", "DATETIME", "DATETIME(6)")


def case(seed: int, number: int) -> Case:
    chance = random.Random(f"{seed} {number}")
    flavor = chance.choice(("mysql", "mariadb"))
    table = random_table(chance, database=_SCHEMA, flavor=flavor, keyless=False)
    table.name = "t"
    tables = [table]
    rule = _rule(chance, table)
    if "shard_column" in rule:
        tables.append(Table(_SCHEMA, "u", [*map(copy, table.columns)], table.key, table.unique))
    return [[flavor, rule], *_statements(chance, flavor, tables)]


def _rule(chance: random.Random, table: Table) -> dict[str, Any]:
    mode = chance.choice(("mirror", "mirror", "soft_delete", "history"))
    policy = {
        "policy": "evolve",
        "drop_column": chance.choice(("keep", "apply")),
        "incompatible": chance.choice(("stop", "new_column", "rewrite")),
        "change_key": chance.choice(("certain", "apply")),
    }
    rule: dict[str, Any] = {"mode": mode, "schema_changes": policy}
    others = table.others()
    numbers = [c.name for c in others if c.type.declared in ("INT", "SMALLINT", "TINYINT")]
    # a date that no Delta type holds is NULL to a filter
    any_name = [c.name for c in others if "`" not in c.name and not _is_date(c)]
    if any_name and mode != "soft_delete" and chance.random() < 0.35:
        name = quoted(chance.choice(any_name))
        rule["filter"] = chance.choice((f"{name} IS NULL", f"NOT {name} IS NULL"))
        if numbers and chance.random() < 0.7:
            rule["filter"] = f"{quoted(chance.choice(numbers))} > {chance.choice((0, -5, 100))}"
    if numbers and chance.random() < 0.35:
        expression = f"CAST({quoted(chance.choice(numbers))} AS DECIMAL(12,0)) + 1"
        rule["computed"] = {"made": {"expression": expression, "type": "decimal(13,0)"}}
    comparable = [
        column.name for column in others if column.type.declared not in ("GEOMETRY", "JSON")
    ]
    if comparable and chance.random() < 0.25:
        rule["key"] = [*table.key, chance.choice(comparable)]
    texts = [c.name for c in table.columns if c.type.declared in _AS_TEXT]
    if texts and chance.random() < 0.4:
        rule["types"] = {chance.choice(texts): "string"}
    if others and mode == "history" and chance.random() < 0.7:
        rule["track"] = sorted({chance.choice(others).name for _ in range(2)})
    if others and not rule.keys() & {"filter", "computed"} and chance.random() < 0.3:
        rule["columns"] = {"exclude": [chance.choice(others).name]}
    if chance.random() < 0.2:
        rule["shard_column"] = "shard"
    return rule


def _statements(chance: random.Random, flavor: str, tables: list[Table]) -> Iterator[str]:
    is_full = chance.random() < 0.7
    yield f"CREATE DATABASE {_SCHEMA}"
    for table in tables:
        yield table.create_sql()
    for _ in range(chance.randint(1, _STEPS_MAX)):
        for _ in range(chance.randint(1, 3)):
            transaction = random_transaction(chance, tables, flavor=flavor, statements_max=4)
            yield from (
                ("SET SESSION binlog_row_image = 'FULL'",) if is_full else transaction.session
            )
            yield "BEGIN"
            yield from transaction.statements
            yield "COMMIT" if transaction.commits else "ROLLBACK"
        for table in tables:
            if chance.random() < 0.15:
                yield from _zero_date(chance, table)
        if chance.random() < 0.4:
            yield CAPTURE
        table = chance.choice(tables)
        change = random_change(chance, table, flavor=flavor, kinds=_KINDS)
        yield from map(str, change.statements)
        change.after()
        if change.kind == "drop_table":
            tables.remove(table)
        if not tables:
            return
        if chance.random() < 0.3:
            yield CAPTURE


def _zero_date(chance: random.Random, table: Table) -> Iterator[str]:
    dates = [c.name for c in table.others() if _is_date(c)]
    if dates:
        yield "SET SESSION sql_mode = ''"
        yield f"UPDATE {table.sql_name} SET {quoted(chance.choice(dates))} = 0 LIMIT 1"
        yield "SET SESSION sql_mode = 'STRICT_TRANS_TABLES'"


def _is_date(column: Column) -> bool:
    return column.type.declared.startswith(("DATE", "TIMESTAMP"))


@contextmanager
def opened(folder: Path) -> Iterator[Play]:
    """A server of each kind, started when a case asks for it."""
    with ExitStack() as stack:
        servers: dict[Flavor, Server] = {}

        def play(choices: Case) -> Counter[str]:
            flavor: Flavor = "mysql"
            rule: dict[str, Any] = {}
            statements: list[str] = []
            for choice in choices:
                if isinstance(choice, list):
                    flavor, rule = choice
                else:
                    statements.append(choice)
            if flavor not in servers:
                servers[flavor] = stack.enter_context(Server(flavor))
            counts = _played(servers[flavor], rule, statements, folder / "lake")
            counts[flavor] += 1
            return counts

        yield play


def _played(
    server: Server, rule: dict[str, Any], statements: list[str], lake: Path
) -> Counter[str]:
    shutil.rmtree(lake, ignore_errors=True)
    server.execute(f"DROP DATABASE IF EXISTS {_SCHEMA}")
    server.reset_log()
    shop = _shop(server, rule, lake)
    counts: Counter[str] = Counter()
    names_stay = True
    with server.root_connection() as connection:
        cursor = connection.cursor()
        cursor.execute("SET SESSION sql_mode = 'STRICT_TRANS_TABLES', time_zone = '+00:00'")
        for sql in [*statements, CAPTURE]:
            try:
                cursor.execute("COMMIT" if sql == CAPTURE else sql)
                counts["statements"] += 1
            except pymysql.MySQLError:
                counts["refused"] += 1
            names_stay = names_stay and not _RENAMES.search(sql)
            if sql == CAPTURE:
                stopped = _captured(shop)
                if stopped:
                    counts[stopped] += 1
                    break
                counts += _compared(shop, cursor, names_stay=names_stay)
    return counts


def _shop(server: Server, rule: dict[str, Any], lake: Path) -> MemoryShop:
    tables = [f"{_SCHEMA}.*"]
    name = f"{_SCHEMA}.kept" if "shard_column" in rule else f"{_SCHEMA}.{{table}}"
    rules = [
        {**rule, "tables": tables, "name": name},
        {"tables": tables, "mode": "changelog", "name": f"{_SCHEMA}.{{table}}{_LOG}"},
    ]
    document = {
        "name": "shop",
        "source": live(server),
        "tables": {"include": tables, "allow_empty": True},
        "start": "earliest",
        "targets": rules,
        "sink": {"lake_path": lake},
    }
    return MemoryShop(PipelineConfig.model_validate(document))


def _captured(shop: MemoryShop) -> str:
    """Why nothing can be compared any more."""
    try:
        shop.run()
    except TargetSuspendedError:
        return ""
    except NotInMemoryError:
        return "not in memory"
    except CdcError as error:  # of the last target that followed
        if error.table is None:
            raise
        return "stopped"
    return ""


# -- what is compared ------------------------------------------------------------------------------


def _compared(shop: MemoryShop, cursor: Any, *, names_stay: bool) -> Counter[str]:
    counts: Counter[str] = Counter()
    state = shop.cursors.cursor
    if state is None:
        return counts
    for name, target in state.targets.items():
        counts["suspended" if target.suspended else "targets"] += 1
        if target.suspended or target.partial or target.table_version < 0:
            continue
        spec = shop.last_cut().tables[name].spec.expanded(name)
        if MODES[spec.mode].rows_are_changes or any(of.gone for of in spec.sources.values()):
            continue
        for source, of in spec.sources.items():
            wanted = _selected(cursor, source, of, spec)
            if wanted is not None:
                counts["compared"] += 1
                found = _kept(shop.rows(name), wanted[0], spec, source)
                assert found == wanted[1], f"{name} has {found}, SELECT {wanted[1]}"
        if spec.track and names_stay and f"{name}{_LOG}" in state.targets:
            counts["histories"] += _compared_versions(shop, name, spec)
    return counts


def _selected(
    cursor: Any, source: str, of: RecordedSource, spec: TargetSpec
) -> tuple[list[str], list[tuple[Any, ...]]] | None:
    """The target's columns and their values by SELECT; None if the table is gone."""
    schema, table = split_table_name(source)
    cursor.execute(
        "SELECT COLUMN_NAME, DATA_TYPE FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s "
        "AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION",
        (schema, table),
    )
    columns, names = cursor.fetchall(), dict(of.names)
    if not columns:
        return None
    shape = spec.shape or RecordedShape()
    selected = {
        names.get(name, name): f"CAST({quoted(name)} AS CHAR)"
        if name.lower() in shape.types
        else shown(name, kind.lower())
        for name, kind in columns
        if shape.takes(name)
    }
    selected |= {column.name: column.expression for column in shape.computed}
    where = f" WHERE {shape.filter}" if shape.filter else ""
    cursor.execute(
        f"SELECT {', '.join(selected.values())} FROM {quoted(schema)}.{quoted(table)}{where}"
    )
    rows = [tuple(_plain(value) for value in row) for row in cursor.fetchall()]
    return [*selected], sorted(rows, key=repr)


def _kept(
    rows: list[Row], names: list[str], spec: TargetSpec, source: str
) -> list[tuple[Any, ...]]:
    shard = None if spec.shape is None else spec.shape.shard_column
    found = [
        tuple(_plain(_rescued(row).get(name, row[name])) for name in names)
        for row in present(rows, spec.mode)
        if not shard or row[shard] == source
    ]
    return sorted(found, key=repr)


def _rescued(row: Row) -> dict[str, str]:
    return dict(row.get(RESCUED_COLUMN) or {})


def _plain(value: Any) -> Any:
    """A DECIMAL that is too long for Delta's is text in the lake, and a DATE a midnight where
    another shard has a DATETIME.
    """
    if isinstance(value, Decimal):
        value = f"{value:f}"
    elif not isinstance(value, str) or not _LONG_DECIMAL.fullmatch(value):
        value = str(int(value)) if isinstance(value, int) else plain(value)
        return value.removesuffix(_MIDNIGHT) if isinstance(value, str) else value
    text = value.rstrip("0").rstrip(".") if "." in value else value
    return "0" if text in ("", "-", "-0") else text


def _compared_versions(shop: MemoryShop, name: str, spec: TargetSpec) -> int:
    """Those that the changes of a changelog begin."""
    changes = shop.rows(f"{name}{_LOG}")
    if any(row["_cdc_absent"] or row["_cdc_before_absent"] for row in changes) or spec.shape:
        return 0  # images of some columns alone
    now: dict[str, tuple[Any, ...]] = {}
    begun = []
    for row in sorted(changes, key=lambda row: row[SEQ_COLUMN]):
        key, image = _values(row, spec.key), _values(row, spec.track)
        if row["_cdc_op"] == "truncate":
            now.clear()
        elif row["_cdc_op"] == "delete":
            now.pop(repr(key), None)
        else:
            if row["_cdc_op"] == "update":
                before = repr(_values(row["_cdc_before"], spec.key))
                if before != repr(key):
                    now.pop(before, None)
            if now.get(repr(key)) != image:
                begun.append(row[SEQ_COLUMN])
            now[repr(key)] = image
    found = sorted(row[START_COLUMN] for row in shop.rows(name))
    assert found == sorted(begun), f"{name} has versions since {found}, its changes {begun}"
    return 1


def _values(row: Row, names: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple((_plain(row[name]), _rescued(row).get(name)) for name in names)


CAMPAIGN = Campaign("rules", case, opened, needs=SERVERS)
