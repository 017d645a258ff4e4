"""The cursor as a Dagster materialization (K3).

Rules:
- The newest event that was logged by a run, is not of a partition and holds a cursor of this source is the cursor.
  Others are skipped and named in `skipped`: a person may report an event without a run, a backfill one of a partition.
- The event of a deleted run still counts: deleting a run tidies the history, it does not undo the run. A wipe of the
  asset removes all events, and with them the cursor.
- A cursor of a newer version is never skipped: an older one in its place would hide that a newer program has written.
- Going too far back is harmless, since the capture checks the cursor against the lake's last cut.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import dagster as dg

from cdc_pipeline.errors import CursorError
from cdc_pipeline.orchestration.metadata import CURSOR_ENTRY
from cdc_pipeline.position.cursor import CURSOR_VERSION, CursorState, parse_cursor

_PAGE_EVENTS = 50

CursorWriter = Callable[[CursorState, dict[str, object]], None]


class DagsterCursorStore:
    """Reads a source's cursor from Dagster's events; writes it through `writer`, which a run provides.

    Args:
        instance: where the events are.
        asset_key: of the cursor asset.
        source: name that the cursor must carry.
        writer: logs the cursor's event in a run; without it the store only reads.
    """

    def __init__(
        self, instance: dg.DagsterInstance, *, asset_key: dg.AssetKey, source: str, writer: CursorWriter | None = None
    ) -> None:
        self._instance = instance
        self._asset_key = asset_key
        self._source = source
        self._writer = writer
        self.skipped: tuple[str, ...] = ()

    def read(self) -> CursorState | None:
        """The latest valid cursor; None where there is none. What was passed over is in `skipped` afterwards.

        Raises:
            CursorError: the newest cursor is of a version that this program does not know.
        """
        skipped: list[str] = []
        found: CursorState | None = None
        for entry in self._events():
            cursor = self._cursor_of(entry)
            if isinstance(cursor, CursorState):
                found = cursor
                break
            skipped.append(f"event of {_when(entry)}: {cursor}")
        self.skipped = tuple(skipped)
        return found

    def write(self, cursor: CursorState, metadata: dict[str, object]) -> None:
        """Log `cursor` as the newest event of its asset.

        Raises:
            CursorError: outside a Dagster run, or the cursor is another source's.
        """
        if self._writer is None:
            raise CursorError(
                "a cursor is only written by a Dagster run",
                got=f"cursor of batch {cursor.batch_number} for {self._asset_key.to_user_string()} outside a run",
                next_step=f"start the job: `cdc-pipeline run {self._source}`",
            )
        if cursor.source != self._source:
            raise CursorError("the cursor belongs to another source", expected=self._source, got=cursor.source)
        self._writer(cursor, metadata)

    def _events(self) -> Iterator[dg.EventLogEntry]:
        """All events of the asset, newest first; the latest one also if its run was deleted."""
        latest = self._instance.get_latest_materialization_event(self._asset_key)
        page_cursor: str | None = None
        while True:
            page = self._instance.fetch_materializations(self._asset_key, limit=_PAGE_EVENTS, cursor=page_cursor)
            for record in page.records:
                if latest is not None:
                    if latest.timestamp > record.timestamp:
                        yield latest  # its run was deleted: paging no longer finds it
                    latest = None
                yield record.event_log_entry
            if not page.has_more:
                break
            page_cursor = page.cursor
        if latest is not None:
            yield latest

    def _cursor_of(self, entry: dg.EventLogEntry) -> CursorState | str:
        """The cursor in one event, or why there is none."""
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
        where = f"Dagster's event of {_when(entry)} for {self._asset_key.to_user_string()}"
        try:
            cursor = parse_cursor(text, where=where)
        except CursorError as error:
            if _is_newer(text):
                raise
            return f"cannot be read: {error.got}"
        return cursor if cursor.source == self._source else f"cursor of another source, {cursor.source}"


def _when(entry: dg.EventLogEntry) -> str:
    from datetime import UTC, datetime

    at = datetime.fromtimestamp(entry.timestamp, tz=UTC).isoformat(timespec="seconds")
    return f"{at} (run {entry.run_id[:8]})" if entry.run_id else at


def _is_newer(text: str) -> bool:
    try:
        document = json.loads(text)
    except ValueError:
        return False
    version = document.get("version") if isinstance(document, dict) else None
    return isinstance(version, int) and version > CURSOR_VERSION
