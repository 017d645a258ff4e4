"""Shows a load's progress in its Dagster run: steps as log lines, counts as observations.

Rules:
- Captures of the main lake during a load are shown like any capture.
- Progress is reported at most every `_OBSERVED_EVERY_S` seconds, because Dagster keeps every event
  forever. Each number has its own metadata entry, so that Dagster plots it.
"""

from __future__ import annotations

import time
from typing import Final

import dagster as dg

from cdc_pipeline.lake.loads import LoadState, Progress
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.orchestration.events.recorder import MaterializationRecorder
from cdc_pipeline.orchestration.names import dagster_name
from cdc_pipeline.pipeline.observer import RunObserver
from cdc_pipeline.pipeline.report import CapturePlan

_OBSERVED_EVERY_S: Final = 20.0


class LoadRecorder(RunObserver):
    """Writes to the run of `context`; forwards captures to `recorder`."""

    def __init__(
        self,
        context: dg.AssetExecutionContext,
        recorder: MaterializationRecorder,
        *,
        asset_key: dg.AssetKey,
    ) -> None:
        self._context = context
        self._recorder = recorder
        self._asset_key = asset_key
        self._began_s = time.monotonic()
        self._rows_before = 0
        self._observed_s = float("-inf")

    def planned(self, plan: CapturePlan) -> None:
        self._recorder.planned(plan)

    def published(self, cut: Cut) -> None:
        self._recorder.published(cut)

    def load_began(self, state: LoadState, *, resumed: bool) -> None:
        self._began_s, self._rows_before = time.monotonic(), -1
        what = "continues" if resumed else "begins"
        self._context.log.info(
            f"snapshot {state.load_id} {what}: {', '.join(state.sources)} from "
            f"{state.cursor.position}"
        )

    def load_stepped(self, text: str) -> None:
        self._context.log.info(text)

    def load_progressed(self, state: LoadState, progress: Progress) -> None:
        now_s = time.monotonic()
        rows = sum(table.rows for table in progress.tables.values())
        if self._rows_before < 0:
            self._rows_before, self._began_s = rows, now_s
        is_done = all(
            name in progress.tables and progress.tables[name].is_done for name in state.sources
        )
        if not is_done and now_s - self._observed_s < _OBSERVED_EVERY_S:
            return
        self._observed_s = now_s
        seconds = now_s - self._began_s
        for name, table in progress.tables.items():
            estimated = state.rows_estimated.get(name, 0)
            self._context.log_event(
                dg.AssetObservation(
                    self._asset_key,
                    partition=dagster_name(name),
                    description=f"{name}: {table.rows:,} rows read"
                    + ("" if table.is_done else " so far"),
                    metadata={
                        "load_id": state.load_id,
                        "rows_read": table.rows,
                        "chunks": str(table.chunks),
                        "rows_estimated": estimated,
                        "percent": 100.0
                        if table.is_done
                        else min(99.0, 100 * table.rows / max(estimated, 1)),
                        "rows_per_s": round((rows - self._rows_before) / seconds, 1)
                        if seconds > 0
                        else 0.0,
                    },
                )
            )
