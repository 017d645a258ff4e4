"""A group of packs: many seeds as tables of one pipeline, worked on a server, captured by both
engines into a lake each, and compared at every cut.

How the log is captured is the first seed's choice: after each step, or afterwards in runs that end
at chosen places, from the server or from copies of its journals; in merge batches of a few rows or
of many.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from cdc_pipeline.config.pipeline_config import Bound, PipelineConfig, PositionConfig
from cdc_pipeline.errors import TargetSuspendedError
from cdc_pipeline.fault_points import listening
from cdc_pipeline.position.cursor import CursorStore
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.sink.cursor_table import DeltaCursorStore
from tests.campaigns.sink.capabilities import FEATURES, KINDS
from tests.campaigns.sink.changes import read_changes
from tests.campaigns.sink.oracle import Place
from tests.campaigns.sink.verify import Lake, Verdict, verify
from tests.campaigns.sink.verify_changes import verify_changes
from tests.campaigns.sink.workload import Executor, Pack, Size
from tests.servers import Server
from tests.support.captures import live as live_source
from tests.support.delta_protocol import check_log
from tests.support.kills import AtPoint, Killed, end_run

FAULT_POINTS = (
    "staging",
    "before_record",
    "after_record",
    "between_merges",
    "before_cut",
    "before_cursor",
    "before_ack",
)
SOURCE = "torture"


Engine = Literal["auto", "spark"]
Run = Callable[[PipelineConfig, Bound | None, random.Random], int]  # how often it was killed


@dataclass(frozen=True)
class Way:
    stepwise: bool
    archive: bool
    merge_rows: int
    runs: int
    crashes: bool
    engines: tuple[Engine, ...] = ("auto", "spark")


def choose_way(choose: random.Random) -> Way:
    stepwise = choose.random() < 0.5
    return Way(
        stepwise=stepwise,
        archive=not stepwise and choose.random() < 0.3,
        merge_rows=choose.choice((150, 600, 5_000_000)),
        runs=choose.randint(1, 3),
        crashes=choose.random() < 0.4,
    )


@dataclass
class Group:
    """Packs on one server, with one lake."""

    server: Server
    seeds: Sequence[int]
    folder: Path
    spark: dict[str, Any]
    size: Size = field(default_factory=Size)
    kinds: frozenset[str] = KINDS
    way: Way | None = None
    run: Run | None = None
    kills: Counter[Engine] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.choose = random.Random(f"group {self.seeds[0]}")
        self.way = self.way or choose_way(self.choose)
        self.start: Place = ("", 0)
        self.executor = Executor(self.server)
        self.packs = [
            Pack(seed, self.executor, size=self.size, kinds=self.kinds) for seed in self.seeds
        ]

    def lake(self, engine: Engine) -> Lake:
        return Lake(self.folder / engine / "lake", SOURCE)

    def play(self) -> Verdict:
        way = self.way
        assert way is not None
        self.server.flush_journal()
        self.start = self.server.end_position()
        try:
            for pack in self.packs:
                pack.create()
            for _ in range(self.size.steps):
                for pack in self.choose.sample(self.packs, len(self.packs)):
                    pack.step()
                if self.choose.random() < 0.3:
                    self.server.flush_journal()
                if way.stepwise:
                    self._capture(None)
            if not way.stepwise:
                self.capture_all()
            return self.verify()
        finally:
            self.executor.close()

    def verify(self) -> Verdict:
        assert self.way is not None
        may_stand = {table.full_name for pack in self.packs for table in pack.may_stand}
        changes = None
        if any(pack.modes != ("mirror",) for pack in self.packs):
            journals = self.folder / "read again"
            self.server.copy_journals(journals)
            changes = read_changes(sorted(journals.iterdir()), start=self.start)
        verdict = Verdict()
        for engine in self.way.engines:
            lake = self.lake(engine)
            verify(
                verdict,
                lake,
                self.executor.oracle,
                changes=changes,
                altered=self.executor.altered,
                may_stop=may_stand.__contains__,
            )
            verify_changes(verdict, lake)
            for name in lake.cuts()[-1].tables:
                check_log(lake.paths.table(name))
        return verdict

    def drop(self) -> None:
        for pack in self.packs:
            self.server.execute(f"DROP DATABASE IF EXISTS `{pack.database}`")
            self.server.execute(f"DROP DATABASE IF EXISTS `elsewhere_{pack.database}`")

    def config(self, engine: Engine) -> PipelineConfig:
        way = self.way
        assert way is not None
        if way.archive:
            source = {"kind": "archive", "directory": self.folder / "journals"}
        else:
            source = live_source(self.server)
        return PipelineConfig.model_validate(
            {
                "name": SOURCE,
                "source": source,
                "tables": {"include": [f"{pack.database}.*" for pack in self.packs]},
                "start": {"journal": self.start[0], "offset": self.start[1]},
                "targets": [rule for pack in self.packs for rule in rules_of(pack)],
                "batch": {"merge_rows": way.merge_rows},
                "store": {"directory": self.folder / engine / "spill"},
                "sink": {
                    "lake_path": self.folder / engine / "lake",
                    "engine": engine,
                    "spark": self.spark,
                },
            }
        )

    def capture_all(self) -> None:
        way, choose = self.way, self.choose
        assert way is not None
        places = sorted(
            choose.sample(self.executor.places, min(way.runs - 1, len(self.executor.places)))
        )
        if way.archive:
            self.server.flush_journal()
            self.server.copy_journals(self.folder / "journals")
        for journal, offset in places:
            self._capture(PositionConfig(journal=journal, offset=offset))
        self._capture(None)

    def _capture(self, bound: Bound | None) -> None:
        assert self.way is not None
        for engine in self.way.engines:
            config = self.config(engine)
            if self.run is not None:
                self.kills[engine] += self.run(config, bound, self.choose)
                continue
            folder = self.folder / engine / "cursors"
            if self.way.crashes:
                point, occurrence = self.choose.choice(FAULT_POINTS), self.choose.randint(1, 3)
                with suppress(Killed), listening(AtPoint(point, end_run, occurrence)):
                    run_once(config, bound, cursors=DeltaCursorStore(folder, source=SOURCE))
                    continue
                self.kills[engine] += 1
            run_once(config, bound, cursors=DeltaCursorStore(folder, source=SOURCE))


def rules_of(pack: Pack) -> list[dict[str, Any]]:
    # beside a mirror
    own: dict[str, dict[str, Any]] = {"soft_delete": {"name": "{schema}.{table}_soft"}}
    if "keyless" in FEATURES:
        own["mirror"] = {"keyless": "row_hash"}
    elif pack.modes == ("mirror",):
        return []
    return [
        {"tables": [f"{pack.database}.*"], "mode": mode, **own.get(mode, {})} for mode in pack.modes
    ]


def run_once(config: PipelineConfig, bound: Bound | None, *, cursors: CursorStore) -> None:
    """One capture; tables that it leaves suspended are judged by the comparison."""
    try:
        capture(config, cursors=cursors, bound=bound)
    except TargetSuspendedError:
        return
