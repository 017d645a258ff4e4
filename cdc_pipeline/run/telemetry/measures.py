"""How far a lake is behind its source, and how soon the source may purge what is still needed."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

from cdc_pipeline.config.pipeline_config import LiveSourceConfig, PipelineConfig
from cdc_pipeline.position.cursor import CursorState
from cdc_pipeline.run.plan.resolved_run import bytes_between
from cdc_pipeline.run.plan.starting import choose
from cdc_pipeline.run.report import needed_position
from cdc_pipeline.run.wiring import build_source
from cdc_pipeline.source.live.connection import ServerConnection
from cdc_pipeline.source.live.retention import RetainedLog, clock_s


@dataclass(frozen=True, slots=True)
class Distance:
    """None is unknown, or has no meaning. `lag_s`: 0 at the end of the log, else the age of the
    last applied transaction; `headroom_s`: until the source may purge what is needed.
    """

    lag_s: float | None = None
    unread_bytes: int | None = None
    headroom_s: float | None = None


def distance(config: PipelineConfig, cursor: CursorState, *, source_time_us: int) -> Distance:
    """Asks the server, or reads the archive's folder. SourceError, ServerUnreachableError."""
    config = choose(config).config
    with closing(build_source(config)) as source:
        if not source.identity.same_server(cursor.identity):
            return Distance()
        end, at = source.end_position(), cursor.position
        unread = bytes_between(source.journals(since=at), at, end)
        if not isinstance(config.source, LiveSourceConfig):
            return Distance(unread_bytes=unread)
        from cdc_pipeline.source.live.live import LiveSource  # late: it brings the live reader

        lag_s: float | None = None
        if end.order <= at.order or (end.gtid_set and end.gtid_set == cursor.gtid_set):
            lag_s = 0.0
        elif source_time_us >= 0:
            lag_s = age_s(config.source, source_time_us)
        assert isinstance(source, LiveSource)
        needed = needed_position(cursor)
        headroom_s = None if needed is None else RetainedLog(source).left_s(needed.position.journal)
        return Distance(lag_s, unread, headroom_s)


def age_s(server: LiveSourceConfig, time_us: int) -> float:
    """By the server's own clock; 0 if that was set back since. Raises ServerUnreachableError."""
    with closing(ServerConnection(server)) as connection:
        return max(0.0, clock_s(connection) - time_us / 1e6)
