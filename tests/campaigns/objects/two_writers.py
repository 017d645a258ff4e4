"""Two writers of one lake: one is stopped for longer than its lease, the other captures meanwhile.

The first is stopped at a fault point, or while one of its requests is on its way: that request
arrives at the store after all that the second writer does, and only then the first goes on. No row
is lost or doubled, every cut is right, and the first ends with an error that tells the truth, or
had nothing left to write.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import SecretStr

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.sink.cursor_table import DeltaCursorStore
from tests.campaigns.objects.faulty_store import FaultyStore, Request
from tests.campaigns.objects.judge import goes_on, unlocked
from tests.campaigns.objects.story import TRANSACTIONS, Story, new_lake
from tests.campaigns.objects.writer import Writer
from tests.cluster.gateway import Gateway
from tests.support.object_store_server import SECRET

POINTS: Final = (
    "put",
    "staging",
    "staging/staging",
    "before_record",
    "after_record",
    "between_merges",
    "between_merges/between_merges",
    "before_cut",
    "before_cursor",
    "before_ack",
    "before_ack/staging",
    "before_ack/after_record",
    "before_ack/before_cut",
)


@dataclass(frozen=True)
class Stopped:
    """What came of a writer that was stopped. `happened`: whether it came to the place; `outcome`:
    ``applied``, or the code of its error; `finding`: what is not as it must be; empty if nothing
    is.
    """

    happened: bool
    outcome: str
    finding: str


@dataclass(frozen=True)
class TwoWriters:
    """The writers of one story, each time in a lake of their own that has the story's first half.
    `folder`: of their cursors.
    """

    story: Story
    gateway: Gateway
    folder: Path

    def requests(self) -> list[Request]:
        lake, cursors = self._begun()
        with FaultyStore(self.gateway.store.endpoint) as store:
            writer = self._writer(lake, store.endpoint, cursors)
            found = writer.ended()
            assert found["outcome"] == "applied", found["error"]
        return store.requests

    def at(self, place: str) -> Stopped:
        return self.at_request(int(place)) if place.isdecimal() else self.at_point(place)

    def at_point(self, point: str) -> Stopped:
        lake, cursors = self._begun()
        writer = self._writer(lake, self.gateway.store.endpoint, cursors, at=point)
        happened = writer.is_stopped()
        return self._judged(lake, cursors, writer, happened)

    def at_request(self, number: int) -> Stopped:
        lake, cursors = self._begun()
        arrived, go_on = threading.Event(), threading.Event()
        of_writer: list[Writer] = []

        def hold(at: int, _request: Request) -> None:
            if at == number:
                of_writer[0].stop()
                arrived.set()
                go_on.wait()

        with FaultyStore(self.gateway.store.endpoint, on_request=hold) as store:
            of_writer.append(self._writer(lake, store.endpoint, cursors))
            happened = of_writer[0].is_stopped()
            answered = store.answered
            problem = self._second(lake, cursors)
            go_on.set()
            if happened and not problem:
                assert store.wait_for_answers(answered + 1), "the held request was not answered"
            return self._judged(lake, cursors, of_writer[0], happened, problem)

    def _begun(self) -> tuple[str, DeltaCursorStore]:
        lake = new_lake(self.gateway.store.bucket)
        cursors = DeltaCursorStore(self.folder / lake.split("/")[3], source="shop")
        config = self.story.config(lake, self.gateway.store.endpoint, TRANSACTIONS // 2)
        self.story.run(config, cursors)
        return lake, cursors

    def _writer(self, lake: str, endpoint: str, cursors: DeltaCursorStore, at: str = "") -> Writer:
        config = self.story.config(lake, endpoint)
        folder = self.folder / lake.split("/")[3]
        told, spark = folder.with_suffix(".told"), self.story.on_disk is not None
        return Writer(document_of(config, lake), folder, told, at, spark=spark)

    def _second(self, lake: str, cursors: DeltaCursorStore) -> str:
        """Capture once the first writer's lease has expired; what is wrong then."""
        config = self.story.config(lake, self.gateway.store.endpoint)
        try:
            unlocked(lambda: self.story.run(config, cursors), wait_s=2 * self.story.lease_s + 10)
        except Exception as error:
            return f"the second writer fails: {type(error).__name__}: {error}"
        return ""

    def _judged(
        self,
        lake: str,
        cursors: DeltaCursorStore,
        writer: Writer,
        happened: bool,
        problem: str | None = None,
    ) -> Stopped:
        if problem is None:
            problem = self._second(lake, cursors)
        ended = writer.ended()
        if not problem and SECRET in ended["error"]:
            problem = "the stopped writer's error has the secret"
        if not problem and not ended["retryable"]:
            problem = f"the stopped writer ends with {ended['error']}"
        if not problem:
            problem = goes_on(self.story, lake, self.gateway.store.endpoint, cursors)
        return Stopped(happened, ended["outcome"], problem)


def document_of(config: PipelineConfig, lake: str) -> dict[str, object]:
    """A pipeline as a document that another process reads, secrets included."""
    document = config.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    storage = config.sink.storage.model_dump(exclude_none=True)
    shown = {
        name: value.get_secret_value() if isinstance(value, SecretStr) else value
        for name, value in storage.items()
    }
    document["sink"] = {**document["sink"], "lake_path": lake, "storage": shown}
    return document
