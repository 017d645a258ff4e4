"""A finding, shrunk: the statements of its pack are played again alone, with ever fewer of them,
while it stays. A statement that the server then refuses is passed over; each trial is a capture."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path

from tests.campaigns.frame import least
from tests.campaigns.sink.group import Group, Way
from tests.campaigns.sink.workload import Pack

TRIALS_MAX = 40


class Script(Pack):
    """A pack that plays given statements instead of random ones."""

    def play(self, statements: list[str]) -> None:
        executor = self._executor
        open_transaction = False
        for sql in statements:
            word = sql.split(None, 1)[0].upper()
            executor.try_sql(sql)
            if word == "BEGIN":
                open_transaction = True
            elif word in ("COMMIT", "ROLLBACK") and " TO " not in sql:
                open_transaction = False
            if not open_transaction and word != "SET":
                executor.note(*((self.database, name) for name in executor.names_in(self.database)))
        executor.try_sql("COMMIT")
        executor.note(*((self.database, name) for name in executor.names_in(self.database)))


def shrink(group: Group, table: str, folder: Path) -> str:
    """The fewest statements found that still give a finding for the pack of `table`, as a
    script."""
    database = table.split(".", 1)[0]
    seed = next(pack.seed for pack in group.packs if pack.database == database)
    statements = [sql for owner, sql in group.executor.script if owner == seed]
    found = ""
    assert group.way is not None
    way = replace(group.way, stepwise=False, archive=False, runs=1, crashes=False)

    def fails(chosen: list[str]) -> bool:
        nonlocal found
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        finding = _trial(group, seed, chosen, folder, way)
        found = finding or found
        return bool(finding)

    if not fails(statements):
        return (
            f"seed {seed} alone does not show it: more than its own statements or the way of "
            "capturing is needed"
        )
    statements = least(statements, fails, plays_max=TRIALS_MAX)
    script = "\n".join(f"    {sql};" for sql in statements)
    return f"shrunk to {len(statements)} statements:\n{script}\n  gives: {found}"


def _trial(group: Group, seed: int, statements: list[str], folder: Path, way: Way) -> str:
    trial = Group(
        group.server, [seed], folder, group.spark, size=group.size, kinds=group.kinds, way=way
    )
    trial.drop()
    try:
        trial.server.flush_journal()
        trial.start = trial.server.end_position()
        script = Script(seed, trial.executor, size=group.size)
        trial.packs = [script]
        script.play(statements)
        config = trial.config(live=True)
        trial.capture_all(config, way, random.Random(seed))
        findings = trial.verify().findings
        return str(findings[0]) if findings else ""
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        trial.executor.close()
        trial.drop()
