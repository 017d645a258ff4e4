"""A group of packs: many seeds as tables of one pipeline, worked on a server, captured, and
compared at every cut.

How the log is captured is the first seed's choice: after each step, or afterwards in runs that end
at chosen places, from the server or from copies of its journals; in merge batches of a few rows or
of many.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from cdc_pipeline.config.pipeline_config import Bound, PipelineConfig, PositionConfig
from cdc_pipeline.errors import TargetSuspendedError
from cdc_pipeline.fault_points import listening
from cdc_pipeline.position.cursor import CursorStore
from cdc_pipeline.position.cursor_file import FileCursorStore
from cdc_pipeline.run.capture.capture import capture
from tests.campaigns.sink.capabilities import FEATURES, KINDS
from tests.campaigns.sink.changes import read_changes
from tests.campaigns.sink.oracle import Place
from tests.campaigns.sink.verify import Lake, Verdict, verify
from tests.campaigns.sink.workload import Executor, Pack, Size
from tests.servers import Server
from tests.support.captures import live as live_source
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


Run = Callable[[PipelineConfig, Bound | None, random.Random], None]


@dataclass(frozen=True)
class Way:
    stepwise: bool
    archive: bool
    merge_rows: int
    runs: int
    crashes: bool
    engine: Literal["auto", "spark"] = "auto"


def choose_way(choose: random.Random) -> Way:
    stepwise = choose.random() < 0.5
    return Way(
        stepwise=stepwise,
        archive=not stepwise and choose.random() < 0.3,
        merge_rows=choose.choice((150, 600, 5_000_000)),
        runs=choose.randint(1, 3),
        crashes=choose.random() < 0.4,
        engine=choose.choice(("auto", "spark")),
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

    def __post_init__(self) -> None:
        self.choose = random.Random(f"group {self.seeds[0]}")
        self.way = self.way or choose_way(self.choose)
        self.start: Place = ("", 0)
        self.executor = Executor(self.server)
        self.packs = [
            Pack(seed, self.executor, size=self.size, kinds=self.kinds) for seed in self.seeds
        ]

    @property
    def lake(self) -> Path:
        return self.folder / "lake"

    def play(self) -> Verdict:
        way = self.way
        assert way is not None
        self.server.flush_journal()
        self.start = self.server.end_position()
        try:
            for pack in self.packs:
                pack.create()
            config = self.config(live=not way.archive)
            for _ in range(self.size.steps):
                for pack in self.choose.sample(self.packs, len(self.packs)):
                    pack.step()
                if self.choose.random() < 0.3:
                    self.server.flush_journal()
                if way.stepwise:
                    self._capture(config, None)
            if not way.stepwise:
                self.capture_all(config, way, self.choose)
            return self.verify()
        finally:
            self.executor.close()

    def verify(self) -> Verdict:
        may_stand = {table.full_name for pack in self.packs for table in pack.may_stand}
        changes = None
        if any(pack.modes != ("mirror",) for pack in self.packs):
            journals = self.folder / "read again"
            self.server.copy_journals(journals)
            changes = read_changes(sorted(journals.iterdir()), start=self.start)
        return verify(
            Lake(self.lake, SOURCE),
            self.executor.oracle,
            changes=changes,
            altered=self.executor.altered,
            may_stop=may_stand.__contains__,
        )

    def drop(self) -> None:
        for pack in self.packs:
            self.server.execute(f"DROP DATABASE IF EXISTS `{pack.database}`")
            self.server.execute(f"DROP DATABASE IF EXISTS `elsewhere_{pack.database}`")

    def config(self, *, live: bool) -> PipelineConfig:
        way = self.way
        assert way is not None
        if live:
            source = live_source(self.server)
        else:
            source = {"kind": "archive", "directory": self.folder / "journals"}
        return PipelineConfig.model_validate(
            {
                "name": SOURCE,
                "source": source,
                "tables": {"include": [f"{pack.database}.*" for pack in self.packs]},
                "start": {"journal": self.start[0], "offset": self.start[1]},
                "targets": [rule for pack in self.packs for rule in rules_of(pack)],
                "batch": {"merge_rows": way.merge_rows},
                "store": {"directory": self.folder / "spill"},
                "sink": {"lake_path": self.lake, "engine": way.engine, "spark": self.spark},
            }
        )

    def capture_all(self, config: PipelineConfig, way: Way, choose: random.Random) -> None:
        places = sorted(
            choose.sample(self.executor.places, min(way.runs - 1, len(self.executor.places)))
        )
        if way.archive:
            self.server.flush_journal()
            self.server.copy_journals(self.folder / "journals")
        for journal, offset in places:
            self._capture(config, PositionConfig(journal=journal, offset=offset))
        self._capture(config, None)

    def _capture(self, config: PipelineConfig, bound: Bound | None) -> None:
        assert self.way is not None
        if self.run is not None:
            self.run(config, bound, self.choose)
            return
        cursors: CursorStore = FileCursorStore(self.folder / "cursors", source=SOURCE)
        if self.way.crashes:
            crash = AtPoint(self.choose.choice(FAULT_POINTS), end_run, self.choose.randint(1, 3))
            try:
                with listening(crash):
                    run_once(config, bound, cursors=cursors)
            except Killed:
                cursors = FileCursorStore(self.folder / "cursors", source=SOURCE)
            else:
                return
        run_once(config, bound, cursors=cursors)


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
