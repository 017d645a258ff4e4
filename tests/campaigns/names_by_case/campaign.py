"""The DDL storm with names in any letter case (K30), by `tests.campaigns.frame`.

A case is a server's kind and its lower_case_table_names, then statements: the changes of rows and
the DDL of `tests.campaigns.sink`, in which each name of a schema or a table is written in a case of
its own. Under 0 two tables have names that differ in case alone, and a statement names one of them.

Rules:
- The log is captured at some places, live, and in the end as a whole from its journals. Each table
  that follows and is not called partial has, both times, the keys and the columns that SELECT has.
  Values are the matter of other campaigns.
- Under 1 the same statements are played in lower case: what they suspend, or stop, is suspended or
  stopped in any case, and nothing else.
"""

from __future__ import annotations

import random
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pymysql

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import TargetSuspendedError, UnsupportedDdlError
from cdc_pipeline.text.table_names import NameRule, split_table_name
from tests.campaigns.frame import SERVERS, Campaign, Case, Play
from tests.campaigns.sink.ddl import random_change
from tests.campaigns.sink.statements import random_transaction
from tests.campaigns.sink.tables import Table, quoted, random_table
from tests.servers import Server
from tests.support.captures import live
from tests.support.memory_shop import MemoryShop
from tests.support.memory_sink import NotInMemoryError

CAPTURE: Final = "capture"
_SCHEMA: Final = "Names"
# Cased letters that are lowered to other lengths, or by no rule of Python's.
_TABLES: Final = ("Orders", "Größe", "İstanbul", "\u212aelvin", "Stra\u1e9ee", "a.B", "Ȁ")
_STEPS_MAX: Final = 6
_NAME: Final = re.compile(r"`(?:[^`]|``)+`")


def case(seed: int, number: int) -> Case:
    chance = random.Random(f"{seed} {number}")
    flavor = chance.choice(("mysql", "mariadb"))
    names = chance.choice((0, 1, 1))
    return [[flavor, names], *_statements(chance, flavor, folds=bool(names))]


def _statements(chance: random.Random, flavor: str, *, folds: bool) -> Iterator[str]:
    name = chance.choice(_TABLES)
    wanted = [name, name.swapcase()] if not folds else chance.sample(_TABLES, 2)
    tables: list[Table] = []
    for one in dict.fromkeys(wanted):
        table = random_table(chance, database=_SCHEMA, flavor=flavor, keyless=False)
        table.name = one
        tables.append(table)
    written = _Writing(chance, folds=folds)
    yield written.of(f"CREATE DATABASE {quoted(_SCHEMA)}")
    for table in tables:
        yield written.of(table.create_sql(), *tables)
    for _ in range(chance.randint(1, _STEPS_MAX)):
        for _ in range(chance.randint(1, 3)):
            transaction = random_transaction(chance, tables, flavor=flavor, statements_max=3)
            yield from transaction.session
            yield "BEGIN"
            for sql in transaction.statements:
                yield written.of(sql, *tables)
            yield "COMMIT" if transaction.commits else "ROLLBACK"
        table = chance.choice(tables)
        change = random_change(chance, table, flavor=flavor)
        there = list(tables)
        for sql in change.statements:
            yield written.of(sql, *there)
        change.after()
        if change.kind == "drop_table":
            tables.remove(table)
        elif change.kind == "drop_database":
            tables = [table]
        if not tables:
            return
        if chance.random() < 0.3:
            yield CAPTURE
        if chance.random() < 0.3:
            yield written.of(f"USE {quoted(_SCHEMA)}")


class _Writing:
    def __init__(self, chance: random.Random, *, folds: bool) -> None:
        self._chance = chance
        self._folds = folds

    def of(self, sql: str, *tables: Table) -> str:
        if not self._folds:
            return str(sql)
        own = {_SCHEMA, f"elsewhere_{_SCHEMA}", "copy_of"}
        for table in tables:
            own |= {table.name, *(f"_{table.name}_{end}" for end in _SHADOWS)}
        found = {quoted(name) for name in own}
        return _NAME.sub(lambda name: self._any(name[0]) if name[0] in found else name[0], sql)

    def _any(self, name: str) -> str:
        return "".join(
            self._chance.choice((letter, _other(letter))) if letter != "`" else letter
            for letter in name
        )


_SHADOWS: Final = ("gho", "ghc", "del", "new", "old")


def _other(letter: str) -> str:
    """The letter in its other case, if the server takes both for one."""
    for other in (letter.swapcase(), letter.lower(), letter.upper()):
        if len(other) == 1 and NameRule.LOWER.fold(other) == NameRule.LOWER.fold(letter):
            return other
    return letter


@contextmanager
def opened(folder: Path) -> Iterator[Play]:
    """Servers of both kinds and both rules, each started when a case asks for it."""
    with ExitStack() as stack:
        servers: dict[tuple[str, int], Server] = {}

        def play(choices: Case) -> Counter[str]:
            flavor, names, statements = "mysql", 1, []
            for choice in choices:
                if isinstance(choice, list):
                    flavor, names = choice
                else:
                    statements.append(choice)
            if (flavor, names) not in servers:
                servers[flavor, names] = stack.enter_context(
                    Server(flavor, {"lower_case_table_names": names})
                )
            return _played(servers[flavor, names], names, statements, folder)

        yield play


def _played(server: Server, names: int, statements: list[str], folder: Path) -> Counter[str]:
    rule = NameRule(names)
    done = _Played(server, rule, folder / "any")
    done.run(statements)
    counts = Counter(
        statements=done.taken,
        refused=done.refused,
        tables=len(done.targets),
        suspended=len(done.suspended),
        stopped=len(done.stopped),
    )
    counts[f"{server.flavor} {names}"] += 1
    if names:
        lowered = _Played(server, rule, folder / "lower")
        lowered.run([_NAME.sub(lambda name: rule.fold(name[0]), sql) for sql in statements])
        assert done.suspended.keys() == lowered.suspended.keys(), (
            f"suspended are {done.suspended}, and in lower case {lowered.suspended}"
        )
        assert done.stopped == lowered.stopped, (
            f"stopped is {done.stopped}, and in lower case {lowered.stopped}"
        )
        assert done.partial == lowered.partial, (
            f"partial are {done.partial}, and in lower case {lowered.partial}"
        )
    return counts


@dataclass
class _Played:
    server: Server
    rule: NameRule
    folder: Path
    taken: int = 0
    refused: int = 0
    targets: set[str] = field(default_factory=set)
    partial: set[str] = field(default_factory=set)
    suspended: dict[str, str] = field(default_factory=dict)
    stopped: dict[str, str] = field(default_factory=dict)  # why, by lake

    def run(self, statements: list[str]) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self._reset()
        by_server = self._shop("live", live(self.server))
        with self.server.root_connection() as connection:
            cursor = connection.cursor()
            cursor.execute("SET SESSION sql_mode = 'STRICT_TRANS_TABLES'")
            for sql in statements:
                if sql == CAPTURE:
                    cursor.execute("COMMIT")
                    self._capture(by_server)
                    continue
                try:
                    cursor.execute(sql)
                    self.taken += 1
                except pymysql.MySQLError:
                    self.refused += 1
            cursor.execute("COMMIT")
            self._capture(by_server)
            self._compare(by_server, cursor)
            journals = self.folder / "journals"
            self.server.copy_journals(journals)
            archived = self._shop(
                "archived",
                {"kind": "archive", "directory": journals, "lower_case_table_names": self.rule},
            )
            self._capture(archived)
            self._compare(archived, cursor)
        self._note(by_server)

    def _reset(self) -> None:
        for (name,) in self.server.query("SHOW DATABASES"):
            if name.lower().endswith(_SCHEMA.lower()):
                self.server.execute(f"DROP DATABASE {quoted(name)}")
        self.server.reset_log()

    def _shop(self, name: str, source: dict[str, Any]) -> MemoryShop:
        # Under 1 the pattern has a case that no statement has.
        include = "nAMES.*" if self.rule is not NameRule.AS_GIVEN else f"{_SCHEMA}.*"
        return MemoryShop(
            PipelineConfig.model_validate(
                {
                    "name": "shop",
                    "source": source,
                    "tables": {"include": [include], "allow_empty": True},
                    "start": "earliest",
                    "sink": {"lake_path": self.folder / name},
                }
            )
        )

    def _capture(self, shop: MemoryShop) -> None:
        lake = shop.paths.lake.name
        if lake in self.stopped:
            return
        try:
            shop.run()
        except TargetSuspendedError:
            return
        except UnsupportedDdlError as error:  # of the last table that followed
            self.stopped[lake] = f"{error.table}: {str(error).splitlines()[0]}"
        except NotInMemoryError as error:
            self.stopped[lake] = type(error).__name__

    def _compare(self, shop: MemoryShop, cursor: Any) -> None:
        if shop.paths.lake.name in self.stopped:
            return
        cursor.execute(
            "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = "
            f"'{self.rule.fold(_SCHEMA)}' AND TABLE_TYPE LIKE '%TABLE'"
        )
        there = {f"{schema}.{name}" for schema, name in cursor.fetchall()}
        state = shop.cursors.cursor
        targets = {} if state is None else state.targets
        suspended = {} if state is None else state.suspended
        for name in sorted(there & targets.keys() - suspended.keys()):
            if shop.last_cut().tables.get(name) is None or targets[name].partial:
                continue
            schema, table = split_table_name(name)
            cursor.execute(f"SELECT COUNT(*) FROM {quoted(schema)}.{quoted(table)}")
            wanted, found = cursor.fetchall()[0][0], len(shop.rows(name))
            where = shop.paths.lake.name
            assert found == wanted, f"{where}: {name} has {found} rows, SELECT {wanted}"
            if found:
                cursor.execute(f"SELECT * FROM {quoted(schema)}.{quoted(table)} LIMIT 1")
                lacking = {column[0] for column in cursor.description} - shop.rows(name)[0].keys()
                assert not lacking, f"{where}: {name} lacks {sorted(lacking)}"
            key = _int_key(cursor, schema, table)
            if key:
                cursor.execute(f"SELECT {quoted(key)} FROM {quoted(schema)}.{quoted(table)}")
                keys = sorted(row[0] for row in cursor.fetchall())
                kept = sorted(row[key] for row in shop.rows(name))
                assert kept == keys, f"{where}: the keys of {name} are {kept}, SELECT has {keys}"

    def _note(self, shop: MemoryShop) -> None:
        state = shop.cursors.cursor
        if state is None:  # stopped before anything was captured
            return
        self.targets = set(state.targets)
        self.suspended = {name: held.what for name, held in state.suspended.items()}
        self.partial = {name for name, target in state.targets.items() if target.partial}
        folded = {name for name in self.targets if self.rule.fold(name) != name}
        assert not folded, f"the lake has names that the server does not have: {folded}"


def _int_key(cursor: Any, schema: str, table: str) -> str:
    """The first column of the key, if it is an integer."""
    cursor.execute(
        "SELECT COLUMN_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND "
        "TABLE_NAME = %s AND COLUMN_KEY = 'PRI' AND DATA_TYPE = 'int'",
        (schema, table),
    )
    row = cursor.fetchone()
    return str(row[0]) if row else ""


CAMPAIGN = Campaign("names_by_case", case, opened, needs=SERVERS)
