"""The cursor as a Dagster materialization (K3).

Rules:
- The cursor is the newest event that a run logged, that belongs to no partition, and that holds a
  cursor of this source. Others are skipped and named in `skipped`: a person may report an event
  without a run, and a backfill may log one for a partition.
- The event of a deleted run still counts: deleting a run tidies the history but does not undo the
  run. Wiping the asset removes all events, and the cursor with them.
- A cursor of another version of the program is never skipped: using the one before it would hide
  that the other has written.
- Going too far back is harmless, since the capture checks the cursor against the lake's last cut.
- Dagster has no compare-and-swap: before each write the store reads the newest cursor again and
  compares it; the source's lock keeps other writers out in between.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import dagster as dg

from cdc_pipeline.clock import time_of
from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import CursorError
from cdc_pipeline.orchestration.metadata import CURSOR_ENTRY, plain
from cdc_pipeline.orchestration.translator import CdcTranslator
from cdc_pipeline.position.cursor import (
    CursorEntry,
    CursorGuard,
    CursorState,
    StoredCursor,
    has_other_format,
    parse_cursor,
)

_PAGE_EVENTS = 50

CursorWriter = Callable[[CursorState, dict[str, object]], None]


class DagsterCursorStore:
    """Reads a source's cursor from Dagster's events; writes it through `writer`, which a run
    provides.

    Args:
        source: name that the cursor must carry.
        writer: logs the cursor's event in a run; without it the store only reads.
        before: called by `read` if there is no cursor yet; what it returns is taken over.
    """

    def __init__(
        self,
        instance: dg.DagsterInstance,
        *,
        asset_key: dg.AssetKey,
        source: str,
        writer: CursorWriter | None = None,
        before: Callable[[], StoredCursor | None] = lambda: None,
    ) -> None:
        self._instance = instance
        self.asset_key = asset_key
        self._source = source
        self._writer = writer
        self._before = before
        self._guard = CursorGuard(source)
        self.skipped: tuple[str, ...] = ()

    def read(self) -> StoredCursor | None:
        """Else that of `before`; `skipped`: events passed over. CursorError: a newer version's."""
        cursor, self.skipped = self._latest()
        self._guard.saw(cursor)
        return self._before() if cursor is None else cursor

    def write(
        self, cursor: CursorState, metadata: dict[str, object], *, replace: bool = False
    ) -> None:
        """See `CursorStore.write`; raises CursorError outside a Dagster run, too."""
        if self._writer is None:
            raise CursorError(
                "only a Dagster run may write a cursor",
                got=f"cursor of batch {cursor.batch_number} for "
                f"{self.asset_key.to_user_string()} outside a run",
                next_step=f"start the job: `cdc-pipeline run {self._source}`",
            )
        self._guard.check_write(cursor, self._latest()[0], replace=replace)
        self._writer(cursor, metadata)
        self._guard.saw(cursor)

    def history(self, limit: int) -> list[CursorEntry]:
        """Newest first, with the event's metadata. CursorError: of a newer version."""
        entries: list[CursorEntry] = []
        for event in materializations(self._instance, self.asset_key) if limit > 0 else ():
            cursor = self._cursor_of(event)
            if isinstance(cursor, str):
                continue
            entries.append(
                CursorEntry(
                    cursor=cursor,
                    at_us=int(event.timestamp * 1e6),
                    where=f"Dagster's event of {_when(event)} for "
                    f"{self.asset_key.to_user_string()}",
                    run_id=event.run_id,
                    metadata=_plain_metadata(event),
                )
            )
            if len(entries) == limit:
                break
        return entries

    def _latest(self) -> tuple[StoredCursor | None, tuple[str, ...]]:
        """The newest valid cursor, and the newer events that are not cursors."""
        skipped: list[str] = []
        for entry in materializations(self._instance, self.asset_key):
            cursor = self._cursor_of(entry)
            if not isinstance(cursor, str):
                return cursor, tuple(skipped)
            skipped.append(f"event of {_when(entry)}: {cursor}")
        return None, tuple(skipped)

    def _cursor_of(self, entry: dg.EventLogEntry) -> StoredCursor | str:
        """The cursor of one event, or the reason why it has none."""
        if not entry.run_id:
            return "reported without a run"
        if entry.dagster_event is not None and entry.dagster_event.partition is not None:
            return "of a partition"
        materialization = entry.asset_materialization
        value = materialization.metadata.get(CURSOR_ENTRY) if materialization is not None else None
        if isinstance(value, dg.JsonMetadataValue):
            text = json.dumps(value.value)
        elif isinstance(value, dg.TextMetadataValue):
            text = value.text or ""
        else:
            return f"has no entry {CURSOR_ENTRY!r} with a cursor"
        where = f"Dagster's event of {_when(entry)} for {self.asset_key.to_user_string()}"
        try:
            cursor = parse_cursor(text, where=where)
        except CursorError as error:
            if has_other_format(text):
                raise
            return f"cannot be read: {error.got}"
        return (
            cursor
            if cursor.source == self._source
            else f"cursor of another source, {cursor.source}"
        )


def materializations(instance: dg.DagsterInstance, key: dg.AssetKey) -> Iterator[dg.EventLogEntry]:
    """Newest first by the storage: clocks may be set back. With that of a deleted run."""
    latest = instance.get_latest_materialization_event(key)
    page_cursor: str | None = None
    while True:
        page = instance.fetch_materializations(key, limit=_PAGE_EVENTS, cursor=page_cursor)
        entries = [record.event_log_entry for record in page.records]
        if latest is not None and not any(_is_same(latest, entry) for entry in entries):
            yield latest  # its run was deleted: paging no longer finds it
        latest = None
        yield from entries
        if not page.has_more:
            break
        page_cursor = page.cursor


def cursors_of(
    instance: dg.DagsterInstance,
    pipeline: PipelineConfig,
    translator: CdcTranslator,
    *,
    writer: CursorWriter | None = None,
) -> DagsterCursorStore:
    """Whatever reads the cursor first takes over that of runs without Dagster, or of another
    instance: before the first cut the first cursor is in the lake, too.
    """

    def in_lake(first: CursorState | None = None) -> StoredCursor | None:
        from cdc_pipeline.run.wiring import build_lake_cursors  # late: few reads need it

        cursors = build_lake_cursors(pipeline.resolved())
        stored = cursors.read()
        if stored is None and first is not None:
            cursors.write(first, {})
        return stored

    def write(cursor: CursorState, metadata: dict[str, object]) -> None:
        assert writer is not None
        if cursor.batch_number == 0:
            in_lake(cursor)
        writer(cursor, metadata)

    return DagsterCursorStore(
        instance,
        asset_key=translator.cursor_key(pipeline.name),
        source=pipeline.name,
        writer=writer and write,
        before=in_lake,
    )


def _is_same(one: dg.EventLogEntry, other: dg.EventLogEntry) -> bool:
    return (one.run_id, one.timestamp) == (other.run_id, other.timestamp)


def _when(entry: dg.EventLogEntry) -> str:
    at = time_of(int(entry.timestamp * 1e6)).isoformat(timespec="seconds")
    return f"{at} (run {entry.run_id[:8]})" if entry.run_id else at


def _plain_metadata(entry: dg.EventLogEntry) -> dict[str, object]:
    """The event's other entries; a value other than text, number or JSON becomes its text."""
    event = entry.asset_materialization
    values = {} if event is None else {name: one.value for name, one in event.metadata.items()}
    return {
        name: plain(value)
        for name, value in values.items()
        if name != CURSOR_ENTRY and value is not None
    }
