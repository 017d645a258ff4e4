"""The cursor: what a consumer has acked, in a versioned form that any store can hold (K3, SPEC P10).

Rules:
- A cursor is written after its batch's cut, never before.
- It carries all that the cut does but the tables' counts, so that either can rebuild the other.
- An unknown `version` is an error: a newer program wrote it.
- A store takes a cursor only over the one that it last showed or wrote (compare-and-swap on place), never of another
  source, and never an earlier one, unless a person decided that (`replace`).
"""

from __future__ import annotations

import threading
import time
from typing import Any, Literal, Protocol

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from cdc_pipeline.errors import CursorError
from cdc_pipeline.position.position import Flavor, LoggedEvent, Position, ServerIdentity

CURSOR_VERSION = 2


class _Plain(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Suspension(_Plain):
    """Why and where one target stands still while the others go on (K4).

    Attributes:
        batch_number: the batch that it failed in.
        error: class of the error.
        what: what went wrong, for people.
        journal, offset, gtid_set, journal_created_s, epoch: the end of the last transaction that the target holds;
            catching up begins there.
        needs_reload: True where catching up cannot mend it: the table must be loaded anew.
        next_step: what the error itself advises; "" where it advises nothing.
    """

    batch_number: int
    error: str
    what: str
    journal: str
    offset: int
    gtid_set: str = ""
    journal_created_s: int = 0
    epoch: int = 1
    needs_reload: bool = False
    next_step: str = ""

    @property
    def position(self) -> Position:
        """Where catching up begins."""
        return Position(
            journal=self.journal,
            offset=self.offset,
            gtid_set=self.gtid_set,
            journal_created_s=self.journal_created_s,
        )


class TargetState(_Plain):
    """Where one target's table stands.

    Attributes:
        table: the target's name, ``schema.table`` in the lake.
        app_id: the table's transaction application id.
        table_version: of the table in this cut, -1 before it was made; `delta_version` in cursors
            of earlier versions.
        applied_batch: number of the last batch that changed it.
        partial: True for a table that was neither created in the log nor loaded (K19).
        suspended: set while the table does not follow the source (K4).
        sources: names of its source tables; () where it is one of the target's own name.
        exact: the table holds what the source holds, key by key, since its CREATE TABLE, and every change of it came as
            a row event, each applied once (K12). Once lost it does not come back.
        origin: (source table, target) by which the configuration leads to it, where a rename has parted the two.
    """

    table: str
    app_id: str
    table_version: int = Field(validation_alias=AliasChoices("table_version", "delta_version"))
    applied_batch: int
    partial: bool = False
    suspended: Suspension | None = None
    sources: tuple[str, ...] = ()
    exact: bool = False
    origin: tuple[str, str] | None = None

    @property
    def source_names(self) -> tuple[str, ...]:
        """Names of the source tables, ``schema.table``."""
        return self.sources or (self.table,)


class XaFile(_Plain):
    """Rows of one table at one schema version that a prepared XA transaction parked (see `lake/prepared.py`)."""

    path: str  # relative to the lake
    table: str  # source table, schema.table
    size_bytes: int
    rows: int
    sha256: str


class OpenXa(_Plain):
    """A prepared XA transaction whose rows are parked and wait for XA COMMIT (K8).

    Attributes:
        xid: canonical text (`binlog/events/xa.py`).
        gtid: of the transaction that prepared it; "" without GTIDs.
        prepared_journal, prepared_offset, epoch: its first event, and the numbering of that journal.
        prepared_at_us: when it was prepared at the source; -1 unknown.
        files: its rows of captured tables; none where it changed no captured table.
    """

    xid: str
    gtid: str = ""
    prepared_journal: str
    prepared_offset: int
    epoch: int = 1
    prepared_at_us: int = -1
    files: tuple[XaFile, ...] = ()

    @property
    def rows(self) -> int:
        """Changes of captured tables that wait."""
        return sum(file.rows for file in self.files)


class CursorState(_Plain):
    """A consumer's acked state after batch `batch_number`.

    `last_event` proves at the next run that the log is still the same (K24); None in cursors of earlier versions.
    """

    version: Literal[1, 2] = 2
    source: str
    batch_number: int = Field(ge=0)
    epoch: int = Field(default=1, ge=1)
    flavor: Flavor
    server_id: int
    server_uuid: str = ""
    address: str = ""
    journal: str
    offset: int = Field(ge=4)
    timestamp_s: int = 0
    event_server_id: int = 0
    gtid_set: str = ""
    journal_created_s: int = 0
    last_event: LoggedEvent | None = None
    open_xa: tuple[OpenXa, ...] = ()
    targets: dict[str, TargetState] = Field(default_factory=dict)
    # Shadow tables of online schema changes that are under way (`schema/evolution/shadows.py`), as JSON texts by name.
    shadows: dict[str, str] = Field(default_factory=dict)

    @property
    def identity(self) -> ServerIdentity:
        return ServerIdentity(self.flavor, self.server_id, self.server_uuid, self.address)

    @property
    def place(self) -> tuple[int, int, tuple[int, int]]:
        """Sort key among all cursors of a source: batch number, epoch, place in the log."""
        return (self.batch_number, self.epoch, self.position.order)

    @property
    def suspended(self) -> dict[str, Suspension]:
        """The targets that stand still, by table (K4)."""
        return {name: state.suspended for name, state in self.targets.items() if state.suspended is not None}

    @property
    def position(self) -> Position:
        return Position(
            journal=self.journal,
            offset=self.offset,
            timestamp_s=self.timestamp_s,
            server_id=self.event_server_id,
            gtid_set=self.gtid_set,
            journal_created_s=self.journal_created_s,
            last_event=self.last_event,
        )


def cursor_document(cursor: CursorState) -> dict[str, Any]:
    """Return a cursor as plain JSON values. What there is one of for each table leaves its defaults out (K25)."""
    document = cursor.model_dump(mode="json", exclude={"targets"})
    document["targets"] = {
        name: state.model_dump(mode="json", exclude_defaults=True) for name, state in cursor.targets.items()
    }
    return document


class CursorEntry(_Plain):
    """One cursor of a store's history.

    Attributes:
        cursor: as it was written.
        at_us: when, microseconds since 1970.
        where: the place that it was read from, for people.
        run_id: of the orchestrator's run that wrote it; "" where unknown.
        metadata: what was shown with it, where the store keeps that.
    """

    cursor: CursorState
    at_us: int
    where: str
    run_id: str = ""
    metadata: dict[str, Any] = Field(default_factory=dict)


class CursorStore(Protocol):
    """Where a cursor lives: in memory, in a file (`cursor_file`), in Dagster (`orchestration/`), in Delta (`sink/`)."""

    def read(self) -> CursorState | None:
        """Latest valid cursor, or None where there is none (never written, or wiped).

        Raises:
            CursorError: there is one that cannot be understood.
        """

    def write(self, cursor: CursorState, metadata: dict[str, object], *, replace: bool = False) -> None:
        """Make `cursor` the latest.

        Args:
            cursor: what the next read gives.
            metadata: plain values (interval, counts, cut), shown to people.
            replace: a person's decision that the cursor may be earlier than the one that is there.

        Raises:
            CursorError: it is another source's, it would go back, or somebody else has written since this store read
                or wrote last.
        """

    def history(self, limit: int) -> list[CursorEntry]:
        """The newest `limit` cursors that are kept, newest first; the first is what `read` gives.

        Raises:
            CursorError: there is one that cannot be understood.
        """


class CursorGuard:
    """What every store checks before it writes; it remembers the cursor that its store saw last."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._seen: CursorState | None = None
        self._has_seen = False

    def saw(self, cursor: CursorState | None) -> None:
        """The store read or wrote `cursor` (None: there is none)."""
        self._seen, self._has_seen = cursor, True

    def shown(self, cursor: CursorState | None) -> CursorState | None:
        """`cursor`, which the store has read for its caller.

        Raises:
            CursorError: it belongs to another source.
        """
        if cursor is not None:
            self.check_source(cursor)
        self.saw(cursor)
        return cursor

    def check_source(self, cursor: CursorState) -> None:
        """Raises CursorError where the cursor belongs to another source."""
        if self._source and cursor.source != self._source:
            raise CursorError("the cursor belongs to another source", expected=self._source, got=cursor.source)

    def check_write(self, cursor: CursorState, latest: CursorState | None, *, replace: bool) -> None:
        """Compare `cursor` with the `latest` one in the store, which is still there when the write takes effect.

        Raises:
            CursorError: see `CursorStore.write`.
        """
        self.check_source(cursor)
        if self._has_seen and _place(latest) != _place(self._seen):
            raise CursorError(
                "the cursor was written by somebody else meanwhile",
                expected=_described(self._seen),
                got=_described(latest),
                next_step="let one run of a source write at a time, and start again: it reads the cursor anew",
            )
        if not replace and latest is not None and _is_earlier(cursor, latest):
            raise CursorError(
                "the cursor would go back",
                expected=f"{_described(latest)}, or later",
                got=_described(cursor),
                next_step=f"only `cdc-pipeline cursor set {cursor.source} --earliest`, or another place, and "
                f"`cdc-pipeline cursor rebuild {cursor.source}` move a cursor back",
            )


def _is_earlier(cursor: CursorState, latest: CursorState) -> bool:
    """Whether `cursor` lies before `latest`; places of two servers are compared by batch and epoch alone (SPEC P1)."""
    if cursor.identity.same_server(latest.identity):
        return cursor.place < latest.place
    return cursor.place[:2] < latest.place[:2]


def _place(cursor: CursorState | None) -> tuple[int, int, tuple[int, int]] | None:
    return None if cursor is None else cursor.place


def _described(cursor: CursorState | None) -> str:
    return "no cursor" if cursor is None else f"the cursor of batch {cursor.batch_number} at {cursor.position}"


class MemoryCursorStore:
    """A cursor store that forgets with its process; for the threads of one process."""

    def __init__(self, cursor: CursorState | None = None, *, source: str = "") -> None:
        self.cursor = cursor
        self.metadata: dict[str, object] = {}
        self._guard = CursorGuard(source or (cursor.source if cursor is not None else ""))
        self._lock = threading.Lock()
        self._entries: list[CursorEntry] = []
        if cursor is not None:
            self._keep(cursor, {})

    def read(self) -> CursorState | None:
        self._guard.saw(self.cursor)
        return self.cursor

    def write(self, cursor: CursorState, metadata: dict[str, object], *, replace: bool = False) -> None:
        with self._lock:
            self._guard.check_write(cursor, self.cursor, replace=replace)
            self.cursor = cursor
            self.metadata = metadata
            self._keep(cursor, metadata)
            self._guard.saw(cursor)

    def history(self, limit: int) -> list[CursorEntry]:
        return self._entries[: -limit - 1 : -1] if limit > 0 else []

    def _keep(self, cursor: CursorState, metadata: dict[str, object]) -> None:
        now_us = time.time_ns() // 1000
        self._entries.append(CursorEntry(cursor=cursor, at_us=now_us, where="memory", metadata=metadata))


_WIPE_STEP = "wipe the cursor asset in Dagster: the next run rebuilds the cursor from the last cut"


def parse_cursor(text: str, *, where: str, next_step: str = _WIPE_STEP) -> CursorState:
    """Cursor from its JSON text; `where` names the place for the error, `next_step` the way out.

    Raises:
        CursorError: not a cursor of a version that this program knows.
    """
    try:
        return CursorState.model_validate_json(text)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'cursor'}: {e['msg']}" for e in error.errors())
        raise CursorError(
            f"the cursor in {where} cannot be read",
            expected=f"a cursor of version {CURSOR_VERSION}",
            got=problems,
            next_step=next_step,
        ) from None
