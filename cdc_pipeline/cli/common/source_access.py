"""Open a source: its cursor, and who runs its captures (K3).

Rules:
- The cursor is in Dagster (each capture is a Dagster run) or in the lake (captures run in this
  process, and neither Dagster nor a DAGSTER_HOME is needed). Which one is always said: `--cursor`,
  or CDC_PIPELINE_CURSOR; Dagster by default. It never depends on what happens to be installed.
- A store that has no cursor yet takes over the other's, so that moving between the two loses
  nothing even before the first cut. From then on its own cursor counts, and the last cut brings it
  up to date (`run/plan/reconcile.py`).
"""

from __future__ import annotations

import importlib.util
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from cdc_pipeline.cli.common.output import quiet_streams
from cdc_pipeline.cli.common.settings import Settings
from cdc_pipeline.errors import RuntimeSetupError

if TYPE_CHECKING:
    from cdc_pipeline.config.pipeline_config import Bound, PipelineConfig
    from cdc_pipeline.orchestration.runs.source_runs import DagsterAccess
    from cdc_pipeline.orchestration.translator import RunKind
    from cdc_pipeline.position.cursor import StoredCursor
    from cdc_pipeline.run.observer import OperationRun, RunObserver
    from cdc_pipeline.run.report import CaptureReport

    SourceAccess: TypeAlias = "LakeAccess | DagsterAccess"

T = TypeVar("T")
_LAKE_STEP: Final = "keep the cursor in the lake: export CDC_PIPELINE_CURSOR=lake"


@contextmanager
def open_source(settings: Settings, config: PipelineConfig) -> Iterator[SourceAccess]:
    """Open the source of `config`, with its cursor where `settings` say.

    Raises RuntimeSetupError: the cursor is in Dagster, which is not installed; ConfigError: Dagster
    has no home, or the project's definitions cannot be used.
    """
    if settings.cursor == "lake":
        yield LakeAccess(settings, config)
        return
    check_dagster("the cursor is in Dagster")
    from cdc_pipeline.orchestration.runs.execute import load_source, open_instance
    from cdc_pipeline.orchestration.runs.source_runs import DagsterAccess

    loaded = load_source(settings.jobs_directory, config.name)
    with open_instance() as instance:
        log_level = "DEBUG" if settings.debug else "CRITICAL"
        yield DagsterAccess(loaded, config, instance=instance, log_level=log_level)


def operate(
    settings: Settings, config: PipelineConfig, kind: RunKind, work: Callable[[OperationRun], T]
) -> T:
    """Do a long operation and show its progress; raises as `open_source`, and what `work` does."""
    with open_source(settings, config) as access:
        return operate_in(access, settings, kind, work)


def operate_in(
    access: SourceAccess, settings: Settings, kind: RunKind, work: Callable[[OperationRun], T]
) -> T:
    from cdc_pipeline.cli.common.progress import OperationProgress

    with quiet_streams(quiet=not settings.debug) as stream, OperationProgress(stream) as progress:
        return access.operate(kind, work, observer=progress, on_waiting=progress.waiting)


def check_dagster(what: str, *, otherwise: str = _LAKE_STEP) -> None:
    """RuntimeSetupError unless installed; `what` needs it, `otherwise`: what else can be done."""
    if not has_dagster():
        raise RuntimeSetupError(
            f"{what}, and Dagster is not installed",
            next_step=f"pip install 'cdc-pipeline[dagster]'; or {otherwise}",
        )


def has_dagster() -> bool:
    return importlib.util.find_spec("dagster") is not None


class LakeAccess:
    """A source whose cursor is in its lake."""

    def __init__(self, settings: Settings, config: PipelineConfig) -> None:
        from cdc_pipeline.run.wiring import build_lake_cursors

        self._config = config
        self._settings = settings
        self.run_id = uuid.uuid4().hex
        self.cursors = build_lake_cursors(config, before=self._cursor_in_dagster)

    @property
    def skipped(self) -> tuple[str, ...]:
        return ()

    def operate(
        self,
        kind: RunKind,  # noqa: ARG002
        work: Callable[[OperationRun], T],
        *,
        observer: RunObserver | None = None,
        on_waiting: Callable[[list[str]], None] | None = None,  # noqa: ARG002
    ) -> T:
        from cdc_pipeline.run.observer import RunObserver

        # Who waits for the lake's lock says so.
        return work(
            {"cursors": self.cursors, "observer": observer or RunObserver(), "run_id": self.run_id}
        )

    def capture(
        self,
        *,
        bound: Bound | None,
        tables: tuple[str, ...],
        observer: RunObserver,
        on_waiting: Callable[[list[str]], None],
    ) -> CaptureReport:
        """In this process, as soon as nobody else holds the source's lock."""
        from cdc_pipeline.lake.storage.lock import wait_for_lock
        from cdc_pipeline.operations.verify.proved_run import capture_and_prove

        return wait_for_lock(
            lambda: capture_and_prove(
                self._config,
                cursors=self.cursors,
                bound=bound,
                tables=tables or None,
                observer=observer,
                run_id=self.run_id,
            ),
            wait_s=self._config.snapshot.lock_wait_s,
            on_waiting=lambda holder: on_waiting([holder]),
        )

    def _cursor_in_dagster(self) -> StoredCursor | None:
        """If this machine has a Dagster that knows a cursor of this source."""
        home = os.environ.get("DAGSTER_HOME", "")
        if not home or not Path(home).expanduser().is_dir() or not has_dagster():
            return None
        from cdc_pipeline.orchestration.runs.execute import load_source, open_instance

        with open_instance() as instance:
            loaded = load_source(self._settings.jobs_directory, self._config.name)
            return loaded.cursors(instance).read()
