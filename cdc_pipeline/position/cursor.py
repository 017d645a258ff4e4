"""The cursor: what a consumer has acked, in a versioned form that any store can hold (K3, SPEC P10).

Rules:
- A cursor is written after its batch's cut, never before.
- It carries all that the cut does but the tables' counts, so that either can rebuild the other.
- An unknown `version` is an error: a newer program wrote it.
"""

from __future__ import annotations

from typing import Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cdc_pipeline.errors import CursorError
from cdc_pipeline.position.position import Flavor, Position, ServerIdentity

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
    """Where one Delta table stands.

    Attributes:
        table: source table, ``schema.table``.
        app_id: the table's transaction application id in Delta.
        delta_version: version of the Delta table in this cut.
        applied_batch: number of the last batch that changed it.
        partial: True for a table that was neither created in the log nor loaded (K19).
        suspended: set while the table does not follow the source (K4).
    """

    table: str
    app_id: str
    delta_version: int
    applied_batch: int
    partial: bool = False
    suspended: Suspension | None = None


class OpenXa(_Plain):
    """A prepared XA transaction whose rows are staged and wait for XA COMMIT (K8)."""

    xid: str
    prepared_journal: str
    prepared_offset: int
    staged_files: tuple[str, ...] = ()


class CursorState(_Plain):
    """A consumer's acked state after batch `batch_number`."""

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
    open_xa: tuple[OpenXa, ...] = ()
    targets: dict[str, TargetState] = Field(default_factory=dict)

    @property
    def identity(self) -> ServerIdentity:
        return ServerIdentity(self.flavor, self.server_id, self.server_uuid, self.address)

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
        )


class CursorStore(Protocol):
    """Where a cursor lives. Its Dagster form is in `orchestration/`, the in-memory form is for tests and the CLI."""

    def read(self) -> CursorState | None:
        """Latest valid cursor, or None where there is none (never written, or wiped).

        Raises:
            CursorError: there is one that cannot be understood.
        """

    def write(self, cursor: CursorState, metadata: dict[str, object]) -> None:
        """Make `cursor` the latest. `metadata` (plain values: interval, counts, cut) is shown to people."""


class MemoryCursorStore:
    """A cursor store that forgets with its process."""

    def __init__(self, cursor: CursorState | None = None) -> None:
        self.cursor = cursor
        self.history: list[CursorState] = [] if cursor is None else [cursor]
        self.metadata: dict[str, object] = {}

    def read(self) -> CursorState | None:
        return self.cursor

    def write(self, cursor: CursorState, metadata: dict[str, object]) -> None:
        self.cursor = cursor
        self.metadata = metadata
        self.history.append(cursor)


def parse_cursor(text: str, *, where: str) -> CursorState:
    """Cursor from its JSON text; `where` names the place for the error.

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
            next_step="wipe the cursor asset in Dagster: the next run rebuilds the cursor from the last cut",
        ) from None
