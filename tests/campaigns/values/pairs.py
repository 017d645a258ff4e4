"""MODIFY of every ordered pair of types on a server, against what `schema` decides of it, value by
value.

Rules:
- The decision is made from texts alone, as a run makes it: CREATE TABLE through the schema history,
  then the ALTER.
- A value counts as certain where the decision lets it pass: it must then be what the server's
  SELECT gives.
- Outside of strict mode many columns are altered by one statement; in strict mode each pair is
  altered alone, without the rows that the server refuses, one after the other.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final

import pymysql

from cdc_pipeline.binlog.seq import pack_seq
from cdc_pipeline.binlog.table_schema import Column
from cdc_pipeline.config.schema_policy import SchemaChangePolicy
from cdc_pipeline.errors import UnsupportedDdlError
from cdc_pipeline.schema.ddl.ddl import parse_statement
from cdc_pipeline.schema.ddl.tokens import SqlModes
from cdc_pipeline.schema.evolution.changes import decide
from cdc_pipeline.schema.evolution.statement_context import KnownTable, StatementContext
from cdc_pipeline.schema.evolution.steps import Step
from cdc_pipeline.schema.generated import GeneratedColumn
from cdc_pipeline.schema.history.apply_ddl import LoggedStatement, apply
from cdc_pipeline.schema.history.history import SchemaHistory
from cdc_pipeline.schema.source_table import SourceTable, resolved_column
from cdc_pipeline.schema.target_spec import RecordedSource
from cdc_pipeline.schema.types import target_columns
from tests.campaigns.values.domain import Sample, samples_of
from tests.campaigns.values.lake import Stopped, after, alike, captured, shown
from tests.servers import Server

BATCH_COLUMNS: Final = 12
_CELL: Final = re.compile(r"column .*?\bc(\d+)\b.*? at row (\d+)")
_MODES: Final = SqlModes(ansi_quotes=False)
_POLICY: Final = SchemaChangePolicy(incompatible="rewrite")
# Whatever a base becomes, its text, its length or its bytes tell.
_EXPRESSION: Final = "CONCAT_WS('|', {c}, LENGTH({c}), HEX({c}))"


@dataclass(frozen=True, slots=True)
class Way:
    """How the statements are run. `sql_mode`: of the session; `suffix`: what is written behind the
    new type; `explicit`: explicit_defaults_for_timestamp; `old_types`: only from types that
    begin so; () for all.
    """

    sql_mode: str
    suffix: str = " NULL"
    explicit: bool = True
    old_types: tuple[str, ...] = ()

    @property
    def strict(self) -> bool:
        return "STRICT" in self.sql_mode


LOOSE: Final = Way("ALLOW_INVALID_DATES")
STRICT: Final = Way("STRICT_TRANS_TABLES,ALLOW_INVALID_DATES")
WAYS: Final = (
    LOOSE,
    Way("ALLOW_INVALID_DATES", " NOT NULL"),
    Way("ALLOW_INVALID_DATES", "", explicit=False, old_types=("TIMESTAMP", "DATETIME", "DATE")),
    Way("ALLOW_INVALID_DATES,PAD_CHAR_TO_FULL_LENGTH", old_types=("CHAR",)),
    STRICT,
    Way("STRICT_TRANS_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE", " NOT NULL"),
    Way("STRICT_ALL_TABLES,PAD_CHAR_TO_FULL_LENGTH", old_types=("CHAR",)),
)


@dataclass
class Report:
    """What was found. `figures`: pairs, values, and what became of them; `findings`: certain values
    that are not the server's; `untouched`: pairs that need a reload though no value of theirs
    changed; (old, new) of `LOOSE`.
    """

    figures: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)
    untouched: set[tuple[str, str]] = field(default_factory=set)


Cell = tuple[int, int]  # number of the column, id of the row


def drawn_samples(flavor: str, seed: int, types: int) -> tuple[Sample, ...]:
    choose = random.Random(seed)
    samples = samples_of(flavor, choose)
    return tuple(choose.sample(samples, types)) if types else samples


def batched(news: Sequence[str]) -> Iterator[Sequence[str]]:
    for first in range(0, len(news), BATCH_COLUMNS):
        yield news[first : first + BATCH_COLUMNS]


def altering(news: Sequence[str]) -> str:
    return "ALTER TABLE t " + ", ".join(f"MODIFY c{n} {new}" for n, new in enumerate(news))


def cell_in(text: str) -> Cell | None:
    """Return the cell that a message names; rows are counted from 1 in the order of their ids."""
    found = _CELL.search(text)
    return None if found is None else (int(found[1]), int(found[2]) - 1)


def cell_of(error: pymysql.err.Error) -> Cell | None:
    return cell_in(str(error.args[1]))


class Pairs:
    def __init__(
        self,
        server: Server,
        database: str,
        *,
        seed: int,
        types: int = 0,
        engine: str = "InnoDB",
    ) -> None:
        """`types`: how many types, drawn by the seed; 0 for all."""
        self._engine = engine
        self._is_mariadb = server.flavor == "mariadb"
        self._samples = drawn_samples(server.flavor, seed, types)
        self._seed = seed
        self._choose = random.Random(seed)
        self._cursor = server.root_connection(database=database).cursor()
        self._run("SET NAMES utf8mb4")
        self._run("SET time_zone = '+00:00'")
        self._run("SET max_error_count = 65535")
        self.report = Report()

    def alter(self, declared: str) -> None:
        self._choose = random.Random(f"{self._seed} {declared}")
        old = next(sample for sample in self._samples if sample.declared == declared)
        for way in WAYS:
            if not way.old_types or old.declared.startswith(way.old_types):
                self._alter_all(old, way)
        self._alter_with_generated(old)

    def alter_charsets(self) -> None:
        """Put every character of the basic plane into every charset, in strict mode."""
        self._session(LOOSE)
        self._run("DROP TABLE IF EXISTS letters")
        self._run(
            "CREATE TABLE letters (n INT PRIMARY KEY, c VARCHAR(2) CHARACTER SET utf8mb4 "
            "COLLATE utf8mb4_bin)"
        )
        points = [*range(32, 0xD800), *range(0xE000, 0xFFFE), 0x1F600, 0x20000]
        for first in range(0, len(points), 4096):
            rows = ", ".join(f"({n}, _utf32 x'{n:08x}')" for n in points[first : first + 4096])
            self._run(f"INSERT INTO letters VALUES {rows}")
        for (charset,) in self._run(
            "SELECT CHARACTER_SET_NAME FROM information_schema.CHARACTER_SETS"
        ):
            if charset in ("binary", "utf8mb4"):
                continue
            back = f"CONVERT(CONVERT(c USING {charset}) USING utf8mb4)"
            bent = self._run(
                f"SELECT HEX(c) FROM letters WHERE HEX({back}) <> HEX(c) AND {back} <> '?' "
                "ORDER BY n LIMIT 200"
            )
            self.report.figures["characters that a charset bends"] += len(bent)
            sample = Sample("VARCHAR(4)", ("'a'", *(f"_utf8mb4 x'{code}'" for (code,) in bent)))
            for declared in (
                f"VARCHAR(4) CHARACTER SET {charset} NULL",
                f"CHAR(4) CHARACTER SET {charset} NULL",
            ):
                if self._steps(sample.declared, declared, STRICT) is not None:
                    self._alter_batch(sample, [declared], STRICT)

    # -- the server --------------------------------------------------------------------------------

    def _run(self, sql: str) -> Sequence[Any]:
        self._cursor.execute(sql)
        rows: Sequence[Any] = self._cursor.fetchall()
        return rows

    def _session(self, way: Way) -> None:
        self._run(f"SET sql_mode = '{way.sql_mode}'")
        self._run(f"SET explicit_defaults_for_timestamp = {'ON' if way.explicit else 'OFF'}")

    def _make(self, old: Sample, columns: int, generated: Sequence[str] = ()) -> None:
        """A table `t` with columns c0, c1 ... of a type, and its values in each; the last row is
        NULL."""
        self._session(LOOSE)
        names = [f"c{n}" for n in range(columns)]
        defined = [f"{name} {old.declared} NULL" for name in names] + list(generated)
        self._run("DROP TABLE IF EXISTS t")
        options = f"DEFAULT CHARSET = utf8mb4, ENGINE = {self._engine}"
        self._run(f"CREATE TABLE t (id INT PRIMARY KEY, {', '.join(defined)}) {options}")
        insert = f"INSERT IGNORE INTO t (id, {', '.join(names)}) VALUES "

        def row(number: int, value: str) -> str:
            return "(" + ", ".join([str(number), *[value] * columns]) + ")"

        values = (*old.values, "NULL")
        try:
            self._run(insert + ", ".join(itertools.starmap(row, enumerate(values))))
        except pymysql.err.Error:  # a type that refuses some of the values even so
            self._run("DELETE FROM t")
            number = 0
            for value in values:
                with contextlib.suppress(pymysql.err.Error):
                    self._run(insert + row(number, value))
                    number += 1

    def _read(self, columns: Sequence[tuple[str, Column]]) -> dict[int, list[Any]]:
        self._session(LOOSE)
        selected = ", ".join(shown(name, column) for name, column in columns)
        rows = self._run(f"SELECT id, {selected} FROM t")
        return {
            row[0]: [
                captured(value, column) for value, (_, column) in zip(row[1:], columns, strict=True)
            ]
            for row in rows
        }

    # -- pairs -------------------------------------------------------------------------------------

    def _alter_all(self, old: Sample, way: Way) -> None:
        news = [new.declared + way.suffix for new in self._samples]
        self.report.figures["pairs"] += len(news)
        if way != LOOSE:  # where every pair is altered, for what it would do
            certain = [new for new in news if self._steps(old.declared, new, way) is not None]
            self.report.figures["reload"] += len(news) - len(certain)
            news = certain
        for batch in batched(news):
            self._alter_batch(old, batch, way)

    def _alter_batch(self, old: Sample, news: Sequence[str], way: Way) -> None:
        before = self._made(old, len(news))
        lost: set[Cell] = set()
        if way.strict:
            lost |= self._warned(news, way)
            lost |= {(n, max(before)) for n in range(len(news)) if way.suffix == " NOT NULL"}
            before = self._made(old, len(news))
            if not self._put_aside(lost, before):
                return self._alter_halves(old, news, way)
        self._session(way)
        while True:
            try:
                self._run(altering(news))
                break
            except pymysql.err.Error as error:
                cell = cell_of(error) if way.strict else None
                if cell is None or cell in lost:
                    return self._alter_halves(old, news, way)
                lost.add(cell)
                if not self._put_aside({cell}, before, also=lost):
                    return self._alter_halves(old, news, way)
                self._session(way)
        now = self._read([(f"c{n}", self._column(new)) for n, new in enumerate(news)])
        for number, new in enumerate(news):
            kept = [row for row in before if (number, row) not in lost]
            self._compare(
                old.declared, new, way, [(before[row][number], now[row][number]) for row in kept]
            )
        self.report.figures["values that the server refuses"] += len(lost)
        # what was put aside must be refused: one of each column is tried
        for number, new in enumerate(news):
            rows = sorted(row for column, row in lost if column == number)
            if rows:
                self._alter_one(old, new, way, {self._choose.choice(rows), rows[-1]})
        return None

    def _alter_halves(self, old: Sample, news: Sequence[str], way: Way) -> None:
        if len(news) > 1:
            half = len(news) // 2
            self._alter_batch(old, news[:half], way)
            self._alter_batch(old, news[half:], way)
            return
        self.report.figures["pairs altered row by row"] += 1
        if self._steps(old.declared, news[0], way) is not None:
            for row in range(len(old.values) + 1):
                self._alter_one(old, news[0], way, {row})

    def _alter_one(self, old: Sample, new: str, way: Way, rows: set[int]) -> None:
        for row in rows:
            before = self._made(old, 1)
            if row not in before:
                continue
            self._run(f"DELETE FROM t WHERE id <> {row}")
            self._session(way)
            try:
                self._run(altering([new]))
            except pymysql.err.Error:
                continue
            now = self._read([("c0", self._column(new))])
            self._compare(old.declared, new, way, [(before[row][0], now[row][0])])

    def _made(self, old: Sample, columns: int) -> dict[int, list[Any]]:
        self._make(old, columns)
        return self._read([(f"c{n}", self._column(old.declared)) for n in range(columns)])

    def _warned(self, news: Sequence[str], way: Way) -> set[Cell]:
        """The cells that the server bends, as it says: strict mode refuses them."""
        self._session(
            replace(
                way, sql_mode=re.sub("STRICT_[A-Z]+_TABLES", "ALLOW_INVALID_DATES", way.sql_mode)
            )
        )
        try:
            self._run(altering(news))
        except pymysql.err.Error:
            return set()
        told = self._run("SHOW WARNINGS")
        return {
            cell
            for level, _, text in told
            if level != "Note" and (cell := cell_in(text)) is not None
        }

    def _put_aside(
        self, cells: set[Cell], before: dict[int, list[Any]], also: Collection[Cell] = ()
    ) -> bool:
        """Give cells the value of another row; False where a column has none that may stay."""
        self._session(LOOSE)
        for number in {number for number, _ in cells}:
            rows = [row for column, row in cells if column == number]
            gone = {row for column, row in (*cells, *also) if column == number}
            other = next(
                (row for row in before if row not in gone and before[row][number] is not None), None
            )
            if other is None:
                return False
            listed = ", ".join(map(str, rows))
            self._run(
                f"UPDATE t a JOIN t b ON b.id = {other} SET a.c{number} = b.c{number} WHERE "
                f"a.id IN ({listed})"
            )
        return True

    def _compare(self, old: str, new: str, way: Way, pairs: list[tuple[Any, Any]]) -> None:
        figures, steps = self.report.figures, self._steps(old, new, way)
        figures["values"] += len(pairs)
        if steps is None:
            figures["reload"] += 1
            if way == LOOSE and all(alike(*pair) for pair in pairs):
                self.report.untouched.add((old, new))
            return
        figures["certain"] += 1
        found: list[str] = []
        for was, is_now in pairs:
            try:
                ours = after(was, steps)
            except Stopped:
                figures["values that a check stops"] += 1
                continue
            if not alike(ours, is_now):
                found.append(f"{was!r} is {is_now!r} at the server, {ours!r} here")
        if found:
            self.report.findings.append(
                f"{old} -> {new} in '{way.sql_mode}': {found[0]}; {len(found)} of {len(pairs)}"
            )

    # -- generated columns -------------------------------------------------------------------------

    def _alter_with_generated(self, old: Sample) -> None:
        for batch in batched([new.declared + " NULL" for new in self._samples]):
            self._alter_generated_batch(old, batch)

    def _alter_generated_batch(self, old: Sample, news: Sequence[str]) -> None:
        figures = self.report.figures
        storage = [self._choose.choice(("STORED", "VIRTUAL")) for _ in news]
        try:
            self._make(
                old,
                len(news),
                [
                    f"g{n} LONGTEXT AS ({_EXPRESSION.format(c=f'c{n}')}) {kind}"
                    for n, kind in enumerate(storage)
                ],
            )
            selected = (
                "SELECT id, "
                + ", ".join(f"CONVERT(g{n} USING utf8mb4)" for n in range(len(news)))
                + " FROM t"
            )
            before = self._run(selected)
            self._run(altering(news))
            now = self._run(selected)
        except pymysql.err.Error:
            if len(news) == 1:
                figures["pairs that the server refuses under a generated column"] += 1
                return
            half = len(news) // 2
            self._alter_generated_batch(old, news[:half])
            self._alter_generated_batch(old, news[half:])
            return
        for number, new in enumerate(news):
            steps = self._steps(old.declared, new, LOOSE, generated=True)
            changed = [
                (a[number + 1], b[number + 1]) for a, b in zip(before, now, strict=True) if a != b
            ]
            changed = [pair for pair in changed if pair[0] != pair[1]]
            figures["generated columns"] += 1
            figures["generated columns that changed"] += bool(changed)
            figures["generated columns under a reload"] += steps is None
            if (
                steps is not None
                and not any(step.kind == "check_rows" for step in steps)
                and changed
            ):
                was, is_now = changed[0]
                self.report.findings.append(
                    f"generated ({storage[number]}) over {old.declared} -> {new}: {was!r} "
                    f"became {is_now!r}"
                )

    # -- the decision ------------------------------------------------------------------------------

    def _column(self, declared: str) -> Column:
        return _column(re.sub(r" (NOT )?NULL$", "", declared), is_mariadb=self._is_mariadb)

    def _steps(
        self, old: str, new: str, way: Way, *, generated: bool = False
    ) -> tuple[Step, ...] | None:
        """The steps of `MODIFY c new`; None where the table needs a reload."""
        state = _state(old, is_mariadb=self._is_mariadb)
        if state is None:
            return None
        if generated:
            state = replace(state, generated=(GeneratedColumn("g", ("c",), is_steady=True),))
        known = KnownTable(
            RecordedSource(columns=target_columns(state.schema), key=state.schema.key_names),
            name="d.t",
            policy=_POLICY,
        )
        explicit = way.explicit if not self._is_mariadb else None
        modes = SqlModes(
            ansi_quotes=False,
            explicit_defaults_for_timestamp=explicit,
            time_zone="+00:00",
            strict=way.strict,
            trims_char="PAD_CHAR" not in way.sql_mode,
        )
        try:
            decision = decide(
                StatementContext(
                    parse_statement(
                        f"ALTER TABLE t MODIFY c {new}",
                        "d",
                        is_mariadb=self._is_mariadb,
                        modes=modes,
                    ),
                    captured=lambda _database, _table: True,
                    known=lambda _database, _table: known,
                    before=lambda _database, _table: state,
                )
            )
        except UnsupportedDdlError:
            return None
        return decision.changes[0].steps if decision.changes else ()


def _create(declared: str) -> str:
    return f"CREATE TABLE t (id INT PRIMARY KEY, c {declared} NULL) DEFAULT CHARSET = utf8mb4"


@cache
def _column(declared: str, *, is_mariadb: bool) -> Column:
    created = parse_statement(_create(declared), "", is_mariadb=is_mariadb, modes=_MODES).created
    assert created is not None
    return resolved_column(created.columns[1], created.charset.name, is_mariadb=is_mariadb)


@cache
def _state(declared: str, *, is_mariadb: bool) -> SourceTable | None:
    """The table before its change; None where its text does not tell it."""
    history = SchemaHistory()
    logged = LoggedStatement(
        parse_statement(_create(declared), "d", is_mariadb=is_mariadb, modes=_MODES),
        pack_seq(1, 1, 1),
    )
    apply(history, logged, lambda _database, _table: True)
    version = history.at("d", "t", pack_seq(1, 1, 2))
    assert version is not None
    if version.schema is None:
        return None
    return SourceTable(version.schema, version.charset, version.charset, version.generated)
