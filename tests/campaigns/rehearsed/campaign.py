"""Migrations that are rehearsed, then run on a real server, captured, and compared.

A case is tables with rows in all modes, captured, and one script: statements of the generator of
the servers' grammars, or what random workloads do to their tables, one change upon the other. What
the server takes is rehearsed as one script and then run; the next run must decide each statement as
was told, with its reason and policy, suspend the same tables for the same cause, or stop by the
same error. What the server refuses is rehearsed, too: it gets an outcome, and no fault of ours.

With ``delta=true`` the lake is Delta's, and each target must need the features that were told.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pymysql

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import CdcError, TargetSuspendedError
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.state import last_cut, read_cut
from cdc_pipeline.lake.suspensions import cause_of
from cdc_pipeline.operations.rehearse.rehearse import Rehearsal, rehearse
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.schema.evolution.steps import DdlDecision
from cdc_pipeline.sink.delta.table_log import read_table_log
from tests.campaigns.frame import (
    SERVERS,
    Campaign,
    Case,
    OnDemand,
    Play,
    distinct,
    flavors,
    fresh,
    named,
)
from tests.campaigns.sink.group import rules_of
from tests.campaigns.sink.workload import SQL_MODE, Executor, Pack, Size
from tests.conftest import temporary_database
from tests.schema.ddl.generated_statements import Maker
from tests.servers import Flavor, Server
from tests.support.captures import SPARK, here, live
from tests.support.memory_shop import MemoryShop

_NAMES: Final = ("a", "b", "h", "s", "c")
_MODES: Final = {"h": "history", "s": "soft_delete", "c": "changelog"}
_KINDS: Final = ("grammar", "workload")
_LOOKS: Final = re.compile("looks for rows for which (.*); with one, a snapshot is needed")
# Those that a change of the schema may bring to a table that is there.
_OF_SCHEMA: Final = frozenset({"columnMapping", "timestampNtz", "typeWidening", "variantType"})


def _case(seed: int, number: int, *, flavor: str, kind: str, statements: int, delta: bool) -> Case:
    chosen, kinds = flavors(flavor), named(kind, _KINDS)
    of = chosen[number % len(chosen)]
    which = kinds[number // len(chosen) % len(kinds)]
    case: Case = [["world", of, which, delta]]
    at = distinct(seed, number)
    if which == "workload":
        return [*case, ["pack", at], *([["change"]] * (statements // 4))]
    made = Maker(at).statements(statements)
    return [*case, *(["statements", *one.statements] for one in made if one.name)]


@contextmanager
def _opened(folder: Path) -> Iterator[Play]:
    def started(flavor: Flavor, _which: str) -> Server:
        return Server(flavor)

    with OnDemand(started) as servers:

        def play(case: Case) -> Counter[str]:
            if len(case) < 2 or case[0][0] != "world":
                return Counter()
            _name, flavor, which, delta = case[0]
            server, other = servers.get(flavor, "run"), servers.get(flavor, "tried")
            with fresh(folder) as home:
                if which == "workload":
                    return _workload(server, other, case[1:], home, delta=delta)
                return grammar(server, other, case[1:], home, delta=delta)

        yield play


def grammar(
    server: Server, other: Server, case: Case, folder: Path, *, delta: bool = False
) -> Counter[str]:
    """`other`: tries what is run; it may be the same server."""
    with temporary_database(server) as database, temporary_database(other) as tried:
        other.execute(f"USE `{tried}`")
        server.execute(f"USE `{database}`")
        shop = _shop_on(server, database, folder, delta=delta)
        for name in _NAMES:
            server.execute(f"CREATE TABLE {name} (id INT PRIMARY KEY, n INT, t VARCHAR(10))")
            server.execute(f"INSERT INTO {name} VALUES (1, 2, 'x')")
        shop.run()
        taken, refused = list[str](), list[str]()
        for _name, *statements in case:
            for sql in statements:
                is_taken = _takes(other, f"USE `{tried}`", sql)
                (taken if is_taken else refused).append(sql)
        counts = _refused(shop, refused, database)
        return counts + play_script(shop, server, taken, database=database)


def _workload(
    server: Server, other: Server, case: Case, folder: Path, *, delta: bool
) -> Counter[str]:
    """The other server tries each statement first, so that a pack knows its tables."""
    (_name, seed), *changes = case
    tried, runs = Executor(other), Executor(server)
    try:
        pack = Pack(seed, tried, size=Size(tables_max=3))
        server.execute(f"DROP DATABASE IF EXISTS `{pack.database}`")
        other.execute(f"DROP DATABASE IF EXISTS `{pack.database}`")
        shop = _shop_on(server, pack.database, folder, rules=rules_of(pack), delta=delta)
        pack.create()
        pack.transact()
        for _seed, sql in tried.script:
            assert runs.try_sql(sql), sql
        shop.run()
        before = len(tried.script)
        for _ in changes:
            pack.change()
        taken = [sql for _seed, sql in tried.script[before:]]
        counts = Counter({f"DDL {kind}": n for kind, n in Counter(pack.changes).items()})
        return counts + play_script(
            shop, server, [f"SET SESSION sql_mode = '{SQL_MODE}'", *taken], database=pack.database
        )
    finally:
        for executor in (tried, runs):
            executor.close()
            executor.server.execute(f"DROP DATABASE IF EXISTS `pack{seed}`")
            executor.server.execute(f"DROP DATABASE IF EXISTS `elsewhere_pack{seed}`")
            executor.server.execute("SET SESSION sql_mode = DEFAULT")


class DeltaShop(MemoryShop):
    """Its tables are Delta's."""

    def run(self, *_: Any, **__: Any) -> Any:
        return capture(self.config, cursors=self.cursors)


def _shop_on(
    server: Server,
    database: str,
    folder: Path,
    *,
    rules: Sequence[dict[str, Any]] | None = None,
    delta: bool = False,
) -> MemoryShop:
    of_mode = [{"tables": [f"{database}.{n}"], "mode": mode} for n, mode in _MODES.items()]
    config = PipelineConfig.model_validate(
        {
            "name": "shop",
            "source": live(server),
            "tables": {"include": [f"{database}.*"], "allow_empty": True},
            "start": here(server),
            "targets": of_mode if rules is None else rules,
            "sink": {"lake_path": folder / "lake", "spark": SPARK},
        }
    )
    return DeltaShop(config) if delta else MemoryShop(config)


def _takes(server: Server, *statements: str) -> bool:
    with suppress(pymysql.MySQLError):
        server.execute_all(*statements)
        return True
    return False


def _refused(shop: MemoryShop, statements: list[str], database: str) -> Counter[str]:
    """What would stop a run hides what follows it, which is a script of its own then."""
    counts = Counter[str]()
    while statements:
        script = ";\n".join(statements)
        told = rehearse(shop.config, script, cursors=shop.cursors, database=database).statements
        assert len(told) == len(statements)
        read = next((n for n, made in enumerate(told, 1) if made.outcome == "stops"), len(told))
        counts.update(f"refused by the server: {made.outcome}" for made in told[:read])
        statements = statements[read:]
    return counts


def play_script(
    shop: MemoryShop, server: Server, script: list[str], *, database: str
) -> Counter[str]:
    """Rehearse what a server takes, then run it; the run behind it does what was told."""
    rehearsal = rehearse(shop.config, ";\n".join(script), cursors=shop.cursors, database=database)
    assert len(rehearsal.statements) == len(script)
    assert rehearsal.warnings == (), rehearsal.warnings
    before, features = shop.last_cut().batch_number, _features(shop)
    server.execute(f"USE `{database}`")
    server.execute_all(*script)
    failure: CdcError | None = None
    try:
        decided = list(shop.run().ddl)
    except CdcError as error:
        failure = error
        numbers = range(before + 1, shop.last_cut().batch_number + 1)
        decided = [ddl for number in numbers for ddl in read_cut(shop.paths, number).ddl]
    compare(shop, rehearsal, failure, decided)
    if isinstance(shop, DeltaShop):
        _compare_features(features, _features(shop), rehearsal)
    return Counter(f"told: {made.outcome}" for made in rehearsal.statements)


def compare(
    shop: MemoryShop, rehearsal: Rehearsal, failure: CdcError | None, decided: list[DdlDecision]
) -> None:
    """`decided`: by the run; of one that failed, what its cuts tell: none follows a last statement
    that changes nothing.
    """
    stops = [made for made in rehearsal.statements if made.outcome == "stops"]
    is_stopped = failure is not None and not isinstance(failure, TargetSuspendedError)
    assert is_stopped == bool(stops), f"told {stops}, and the run ended by {failure!r}"
    if stops:
        assert failure is not None
        reason = place_free(cause_of(failure))
        assert reason in stops[0].reason, f"stops by {reason}, told {stops[0].reason}"
    copies = {  # of queries: what becomes of them is not told
        table
        for made in rehearsal.statements
        if made.outcome == "rows" and made.sql.startswith("CREATE")
        for table in made.tables
    }
    done = [
        (ddl.decision, ddl.reason, ddl.policy)
        for ddl in decided
        if ddl.decision != "ignored" and copies.isdisjoint(ddl.tables)
    ]
    told = [
        (made.outcome, made.reason, made.policy)
        for made in rehearsal.statements
        if made.outcome in ("applied", "recorded")
    ]
    if failure is not None and all(one[0] == "recorded" for one in told[len(done) :]):
        told = told[: len(done)]
    cursor = shop.cursors.cursor
    assert cursor is not None
    held = {name: place_free(one.what) for name, one in cursor.suspended.items()}
    wanted = {name: made.reason for made in rehearsal.statements for name in made.suspends}
    looked_at = _looked_at(rehearsal)
    by_rows = {name: why for name, why in held.items() if name not in wanted}
    for name, why in by_rows.items():
        reasons = looked_at.get(name, [])
        assert any(reason in why for reason in reasons), f"{name}: {why}, told {reasons}"
    if by_rows:  # which then passes by what follows
        left = iter(told)
        assert all(one in left for one in done), _first_difference(done, told)
    else:
        assert done == told, _first_difference(done, told)
        assert held == wanted, f"suspended {held}, told {wanted}"


def _looked_at(rehearsal: Rehearsal) -> dict[str, list[str]]:
    """By target: for what a run looks in its rows, which a rehearsal does not."""
    looked_at: dict[str, list[str]] = {}
    for made in rehearsal.statements:
        for change in made.changes:
            reasons = [match[1] for match in map(_LOOKS.fullmatch, change.steps) if match]
            looked_at.setdefault(change.target, []).extend(reasons)
    return looked_at


def _first_difference(done: list[Any], told: list[Any]) -> str:
    pairs = zip(done, told, strict=False)
    at = next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(done), len(told)))
    return (
        f"of {len(done)} and {len(told)} decisions: {done[at : at + 1]}, told {told[at : at + 1]}"
    )


def place_free(what: str) -> str:
    return re.sub(r" \(binlog\.\d+ at \d+\)", "", what)


def _features(shop: MemoryShop) -> dict[str, set[str]]:
    if not isinstance(shop, DeltaShop):
        return {}
    cut, paths = last_cut(shop.paths), LakePaths(shop.config.sink.lake_path, "shop")
    assert cut is not None
    logs = {name: read_table_log(paths.table(name)) for name in cut.tables}
    return {name: set(log.reader_features) for name, log in logs.items() if log is not None}


def _compare_features(
    before: dict[str, set[str]], after: dict[str, set[str]], rehearsal: Rehearsal
) -> None:
    told: dict[str, set[str]] = {}
    for made in rehearsal.statements:
        for change in made.changes if made.outcome in ("applied", "recorded") else ():
            told.setdefault(change.target, set()).update(change.features)
    for name, features in after.items():
        known = told.get(name, set())
        new = (features - before.get(name, set())) & _OF_SCHEMA
        lacking = known - features
        assert not lacking, f"{name} was to need {lacking}"
        assert new <= known or name not in before, f"{name} needs {new}, told {known}"


CAMPAIGN = Campaign(
    "rehearsed",
    _case,
    _opened,
    needs=SERVERS,
    options={"flavor": "", "kind": "", "statements": 40, "delta": False},
    budget="40",
    case_s_max=1200,
    shrink_plays_max=60,
)
