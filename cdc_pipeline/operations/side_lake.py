"""A lake beside the pipeline's own, in which chosen tables are built (K17, K18).

Rules:
- It is an ordinary lake of the same source: batches are staged, recorded, then act (K2), and it is
  filled by ordinary captures. Rules, masks and policies are the pipeline's (K14).
- Its cursor is that of its last cut, and is stored nowhere else: what a killed process read behind
  that cut is read again.
- No catalog registers any of its tables, no view shows them: the names belong to the pipeline's
  lake.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from cdc_pipeline.config.pipeline_config import (
    Bound,
    LiveSourceConfig,
    PipelineConfig,
    TablesConfig,
)
from cdc_pipeline.config.storage_config import LakeUri
from cdc_pipeline.lake.erasures import copy_erasures
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.position.cursor import CursorState, MemoryCursorStore
from cdc_pipeline.run.admin_batch import AdminBatch, admin_batch
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.run.capture.segments.division import Parallel
from cdc_pipeline.run.observer import RunObserver
from cdc_pipeline.run.publish import Publisher
from cdc_pipeline.run.recovery import recover
from cdc_pipeline.run.report import CaptureReport
from cdc_pipeline.run.wiring import build_sink
from cdc_pipeline.text.table_names import exact_pattern


class SideLake:
    """Of a `beside` configuration; `begin`: None if its first capture resolves that."""

    def __init__(
        self,
        config: PipelineConfig,
        *,
        begin: CursorState | None,
        observer: RunObserver,
        run_id: str,
    ) -> None:
        self.config = config
        self.sink = build_sink(config)
        self.cursors = MemoryCursorStore(begin, source=config.name)
        self.observer = observer
        self.run_id = run_id

    def recover(self) -> None:
        """Finish what an earlier process recorded, and remove what it did not (K2)."""
        with self.sink.lock():
            recover(Publisher(self.sink, self.cursors, self.observer))

    @property
    def cut(self) -> Cut | None:
        return self.sink.last_cut()

    @property
    def cursor(self) -> CursorState:
        cursor = self.cursors.read()
        assert cursor is not None
        return cursor

    def capture(
        self, bound: Bound | None = None, *, parallel: Parallel | None = None
    ) -> CaptureReport:
        """To the configuration's bound by default; see `capture.capture`."""
        return capture(
            self.config,
            cursors=self.cursors,
            bound=bound,
            parallel=parallel,
            observer=self.observer,
            run_id=self.run_id,
        )

    def admin_batch(self, *, doing: str) -> AbstractContextManager[AdminBatch]:
        return admin_batch(
            self.sink, cursors=self.cursors, doing=doing, observer=self.observer, run_id=self.run_id
        )


def beside(
    config: PipelineConfig,
    *,
    lake: Path | LakeUri,
    tables: Sequence[str],
    is_numbered_apart: bool = False,
    sink: dict[str, Any] | None = None,
    **update: Any,
) -> PipelineConfig:
    """The configuration of a lake beside the pipeline's own, which gets to know what was erased;
    `is_numbered_apart`: its epochs are its own; `sink`, `update`: other settings.
    """
    source, keep = update.get("source", config.source), config.keep_journals
    if keep is not None and isinstance(source, LiveSourceConfig):
        update["source"] = source.model_copy(update={"keep_journals": keep.read_only()})
    made = config.model_copy(
        update={
            "tables": only_tables(config, tables),
            "sink": config.sink.model_copy(
                update={"lake_path": lake, "catalog": None, "publish": None, **(sink or {})}
            ),
            "schedule": None,
            "maintenance": None,
            "metrics": None,
            "openlineage": None,
            **update,
        }
    )
    main, own = LakePaths.of(config), LakePaths.of(made)
    copy_erasures(main, own, is_numbered_apart=is_numbered_apart)
    return made


def only_tables(config: PipelineConfig, tables: Sequence[str]) -> TablesConfig:
    return TablesConfig(
        allow_empty=True,
        include=tuple(map(exact_pattern, tables)),
        shadow_tables=config.tables.shadow_tables,
    )
