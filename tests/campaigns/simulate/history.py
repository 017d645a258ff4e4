"""One history: runs of a pipeline over a database that goes on, each of which may be killed or meet
faults, until all is well.

Now and then a replica of the database takes over. After each run the last cut must hold the
database as it was at the cut's place, and the cursor must not be ahead of it. At the end the tables
hold what the database holds.

Most histories are short, since most faults need few steps, and a second of work plays ten short
ones or two long ones. What only many batches bring about needs the long ones.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cdc_pipeline.binlog.seq import journal_number
from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import CdcError, UnknownXaError
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.lake.state import last_cut
from cdc_pipeline.sink.modes.mode_columns import DELETED_COLUMN
from tests.campaigns.simulate.scheduler import Scheduler
from tests.campaigns.simulate.world import TABLES, State, World
from tests.support.kills import Killed, close_files_in
from tests.support.memory_shop import MemoryShop
from tests.support.memory_sink import STEPS

HEALED_RUNS_MAX = 4


@dataclass(frozen=True)
class Size:
    """How long a history may be. `runs`: at most so many before the faults end; `transactions`: at
    most so many between two of them.
    """

    runs: int
    transactions: int


SHORT: Final = Size(runs=3, transactions=3)
LONG: Final = Size(runs=9, transactions=12)
_LONG_ONE_IN: Final = 20


def size_of(seed: int) -> Size:
    return SHORT if seed % _LONG_ONE_IN else LONG


def play(
    seed: int, folder: Path, *, size: Size, fails_over: bool = True, controls: bool = True
) -> Counter[str]:
    """Play the history of a seed, with or without failovers, and XA, savepoints and statements
    (controls); how many runs, crashes, failed runs, cuts that were compared, and steps of
    threads it had. Raises AssertionError: something is not as it must be.
    """
    history = _History(
        seed,
        folder,
        size,
        random.Random(seed + 2) if fails_over else None,
        random.Random(seed + 3) if controls else None,
    )
    history.play()
    return history.counts


class _History:
    def __init__(
        self,
        seed: int,
        folder: Path,
        size: Size,
        failovers: random.Random | None,
        control: random.Random | None,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._size = size
        self._chance = chance = random.Random(seed)
        self._failovers = failovers
        self._world = World(folder / "journals", random.Random(seed + 1), control)
        self._shop = MemoryShop(self._config(folder, chance))
        self._folder = folder
        self._seen: set[int] = set()
        self._steps = 60

    def _config(self, folder: Path, chance: random.Random) -> PipelineConfig:
        ring_events = chance.choice((2, 4, 16, 64))
        return PipelineConfig.model_validate(
            {
                "name": "shop",
                "source": {"kind": "archive", "directory": folder / "journals"},
                "tables": {"include": ["shop.*"]},
                "targets": [
                    {"tables": ["shop.b"], "mode": "soft_delete"},
                    {"tables": ["shop.c"]},
                    {"tables": ["shop.c"], "mode": "changelog", "name": "{schema}.{table}_log"},
                ],
                "store": {
                    "kind": chance.choice(("memory", "file", "mixed")),
                    "ring_events": ring_events,
                    "batch_mode": chance.choice(("memsize", "itemsize")),
                    "memory_unit_bytes": chance.choice((64, 1024)),
                    "directory": folder / "store",
                },
                "batch": {
                    "get_bytes": chance.choice((1, 200, 4096)),
                    "merge_staged_bytes": chance.choice((1, 2000, 1 << 20)),
                    "merge_rows": chance.choice((1, 5, 1000)),
                },
                "sink": {"lake_path": folder / "lake"},
            }
        )

    def play(self) -> None:
        chance = self._chance
        for _ in range(chance.randint(2, self._size.runs)):
            if chance.random() < 0.7:
                self._world.advance(chance.randint(1, self._size.transactions))
            if self._failovers is not None and self._failovers.random() < 0.15:
                self.counts["failovers"] += 1
                self._world.fail_over(self._failovers)
            crash_at = chance.randint(1, self._steps) if chance.random() < 0.5 else None
            self._faults(chance.random() < 0.4)
            limit = chance.choice((None, None, chance.randint(1, 6)))
            self._run(crash_at=crash_at, transactions=limit)
            self._check_cuts()
        self._faults(False)
        self._world.end_prepared()
        for _ in range(HEALED_RUNS_MAX):
            self._run(crash_at=None, transactions=None)
            self._check_cuts()
            if self._waits_for_a_snapshot():
                self.counts["waiting for a load"] += 1
                return
            if not self._left():
                return
        raise AssertionError(
            f"not caught up after {HEALED_RUNS_MAX} runs without a fault: {self._left()}"
        )

    def _run(self, *, crash_at: int | None, transactions: int | None) -> None:
        scheduler = Scheduler(self._chance, crash_at=crash_at)
        crashed, failed = False, ""
        self.counts["runs"] += 1
        with scheduler.running():
            try:
                self._shop.run(transactions)
            except Killed:
                self.counts["crashes"] += 1
                crashed = True
            except CdcError as error:
                self.counts["failed runs"] += 1
                failed = str(error)
        if failed and not self._has_faults and not self._suspended():
            raise AssertionError(f"a run without faults failed: {failed}")
        if crashed:
            close_files_in(self._folder)
        self._steps = max(20, scheduler.steps)
        self.counts["steps"] += scheduler.steps

    def _faults(self, wanted: bool) -> None:
        """From now on some steps of some tables fail, or none."""
        self._has_faults = wanted
        chance = self._chance
        tables = {name for name in self._names() if chance.random() < 0.5}
        steps, share = chance.sample(STEPS[:4], 2), chance.random()

        def fault(table: str, step: str) -> None:
            if table in tables and step in steps and chance.random() < share:
                raise RuntimeError("a fault of the simulation")

        self._shop.lake.fault = fault if wanted else lambda _table, _step: None

    def _names(self) -> list[str]:
        return [f"shop.{name}" for name in (*TABLES, "c_log")]

    def _suspended(self) -> bool:
        cut = last_cut(self._shop.paths)
        return cut is not None and bool(cut.cursor.suspended)

    def _waits_for_a_snapshot(self) -> bool:
        """Whether a replica took over, and a table was left before the first transaction, since an
        empty set of GTIDs does not say where that is; or after that while an XA transaction was
        open, whose XA PREPARE has no known place in the replica's log."""
        cut = last_cut(self._shop.paths)
        held = () if cut is None else cut.cursor.suspended.values()
        return any(
            one.needs_snapshot and (not one.gtid_set or one.error == UnknownXaError.__name__)
            for one in held
        )

    def _check_cuts(self) -> None:
        cut = last_cut(self._shop.paths)
        if cut is None:
            return
        stored = self._shop.cursors.cursor
        if stored is not None:
            assert stored.batch_number <= cut.batch_number, "the cursor is ahead of the last cut"
        if cut.batch_number not in self._seen:
            self._seen.add(cut.batch_number)
            self.counts["cuts"] += 1
            self._check(cut)

    def _check(self, cut: Cut) -> None:
        states = self._world.states_on[cut.cursor.server_id]
        place = (journal_number(cut.cursor.journal), cut.cursor.offset)
        state = states[_passed(states, place)]
        for name, version in cut.tables.items():
            if name in cut.cursor.suspended:
                continue
            rows = self._shop.rows(name, version.table_version)
            self._compare(name, rows, state, f"cut {cut.batch_number} at {place}")

    def _compare(self, name: str, rows: list[dict[str, Any]], state: State, where: str) -> None:
        source = name.removeprefix("shop.").removesuffix("_log")
        if name.endswith("_log"):
            changes = self._shop_changes(rows)
            assert len(changes) == len(set(changes)), f"{where}: {name} has a change twice"
            wanted_changes = state.changes.get(source, 0)
            assert len(changes) == wanted_changes, (
                f"{where}: {name} holds {len(changes)} changes, of {wanted_changes}"
            )
            return
        found = sorted(
            tuple(value for column, value in row.items() if not column.startswith("_"))
            for row in rows
            if not row.get(DELETED_COLUMN)
        )
        wanted = sorted(state.rows.get(source, {}).values())
        assert found == wanted, f"{where}: {name} holds {found}, the database had {wanted}"

    @staticmethod
    def _shop_changes(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
        return [tuple(sorted((key, repr(value)) for key, value in row.items())) for row in rows]

    def _left(self) -> str:
        """What keeps the lake from being the database; empty if nothing does."""
        cut, stored = last_cut(self._shop.paths), self._shop.cursors.cursor
        if cut is None or stored is None:
            return "nothing was applied"
        if cut.cursor.suspended:
            return f"suspended: {cut.cursor.suspended}"
        place = (journal_number(stored.journal), stored.offset)
        passed = _passed(self._world.states_on[stored.server_id], place)
        if passed != len(self._world.states) - 1:
            return f"the cursor is behind {passed} of {len(self._world.states) - 1} transactions"
        missing = set(self._names()) - set(cut.tables)
        return f"the cut lacks {sorted(missing)}" if missing else ""


def _passed(states: Sequence[State], place: tuple[int, int]) -> int:
    return bisect_right(states, place, key=lambda state: state.place) - 1
