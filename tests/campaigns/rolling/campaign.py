"""The rolling proof behind runs, over tables of every kind of key, with differences that no log
shows.

A case is a source with a budget of rows or of seconds (by a clock of the campaign's, on which a row
takes a millisecond), and tables that are proved by ranges or only whole. Others write between runs
and within their comparisons, runs are killed, changes are lost from the log, and the lake's files
are changed in place, or by another program's commit. Behind each run both sides are read here:

- nothing is named that was not different;
- no table is proved by a pass that began behind a difference and ended before it was gone;
- within twice the runs that `status` promises, each difference is named by its key;
- with ``spark=true``: a commit of another program suspends its table at once;
- `--repair`, killed too, makes all equal, and the next run has nothing to say.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from cdc_pipeline.clock import now_us
from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import TargetSuspendedError
from cdc_pipeline.fault_points import listening
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.proofs import ProofReport, Proofs, proof_file
from cdc_pipeline.lake.run_notes import NoteFile
from cdc_pipeline.operations.status import status
from cdc_pipeline.operations.verify import rolling
from cdc_pipeline.operations.verify.proved_run import capture_and_prove
from cdc_pipeline.operations.verify.read import VerifyOptions
from cdc_pipeline.operations.verify.verify import verify
from cdc_pipeline.position.cursor import MemoryCursorStore
from tests.campaigns.frame import SERVERS, Campaign, Case, OnDemand, Play, flavors, fresh
from tests.campaigns.rolling.tables import KEYS, WHOLE, Table
from tests.conftest import temporary_database
from tests.servers import Server
from tests.support.captures import SPARK, here, live
from tests.support.kills import Killed, end_run

_STEPS: Final = (
    *["write"] * 4,
    *["run"] * 5,
    *["kill"] * 3,
    *["lose"] * 2,
    *["tamper"] * 2,
    "repair",
)
_MODES: Final = ("mirror", "mirror", "mirror", "masked")
# What only Spark writes: a table without a key, and what undoes another program's commit.
_SPARK_STEPS: Final = (*_STEPS, "foreign")
_SPARK_MODES: Final = (*_MODES, "changelog", "soft_delete", "history", "")
_ROW_S: Final = 0.001


def _case(seed: int, number: int, *, flavor: str, steps: int, spark: bool) -> Case:
    chance = random.Random(f"{seed} {number}")
    chosen = flavors(flavor)
    budget = chance.choice(
        [
            *({"rows": rows} for rows in (100, 170, 400, 5000)),
            *({"seconds": 0.2}, {"seconds": 3}, {"rows": 300, "seconds": 0.25}),
        ]
    )
    action = chance.choice(("warn", "warn", "suspend"))
    case: Case = [["world", chosen[number % len(chosen)], budget, action]]
    alone = [key for key in KEYS if key != "few" and (spark or key not in WHOLE)]
    for _ in range(chance.randint(1, 3)):
        keys = [chance.choice(alone)]
        if chance.random() < 0.4:
            keys.insert(chance.randint(0, 1), chance.choice(["few", *alone]))
        mode = chance.choice(_SPARK_MODES if spark else _MODES)
        if not mode:
            keys, mode = [], "mirror"
        case.append(["table", keys, mode, chance.choice([0, 3, 40, 110, 230])])
    for _ in range(steps):
        step = chance.choice(_SPARK_STEPS if spark else _STEPS)
        case.append([step, chance.randint(0, 10**6)])
    return case


@contextmanager
def _opened(folder: Path) -> Iterator[Play]:
    with OnDemand(Server) as servers:

        def play(case: Case) -> Counter[str]:
            if not case or case[0][0] != "world":
                return Counter()
            _name, flavor, budget, action = case[0]
            server = servers.get(flavor)
            with fresh(folder) as home, temporary_database(server) as database:
                world = _World(server, database, home, budget, action)
                specs = [choice[1:] for choice in case if choice[0] == "table"]
                world.create(specs)
                for name, number in (choice for choice in case[1:] if choice[0] != "table"):
                    if specs:
                        world.counts[name] += 1
                        getattr(world, name)(random.Random(number))
                world.end()
                return world.counts

        yield play


class _World:
    def __init__(
        self, server: Server, database: str, folder: Path, budget: dict[str, Any], action: str
    ) -> None:
        self.server, self.database, self.folder = server, database, folder
        self._section = {"each_run": budget, "on_difference": action}
        self.cursors = MemoryCursorStore()
        self.tables: dict[str, Table] = {}
        self.counts = Counter[str]()
        self.now_s = 0.0
        self._since: dict[tuple[str, str], int] = {}  # when a difference was first there
        self._foreign: set[str] = set()
        self._is_writing = False

    def create(self, specs: list[list[Any]]) -> None:
        start = here(self.server)
        self.server.execute(f"USE `{self.database}`")
        rules: list[dict[str, Any]] = []
        for at, (keys, mode, rows) in enumerate(specs):
            table = Table(self.database, f"t{at}", keys, mode)
            self.tables[table.full_name] = table
            self.server.execute_all(table.create(), *table.insert(rows))
            rules.append(table.rule)
        self.config = PipelineConfig.model_validate(
            {
                "name": "bank",
                "source": live(self.server),
                "tables": {"include": [f"{self.database}.*"], "allow_empty": True},
                "start": start,
                "targets": rules,
                "verify": self._section,
                "sink": {"lake_path": self.folder / "lake", "spark": SPARK},
            }
        )
        self.paths = LakePaths(self.config.sink.lake_path, "bank")
        self._run()

    # -- steps -------------------------------------------------------------------------------------

    def write(self, chance: random.Random) -> None:
        for _ in range(chance.randint(1, 5)):
            table = chance.choice(list(self.tables.values()))
            self.server.execute(table.change(chance))

    def lose(self, chance: random.Random) -> None:
        """A change of one table that the log lacks."""
        table = self._one(chance)
        if table is not None:
            session = self.server.root_connection(database=self.database, autocommit=True)
            with session.cursor() as cursor:
                cursor.execute("SET SESSION sql_log_bin = 0")
                cursor.execute(table.change(chance))
            session.close()

    def tamper(self, chance: random.Random, *, is_foreign: bool = False) -> None:
        table = self._one(chance)
        if table is not None and table.keys:
            folder = self.paths.table(table.full_name)
            if table.change_lake(folder, chance, is_foreign=is_foreign) and is_foreign:
                self._foreign.add(table.full_name)

    def foreign(self, chance: random.Random) -> None:
        self.tamper(chance, is_foreign=True)

    def _one(self, chance: random.Random) -> Table | None:
        """One whose rows may be told apart, and that is not held by another program's commit."""
        held = self.suspended() | self._foreign
        tables = [
            table
            for name, table in self.tables.items()
            if table.mode != "changelog" and name not in held and len(table.ever) < 10
        ]
        return chance.choice(tables) if tables else None

    def run(self, chance: random.Random) -> None:
        self._chance, self._is_writing = chance, chance.random() < 0.5
        self._run()
        self._is_writing = False

    def kill(self, chance: random.Random) -> None:
        with suppress(Killed, TargetSuspendedError):
            self._capture(self._killing(chance.randint(1, 40)))

    def _killing(self, left: int) -> Callable[[str], None]:
        """At the fault point of this number, from 1 on."""

        def reached(_point: str) -> None:
            nonlocal left
            left -= 1
            if not left:
                self.counts["killed"] += 1
                end_run()

        return reached

    def repair(self, chance: random.Random) -> None:
        for name in sorted(self.suspended() | self._foreign):
            self._verify((name,), chance)
        self._verify((), chance)
        self._foreign.clear()
        assert self._check() == {}, "what was repaired differs"
        for table in self.tables.values():
            table.ever.clear()

    def _verify(self, tables: tuple[str, ...], chance: random.Random) -> None:
        options = VerifyOptions(tables=tables, repair=True)
        with suppress(Killed), listening(self._killing(chance.randint(1, 30))):
            verify(self.config, cursors=self.cursors, options=options)
        report = verify(self.config, cursors=self.cursors, options=options)
        found = {name: table.status for name, table in report.tables.items()}
        assert {*found.values()} <= {"equal"}, f"repaired: {report}"

    # -- runs --------------------------------------------------------------------------------------

    def _capture(self, reached: Callable[[str], None] = lambda _point: None) -> ProofReport | None:
        settled, begin, write = (
            rolling._Run._settled,
            rolling.TableComparison.begin,
            NoteFile.write,
        )

        def compared(*given: Any) -> Any:
            result = settled(*given)
            self.now_s += _ROW_S * max(10, result[0].rows_source)
            reached("compared")
            return result

        def begun(*given: Any) -> Any:
            self._write_between()
            result = begin(*given)
            self._write_between()
            return result

        def noted(*given: Any) -> None:
            reached("note")
            write(*given)
            reached("noted")

        with ExitStack() as patches:
            for owner, name, to in (
                (rolling._Run, "_settled", compared),
                (rolling.TableComparison, "begin", begun),
                (NoteFile, "write", noted),
            ):
                patches.enter_context(patch.object(owner, name, to))
            clock = {"clock_s": lambda: self.now_s}
            patches.enter_context(patch.dict(rolling.prove.__kwdefaults__, clock))
            patches.enter_context(listening(reached))
            return capture_and_prove(self.config, cursors=self.cursors).proof

    def _write_between(self) -> None:
        if self._is_writing and self._chance.random() < 0.5:
            self.write(self._chance)

    def _run(self) -> None:
        self.counts["runs"] += 1
        held = self.suspended()
        try:
            report = self._capture()
        except TargetSuspendedError:
            report = None
            new = self.suspended() - held
            wrong = {name for name in new - self._foreign if not self.tables[name].ever}
            assert self.suspended(), "a run fails, and no table is suspended"
            if wrong:  # it may have become different since the last look
                wrong = {name for name in wrong if not self._differing(self.tables[name])}
            assert not wrong, f"suspended, and equal: {wrong}"
            self.counts["suspended"] += len(new)
        if report is not None:
            assert not report.failure, report.failure
        lost = self._foreign - self.suspended()
        assert not lost, f"another program's commit is not noticed: {lost}"
        self._check()

    def suspended(self) -> set[str]:
        cursor = self.cursors.read()
        return set() if cursor is None else set(cursor.suspended)

    @property
    def _proofs(self) -> Proofs:
        return proof_file(self.paths).read()

    def _differing(self, table: Table) -> set[str]:
        rows = self.server.query(f"SELECT {', '.join(table.columns)} FROM {table.full_name}")
        return table.differing(self.paths.table(table.full_name), rows)

    def _check(self) -> dict[str, set[str]]:
        """What differs now; of tables that follow."""
        differing, proofs, at_us = dict[str, set[str]](), self._proofs, now_us()
        held = self.suspended()
        for name, table in self.tables.items():
            found = set() if name in held else self._differing(table)
            table.ever |= found
            for one in [key for key in self._since if key[0] == name and key[1] not in found]:
                del self._since[one]
            for what in found:
                self._since.setdefault((name, what), at_us)
            if found:
                differing[name] = found
            proof = proofs.tables.get(name)
            if proof is None or name in held:
                continue
            named = set(proof.differing.keys) if proof.differing else set()
            assert named <= table.ever, f"named, and never different: {named - table.ever}"
            proved = proof.proved
            for what in found if proved is not None else ():
                is_older = self._since[name, what] < proved.began_at_us
                assert not is_older, f"{table} is proved, and differed before: {what}, {proof}"
        return differing

    # -- the end -----------------------------------------------------------------------------------

    def end(self) -> None:
        if not self.tables:
            return
        self._run()
        chance, runs = random.Random(1), 0
        while True:
            promised = status(self.config).pass_runs
            if promised is not None and runs >= 2 * promised:
                break
            assert runs < 200, "no pass ends"
            self.run(chance)
            runs += 1
        proofs, held = self._proofs, self.suspended()
        for name, found in self._check().items():
            proof = proofs.tables[name]
            if proof.unproved and not proof.differing:
                assert self.tables[name].is_whole, f"{name} is not proved: {proof.unproved}"
                continue
            named = set(proof.differing.keys) if proof.differing else set()
            assert found <= named, f"not found in {runs} runs: {found - named}, {proof}"
            self.counts["found"] += len(found)
        for name in self.tables.keys() - held:
            proof = proofs.tables[name]
            is_done = proof.last is not None or proof.unproved
            assert is_done, f"{self.tables[name]} is not through in {runs} runs: {proof}"
            self.counts["proved" if proof.proved else "not proved"] += 1
        self.repair(chance)
        if self._section["on_difference"] == "warn":
            for _ in range(2):
                report = self._capture()
                assert report is not None
                assert not report.warnings, report.warnings
        self.counts["runs of a pass"] += promised


CAMPAIGN = Campaign(
    "rolling",
    _case,
    _opened,
    case_s_max=1200,
    needs=(*SERVERS, "jars"),
    options={"flavor": "", "steps": 12, "spark": False},
    budget="20",
    shrink_plays_max=40,
)
