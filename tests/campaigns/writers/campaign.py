"""Whoever wrote it: random changes by everyone who can write, in every format of the log.

    make campaign NAME=writers SEED=1 BUDGET=10m

Each case runs on a MySQL and on a MariaDB. After its captures each captured table equals the
server's SELECT, or is named: as suspended because of a statement, or in the warning of a foreign
key whose cascades the server does not log.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from cdc_pipeline.errors import ContentUnknownError
from tests.campaigns.frame import SERVERS, Campaign, Case, Play
from tests.campaigns.writers.world import World
from tests.servers import Server

FORMATS: Final = ("ROW", "STATEMENT", "MIXED")
LINES: Final = "601\tone\n602\ttwo\n"
RUN: Final = "run"


@contextmanager
def opened(folder: Path) -> Iterator[Play]:
    """Both servers."""
    lines = folder / "lines.txt"
    lines.write_text(LINES)
    with ExitStack() as stack:
        servers = [
            stack.enter_context(Server(flavor, {"local_infile": True, "event_scheduler": True}))
            for flavor in ("mysql", "mariadb")
        ]

        def play(case: Case) -> Counter[str]:
            counts: Counter[str] = Counter()
            for server in servers:
                world = World(server, folder)
                try:
                    counts += _played(world, case, str(lines))
                finally:
                    world.close()
            return counts

        yield play


def _played(world: World, case: Case, lines: str) -> Counter[str]:
    counts: Counter[str] = Counter()
    error = None
    for choice in case:
        if choice == RUN:
            error = world.capture()
            continue
        binlog_format, database, statements = choice
        named = [sql.replace("{file}", lines) for sql in statements]
        if named[0].startswith("CREATE EVENT"):
            world.write_by_event(binlog_format, named)
        else:
            refused = world.write(binlog_format, named, database=database)
            counts["statements refused by a server"] += len(refused)
        counts[f"changes by {binlog_format}"] += 1
    error = world.capture()
    held, tables = world.suspended(), set(world.tables())
    assert bool(error) == bool(held), f"the run ended with {error!r}, and {sorted(held)} stand"
    for table, why in held.items():
        assert why.error == ContentUnknownError.__name__, f"{table}: {why.error}: {why.what}"
    formats = {choice[0] for choice in case if choice != RUN}
    assert not held or formats - {"ROW"}, f"{sorted(held)} are suspended in a log of rows"
    different = set(world.different())
    warned = world.warned()
    lost = different - held.keys() - warned
    assert not lost, (
        f"{', '.join(sorted(lost))}: the lake differs in silence, {world.server.flavor}"
    )
    counts["tables equal"] += len(tables - different)
    counts["tables suspended"] += len(tables & held.keys() & different)
    counts["tables suspended, but equal"] += len((tables & held.keys()) - different)
    counts["tables in a warning of cascades"] += len((warned & different) - held.keys())
    return counts


# -- what is written -------------------------------------------------------------------------------

Make = Callable[[random.Random], list[str]]


def _id(chance: random.Random) -> int:
    return chance.randint(1, 6)


def _change(chance: random.Random) -> str:
    """One change of rows: by whom, is decided by chance."""
    number, fresh = _id(chance), chance.randint(100, 10_000)
    return chance.choice(
        [
            f"INSERT INTO {{c}}.a (v, n) VALUES ('{fresh}', {number})",
            f"UPDATE {{c}}.a SET n = {fresh} WHERE id = {number}",
            f"DELETE FROM {{c}}.a WHERE id = {number}",
            f"REPLACE INTO {{c}}.b VALUES ({number}, '{fresh}')",
            f"UPDATE {{c}}.b SET v = '{fresh}' WHERE id <= {number}",
            f"INSERT INTO {{c}}.untouched VALUES ({fresh}, 'new')",
            f"DELETE FROM {{c}}.parent WHERE id = {number}",
            f"INSERT INTO {{c}}.child VALUES ({fresh}, {number})",
            f"DELETE FROM {{o}}.parent_of WHERE id = {number}",
            f"INSERT INTO {{c}}.kid VALUES ({fresh}, {number})",
            f"INSERT INTO {{o}}.triggers VALUES ({fresh}, 'x')",
            f"REPLACE INTO {{o}}.plain VALUES ({number}, '{fresh}')",
            f"UPDATE {{o}}.view_of_a SET v = '{fresh}' WHERE id = {number}",
            f"UPDATE {{o}}.view_of_plain SET v = '{fresh}' WHERE id = {number}",
            f"INSERT INTO {{o}}.plain VALUES ({fresh}, {{o}}.add_b({number}))",
            f"REPLACE INTO {{o}}.plain VALUES ({{o}}.twice({number}), 'x')",
            f"DO {{o}}.add_b({number})",
            f"SELECT {{o}}.add_b({number})",
            "SELECT * FROM {o}.view_of_function",
            f"CALL {{o}}.add_a('{fresh}')",
            f"UPDATE {{o}}.plain JOIN {{c}}.a ON plain.id = a.id SET a.v = '{fresh}'",
            f"DELETE {{c}}.a FROM {{c}}.a JOIN {{o}}.plain ON plain.id = a.id AND a.id = {number}",
            f"REPLACE INTO {{c}}.b SELECT id, v FROM {{o}}.plain WHERE id < {number}",
            f"REPLACE INTO {{o}}.heartbeat VALUES ({number}, NOW())",
            f"REPLACE INTO {{o}}.checksums SELECT {number}, COUNT(*), COUNT(*) FROM {{c}}.a",
            "LOAD DATA LOCAL INFILE '{file}' REPLACE INTO TABLE {c}.b",
            "LOAD DATA LOCAL INFILE '{file}' REPLACE INTO TABLE {o}.plain",
            "LOAD DATA LOCAL INFILE '{file}' REPLACE INTO TABLE {o}.triggers",
        ]
    )


def _prepared(chance: random.Random) -> list[str]:
    change = _change(chance).replace("'", "''")
    return [f"PREPARE s FROM '{change}'", "EXECUTE s", "DEALLOCATE PREPARE s"]


def _transaction(chance: random.Random) -> list[str]:
    changes = [_change(chance) for _ in range(chance.randint(1, 4))]
    if chance.random() < 0.4:
        changes += ["SAVEPOINT s", _change(chance), "ROLLBACK TO s", _change(chance)]
    return ["BEGIN", *changes, chance.choice(["COMMIT", "COMMIT", "ROLLBACK"])]


def _xa(chance: random.Random) -> list[str]:
    xid = f"'x{chance.randint(1, 10**9)}'"
    changes = [_change(chance) for _ in range(chance.randint(1, 3))]
    end = chance.choice(
        [
            [f"XA PREPARE {xid}", f"XA COMMIT {xid}"],
            [f"XA PREPARE {xid}", f"XA ROLLBACK {xid}"],
            [f"XA COMMIT {xid} ONE PHASE"],
        ]
    )
    return [f"XA START {xid}", *changes, f"XA END {xid}", *end]


def _ddl(chance: random.Random) -> list[str]:
    one, other = chance.randint(1, 3), chance.randint(1, 3)
    database = chance.choice(["c", "c", "o"])
    table = f"{{{database}}}.n{one}"
    rows = chance.choice(["{c}.a", "{o}.plain", "{c}.b", "{o}.view_of_a"])
    return [
        chance.choice(
            [
                f"CREATE TABLE {table} (PRIMARY KEY (id)) SELECT id, v FROM {rows}",
                f"CREATE TABLE {table} (PRIMARY KEY (id)) SELECT id, v FROM {rows}",
                f"CREATE OR REPLACE TABLE {table} (PRIMARY KEY (id)) SELECT id, v FROM {rows}",
                f"CREATE TABLE IF NOT EXISTS {table} (PRIMARY KEY (id)) SELECT id, v FROM {rows}",
                f"CREATE TEMPORARY TABLE {{o}}.t{one} SELECT {{o}}.add_b({one}) AS id",
                f"CREATE TABLE {{o}}.t{one} SELECT {{o}}.add_b({one}) AS id",
                f"CREATE TABLE {table} (id INT PRIMARY KEY, v VARCHAR(30))",
                f"INSERT INTO {table} VALUES ({chance.randint(10, 99)}, 'row')",
                f"DROP TABLE IF EXISTS {table}",
                f"RENAME TABLE {{c}}.n{one} TO {{c}}.n{other}",
                "TRUNCATE TABLE {c}.audit",
                f"ALTER TABLE {{c}}.a ADD COLUMN x{one} INT",
                "DROP TRIGGER {o}.into_a",
                "CREATE TRIGGER {o}.into_b AFTER DELETE ON {o}.plain FOR EACH ROW DELETE FROM "
                "{c}.b WHERE id = OLD.id",
                "DELETE FROM {o}.plain WHERE id = 1",
                "CREATE OR REPLACE VIEW {o}.view_of_plain AS SELECT id, v FROM {c}.b",
                "DROP FUNCTION {o}.add_b",
                "RENAME TABLE {o}.triggers TO {o}.triggers2",
                "DROP TABLE {o}.triggers",
                "ALTER TABLE {c}.kid DROP FOREIGN KEY kid_ibfk_1",
            ]
        )
    ]


def _event(chance: random.Random) -> list[str]:
    change = _change(chance)
    while "{file}" in change or "{c}" not in change:
        change = _change(chance)
    return [
        "CREATE EVENT {o}.once ON SCHEDULE AT CURRENT_TIMESTAMP ON COMPLETION PRESERVE DO " + change
    ]


def case(seed: int, number: int) -> Case:
    chance = random.Random(f"{seed} {number}")
    formats = chance.choice([FORMATS, FORMATS, ("ROW",), ("MIXED",), ("ROW", "STATEMENT")])
    kinds: list[Make] = [
        *[lambda chance: [_change(chance)]] * 6,
        *[_transaction] * 2,
        *[_ddl] * 4,
        _prepared,
        _xa,
    ]
    choices: Case = []
    for _ in range(chance.randint(2, 12)):
        make = _event if chance.random() < 0.02 else chance.choice(kinds)
        choices.append([chance.choice(formats), chance.choice("co"), make(chance)])
        if chance.random() < 0.15:
            choices.append(RUN)
    return choices


CAMPAIGN: Final = Campaign("writers", case, opened, needs=SERVERS)
