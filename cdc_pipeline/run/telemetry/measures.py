"""How far a lake is behind its source, and how soon the source may purge what is still needed."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

from cdc_pipeline.config.pipeline_config import LiveSourceConfig, PipelineConfig
from cdc_pipeline.errors import StatementError
from cdc_pipeline.position.cursor import CursorState
from cdc_pipeline.position.failback import Consumer
from cdc_pipeline.run.plan.planning import bytes_between
from cdc_pipeline.run.plan.starting import choose
from cdc_pipeline.run.report import needed_position
from cdc_pipeline.run.wiring import build_source
from cdc_pipeline.source.live.answers import number_of
from cdc_pipeline.source.live.connection import ServerConnection
from cdc_pipeline.source.protocol import Source


@dataclass(frozen=True, slots=True)
class Distance:
    """Where the lake stands beside its source. None is unknown, or has no meaning.

    Attributes:
        lag_s: 0 at the end of the log, else the age of the last applied transaction;
            None for an archive, which is as old as its journals.
        unread_bytes: of the log after the cursor.
        headroom_s: until the source may purge what is needed; None if it purges nothing.
    """

    lag_s: float | None = None
    unread_bytes: int | None = None
    headroom_s: float | None = None


@dataclass(frozen=True, slots=True)
class _Retention:
    """What a server still has of what is needed.

    Attributes:
        oldest_journal: "" if it lists none.
        journals_before: the number of older journals; None if the needed one is gone.
        kept_s: how long a journal is kept after its end, 0 for ever; None if that is not shown.
        headroom_s: until the needed journal may be purged; None if never, or unknown.
    """

    oldest_journal: str
    journals_before: int | None = None
    kept_s: int | None = None
    headroom_s: int | None = None


def distance(config: PipelineConfig, cursor: CursorState, *, source_time_us: int) -> Distance:
    """Asks the server, or reads the archive's folder; raises SourceError, ServerUnreachableError.
    `source_time_us`: commit time of the last applied transaction; -1 unknown.
    """
    config = choose(config).config
    with closing(build_source(config)) as source:
        if not source.identity.same_server(cursor.identity):
            return Distance()
        end, at = source.end_position(), cursor.position
        unread = bytes_between(source.journals(), at, end)
        if not isinstance(config.source, LiveSourceConfig):
            return Distance(unread_bytes=unread)
        lag_s: float | None = None
        if end.order <= at.order or (end.gtid_set and end.gtid_set == cursor.gtid_set):
            lag_s = 0.0
        elif source_time_us >= 0:
            lag_s = age_s(config.source, source_time_us)
        needed = needed_position(cursor)
        headroom = None
        if needed is not None:
            retention = retention_of(source, config.source, needed)
            headroom = 0 if retention.journals_before is None else retention.headroom_s
        return Distance(lag_s, unread, headroom)


def age_s(server: LiveSourceConfig, time_us: int) -> float:
    """Of a moment, by the server's own clock; 0 if that was set back since.
    ServerUnreachableError.
    """
    with closing(ServerConnection(server)) as connection:
        return max(0.0, _now_s(connection) - time_us / 1e6)


def _now_s(connection: ServerConnection) -> float:
    return float(connection.value("SELECT UNIX_TIMESTAMP(NOW(6))"))


def retention_of(source: Source, server: LiveSourceConfig, needed: Consumer) -> _Retention:
    """A journal stays for ``binlog_expire_logs_seconds`` after its end, by the server's clock."""
    journals = [info.journal for info in source.journals()]
    oldest = journals[0] if journals else ""
    if needed.position.journal not in journals:
        return _Retention(oldest)
    behind = journals.index(needed.position.journal)
    following = journals[behind + 1 : behind + 2]
    with closing(ServerConnection(server)) as connection:
        try:
            asked = "SELECT @@GLOBAL.binlog_expire_logs_seconds"
            kept_s = number_of(connection.value(asked), address=connection.address, asked=asked)
        except StatementError:
            return _Retention(oldest, behind)
        now_s = int(_now_s(connection))
    ended_s = source.journal_created_s(following[0]) if following else now_s
    headroom_s = kept_s - max(0, now_s - ended_s) if kept_s else None
    return _Retention(oldest, behind, kept_s, headroom_s)
