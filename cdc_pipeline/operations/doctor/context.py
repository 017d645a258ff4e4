"""Shared state of one examination; using what could not be opened ends a check."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final

from cdc_pipeline.config.pipeline_config import (
    ArchiveSourceConfig,
    LiveSourceConfig,
    PipelineConfig,
)
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.operations.doctor.diagnosis import Area, Verdict
from cdc_pipeline.position.cursor import CursorState, CursorStore
from cdc_pipeline.run.plan.reconcile import Reconciled
from cdc_pipeline.run.wiring import build_sink, build_source
from cdc_pipeline.sink.lake_sink import Sink
from cdc_pipeline.targets.routes import Route, Routes
from cdc_pipeline.targets.table_filter import TableFilter
from cdc_pipeline.text.table_names import TablePattern
from cdc_pipeline.text.wording import duration

if TYPE_CHECKING:
    from cdc_pipeline.source.live.connection import ServerConnection
    from cdc_pipeline.source.live.live import LiveSource
    from cdc_pipeline.source.live.retention import RetainedLog
    from cdc_pipeline.source.live.server_checks import Finding
    from cdc_pipeline.source.live.table_facts import TableFacts
    from cdc_pipeline.source.protocol import Source

_ASSUMED_EVERY_S: Final = 86_400.0


class NotThereError(Exception):
    """A check needs what is missing; its first argument says what."""


@dataclass
class Context:
    """`every_s`: longest time between two runs; `reconciled`: what a run resumes from."""

    config: PipelineConfig
    cursors: CursorStore | None
    every_s: float | None = None
    every_reason: str = ""
    lake_is_open: bool = False
    reconciled: Reconciled | None = None
    now_s: float = field(default_factory=time.time)
    _source: Source | None = None

    @property
    def included(self) -> tuple[TablePattern, ...]:
        return TableFilter(self.config).include

    def routes(self, table: str) -> list[Route]:
        return list(Routes(self.config).of_table(table))

    # -- the source --------------------------------------------------------------------------------

    @property
    def live_config(self) -> LiveSourceConfig:
        assert isinstance(self.config.source, LiveSourceConfig)
        return self.config.source

    @property
    def archive_config(self) -> ArchiveSourceConfig:
        assert isinstance(self.config.source, ArchiveSourceConfig)
        return self.config.source

    def open(self, config: PipelineConfig) -> Source:
        """Not yet checked."""
        self._source = build_source(config)
        return self._source

    @property
    def source(self) -> Source:
        if self._source is None:
            raise NotThereError("the source")
        return self._source

    @property
    def live(self) -> LiveSource:
        from cdc_pipeline.source.live.live import LiveSource

        if not isinstance(self._source, LiveSource):
            raise NotThereError("the server")
        return self._source

    @property
    def server(self) -> ServerConnection:
        return self.live.server

    def forget_source(self) -> None:
        """Checks that need the source are left out from here on."""
        self.close()
        self._source = None

    def close(self) -> None:
        if self._source is not None:
            self._source.close()

    @cached_property
    def variables(self) -> dict[str, str]:
        return self.server.variables()

    @cached_property
    def log(self) -> RetainedLog:
        from cdc_pipeline.source.live.retention import RetainedLog

        return RetainedLog(self.live)

    @cached_property
    def tables(self) -> list[TableFacts]:
        from cdc_pipeline.source.live.table_facts import read_table_facts

        return read_table_facts(self.server, TableFilter(self.config).captured)

    @property
    def tables_with_rows(self) -> list[TableFacts]:
        """Captured tables that have rows of their own in the log; at least one."""
        tables = [table for table in self.tables if table.has_rows]
        if not tables:
            raise NotThereError("a captured table")
        return tables

    # -- the lake ----------------------------------------------------------------------------------

    @cached_property
    def paths(self) -> LakePaths:
        return LakePaths.of(self.config)

    @cached_property
    def sink(self) -> Sink:
        if not self.lake_is_open:
            raise NotThereError("the lake")
        return build_sink(self.config)

    @cached_property
    def cut(self) -> Cut | None:
        return self.sink.last_cut()

    @property
    def cursor(self) -> CursorState | None:
        """What the next run resumes from; None before the first one."""
        if self.reconciled is None:
            raise NotThereError("the cursor")
        return self.reconciled.cursor

    # -- how often ---------------------------------------------------------------------------------

    @property
    def interval_s(self) -> float:
        """Longest time between two runs; an assumed one if it is unknown."""
        return self.every_s or _ASSUMED_EVERY_S

    @property
    def interval_text(self) -> str:
        every = f"a run every {duration(self.interval_s)}"
        if self.every_s is None:
            return f"{every} (assumed, because there is no schedule; set it with --every)"
        return f"{every} ({self.every_reason})"


@dataclass(frozen=True, slots=True)
class Check:
    """`run` may raise CdcError, which becomes a finding; `fine`: said if it yields nothing;
    `opens`: others use what it opens.
    """

    area: Area
    name: str
    run: Callable[[Context], Iterable[Verdict]]
    fine: str = ""
    opens: bool = False


def shown(findings: Iterable[Finding]) -> Iterator[Verdict]:
    for finding in findings:
        yield Verdict.from_error(finding.error, finding.severity)
