"""Opens the three cursor stores alike."""

# No postponed annotations: Dagster refuses a step's own as text.
from collections.abc import Callable
from pathlib import Path

import dagster as dg

from cdc_pipeline.lake.records import Cut
from cdc_pipeline.orchestration.cursor_store import DagsterCursorStore
from cdc_pipeline.orchestration.metadata import cursor_entry, cursor_event_metadata
from cdc_pipeline.position.cursor import CursorState, CursorStore, MemoryCursorStore
from cdc_pipeline.sink.cursor_table import DeltaCursorStore
from tests.support.fake_capture import cursor

KINDS = ["memory", "dagster", "delta"]
SHARED = ["dagster", "delta"]  # more than one process may hold them
KEY = dg.AssetKey(["shop", "cursor"])

Opener = Callable[..., CursorStore]


def opener_of(kind: str, place: Path, instance: dg.DagsterInstance | None) -> Opener:
    memory = MemoryCursorStore(source="shop")

    def open_store(source: str = "shop") -> CursorStore:
        if kind == "memory":
            return memory
        if kind == "delta":
            return DeltaCursorStore(place, source=source)
        assert instance is not None
        return DagsterCursorStore(
            instance,
            asset_key=KEY,
            source=source,
            writer=lambda value, given: log(instance, value, given),
        )

    return open_store


def log(
    instance: dg.DagsterInstance,
    value: CursorState,
    given: dict[str, object],
    *,
    at_cut: Cut | None = None,
) -> None:
    @dg.op
    def step(context: dg.OpExecutionContext) -> None:
        entry = cursor_entry(value, at_cut=at_cut)
        metadata = {**cursor_event_metadata(value, cut=None, given=given), **entry}
        context.log_event(dg.AssetMaterialization(KEY, metadata=metadata))

    @dg.job
    def job() -> None:
        step()

    quiet = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
    assert job.execute_in_process(instance=instance, run_config=quiet).success


def state(
    batch: int, *, offset: int | None = None, source: str = "shop", epoch: int = 1
) -> CursorState:
    """By default later in the log than those of lower numbers."""
    made = cursor(
        source,
        batch=batch,
        offset=1000 + batch if offset is None else offset,
        tables={"shop.orders": 1},
    )
    return made.model_copy(update={"epoch": epoch})
