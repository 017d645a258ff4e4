"""What a pipeline does with a lake in a bucket, as one call that can be played again, and whether
the lake is right afterwards.

The source is the database of `make campaign NAME=simulate`, whose state after each transaction is
known. A first run captures half of it into a new lake, a second one the rest. Tables are
`bucket_tables`, or Delta tables that Spark writes; all the rest is the product's own.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import SecretStr

from cdc_pipeline.binlog.seq import journal_number
from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.lake.state import read_cut
from cdc_pipeline.position.cursor import CursorStore
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.sink.modes.mode_columns import DELETED_COLUMN
from tests.campaigns.objects.bucket_tables import bucket_lake
from tests.campaigns.simulate.world import State, World
from tests.support.captures import SPARK
from tests.support.comparison import source_values
from tests.support.delta_reader import read_delta
from tests.support.memory_modes import Row
from tests.support.memory_sink import memory_sink
from tests.support.object_store_server import ACCESS_KEY, SECRET

TRANSACTIONS: Final = 14
_NAMES: Final = ("shop.a", "shop.b", "shop.c", "shop.c_log")


def new_lake(bucket: str) -> str:
    return f"s3a://{bucket}/{uuid.uuid4().hex[:12]}/lake"


@dataclass
class Story:
    """A database and the pipeline over it. `lease_s`, `retry_s`: of the lake's storage; `on_disk`:
    where the objects of a lake are files. If it is given, Spark writes the tables, and they are
    read there.
    """

    world: World
    folder: Path
    lease_s: float = 10
    retry_s: float = 2
    on_disk: Callable[[str], Path] | None = None

    @classmethod
    def of_seed(cls, seed: int, folder: Path, **settings: Any) -> Story:
        world = World(folder / "journals", random.Random(seed))
        world.advance(TRANSACTIONS)
        return cls(world, folder, **settings)

    def config(self, lake: str, endpoint: str, transactions: int | None = None) -> PipelineConfig:
        """The pipeline over a lake that an endpoint leads to, or on the disk if there is none; a
        run may be of so many transactions."""
        storage = endpoint and {
            "endpoint": endpoint,
            "region": "us-east-1",
            "access_key_id": SecretStr(ACCESS_KEY),
            "secret_access_key": SecretStr(SECRET),
            "lease_s": self.lease_s,
            "retry_s": self.retry_s,
        }
        return PipelineConfig.model_validate(
            {
                "name": "shop",
                "source": {"kind": "archive", "directory": self.folder / "journals"},
                "tables": {"include": ["shop.*"]},
                "targets": [
                    {"tables": ["shop.b"], "mode": "soft_delete"},
                    {"tables": ["shop.c"]},
                    {"tables": ["shop.c"], "mode": "changelog", "name": "{schema}.{table}_log"},
                ],
                "bound": "end_of_log" if transactions is None else {"transactions": transactions},
                # as on a machine of its own
                "store": {"directory": self.folder / "store" / uuid.uuid4().hex},
                # a batch costs Spark seconds, and what has stopped beside it waits for them
                "batch": {"merge_rows": 8, "get_bytes": 300}
                if self.on_disk is None
                else {"merge_rows": 24},
                "sink": {
                    "lake_path": lake,
                    "spark": SPARK,
                    **({"storage": storage} if storage else {}),
                },
            }
        )

    def play(self, lake: str, endpoint: str, cursors: CursorStore) -> None:
        """Capture half of the database, then the rest. A later call goes on from what is there."""
        self.run(self.config(lake, endpoint, TRANSACTIONS // 2), cursors)
        self.run(self.config(lake, endpoint), cursors)

    def run(self, config: PipelineConfig, cursors: CursorStore) -> None:
        run(config, cursors, spark=self.on_disk is not None)

    def wrong(self, lake: str, endpoint: str, cursors: CursorStore) -> str:
        config = self.config(lake, endpoint)
        paths = LakePaths(config.sink.lake_path, config.name)
        numbers = sorted(int(name.partition(".")[0]) for name in _names(paths.cuts))
        if not numbers or numbers[-1] != len(numbers):
            return f"the cuts are {numbers}"
        before, rows_at = (0, 0), self._reader(lake, paths)
        for number in numbers:
            cut = read_cut(paths, number)
            place = (journal_number(cut.cursor.journal), cut.cursor.offset)
            if place < before or cut.cursor.suspended:
                return f"cut {number} at {place} after {before}: {cut.cursor.suspended}"
            if found := self._wrong_rows(rows_at, cut, self._state(place)):
                return found
            before = place
        end = self.world.states[-1].place
        stored = cursors.read()
        if self._state(before).place != end or stored is None or stored.offset != before[1]:
            return (
                f"the last cut is at {before}, the cursor at {stored}, the database ends at {end}"
            )
        missing = set(_NAMES) - set(cut.tables)
        return f"the last cut lacks {sorted(missing)}" if missing else ""

    def _state(self, place: tuple[int, int]) -> State:
        return max(
            (state for state in self.world.states if state.place <= place),
            key=lambda state: state.place,
        )

    def _reader(self, lake: str, paths: LakePaths) -> Callable[[str, int], list[Row]]:
        if self.on_disk is None:
            tables = bucket_lake()
            return lambda name, version: tables.rows(paths.table(name), version)
        folder = LakePaths(self.on_disk(lake), paths.source)
        return lambda name, version: read_delta(folder.table(name), version).rows

    def _wrong_rows(self, rows_at: Callable[[str, int], list[Row]], cut: Cut, state: State) -> str:
        for name, there in cut.tables.items():
            rows = rows_at(name, there.table_version)
            source = name.removeprefix("shop.").removesuffix("_log")
            where = f"cut {cut.batch_number}: {name}"
            if name.endswith("_log"):
                seqs = {repr(sorted(row.items())) for row in rows}
                wanted = state.changes.get(source, 0)
                if not len(seqs) == len(rows) == wanted:
                    return f"{where} has {len(rows)} rows, {len(seqs)} of them unlike, of {wanted}"
            elif sorted(map(source_values, _kept(rows))) != sorted(
                state.rows.get(source, {}).values()
            ):
                return f"{where} has other rows than the database"
        return ""


def run(config: PipelineConfig, cursors: CursorStore, *, spark: bool) -> None:
    sink = None if spark else memory_sink(bucket_lake(), source=config.name, config=config.sink)
    capture(config, cursors=cursors, sink=sink)


def _names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name[0].isdigit()]


def _kept(rows: list[Row]) -> list[Row]:
    return [row for row in rows if not row.get(DELETED_COLUMN)]
