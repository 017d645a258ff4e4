"""The cursor: what a consumer has acked, in a versioned form for any store (SPEC P10; K3: cursor
and cut agree).

Rules:
- A cursor is written after the cut of its batch, never before.
- It contains everything that the cut does except row counts, so that each can be rebuilt from the
  other. A store whose documents must stay small may leave parts of it to the cut of its batch
  (`ShortCursor`, K25): whoever needs them reconciles the two first.
- Any other `version` is an error: another version of the program wrote it.
- A store replaces only the cursor that it last read or wrote (compare-and-swap on `sort_key`),
  never takes a cursor of another source, and takes an earlier one only if a person decided so
  (`replace`).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Final, Literal, Protocol, get_args

from pydantic import AfterValidator, Field, PlainSerializer, ValidationError

from cdc_pipeline.binlog.seq import seq_of_place
from cdc_pipeline.clock import now_us
from cdc_pipeline.errors import CursorError
from cdc_pipeline.frozen_model import FrozenModel
from cdc_pipeline.position.position import (
    FIRST_OFFSET,
    Flavor,
    LoggedEvent,
    LoggedTransaction,
    Position,
    ServerIdentity,
)
from cdc_pipeline.text.table_names import NameRule

_FORMAT: Final = 5


# What documents have of a position (K25: they stay small).
_PLACE: Final = ("journal", "offset")
_RESUME_PLACE: Final = (*_PLACE, "gtid_set", "journal_created_s")


def _parts(names: Iterable[str], at: Position) -> dict[str, Any]:
    return {name: getattr(at, name) for name in names}


resume_fields = partial(_parts, _RESUME_PLACE)  # those of a `StoredPosition`


Place = Annotated[
    Position,
    AfterValidator(lambda at: Position(**_parts(_PLACE, at))),
    PlainSerializer(partial(_parts, _PLACE)),
]
ResumePlace = Annotated[
    Position,
    AfterValidator(lambda at: Position(**resume_fields(at))),
    PlainSerializer(resume_fields),
]


class StoredPosition(FrozenModel):
    """In the numbering of an epoch, as fields of a document."""

    journal: str
    offset: int = Field(ge=FIRST_OFFSET)
    gtid_set: str = ""
    journal_created_s: int = 0
    epoch: int = Field(default=1, ge=1)

    @property
    def position(self) -> Position:
        return Position(
            self.journal,
            self.offset,
            gtid_set=self.gtid_set,
            journal_created_s=self.journal_created_s,
        )

    @property
    def seq(self) -> int:
        """The first seq of what begins there."""
        return seq_of_place(self.epoch, self.journal, self.offset)


class Suspension(StoredPosition):
    """Why and where one target is suspended while the others go on (K4): where catching up begins,
    which is the end of the last transaction that it contains.

    Attributes:
        passed: the end of the last transaction that it contains, if a transaction that was prepared
            before is open there: catching up then begins before that one.
        error: class name of the error.
        needs_snapshot: catching up cannot help; the table must be read again by a snapshot.
        next_step: the advice of the error; "" if it has none.
        changed_rule: why its rows are not by the present rule, so that only new ones help: beside
            `what`, which is "" without another cause. Gone when the rule is restored.
        past_given_up: a person has said that those may lack what only the lake has.
    """

    passed: Place | None = None
    batch_number: int
    error: str
    what: str
    needs_snapshot: bool = False
    next_step: str = ""
    changed_rule: str = ""
    past_given_up: bool = False

    @property
    def cause(self) -> str:
        """All that keeps the target from following."""
        given_up = "its past is given up" if self.past_given_up else ""
        return "; ".join(filter(None, (self.what, self.changed_rule, given_up)))


class TargetState(FrozenModel):
    """The state of one target's table.

    Attributes:
        table: the target's name in the lake.
        app_id: the table's transaction application id.
        table_version: in this cut, -1 before it was made.
        applied_batch: the last batch that changed it.
        partial: it was neither created in the log nor read by a snapshot, so that it lacks older
            rows (K19).
        suspended: set while the table does not follow the source (K4).
        sources: names of its source tables; () for one table with the target's name.
        exact: the table has equalled the source, key by key, since its CREATE TABLE, and every
            change came as a row event that was applied once (K12: only then may a batch append
            without MERGE). Once lost, it does not return.
        origin: (source table, target) of the configuration that leads to it, if a rename has
            separated the two.
    """

    table: str
    app_id: str
    table_version: int
    applied_batch: int
    partial: bool = False
    suspended: Suspension | None = None
    sources: tuple[str, ...] = ()
    exact: bool = False
    origin: tuple[str, str] | None = None

    @property
    def source_names(self) -> tuple[str, ...]:
        return self.sources or (self.table,)


class XaFile(FrozenModel):
    """Of one table at one schema version (`lake/prepared.py`)."""

    path: str  # relative to the lake
    table: str  # source table, schema.table
    size_bytes: int
    rows: int
    sha256: str


class OpenXa(FrozenModel):
    """A prepared XA transaction whose rows are parked until XA COMMIT (K8).

    Attributes:
        xid: canonical text (`binlog/events/xa.py`).
        gtid: of the transaction that prepared it; "" without GTIDs.
        begin: of its first event.
        prepared_at_us: when the source prepared it, microseconds since 1970; -1 if unknown.
        files: its rows of captured tables; empty if it changed none.
    """

    xid: str
    gtid: str = ""
    begin: Place
    epoch: int = 1
    prepared_at_us: int = -1
    files: tuple[XaFile, ...] = ()

    @property
    def seq(self) -> int:
        """Of its first event."""
        return self.begin.seq(self.epoch)

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)


def oldest_begin(open_xa: Iterable[OpenXa], *, epoch: int) -> Position | None:
    """The first event of the oldest of some prepared transactions of one epoch, or None."""
    begins = [entry.begin for entry in open_xa if entry.epoch == epoch]
    return min(begins, key=lambda begin: begin.order, default=None)


def before_begin(at: Position, begin: Position | None) -> Position:
    """The earlier one; the GTID set of `begin` is completed when it is read from."""
    return at if begin is None or begin.order >= at.order else begin


def left_at(at: Position, begin: Position | None) -> dict[str, Any]:
    """The places of a `Suspension` whose target contains all before `at`; `begin`: of the oldest
    prepared transaction that is open there.
    """
    start = before_begin(at, begin)
    passed = None if start is at else Position(at.journal, at.offset)
    return {**resume_fields(start), "passed": passed}


class CursorPlace(StoredPosition):
    """`last_event` and `last_transaction` verify that the log is still the same (K24),
    `cut_published_at_us` that the lake is (K3); 0: it was written after no cut, or says nothing.
    """

    version: Literal[5] = _FORMAT
    source: str
    batch_number: int = Field(ge=0)
    cut_published_at_us: int = 0
    flavor: Flavor
    server_id: int
    server_uuid: str = ""
    address: str = ""
    lower_case_table_names: NameRule = NameRule.AS_GIVEN
    timestamp_s: int = 0
    event_server_id: int = 0
    last_event: LoggedEvent | None = None
    last_transaction: LoggedTransaction | None = None

    @property
    def identity(self) -> ServerIdentity:
        return ServerIdentity(
            self.flavor,
            self.server_id,
            self.server_uuid,
            self.address,
            self.lower_case_table_names,
        )

    @property
    def sort_key(self) -> tuple[int, int, tuple[int, int]]:
        """Sort key among all cursors of a source: batch number, epoch, log position."""
        return (self.batch_number, self.epoch, self.position.order)

    @property
    def position(self) -> Position:
        return replace(
            super().position,
            timestamp_s=self.timestamp_s,
            server_id=self.event_server_id,
            last_event=self.last_event,
            last_transaction=self.last_transaction,
        )


def cursor_text(cursor: CursorPlace | None) -> str:
    """For people."""
    if cursor is None:
        return "no cursor"
    gtids = f" ({cursor.gtid_set})" if cursor.gtid_set else ""
    return f"batch {cursor.batch_number} at {cursor.position}{gtids}, epoch {cursor.epoch}"


class CursorState(CursorPlace):
    """A consumer's acked state after batch `batch_number`."""

    open_xa: tuple[OpenXa, ...] = ()
    targets: dict[str, TargetState] = Field(default_factory=dict)
    # Shadow tables of online schema changes in progress (`statement_context.Shadow`), as JSON texts
    # by name.
    shadows: dict[str, str] = Field(default_factory=dict)

    @property
    def begin_of_oldest(self) -> Position | None:
        return oldest_begin(self.open_xa, epoch=self.epoch)

    @property
    def suspended(self) -> dict[str, Suspension]:
        return {
            name: state.suspended
            for name, state in self.targets.items()
            if state.suspended is not None
        }


CursorPart = Literal["targets", "gtid_set", "open_xa", "shadows"]
CURSOR_PARTS: Final[tuple[CursorPart, ...]] = get_args(CursorPart)


class PartsOfCut(FrozenModel):
    """`parts`: fields of `CursorState` that a document leaves to its cut, `sha256` of these,
    `targets`: how many, for people; `gtid_added`: what was executed since the cut.
    """

    parts: tuple[CursorPart, ...]
    targets: int
    sha256: str
    gtid_added: str = ""


class ShortCursor(CursorPlace):
    """Without what the cut of its batch has (K25: an event does not grow with the number of
    tables): parts that are None, and a `gtid_set` named in `of_cut`.
    """

    batch_number: int = Field(ge=1)
    open_xa: tuple[OpenXa, ...] | None = None
    targets: dict[str, TargetState] | None = None
    shadows: dict[str, str] | None = None
    of_cut: PartsOfCut


StoredCursor = CursorState | ShortCursor


def cursor_document(cursor: CursorState) -> dict[str, Any]:
    """As plain JSON values. Entries per table omit their defaults (K25: cursors stay small)."""
    document = cursor.model_dump(mode="json", exclude={"targets"})
    document["targets"] = {
        name: state.model_dump(mode="json", exclude_defaults=True)
        for name, state in cursor.targets.items()
    }
    return document


class CursorEntry(FrozenModel):
    """Of a store's history. `where`: it was read from, for people; `run_id`: the orchestrator's
    run that wrote it, "" if unknown; `metadata`: written with it, if the store keeps it.
    """

    cursor: StoredCursor
    at_us: int
    where: str
    run_id: str = ""
    metadata: dict[str, Any] = Field(default_factory=dict)


class CursorStore(Protocol):
    """Memory, Dagster (`orchestration/`) or Delta (`sink/`)."""

    def read(self) -> StoredCursor | None:
        """The latest valid one; None if it was never written, or wiped. CursorError: it cannot be
        parsed.
        """

    def write(
        self, cursor: CursorState, metadata: dict[str, object], *, replace: bool = False
    ) -> None:
        """`metadata` is shown to people; `replace`: a person decided that it may be earlier.

        Raises CursorError: it belongs to another source, it would go back, or another process has
        written since this store last read or wrote.
        """

    def history(self, limit: int) -> list[CursorEntry]:
        """The newest, the first is what `read` returns. CursorError: one cannot be parsed."""


class CursorGuard:
    """The checks of every store before a write. Remembers the last cursor that the store saw."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._seen: StoredCursor | None = None
        self._has_seen = False

    def saw(self, cursor: StoredCursor | None) -> None:
        """Note that the store read or wrote `cursor`; None if there is none."""
        self._seen, self._has_seen = cursor, True

    def checked(self, cursor: StoredCursor | None) -> StoredCursor | None:
        """Note `cursor`, which was read. CursorError: it belongs to another source."""
        if cursor is not None:
            self.check_source(cursor)
        self.saw(cursor)
        return cursor

    def check_source(self, cursor: CursorPlace) -> None:
        """Raise CursorError if the cursor belongs to another source."""
        if self._source and cursor.source != self._source:
            raise of_another_source(self._source, cursor.source)

    def check_write(
        self, cursor: CursorPlace, latest: CursorPlace | None, *, replace: bool
    ) -> None:
        """`latest` still holds when the write takes effect. CursorError: see
        `CursorStore.write`.
        """
        self.check_source(cursor)
        if self._has_seen and _sort_key(latest) != _sort_key(self._seen):
            raise moved_meanwhile(_described(self._seen), _described(latest))
        if not replace and latest is not None and _is_earlier(cursor, latest):
            raise CursorError(
                "the cursor would move back",
                expected=f"{_described(latest)}, or later",
                got=_described(cursor),
                next_step="to move a cursor back, use `cdc-pipeline cursor set "
                f"{cursor.source} --from earliest`, or another position, or `cdc-pipeline "
                f"cursor rebuild {cursor.source}`",
            )


def of_another_source(expected: str, got: str | None) -> CursorError:
    return CursorError("the cursor belongs to another source", expected=expected, got=got)


def moved_meanwhile(expected: str, got: str) -> CursorError:
    return CursorError(
        "another writer has changed the cursor in the meantime",
        expected=expected,
        got=got,
        next_step="let only one run of a source write at a time, and run again to read the new "
        "cursor",
    )


def _is_earlier(cursor: CursorPlace, latest: CursorPlace) -> bool:
    """Whether `cursor` is before `latest`; for two servers only by batch and epoch (SPEC P1)."""
    if cursor.identity.same_server(latest.identity):
        return cursor.sort_key < latest.sort_key
    return cursor.sort_key[:2] < latest.sort_key[:2]


def _sort_key(cursor: CursorPlace | None) -> tuple[int, int, tuple[int, int]] | None:
    return None if cursor is None else cursor.sort_key


def _described(cursor: CursorPlace | None) -> str:
    return (
        "no cursor"
        if cursor is None
        else f"the cursor of batch {cursor.batch_number} at {cursor.position}"
    )


class MemoryCursorStore:
    """A cursor store in memory, for the threads of one process."""

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

    def write(
        self, cursor: CursorState, metadata: dict[str, object], *, replace: bool = False
    ) -> None:
        with self._lock:
            self._guard.check_write(cursor, self.cursor, replace=replace)
            self.cursor = cursor
            self.metadata = metadata
            self._keep(cursor, metadata)
            self._guard.saw(cursor)

    def history(self, limit: int) -> list[CursorEntry]:
        return self._entries[: -limit - 1 : -1] if limit > 0 else []

    def _keep(self, cursor: CursorState, metadata: dict[str, object]) -> None:
        self._entries.append(
            CursorEntry(cursor=cursor, at_us=now_us(), where="memory", metadata=metadata)
        )


_WIPE_STEP = "wipe the cursor asset in Dagster: the next run rebuilds the cursor from the last cut"


def parse_cursor(text: str, *, where: str, next_step: str = _WIPE_STEP) -> StoredCursor:
    """`where` and `next_step`: for its error. CursorError: no cursor, or one of another format."""
    if has_other_format(text):
        raise CursorError(
            f"the cursor in {where} has another format than this version's",
            expected=f"format {_FORMAT}",
            got=f"format {_document(text)['version']}",
            next_step="use the version of the program that wrote it, or remove the cursor and the "
            "lake and take their snapshots again",
        )
    # A short document that lost what it leaves to the cut must not be read as a whole one.
    is_whole = "of_cut" not in _document(text) and _document(text).keys() >= set(CURSOR_PARTS)
    kind = CursorState if is_whole else ShortCursor
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, e['loc'])) or 'cursor'}: {e['msg']}" for e in error.errors()
        )
        raise CursorError(
            f"the cursor in {where} cannot be read",
            expected=f"a cursor of format {_FORMAT}",
            got=problems,
            next_step=next_step,
        ) from None


def has_other_format(text: str) -> bool:
    """Whether a document is a cursor of another version of the program."""
    version = _document(text).get("version")
    return isinstance(version, int) and version != _FORMAT


def _document(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
