"""A sample of the campaign: each fault of the store once, two writers at some places,
and two drivers that commit one version of a Delta table."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from unittest import mock

import pytest

from cdc_pipeline.errors import LockError
from cdc_pipeline.lake.storage import object_storage
from cdc_pipeline.sink.cursor_table import DeltaCursorStore
from cdc_pipeline.sink.spark import session
from tests.campaigns.objects.delta_race import race
from tests.campaigns.objects.faulty_store import KINDS
from tests.campaigns.objects.judge import Judge
from tests.campaigns.objects.story import TRANSACTIONS, Story
from tests.campaigns.objects.two_writers import TwoWriters, document_of
from tests.campaigns.objects.writer import Writer
from tests.cluster.gateway import Gateway, gateway_or_skip, running_gateway
from tests.sink.spark.in_a_child import run_in_a_child
from tests.support.object_store import running_store
from tools.log_store import recorded_digest, source_digest

_BY_NIGHT = ("between_merges", "before_cursor", "9", "70")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with gateway_or_skip(tmp_path_factory.mktemp("gateway")) as running:
        yield running


@pytest.mark.whole
def test_k16_k25_a_store_that_fails_at_a_request_ends_a_run_that_the_next_one_goes_on_with(
    gateway: Gateway, tmp_path: Path
) -> None:
    """The lake is right, or the error is retryable; the next run makes it right."""
    judge = Judge(Story.of_seed(3, tmp_path), gateway)
    with mock.patch.object(object_storage, "ANSWER_S", 3.0):
        ended = [judge.judge(fault) for fault in judge.faults(len(KINDS), seed=3)]
    assert not [f"{one.fault}: {one.finding}" for one in ended if one.finding]
    assert sum(one.happened for one in ended) > len(KINDS) / 2


@pytest.mark.whole
@pytest.mark.parametrize(
    "place",
    [
        "before_record",
        "before_cut",
        "38",
        *(pytest.param(place, marks=pytest.mark.nightly) for place in _BY_NIGHT),
    ],
)
def test_k16_a_writer_that_is_stopped_for_longer_than_its_lease_changes_nothing_more(
    gateway: Gateway, tmp_path: Path, place: str
) -> None:
    """No row is lost or there twice, every cut is right, and it ends with the loss of its lease."""
    pairs = TwoWriters(Story.of_seed(1, tmp_path, lease_s=12), gateway, tmp_path / "cursors")
    stopped = pairs.at(place)
    assert (stopped.happened, stopped.finding) == (True, "")
    assert stopped.outcome == "lock"


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.usefixtures("gateway")
def test_k16_a_driver_that_is_stopped_with_its_jvm_changes_nothing_more(tmp_path: Path) -> None:
    """The same of a pipeline with Spark, between its commits to two tables."""
    run_in_a_child(partial(_stop_a_driver, tmp_path))


def _stop_a_driver(folder: Path) -> None:
    # The JVM of a test process may have been started for lakes in folders alone.
    with running_gateway(folder / "gateway") as gateway:
        # A JVM on a busy machine may keep a writer from renewing for seconds.
        story = Story.of_seed(1, folder, lease_s=24, on_disk=gateway.on_disk)
        stopped = TwoWriters(story, gateway, folder / "cursors").at("between_merges")
    assert (stopped.happened, stopped.outcome, stopped.finding) == (True, "lock", "")


@pytest.mark.whole
def test_k16_a_stopped_writer_of_a_lake_on_a_disk_keeps_its_lock(tmp_path: Path) -> None:
    """The kernel's lock cannot be lost: nobody else writes until the writer ends."""
    story = Story.of_seed(1, tmp_path)
    cursors = DeltaCursorStore(tmp_path / "cursors", source="shop")
    lake = str(tmp_path / "lake")
    config = story.config(lake, "", TRANSACTIONS // 2)
    writer = Writer(
        document_of(config, lake), tmp_path / "cursors", tmp_path / "told", "before_cut"
    )
    assert writer.is_stopped()
    with pytest.raises(LockError, match="another run is writing") as caught:
        story.run(story.config(lake, ""), cursors)
    assert f"process {writer.pid}" in str(caught.value)
    assert writer.ended()["outcome"] == "applied"
    story.run(story.config(lake, ""), cursors)
    assert story.wrong(lake, "", cursors) == ""


@pytest.mark.whole
@pytest.mark.spark
def test_k16_of_two_drivers_that_commit_one_version_the_second_is_refused(tmp_path: Path) -> None:
    """F49: Spark's put of a commit arrives after another writer's: that one stays, and a batch that
    both apply is in the table once."""
    with running_store(tmp_path) as store:
        found = race(store)
    assert found["other"] == {"operations": ["WRITE", "OTHER", "WRITE"], "rows": 7}
    twin = found["twin"]
    assert twin["retryable"], twin
    assert (twin["suspended"], twin["commits"]) == ([], 1)
    assert twin["rows"] == [[0, 0], [1, 9], [2, 2], [3, 3], [4, 4]]


def test_the_log_stores_jar_is_made_from_its_source() -> None:
    """``python -m tools.log_store`` makes it again."""
    assert recorded_digest(session.LOG_STORE_JAR) == source_digest()
