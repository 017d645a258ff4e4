"""An object store that fails, lies and comes late at each request, and writers that are stopped.

Captures and snapshots into a lake on a real S3 server are played through a proxy that does one
thing wrong at one request (`judge.py`); and two writers share a lake, of which one is stopped at a
fault point or with a request on its way (`two_writers.py`). With ``spark=true`` only the writers
are played: each is Python with a JVM, which are stopped together, and their tables are Spark's. A
snapshot has a side lake with a lease of its own, its progress, the swap, and the removal of the
side lake.

How many requests there are is known once a story was played, so a case is the number of a fault or
place of a seed, or the fault or place as a finding names it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.storage import object_storage
from cdc_pipeline.operations.snapshot.snapshot import take_snapshot
from cdc_pipeline.position.cursor import CursorStore
from cdc_pipeline.run import wiring
from tests.campaigns.frame import Campaign, Case, OnDemand, Play, fresh, named
from tests.campaigns.network.conversations import Shop
from tests.campaigns.objects.bucket_tables import bucket_lake
from tests.campaigns.objects.faulty_store import Fault
from tests.campaigns.objects.judge import Judge
from tests.campaigns.objects.story import Story
from tests.campaigns.objects.two_writers import POINTS, TwoWriters
from tests.cluster.gateway import running_gateway
from tests.conftest import temporary_database
from tests.servers import Server
from tests.support.comparison import source_values
from tests.support.memory_sink import memory_sink


@dataclass
class SnapshotStory:
    """The tables of a shop and a pipeline that loads them. `captures`: of whose lakes the settings
    are.
    """

    shop: Shop
    captures: Story

    @property
    def lease_s(self) -> float:
        return self.captures.lease_s

    @property
    def folder(self) -> Path:
        return self.captures.folder

    def _config(self, lake: str, endpoint: str) -> PipelineConfig:
        return PipelineConfig.model_validate(
            {
                "name": "bank",
                "source": self.shop.source,
                "tables": {"include": [f"{self.shop.database}.*"]},
                "start": "latest",
                "snapshot": {"chunk_rows": 2},
                "store": self.captures.config(lake, endpoint).store,
                "sink": self.captures.config(lake, endpoint).sink,
            }
        )

    def play(self, lake: str, endpoint: str, cursors: CursorStore) -> None:
        tables = partial(memory_sink, bucket_lake())
        with mock.patch.object(wiring, "DeltaSink", tables):
            take_snapshot(self._config(lake, endpoint), cursors=cursors)

    def wrong(self, lake: str, endpoint: str, cursors: CursorStore) -> str:
        config = self._config(lake, endpoint)
        paths, tables = LakePaths(config.sink.lake_path, config.name), bucket_lake()
        for name, rows in self.shop.rows.items():
            if paths.table(name) not in tables.tables:
                return f"{name} is not there"
            if sorted(map(source_values, tables.rows(paths.table(name))), key=repr) != rows:
                return f"{name} has other rows than the server"
        cursor = cursors.read()
        return "" if cursor is not None else "there is no cursor"


_STORIES = ("capture", "snapshot", "writers")
_ANSWER_S = 3.0  # instead of the product's, so that a request without an answer costs little
_WRITERS_LEASE_S = 6
_PAIRS_AT_ONCE = 6  # they wait for leases most of the time


def _case(seed: int, number: int, *, story: str, spark: bool) -> Case:
    stories = ("writers",) if spark else named(story, _STORIES)
    lot, which = divmod(number, len(stories))
    if stories[which] != "writers":
        return [[stories[which], seed, lot]]
    size = 1 if spark else _PAIRS_AT_ONCE
    places = range(lot * size, (lot + 1) * size)
    return [["writers", seed, spark], *(["place", place] for place in places)]


@contextmanager
def _opened(folder: Path) -> Iterator[Play]:
    @contextmanager
    def judge(name: str, seed: int) -> Iterator[Judge]:
        with fresh(folder) as home:
            story = Story.of_seed(seed, home)
            if name == "capture":
                yield Judge(story, gateway)
                return
            with Server("mysql") as server, temporary_database(server) as database:
                yield Judge(SnapshotStory(Shop.at(server, database), story), gateway)

    @contextmanager
    def writers(seed: int, spark: bool) -> Iterator[tuple[TwoWriters, list[str]]]:
        with fresh(folder) as home:
            on_disk = gateway.on_disk if spark else None
            story = Story.of_seed(seed, home, lease_s=_WRITERS_LEASE_S, on_disk=on_disk)
            pairs = TwoWriters(story, gateway, home / "cursors")
            count = len(pairs.requests())
            requests = random.Random(seed).sample(range(count), count)
            yield pairs, [*POINTS, *map(str, requests)]

    def with_fault(name: str, seed: int, which: int | str) -> str:
        played = judges.get(name, seed)
        faults = [Fault.parse(which)] if isinstance(which, str) else []
        fault = (faults or played.faults(int(which) + 1, seed))[-1]
        ended = played.judge(fault)
        assert not ended.finding, f"{name}, {fault}: {ended.finding}"
        return f"{fault.kind} {ended.outcome if ended.happened else 'did not happen'}"

    def stopped(seed: int, spark: bool, chosen: list[int | str]) -> list[str]:
        pairs, known = two_writers.get(seed, spark)
        places = [
            place if isinstance(place, str) else known[place % len(known)] for place in chosen
        ]
        with ThreadPoolExecutor(max(1, len(places))) as pool:
            ends = dict(zip(places, pool.map(pairs.at, places), strict=True))
        findings = [
            f"stopped at {place}: {end.finding}" for place, end in ends.items() if end.finding
        ]
        assert not findings, "\n".join(findings)
        return [
            f"stopped {end.outcome if end.happened else 'did not happen'}" for end in ends.values()
        ]

    def play(case: Case) -> Counter[str]:
        outcomes: Counter[str] = Counter()
        places: list[Any] = [choice[1] for choice in case if choice[0] == "place"]
        for name, *choice in case:
            if name == "writers":
                outcomes.update(stopped(*choice, places))
            elif name != "place":
                outcomes[with_fault(name, *choice)] += 1
        return outcomes

    with (
        running_gateway(folder) as gateway,
        mock.patch.object(object_storage, "ANSWER_S", _ANSWER_S),
        OnDemand(judge) as judges,
        OnDemand(writers) as two_writers,
    ):
        yield play


CAMPAIGN = Campaign(
    "objects",
    _case,
    _opened,
    case_s_max=1200,
    needs=("mysql", "S3 server", "S3 jars"),
    options={"story": "", "spark": False},
    budget="96",
    processes_max=3,
    shrink_plays_max=8,
)
