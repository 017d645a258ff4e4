"""A few classes as tables of one pipeline in every mode: captured, killed once, captured again,
every command, equal.

What is asked of each step: the lake's tables are the server's SELECT, Dagster's definitions load, a
command ends with an exit code that it may have and prints nothing that a terminal would obey, and
its JSON is a document.
"""

from __future__ import annotations

import contextlib
import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import dagster as dg
import yaml
from click.testing import CliRunner

from cdc_pipeline.cli.app import cli
from cdc_pipeline.config.pipeline_config import load_config
from cdc_pipeline.fault_points import listening
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.orchestration.definitions import build_definitions
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.text.printable import printable
from cdc_pipeline.text.table_names import exact_pattern, table_name
from tests.campaigns.names.classes import TEXTS, column, identifier, label
from tests.campaigns.sink.group import FAULT_POINTS
from tests.campaigns.sink.tables import quoted
from tests.servers import Server
from tests.support.captures import live
from tests.support.comparison import present
from tests.support.delta_reader import newest_rows
from tests.support.kills import AtPoint, Killed, end_run

SOURCE = "names"
MODES = {"mirror": "", "soft_delete": "_soft", "history": "_history", "changelog": "_changelog"}
_COLORS = re.compile(r"\x1b\[[\d;]*m")


@dataclass
class Table:
    """A table of one class. `name`: schema and table; `columns`: key, value, ENUM, SET, default;
    and what DDL adds.
    """

    name: tuple[str, str]
    text: str
    columns: list[str] = field(default_factory=list)

    @property
    def full_name(self) -> str:
        return table_name(*self.name)

    @property
    def sql(self) -> str:
        return ".".join(map(quoted, self.name))


class Play:
    """One pipeline. `findings`: what was not as it should be, in words; `commands`: how many were
    run.
    """

    def __init__(
        self,
        server: Server,
        classes: Sequence[str],
        folder: Path,
        *,
        seed: int,
        spark: dict[str, Any],
    ) -> None:
        self.server = server
        self.folder = folder
        self.findings: list[str] = []
        self.commands = 0
        self._choose = random.Random(f"names {seed} {' '.join(classes)}")
        self._spark = spark
        plain, odd = f"names_{seed}", identifier(f"s {TEXTS[classes[0]]}"[:40])
        self.tables = [Table((plain, identifier(TEXTS[name])), TEXTS[name]) for name in classes]
        self.tables.append(Table((odd, self.tables[0].name[1]), TEXTS[classes[0]]))
        self.schemas = (plain, odd)

    def run(self) -> None:
        self.server.flush_journal()
        start = self.server.end_position()
        self._create()
        self._change(first=True)
        self._write_pipeline(start)
        self._killed()
        for first in (True, False):
            if not first:
                self._change(first=False)
            self._command("run", SOURCE, codes=(0,))
            self._compare()
        with self._finding("definitions"):
            dg.Definitions.validate_loadable(build_definitions(self.folder / "jobs"))
        self._every_command()
        self._compare()

    def drop(self) -> None:
        for schema in self.schemas:
            self.server.execute(f"DROP DATABASE IF EXISTS {quoted(schema)}")

    # -- the server --------------------------------------------------------------------------------

    def _create(self) -> None:
        self.drop()
        for schema in self.schemas:
            self.server.execute(
                f"CREATE DATABASE {quoted(schema)} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
            )
        for table in self.tables:
            names = [f"k{number}{column(table.text)}"[:60] for number in range(5)]
            table.columns = [name.rstrip(" ") for name in names]
            key, value, enum, flags, default = map(quoted, table.columns)
            text, one = self._literal(table.text), self._literal(label(table.text))
            self.server.execute(
                f"CREATE TABLE {table.sql} ({key} VARCHAR(100) NOT NULL, {value} TEXT, {enum} "
                f"ENUM({one}, 'other~'), {flags} SET({one}, 'other~'), {default} VARCHAR(200) "
                f"DEFAULT {text}, PRIMARY KEY ({key}))"
            )

    def _change(self, *, first: bool) -> None:
        """Inserts; then updates, deletes, changes of keys and a column with the class as
        default."""
        for table in self.tables:
            key, value, enum, flags, _ = map(quoted, table.columns[:5])
            text, one = self._literal(table.text), self._literal(label(table.text))
            if first:
                for ending in ("", "1", "2", "3"):
                    self.server.execute(
                        f"INSERT INTO {table.sql} ({key}, {value}, {enum}, {flags}) "
                        f"VALUES (CONCAT({text}, '{ending}'), {text}, {one}, {one})"
                    )
                continue
            self.server.execute(
                f"UPDATE {table.sql} SET {value} = CONCAT({value}, {text}) WHERE {key} = {text}"
            )
            self.server.execute(
                f"UPDATE {table.sql} SET {key} = CONCAT('moved', {text}) WHERE {key} = "
                f"CONCAT({text}, '1')"
            )
            self.server.execute(f"DELETE FROM {table.sql} WHERE {key} = CONCAT({text}, '2')")
            table.columns.append(f"n{column(table.text)}"[:60].rstrip(" "))
            added = quoted(table.columns[-1])
            self.server.execute(
                f"ALTER TABLE {table.sql} ADD COLUMN {added} VARCHAR(200) NOT NULL DEFAULT {text}"
            )
            self.server.execute(
                f"INSERT INTO {table.sql} ({key}) VALUES ({self._literal('new' + table.text)})"
            )

    def _literal(self, text: str) -> str:
        return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"

    # -- the pipeline ------------------------------------------------------------------------------

    def _write_pipeline(self, start: tuple[str, int]) -> None:
        rules = [
            {"tables": ["*.*"], "mode": mode, "name": "{schema}.{table}" + ending}
            for mode, ending in MODES.items()
        ]
        document = {
            "source": live(self.server),
            "tables": {"include": [exact_pattern(table.full_name) for table in self.tables]},
            "start": {"journal": start[0], "offset": start[1]},
            "targets": rules,
            "sink": {"lake_path": str(self.folder / "lake"), "spark": self._spark},
        }
        jobs = self.folder / "jobs"
        jobs.mkdir(parents=True)
        (jobs / f"{SOURCE}.yaml").write_text(
            yaml.safe_dump(document, allow_unicode=True), encoding="utf-8"
        )

    def _killed(self) -> None:
        """A capture that ends at a fault point, without a cursor: the next run goes on from the
        lake alone."""
        crash = AtPoint(self._choose.choice(FAULT_POINTS), end_run, self._choose.randint(1, 3))
        config = load_config(self.folder / "jobs" / f"{SOURCE}.yaml")
        with (
            contextlib.suppress(Killed),
            listening(crash),
            self._finding("the capture that was killed"),
        ):
            capture(config, cursors=MemoryCursorStore())

    # -- what there is -----------------------------------------------------------------------------

    def _compare(self) -> None:
        for table in self.tables:
            names = list(table.columns)
            listed = ", ".join(map(quoted, names))
            rows = self.server.query(f"SELECT {listed} FROM {table.sql}")
            expected = sorted(tuple(_plain(value) for value in row) for row in rows)
            for mode, ending in MODES.items():
                target = table_name(table.name[0], table.name[1] + ending)
                with self._finding(f"{printable(target)} ({mode})"):
                    path = LakePaths(self.folder / "lake", SOURCE).table(target)
                    present = _present(newest_rows(path), mode, names, added=table.text)
                    found = sorted(tuple(map(_plain, row)) for row in present)
                    assert found == expected, (
                        f"{len(found)} rows, {len(expected)} at the server: {found} {expected}"
                    )

    def _every_command(self) -> None:
        one = self._choose.choice(self.tables)
        fine = (0,)
        self._command("validate", codes=fine, as_json=True)
        # what it finds of this machine
        self._command("doctor", SOURCE, codes=(0, 1, 2), as_json=True)
        for command in ("plan", "history", "discover"):
            self._command(command, SOURCE, codes=fine, as_json=True)
        self._command("status", SOURCE, codes=(0, 1), as_json=True)  # 1: a table is suspended
        for group, commands in {
            "cursor": ("show", "history"),
            "cuts": ("list", "show"),
            "quarantine": ("list",),
        }.items():
            for command in commands:
                self._command(group, command, SOURCE, codes=fine, as_json=True)
        self._command("cuts", "sql", SOURCE, codes=fine, is_exact=True)
        self._command("snapshot", SOURCE, "--table", one.full_name, codes=fine)
        self._command("verify", SOURCE, "--table", one.full_name, codes=fine)
        self._command("run", SOURCE, "--table", one.full_name, codes=fine)
        self._command("maintain", SOURCE, "--table", one.full_name, codes=fine)
        journals = self.folder / "journals"
        self.server.copy_journals(journals)
        newest = str(max(journals.iterdir()))
        self._command("binlog", newest, codes=fine, as_json=True)
        self._command(
            "binlog",
            "--format",
            "jsonl",
            "--table",
            exact_pattern(one.full_name),
            newest,
            codes=fine,
            is_exact=True,
        )

    def _command(
        self, *words: str, codes: Sequence[int], as_json: bool = False, is_exact: bool = False
    ) -> None:
        """Run one in this process. `as_json`: once more with --json, which must be one document;
        `is_exact`: what it prints is for programs.
        """
        for more in ([], ["--json"]) if as_json else ([],):
            self.commands += 1
            arguments = ["--jobs", str(self.folder / "jobs"), *words, *more]
            with self._finding(f"cdc-pipeline {' '.join(map(printable, [*words, *more]))}"):
                result = CliRunner().invoke(cli, arguments)
                text = _COLORS.sub("", result.stdout + result.stderr)
                assert result.exit_code in codes, (
                    f"exit code {result.exit_code}: {printable(text)[-3000:]}"
                )
                assert "Traceback" not in text
                assert "without a name" not in text
                if more:
                    json.loads(result.stdout)
                if not is_exact:
                    assert all(printable(line) == line for line in text.split("\n")), (
                        "it prints what is obeyed"
                    )

    @contextlib.contextmanager
    def _finding(self, where: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self.findings.append(f"{where}: {type(error).__name__}: {printable(str(error))[:2000]}")


def _present(
    rows: list[dict[str, Any]], mode: str, names: list[str], *, added: str
) -> list[tuple[Any, ...]]:
    """What a target of a mode says of the present. `added`: default of the columns that DDL added.
    They are NOT NULL: what has no value is a change of a changelog that came before the DDL.
    """
    rows = present(rows, mode)
    if mode == "changelog":
        rows = [
            row | {name: added for name in names[5:] if row.get(name) is None}
            for row in _replayed(rows, names[0])
        ]
    return [tuple(row.get(name) for name in names) for row in rows]


def _replayed(rows: list[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    found: dict[Any, dict[str, Any]] = {}
    for row in sorted(
        rows, key=lambda row: (Decimal(row["_cdc_seq"]), row.get("_cdc_ordinal") or 0)
    ):
        before = row.get("_cdc_before") or {}
        found.pop(before.get(key, row[key]), None)
        if row["_cdc_op"] != "delete":
            found[row[key]] = row
    return list(found.values())


def _plain(value: Any) -> str:
    if isinstance(value, set | frozenset):
        return ",".join(sorted(value))
    return repr(value) if value is None else str(value)
