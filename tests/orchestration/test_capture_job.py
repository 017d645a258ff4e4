"""A source's job on an instance on disk: events, their order and number, bounds, retries, failures,
dead runs.

The capture is a small one of the tests' own, handed in as a parameter;
`tests/cli/test_real_runs.py` has the real one.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
from dagster._core.events import DagsterEvent

from cdc_pipeline.config.pipeline_config import (
    BytesBoundConfig,
    GtidBoundConfig,
    PositionConfig,
    SecondsBoundConfig,
    TimeBoundConfig,
    TransactionsBoundConfig,
)
from cdc_pipeline.errors import CdcError, ConfigError, LakeStateError, LockError, MergeError
from cdc_pipeline.fault_points import listening
from cdc_pipeline.lake.records import Note
from cdc_pipeline.lake.suspensions import note_of
from cdc_pipeline.orchestration.cursor_store import DagsterCursorStore
from cdc_pipeline.orchestration.dead_runs import (
    PROCESS_TAG,
    free_dead_runs,
    process_of,
    tag_run,
)
from cdc_pipeline.orchestration.events.recorder import tables_text
from cdc_pipeline.orchestration.metadata import cursor_entry, cursor_event_metadata
from cdc_pipeline.orchestration.runs.execute import CaptureRun, LoadedSource, execute_capture
from cdc_pipeline.orchestration.translator import run_tags
from cdc_pipeline.position.cursor import CursorState, ShortCursor, Suspension
from cdc_pipeline.run.plan.reconcile import reconcile
from cdc_pipeline.run.publish import cursor_metadata
from tests.support.dagster_runs import gone_process_of, last_event, loaded_job, stored_run
from tests.support.fake_capture import FakeCapture, added_column, cut, write_config, write_cut
from tests.support.kills import AtPoint
from tests.support.project import ROOT, Project

CURSOR = ("shop", "cursor")
ORDERS = ("shop", "shop", "orders")
ITEMS = ("shop", "shop", "items")
_MANY_DDL = tuple(added_column(f"shop.orders{number}") for number in range(500))
TWO_CUTS = [
    cut(batch=1, tables={"shop.orders": 1, "shop.items": 1}),
    cut(batch=2, tables={"shop.orders": 2, "shop.items": 1}),
]


def _loaded(project: Project, capture: FakeCapture) -> LoadedSource:
    if not (project.jobs / "shop.yaml").exists():
        write_config(project.jobs, "shop", include=("shop.orders", "shop.*"))
    return loaded_job(project, capture)


def _events(instance: dg.DagsterInstance, run: CaptureRun) -> list[tuple[tuple[str, ...], int]]:
    events = []
    for entry in instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION):
        materialization = entry.asset_materialization
        assert materialization is not None
        events.append(
            (
                tuple(materialization.asset_key.path),
                int(str(materialization.metadata["batch_number"].value)),
            )
        )
    return events


def test_a_run_announces_its_cursor_and_no_table(
    project: Project, instance: dg.DagsterInstance
) -> None:
    """Dagster writes an event for each announced asset, whether anything is new or not: with a
    thousand tables these events were most of an idle run."""
    run = execute_capture(_loaded(project, FakeCapture(TWO_CUTS)), instance=instance)
    planned = instance.all_logs(
        run.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED
    )
    assert [entry.get_dagster_event().asset_key for entry in planned] == [dg.AssetKey(CURSOR)]
    assert {key for key, _ in _events(instance, run)} == {
        ("shop", "shop", "items"),
        ("shop", "shop", "orders"),
        tuple(CURSOR),
    }


def test_k2_tables_first_then_the_cursor_batch_by_batch(
    project: Project, instance: dg.DagsterInstance
) -> None:
    """SPEC P10: the cursor is a materialization, and comes after those of its batch's tables."""
    run = execute_capture(_loaded(project, FakeCapture(TWO_CUTS)), instance=instance)
    assert run.succeeded
    assert _events(instance, run) == [
        (ITEMS, 1),
        (ORDERS, 1),
        (CURSOR, 1),
        (ORDERS, 2),
        (CURSOR, 2),
    ]
    stored = stored_run(instance, run.run_id)
    assert stored.status is dg.DagsterRunStatus.SUCCESS
    assert stored.job_name == "shop_capture"


def test_a_second_run_resumes_and_logs_nothing_new(
    project: Project, instance: dg.DagsterInstance
) -> None:
    capture = FakeCapture(TWO_CUTS)
    execute_capture(_loaded(project, capture), instance=instance)
    run = execute_capture(_loaded(project, capture), instance=instance)
    assert run.succeeded
    assert run.report is not None
    assert run.report.outcome == "nothing_new"
    assert capture.starts[1] == TWO_CUTS[1].cursor
    assert capture.run_ids[1] == run.run_id
    assert _events(instance, run) == []


def test_metadata_of_tables_and_cursor(project: Project, instance: dg.DagsterInstance) -> None:
    execute_capture(_loaded(project, FakeCapture(TWO_CUTS)), instance=instance)
    table = last_event(instance, ORDERS)
    metadata = table.metadata
    numbers = ("rows_inserted", "rows_updated", "rows_deleted", "delta_version", "batch_number")
    assert [metadata[name].value for name in numbers] == [4, 2, 1, "12", "2"]
    assert {name for name, value in metadata.items() if isinstance(value.value, int | float)} == {
        "rows_inserted",
        "rows_updated",
        "rows_deleted",
        "source_time",
    }, "only these are plotted"
    assert metadata["source_time"].value == 1_700_000_000
    assert [column.name for column in metadata["dagster/column_schema"].value.columns] == [
        *("id", "note", "_cdc_op", "_cdc_seq", "_cdc_ts")
    ]
    assert all(
        column.description
        for column in metadata["dagster/column_schema"].value.columns
        if column.name not in ("id", "note")
    )
    assert metadata["dagster/uri"].value == (project.lake / "shop" / "orders").as_uri()
    assert "dagster/row_count" not in metadata
    event = last_event(instance, CURSOR)
    of_cursor = event.metadata
    assert list(of_cursor)[:3] == ["position", "gtid_set", "interval"], "what a person wants first"
    assert list(of_cursor)[-1] == "cursor"
    assert CursorState.model_validate(of_cursor["cursor"].value) == TWO_CUTS[1].cursor
    assert of_cursor["position"].value == "binlog.000003:2000"
    assert of_cursor["interval"].value == "binlog.000003:1100 - binlog.000003:2000"
    assert of_cursor["gtid_set"].value == TWO_CUTS[1].cursor.gtid_set
    assert of_cursor["server"].value == f"mysql:{TWO_CUTS[1].cursor.server_uuid}"
    assert of_cursor["cut"].value == "2"
    assert of_cursor["delta_versions"].value == {"shop.items": 11, "shop.orders": 12}
    seen = (of_cursor["transactions_seen"].value, of_cursor["transactions_applied"].value)
    assert seen == ("5", "3")
    # Only what batch 2 changed: the four inserted rows of orders, not those of items in batch 1.
    assert (of_cursor["rows_inserted"].value, of_cursor["tables_changed"].value) == (4, "1")
    assert of_cursor["lag_seconds"].value == 60.0
    assert of_cursor["note"].value == "extra"


def test_k3_k25_many_tables_are_left_to_the_cut(
    project: Project, instance: dg.DagsterInstance
) -> None:
    """The next run has them from the lake, also if this one died between cut and cursor."""
    unchanged = {f"shop.orders_{number:04d}": 1 for number in range(200)}
    cuts = [cut(batch=number, tables=unchanged | {"shop.items": number}) for number in (5, 6)]
    with _failing_at("before_cursor", LakeStateError("killed")):
        assert not execute_capture(_loaded(project, FakeCapture(cuts)), instance=instance).succeeded
    capture = FakeCapture(cuts)
    loaded = _loaded(project, capture)
    for after in cuts:
        assert _size_of_cursors_event(instance) < 5_000
        stored = loaded.cursors(instance).read()
        assert isinstance(stored, ShortCursor)
        found = reconcile(stored, after)
        assert (found.cursor, found.emit) == (after.cursor, False)
        assert execute_capture(loaded, instance=instance).succeeded
    assert [start and start.batch_number for start in capture.starts] == [5, 6]


def _size_of_cursors_event(instance: dg.DagsterInstance) -> int:
    event = last_event(instance, CURSOR)
    return _size(event.metadata)


def _size(metadata: Mapping[str, dg.MetadataValue]) -> int:
    return sum(len(json.dumps([name, value.value])) for name, value in metadata.items())


def test_k25_the_cursors_event_is_bounded_when_every_table_is_suspended_at_once() -> None:
    """What a person set moves the cursor with stays first among the notes: `intervals_join` reads
    it."""
    name = "shop." + 60 * "ä"
    made = cut(batch=2, tables={f"{name}{number}": 1 for number in range(1000)}, ddl=_MANY_DDL)
    held = Suspension(
        batch_number=2, error="TypeRefusedError", what=400 * "x", journal="b.1", offset=4
    )
    states = {
        table: state.model_copy(update={"suspended": held, "partial": True})
        for table, state in made.cursor.targets.items()
    }
    cursor = made.cursor.model_copy(
        update={"targets": states, "gtid_set": f"{made.cursor.gtid_set}:{'11-12:' * 4000}14"}
    )
    moved = Note(kind="cursor_set", text="moved")
    notes = (moved, *(note_of(table, held) for table in states))
    value = made.model_copy(update={"cursor": cursor, "notes": notes})
    metadata = cursor_event_metadata(
        cursor, cut=value, given=cursor_metadata(value.interval, value)
    )
    metadata |= cursor_entry(cursor, at_cut=value)
    assert _size(metadata) <= 20_000
    assert metadata["notes"].value[0]["kind"] == "cursor_set"
    said = str(metadata["shortened"].value).split(", ")
    assert {"ddl", "gtid_set", "notes", "suspended_tables"} <= set(said)
    assert metadata["tables_total"].value == "1000"
    assert metadata["position"].value == str(cursor.position)


def test_row_counts_come_from_the_counter_that_is_given(
    project: Project, instance: dg.DagsterInstance
) -> None:
    write_config(project.jobs, "shop", include=("shop.*",))
    counted = loaded_job(
        project,
        FakeCapture(TWO_CUTS),
        row_counter=lambda _config, _table, version: 100 + version,
    )
    execute_capture(counted, instance=instance)
    event = last_event(instance, ORDERS)
    assert event.metadata["dagster/row_count"].value == 112


@pytest.fixture
def orders_log(project: Project) -> Path:
    """The Delta log of shop.orders, a file of 7 rows in version 12, that of `TWO_CUTS`."""
    log = project.lake / "shop" / "orders" / "_delta_log"
    log.mkdir(parents=True)
    for version in range(13):
        (log / f"{version:020d}.json").write_text("{}")
    action = {"add": {"path": "a.parquet", "stats": json.dumps({"numRecords": 7})}}
    (log / f"{12:020d}.json").write_text(json.dumps(action))
    return log


@pytest.mark.usefixtures("orders_log")
def test_row_counts_are_those_of_the_log_at_the_version_of_the_cut(
    project: Project, instance: dg.DagsterInstance
) -> None:
    execute_capture(_loaded(project, FakeCapture(TWO_CUTS)), instance=instance)
    counts = []
    for record in instance.fetch_materializations(dg.AssetKey(ORDERS), limit=10).records:
        assert record.asset_materialization is not None
        counts.append(record.asset_materialization.metadata["dagster/row_count"].value)
    assert counts == [7, 0], "of versions 12 and 11"


def test_a_log_that_cannot_be_counted_is_told_and_fails_no_run(
    project: Project, instance: dg.DagsterInstance, orders_log: Path
) -> None:
    (orders_log / f"{12:020d}.json").write_text("{")
    run = execute_capture(_loaded(project, FakeCapture(TWO_CUTS)), instance=instance)
    assert run.succeeded
    assert len(_events(instance, run)) == 5
    messages = [entry.user_message for entry in instance.all_logs(run.run_id)]
    assert any("the rows of shop.orders are not counted" in message for message in messages)


def test_a_statement_shows_on_the_event_of_its_table_alone(
    project: Project, instance: dg.DagsterInstance
) -> None:
    ddl = (added_column("shop.orders"),)
    cuts = [cut(batch=1, tables={"shop.orders": 1, "shop.items": 1}, ddl=ddl)]
    execute_capture(_loaded(project, FakeCapture(cuts)), instance=instance)
    orders, items = (last_event(instance, key) for key in (ORDERS, ITEMS))
    assert orders.description == "batch 1: alter table applied"
    metadata = orders.metadata
    assert metadata["ddl"].value == "ALTER TABLE shop.orders ADD COLUMN coupon INT"
    assert metadata["ddl_decision"].value == "applied: adds coupon"
    assert "ddl" not in items.metadata
    assert items.description == "batch 1"


def test_the_plan_in_the_log_tells_which_tables_are_known(
    project: Project, instance: dg.DagsterInstance
) -> None:
    run = execute_capture(_loaded(project, FakeCapture(TWO_CUTS)), instance=instance)
    messages = [entry.user_message for entry in instance.all_logs(run.run_id)]
    assert any(message.endswith("8,996 bytes; known tables: shop.orders") for message in messages)
    assert tables_text(()) == "no table is known before the log is read"
    assert tables_text(tuple(f"a.t{number}" for number in range(22))).endswith("a.t19 and 2 more")


def test_k3_a_cut_without_its_cursor_is_made_up_for_once(
    project: Project, instance: dg.DagsterInstance
) -> None:
    """A run that died between cut and table events: the next one logs both; a third logs
    nothing."""
    capture = FakeCapture(TWO_CUTS[:1])
    execute_capture(_loaded(project, capture), instance=instance)
    write_cut(project.lake, TWO_CUTS[1])
    run = execute_capture(_loaded(project, FakeCapture(TWO_CUTS)), instance=instance)
    assert _events(instance, run) == [(ORDERS, 2), (CURSOR, 2)]
    assert (
        _events(
            instance, execute_capture(_loaded(project, FakeCapture(TWO_CUTS)), instance=instance)
        )
        == []
    )


def _failing_at(point: str, error: BaseException) -> AbstractContextManager[None]:
    """In the context, the second time that a fault point is reached fails."""

    def fail() -> None:
        raise error

    return listening(AtPoint(point, fail, 2))


def test_k3_tables_that_were_logged_before_the_cursor_failed_are_not_logged_again(
    project: Project, instance: dg.DagsterInstance
) -> None:
    with _failing_at("before_cursor", LakeStateError("stopped here")):
        first = execute_capture(_loaded(project, FakeCapture(TWO_CUTS)), instance=instance)
    assert not first.succeeded
    second = execute_capture(_loaded(project, FakeCapture(TWO_CUTS)), instance=instance)
    assert second.succeeded
    assert _events(instance, second) == [(CURSOR, 2)]
    counts = Counter(_events(instance, first) + _events(instance, second))
    assert set(counts.values()) == {1}
    assert set(counts) == {(ITEMS, 1), (ORDERS, 1), (CURSOR, 1), (ORDERS, 2), (CURSOR, 2)}


def test_a_retryable_error_is_retried_and_no_event_doubles(
    project: Project, instance: dg.DagsterInstance
) -> None:
    capture = FakeCapture(TWO_CUTS)
    with _failing_at("before_cut", MergeError("Spark went away")):
        run = execute_capture(_loaded(project, capture), instance=instance)
    assert run.succeeded
    assert run.error is None
    assert len(capture.bounds) == 2
    assert _events(instance, run) == [
        (ITEMS, 1),
        (ORDERS, 1),
        (CURSOR, 1),
        (ORDERS, 2),
        (CURSOR, 2),
    ]


def _always(error: CdcError) -> FakeCapture:
    def fail(_call: int) -> None:
        raise error

    return FakeCapture([], before=fail)


def test_a_retryable_error_that_stays_fails_after_two_retries(
    project: Project, instance: dg.DagsterInstance
) -> None:
    capture = _always(MergeError("Spark went away"))
    run = execute_capture(_loaded(project, capture), instance=instance)
    assert len(capture.bounds) == 3
    assert isinstance(run.error, MergeError)
    assert _failure(instance, run).metadata["error"].value == "MergeError"


def test_k16_whoever_holds_the_lock_is_waited_for_and_named_once(
    project: Project, instance: dg.DagsterInstance
) -> None:
    """Captures of a load or a verification that is no run of this job: a scheduled run does not
    fail for them."""

    def held(call: int) -> None:
        if call <= 2:
            raise LockError(
                "another run is writing to this source's lake", got="held by process 7 on there"
            )

    capture = FakeCapture(TWO_CUTS, before=held)
    told: list[list[str]] = []
    run = execute_capture(_loaded(project, capture), instance=instance, on_waiting=told.append)
    assert run.succeeded
    assert len(capture.bounds) == 3
    assert told == [["held by process 7 on there"]]


def test_k16_a_lock_that_is_held_for_too_long_fails_the_run(
    project: Project, instance: dg.DagsterInstance
) -> None:
    write_config(project.jobs, "shop", include=("shop.*",), extra="snapshot: {lock_wait_s: 0}\n")
    capture = _always(LockError("another run is writing"))
    run = execute_capture(_loaded(project, capture), instance=instance)
    assert isinstance(run.error, LockError)
    assert len(capture.bounds) == 1, (
        "waiting anew in each retry would be waiting four times as long"
    )


def _failure(instance: dg.DagsterInstance, run: CaptureRun) -> dg.Failure:
    (entry,) = instance.all_logs(run.run_id, of_type=dg.DagsterEventType.STEP_FAILURE)
    event = entry.dagster_event
    assert event is not None
    data = event.step_failure_data.user_failure_data
    assert data is not None
    return dg.Failure(description=data.description, metadata=dict(data.metadata))


def test_other_errors_fail_at_once_with_their_parts_as_metadata(
    project: Project, instance: dg.DagsterInstance
) -> None:
    error = LakeStateError(
        "the lake was restored", table="shop.orders", expected=3, got=2, next_step="restore it"
    )
    capture = _always(error)
    run = execute_capture(_loaded(project, capture), instance=instance)
    assert not run.succeeded
    assert run.error is error
    assert run.report is None
    assert len(capture.bounds) == 1
    failure = _failure(instance, run)
    assert failure.description == str(error)
    assert failure.metadata["table"].value == "shop.orders"
    assert failure.metadata["next_step"].value == "restore it"


@pytest.mark.parametrize(
    "bound",
    [
        None,
        "end_of_log",
        PositionConfig(journal="b.000002", offset=77),
        TransactionsBoundConfig(transactions=3),
        GtidBoundConfig(gtid="0-1-7"),
        TimeBoundConfig(time=datetime(2026, 1, 31, 8, tzinfo=UTC)),
        BytesBoundConfig(bytes=10**10),
        SecondsBoundConfig(seconds=0.5),
    ],
)
def test_a_bound_reaches_the_capture(
    project: Project, instance: dg.DagsterInstance, bound: object
) -> None:
    capture = FakeCapture(TWO_CUTS)
    execute_capture(_loaded(project, capture), instance=instance, bound=bound)  # type: ignore[arg-type]
    assert capture.bounds == [bound]


def test_two_bounds_in_the_launchpad_are_refused(
    project: Project, instance: dg.DagsterInstance
) -> None:
    capture = FakeCapture(TWO_CUTS)
    result = _loaded(project, capture).job.execute_in_process(
        instance=instance,
        raise_on_error=False,
        run_config={
            "ops": {"capture_shop": {"config": {"until": "b.000001", "until_transactions": 2}}}
        },
    )
    assert not result.success
    assert capture.bounds == []
    (step_failure,) = [event for event in result.all_events if event.is_step_failure]
    assert ConfigError.__name__ in step_failure.step_failure_data.error_display_string


def test_events_that_are_passed_over_are_named_in_the_log(
    project: Project, instance: dg.DagsterInstance
) -> None:
    instance.report_runless_asset_event(dg.AssetMaterialization(dg.AssetKey(CURSOR)))
    run = execute_capture(_loaded(project, FakeCapture(TWO_CUTS)), instance=instance)
    messages = [entry.user_message for entry in instance.all_logs(run.run_id)]
    assert any("reported without a run" in message for message in messages)


KILLED_RUN = """
import sys
from pathlib import Path
from cdc_pipeline.fault_points import listening
from cdc_pipeline.lake.records import Note
from cdc_pipeline.lake.suspensions import note_of
from cdc_pipeline.orchestration.runs.execute import open_instance
from tests.support.kills import AtPoint, sigkill
from tests.support.project import Project
from tests.support.fake_capture import FakeCapture
from tests.orchestration.test_capture_job import TWO_CUTS, _loaded
from cdc_pipeline.orchestration.runs.execute import execute_capture

with open_instance() as instance, listening(AtPoint("before_cursor", sigkill)):
    execute_capture(_loaded(Project(Path(sys.argv[1])), FakeCapture(TWO_CUTS)), instance=instance)
"""


@pytest.fixture
def killed(project: Project) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED_RUN, str(project.root)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.mark.usefixtures("killed")
def test_a_killed_run_is_marked_failed_and_does_not_hold_the_next(
    project: Project, disk_instance: dg.DagsterInstance
) -> None:
    """A run that was killed keeps its slot in the pool: without a care of ours the next one would
    wait for ever."""
    (dead,) = disk_instance.get_runs()
    assert dead.status is dg.DagsterRunStatus.STARTED
    assert disk_instance.event_log_storage.get_concurrency_info("cdc_shop").active_run_ids == {
        dead.run_id
    }
    run = execute_capture(_loaded(project, FakeCapture(TWO_CUTS)), instance=disk_instance)
    assert run.succeeded
    assert _events(disk_instance, run) == [(CURSOR, 1), (ORDERS, 2), (CURSOR, 2)]
    after = stored_run(disk_instance, dead.run_id)
    assert after.status is dg.DagsterRunStatus.FAILURE


def test_a_run_that_lives_or_is_elsewhere_keeps_its_slot(
    project: Project, disk_instance: dg.DagsterInstance
) -> None:
    job = _loaded(project, FakeCapture([])).job
    here = disk_instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED)
    assert _claim(disk_instance, here.run_id)
    host, _, mark = process_of(here.run_id).removeprefix(f"{here.run_id}/").partition("/")
    boot = mark.partition(" ")[0]
    # The last one: the id of a process of this host that was given again to another one, of a run
    # whose tags this one has because it executes it again.
    for tag in (
        process_of(here.run_id),
        f"{here.run_id}/another-host/boot pid:[1] 1 1",
        f"{here.run_id}/{host}/{boot} pid:[1] 1 1",  # another container's
        gone_process_of("another-run"),
    ):
        disk_instance.add_run_tags(here.run_id, {PROCESS_TAG: tag})
        assert free_dead_runs(disk_instance, source="shop") == ([], [here.run_id])
    disk_instance.add_run_tags(here.run_id, {PROCESS_TAG: gone_process_of(here.run_id)})
    assert free_dead_runs(disk_instance, source="shop") == ([here.run_id], [])
    before = disk_instance.create_run_for_job(
        job,
        status=dg.DagsterRunStatus.STARTED,
        tags=run_tags("shop", "capture"),
    )
    tag = f"{before.run_id}/{host}/{mark.replace(boot, 'an-earlier-boot')}"
    disk_instance.add_run_tags(before.run_id, {PROCESS_TAG: tag})
    disk_instance.report_engine_event("since this machine's start", before)
    assert free_dead_runs(disk_instance, source="shop") == ([], []), "another machine's (F194)"
    disk_instance.event_log_storage.delete_events(before.run_id)
    assert free_dead_runs(disk_instance, source="shop") == ([before.run_id], [])


def _claim(instance: dg.DagsterInstance, run_id: str, step_key: str = "capture_shop") -> bool:
    storage = instance.event_log_storage
    storage.initialize_concurrency_limit_to_default("cdc_shop")
    return storage.claim_concurrency_slot("cdc_shop", run_id, step_key).is_claimed


@pytest.mark.parametrize("job_name", ["theirs", "__ASSET_JOB"])
def test_a_run_lives_between_its_steps_of_a_process_each(
    project: Project, disk_instance: dg.DagsterInstance, job_name: str
) -> None:
    """Only the process of the step that holds the slot tells that a run is dead."""
    job = _loaded(project, FakeCapture([])).job
    run_id = disk_instance.create_run_for_job(
        dg.JobDefinition(graph_def=job.graph, name=job_name, resource_defs=job.resource_defs),
        status=dg.DagsterRunStatus.STARTED,
        tags=run_tags("shop", "capture"),
    ).run_id
    disk_instance.add_run_tags(run_id, {f"{PROCESS_TAG}/capture_shop": gone_process_of(run_id)})
    assert free_dead_runs(disk_instance, source="shop") == ([], [])
    assert _claim(disk_instance, run_id, "snapshot_shop")
    assert not _claim(disk_instance, run_id)  # it waits
    assert free_dead_runs(disk_instance, source="shop") == ([], [run_id])
    disk_instance.event_log_storage.free_concurrency_slot_for_step(run_id, "snapshot_shop")
    assert free_dead_runs(disk_instance, source="shop") == ([], [run_id])
    assert _claim(disk_instance, run_id)
    of_retry = dg.DagsterEventType.STEP_UP_FOR_RETRY.value
    ended = DagsterEvent(of_retry, job_name=job_name, step_key="capture_shop")
    disk_instance.report_dagster_event(ended, run_id)
    assert free_dead_runs(disk_instance, source="shop") == ([], [run_id]), "it starts (F195)"
    disk_instance.add_run_tags(run_id, {f"{PROCESS_TAG}/capture_shop/1": gone_process_of(run_id)})
    assert free_dead_runs(disk_instance, source="shop") == ([run_id], [])


@pytest.mark.parametrize(
    ("executor", "attempts", "name"),
    [
        (dg.in_process_executor, 1, PROCESS_TAG),
        (dg.multiprocess_executor, 0, f"{PROCESS_TAG}/a_step"),
        (dg.multi_or_in_process_executor, 1, f"{PROCESS_TAG}/a_step/1"),
    ],
)
def test_a_step_that_may_have_a_process_of_its_own_names_it(
    project: Project,
    disk_instance: dg.DagsterInstance,
    executor: dg.ExecutorDefinition,
    attempts: int,
    name: str,
) -> None:
    job = _loaded(project, FakeCapture([])).job
    run = disk_instance.create_run_for_job(job)
    step: Any = SimpleNamespace(
        run=run,
        instance=disk_instance,
        job_def=SimpleNamespace(asset_layer=job.asset_layer, executor_def=executor),
        get_step_execution_context=lambda: SimpleNamespace(
            step=SimpleNamespace(key="a_step"), previous_attempt_count=attempts
        ),
    )
    tag_run(step, "shop", "capture")
    tagged = stored_run(disk_instance, run.run_id)
    processes = {tag: text for tag, text in tagged.tags.items() if tag.startswith(PROCESS_TAG)}
    assert processes == {name: process_of(run.run_id)}


def test_slots_of_deleted_and_finished_runs_are_freed(
    project: Project, disk_instance: dg.DagsterInstance
) -> None:
    done = execute_capture(_loaded(project, FakeCapture(TWO_CUTS)), instance=disk_instance)
    for run_id in (done.run_id, "0" * 32):
        assert _claim(disk_instance, run_id)
        assert free_dead_runs(disk_instance, source="shop") == ([run_id], [])


def test_the_cursor_store_of_the_command_line_reads_what_a_run_wrote(
    project: Project, instance: dg.DagsterInstance
) -> None:
    loaded = _loaded(project, FakeCapture(TWO_CUTS))
    execute_capture(loaded, instance=instance)
    store = loaded.cursors(instance)
    assert isinstance(store, DagsterCursorStore)
    assert store.read() == TWO_CUTS[1].cursor
