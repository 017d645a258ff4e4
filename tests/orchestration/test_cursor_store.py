"""The cursor in Dagster's events, on an instance on disk (K3)."""

# No postponed annotations: Dagster refuses a step's own as text.

import time

import dagster as dg
import pytest

from cdc_pipeline.errors import CursorError
from cdc_pipeline.orchestration.cursor_store import DagsterCursorStore
from cdc_pipeline.position.cursor import CursorState
from tests.support.fake_capture import cursor

KEY = dg.AssetKey(["shop", "cursor"])


def _store(instance: dg.DagsterInstance) -> DagsterCursorStore:
    return DagsterCursorStore(instance, asset_key=KEY, source="shop")


def _log(
    instance: dg.DagsterInstance, metadata: dict[str, object], *, partition: str | None = None
) -> str:
    @dg.op
    def log(context: dg.OpExecutionContext) -> None:
        context.log_event(dg.AssetMaterialization(KEY, metadata=metadata, partition=partition))

    @dg.job
    def job() -> None:
        log()

    quiet = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
    return job.execute_in_process(instance=instance, run_config=quiet).run_id


def _log_cursor(instance: dg.DagsterInstance, value: CursorState, **more: object) -> str:
    return _log(instance, {"cursor": dg.MetadataValue.json(value.model_dump(mode="json") | more)})


def test_a_cursor_as_text_is_read_too(instance: dg.DagsterInstance) -> None:
    _log(instance, {"cursor": dg.MetadataValue.text(cursor(batch=3).model_dump_json())})
    assert _store(instance).read() == cursor(batch=3)


def test_a_wiped_asset_has_no_cursor(instance: dg.DagsterInstance) -> None:
    _log_cursor(instance, cursor())
    instance.wipe_assets([KEY])
    assert _store(instance).read() is None


def test_a_cursor_written_after_a_wipe_is_read(instance: dg.DagsterInstance) -> None:
    _log_cursor(instance, cursor(batch=1))
    instance.wipe_assets([KEY])
    _log_cursor(instance, cursor(batch=2))
    assert _store(instance).read() == cursor(batch=2)


def test_the_cursor_of_a_deleted_run_still_counts(instance: dg.DagsterInstance) -> None:
    _log_cursor(instance, cursor(batch=1))
    instance.delete_run(_log_cursor(instance, cursor(batch=2)))
    assert _store(instance).read() == cursor(batch=2)


def test_a_cursor_that_was_written_after_the_clock_was_set_back_is_the_newest(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K3: events are in the order in which they were stored, also after the run is deleted."""
    _log_cursor(instance, cursor(batch=1))
    day_ago_s = time.time() - 86_400
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: day_ago_s)
        run_id = _log_cursor(instance, cursor(batch=2))
    assert _store(instance).read() == cursor(batch=2)
    instance.delete_run(run_id)
    assert _store(instance).read() == cursor(batch=2)


def test_a_cursor_of_the_only_run_survives_its_deletion(instance: dg.DagsterInstance) -> None:
    instance.delete_run(_log_cursor(instance, cursor(batch=2)))
    assert _store(instance).read() == cursor(batch=2)


def test_a_reported_event_is_passed_over_and_named(instance: dg.DagsterInstance) -> None:
    _log_cursor(instance, cursor(batch=1))
    reported = {"cursor": dg.MetadataValue.json(cursor(batch=9).model_dump(mode="json"))}
    instance.report_runless_asset_event(dg.AssetMaterialization(KEY, metadata=reported))
    store = _store(instance)
    assert store.read() == cursor(batch=1)
    (note,) = store.skipped
    assert "reported without a run" in note


def test_an_event_of_a_partition_is_passed_over_and_named(instance: dg.DagsterInstance) -> None:
    _log_cursor(instance, cursor(batch=1))
    _log(instance, {"cursor": cursor(batch=9).model_dump(mode="json")}, partition="2026-01-01")
    store = _store(instance)
    assert store.read() == cursor(batch=1)
    assert "of a partition" in store.skipped[0]


@pytest.mark.parametrize(
    ("metadata", "why"),
    [
        ({}, "has no entry"),
        ({"cursor": 7}, "has no entry"),
        ({"cursor": "not JSON"}, "cannot be read"),
        ({"cursor": {"version": 5, "source": "shop"}}, "cannot be read"),
        ({"cursor": cursor("crm").model_dump(mode="json")}, "another source"),
        ({"cursor": cursor().model_dump(mode="json") | {"unknown": 1}}, "cannot be read"),
    ],
)
def test_an_event_without_a_cursor_is_passed_over_and_named(
    instance: dg.DagsterInstance, metadata: dict[str, object], why: str
) -> None:
    _log_cursor(instance, cursor(batch=1))
    _log(instance, metadata)
    store = _store(instance)
    assert store.read() == cursor(batch=1)
    assert why in store.skipped[0]


def test_more_than_a_page_of_events_is_passed_over(instance: dg.DagsterInstance) -> None:
    _log_cursor(instance, cursor(batch=1))
    for _ in range(60):
        instance.report_runless_asset_event(dg.AssetMaterialization(KEY))
    store = _store(instance)
    assert store.read() == cursor(batch=1)
    assert len(store.skipped) == 60


@pytest.mark.parametrize("number", [3, 6])
def test_a_cursor_of_another_format_stops(instance: dg.DagsterInstance, number: int) -> None:
    """The cursor before it would hide that another version of the program has written."""
    _log_cursor(instance, cursor(batch=1))
    _log_cursor(instance, cursor(batch=2), version=number, more="than this program knows")
    with pytest.raises(CursorError, match="another format"):
        _store(instance).read()


def test_outside_a_run_nothing_is_written(instance: dg.DagsterInstance) -> None:
    store = _store(instance)
    with pytest.raises(CursorError, match="only a Dagster run may write a cursor"):
        store.write(cursor(), {})
    assert store.read() is None


def test_a_cursor_of_another_source_is_not_written(instance: dg.DagsterInstance) -> None:
    written: list[CursorState] = []
    store = DagsterCursorStore(
        instance,
        asset_key=KEY,
        source="shop",
        writer=lambda value, _metadata: written.append(value),
    )
    with pytest.raises(CursorError, match="another source"):
        store.write(cursor("crm"), {})
    store.write(cursor(), {})
    assert written == [cursor()]
