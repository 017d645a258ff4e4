"""Move the cursor for a person: `set` to another place, `rebuild` from the last cut (K3).

Rules:
- Both are planned first, which writes nothing and shows the consequences. They are then applied
  under the writer's lock, only if the cursor is still where the plan saw it.
- `set` leaves a record: a batch of kind ``cursor_set`` under the next number, its cut, then the
  cursor. Cut and cursor agree afterwards, so that the next run resumes from there, even backward.
  After a crash before the cut, the next run repairs it from the record; after one before the
  cursor, by moving the cursor to the cut.
- Back: transactions are read again; the merge keeps rows that are newer (seq), but a key deleted
  since may reappear until the old place is passed (K18). Forward: a gap, recorded, that makes every
  table partial (K19).
- The epoch grows if the journals are numbered differently from the old cursor's: new rows then
  count as newer (K1).
- Not while a recorded batch is unfinished.
"""

from __future__ import annotations

from contextlib import closing
from typing import Final, Literal, NamedTuple

from cdc_pipeline.binlog.seq import journal_number
from cdc_pipeline.config.pipeline_config import PipelineConfig, Start
from cdc_pipeline.errors import (
    CursorError,
    JournalMissingError,
    LakeStateError,
    PositionError,
    SourceIdentityError,
)
from cdc_pipeline.frozen_model import FrozenModel
from cdc_pipeline.lake.records import Cut, Note
from cdc_pipeline.position.cursor import (
    CursorState,
    CursorStore,
    StoredCursor,
    TargetState,
    cursor_text,
)
from cdc_pipeline.position.gtid.sets import GtidSet, MariadbGtidSet, parse_gtid_set
from cdc_pipeline.position.position import Position
from cdc_pipeline.position.start.same_log import check_same_log
from cdc_pipeline.position.start.start import resolve_start
from cdc_pipeline.run.admin_batch import AdminBatch, finished_state
from cdc_pipeline.run.capture.commit import cursor_state
from cdc_pipeline.run.decode.schemas import history_file
from cdc_pipeline.run.plan.reconcile import reconcile
from cdc_pipeline.run.plan.starting import choose
from cdc_pipeline.run.publish import Publisher, cursor_metadata
from cdc_pipeline.run.wiring import build_sink, build_source
from cdc_pipeline.sink.lake_sink import Sink
from cdc_pipeline.source.protocol import Source

Direction = Literal["first", "same", "back", "forward", "back_and_forward"]
_DOING: Final = "set the cursor"


class CursorChange(FrozenModel):
    """`old`: what a run would resume from; for `rebuild` the stored one."""

    source: str
    kind: Literal["set", "rebuild"]
    old: StoredCursor | None
    new: CursorState | None
    direction: Direction
    reasons: tuple[str, ...]
    consequences: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()
    nothing_to_do: bool = False


class _Move(NamedTuple):
    """What lies between two places, each with how much, in words ("" unknown)."""

    is_back: bool
    is_forward: bool
    again: str = ""
    gap: str = ""

    @property
    def direction(self) -> Direction:
        if self.is_back and self.is_forward:
            return "back_and_forward"
        return "back" if self.is_back else "forward" if self.is_forward else "same"


# -- set -------------------------------------------------------------------------------------------


def plan_set(
    config: PipelineConfig, *, cursors: CursorStore, to: Start, who: str, why: str = ""
) -> CursorChange:
    """Plan to move the cursor to `to`. Queries the source; writes nothing. Raises PositionError,
    SourceError: `to` is not between two transactions of this source's log; LakeStateError: a
    batch is unfinished, or cursor and lake contradict each other.
    """
    sink = build_sink(config)
    old, cut = finished_state(sink, cursors, doing=_DOING)
    with closing(build_source(choose(config).config)) as source:
        source.check()
        decision = resolve_start(cursor=None, start=to, source=source)
        source.validate_position(decision.position)
        return _change(
            config, sink, source, old, cut, decision.position, decision.reasons[1:], who, why
        )


def apply_set(
    config: PipelineConfig, *, cursors: CursorStore, change: CursorChange, run_id: str = ""
) -> Cut:
    """Record, cut, cursor. LockError: a run is writing; CursorError: it has moved."""
    sink = build_sink(config)
    with sink.lock():
        sink.discard_unrecorded()
        old, cut = finished_state(sink, cursors, doing=_DOING)
        new = change.new
        _check_unmoved(change, old)
        assert new is not None
        history_file(config).forget()  # the cursor may pass over DDL
        # It covers nothing; its notes say that the batch before ends elsewhere.
        batch = AdminBatch(Publisher(sink, cursors, run_id=run_id), cut=cut, cursor=new)
        return batch.publish(kind="cursor_set", notes=change.notes, source_time_us=-1)


def _check_unmoved(change: CursorChange, old: StoredCursor | None) -> None:
    if old != change.old:
        raise CursorError(
            "the cursor has moved since the change was planned",
            expected=cursor_text(change.old),
            got=cursor_text(old),
            next_step=f"run `cdc-pipeline cursor show {change.source}`, then plan the change again",
        )


def _change(
    config: PipelineConfig,
    sink: Sink,
    source: Source,
    old: CursorState | None,
    cut: Cut | None,
    position: Position,
    reasons: tuple[str, ...],
    who: str,
    why: str,
) -> CursorChange:
    number = (cut.batch_number if cut is not None else 0) + 1
    change = CursorChange(
        source=config.name, kind="set", old=old, new=None, direction="first", reasons=reasons
    )
    if old is None:
        new = cursor_state(config.name, source.identity, position, batch_number=number)
        return change.model_copy(update={"new": new, "notes": (_note_set(None, new, who, why),)})
    renumbered = _renumbered(old, source)
    move = _Move(True, True) if renumbered else _move(old, position)
    targets = {
        name: _target_after(target, position, move, is_renumbered=bool(renumbered))
        for name, target in old.targets.items()
    }
    open_xa = tuple(
        xa
        for xa in old.open_xa
        if not renumbered and (not move.is_back or xa.begin.order < position.order)
    )
    new = cursor_state(
        config.name,
        source.identity,
        position,
        batch_number=number,
        epoch=old.epoch + 1 if renumbered else old.epoch,
        open_xa=open_xa,
        targets=targets,
    )
    notes = [_note_set(old, new, who, why)]
    said = []
    if renumbered:
        said += [
            renumbered,
            f"the epoch grows to {new.epoch}: everything that is read from now on counts as newer "
            "than the lake's rows",
        ]
    if move.is_back:
        said += _said_back(sink, old, position, move, is_same_numbering=not renumbered)
    if move.is_forward:
        text = (
            f"a gap from {old.position} to {position}{f', {move.gap}' if move.gap else ''}: it "
            "is never applied"
        )
        said.append(f"{text}; every table is labelled partial until a new snapshot replaces it")
        notes.append(_note("gap", text, old))
    if dropped := len(old.open_xa) - len(open_xa):
        text = (
            f"{dropped} prepared XA transactions are forgotten: they count only if their XA "
            "PREPARE is read again"
        )
        said.append(text)
        notes.append(_note("open_xa_dropped", text, new))
    return change.model_copy(
        update={
            "new": new,
            "direction": move.direction,
            "consequences": tuple(said),
            "notes": tuple(notes),
            "nothing_to_do": move.direction == "same",
        }
    )


def _target_after(
    target: TargetState, position: Position, move: _Move, *, is_renumbered: bool
) -> TargetState:
    """Partial after a gap; a suspended one is never ahead of the cursor."""
    update: dict[str, object] = {"partial": True} if move.is_forward else {}
    at = target.suspended
    if at is not None and is_renumbered:
        # its journals are of the old numbering
        update["suspended"] = at.model_copy(update={"needs_snapshot": True})
    elif (
        at is not None and move.is_back and (journal_number(at.journal), at.offset) > position.order
    ):
        # It holds more than that; reading it twice is harmless, and catching up ends at the last
        # cut.
        update["suspended"] = at.model_copy(
            update={
                "journal": position.journal,
                "offset": position.offset,
                "gtid_set": position.gtid_set,
                "journal_created_s": position.journal_created_s,
            }
        )
    return target.model_copy(update=update)


def _renumbered(old: CursorState, source: Source) -> str:
    """Why the journals are not those of the old cursor's numbering; "" if they are."""
    identity = source.identity
    if not old.identity.same_server(identity):
        return f"the source is another server: {identity} in place of {old.identity}"
    try:
        check_same_log(source, old.position)
        source.validate_position(old.position)
    except JournalMissingError:
        return ""  # purged: an older journal of the same numbering
    except (SourceIdentityError, PositionError) as error:
        return f"the log is not the one that the cursor was taken from: {error.what}"
    return ""


def _move(old: CursorState, position: Position) -> _Move:
    if not (old.gtid_set and position.gtid_set):  # a source may have begun or ceased to use GTIDs
        order = old.position.order
        return _Move(is_back=position.order < order, is_forward=position.order > order)
    before = parse_gtid_set(old.gtid_set, old.flavor)
    after = parse_gtid_set(position.gtid_set, old.flavor)
    again, gap = before.subtract(after), after.subtract(before)
    return _Move(bool(again), bool(gap), again=_counted(again, after), gap=_counted(gap, before))


def _counted(transactions: GtidSet, before: GtidSet) -> str:
    """A GTID position of MariaDB names the last of each domain and not how many."""
    if not transactions:
        return ""
    if isinstance(transactions, MariadbGtidSet):
        return f"everything after {before or 'the beginning of the log'} up to {transactions}"
    number = transactions.count()
    return f"{number:,} transaction{'' if number == 1 else 's'} ({transactions})"


def _said_back(
    sink: Sink, old: CursorState, position: Position, move: _Move, *, is_same_numbering: bool
) -> list[str]:
    if not is_same_numbering:
        return [
            f"the log is read from {position}; changes that the lake already has are applied again"
        ]
    said = [
        f"{move.again or f'everything from {position} to {old.position}'} will be read again; "
        "newer rows in the lake stay",
        f"until a run has passed {old.position}, keys deleted since then may reappear",
    ]
    statements = _statements_after(sink, position)
    if statements:
        said.append(
            f"{statements} DDL statements of captured tables will be read again; one that cannot "
            "be repeated stops"
        )
    return said


def _statements_after(sink: Sink, position: Position) -> int:
    count = 0
    for number in reversed(sink.cuts()):
        cut = sink.read_cut(number)
        if cut.cursor.position.order <= position.order:
            break
        count += sum((journal_number(ddl.journal), ddl.offset) >= position.order for ddl in cut.ddl)
    return count


def _note_set(old: CursorState | None, new: CursorState, who: str, why: str) -> Note:
    text = f"set from {cursor_text(old)} to {cursor_text(new)} by {who}"
    return _note("cursor_set", f"{text}: {why}" if why else text, new)


def _note(kind: str, text: str, at: CursorState) -> Note:
    return Note(kind=kind, text=text, journal=at.journal, offset=at.offset)


# -- rebuild ---------------------------------------------------------------------------------------


def plan_rebuild(config: PipelineConfig, *, cursors: CursorStore, who: str) -> CursorChange:
    """From the last cut, without a server; LakeStateError if there is none."""
    sink = build_sink(config)
    cut, stored = sink.last_cut(), cursors.read()
    direction: Direction = "same"
    try:
        reconciled = reconcile(stored, cut)
        nothing, reason = not reconciled.emit, reconciled.reason
        if reconciled.emit:
            direction = "first" if stored is None else "forward"
    except LakeStateError as error:
        if cut is None:
            raise
        nothing, reason, direction = False, f"{error.what}; got: {error.got}", "back"
    change = CursorChange(
        source=config.name,
        kind="rebuild",
        old=stored,
        new=None,
        direction=direction,
        reasons=(reason,),
    )
    if nothing or cut is None:
        return change.model_copy(update={"new": stored, "direction": "same", "nothing_to_do": True})
    said = [f"{cursor_text(stored)} is replaced by {cursor_text(cut.cursor)}"]
    if direction == "back":
        said.append(
            "what the source committed between the two is read again, and applied to the "
            "lake as it is now"
        )
    text = f"rebuilt from cut {cut.batch_number} by {who}; it replaced {cursor_text(stored)}"
    return change.model_copy(
        update={
            "new": cut.cursor,
            "consequences": tuple(said),
            "notes": (_note("cursor_rebuilt", text, cut.cursor),),
        }
    )


def apply_rebuild(config: PipelineConfig, *, cursors: CursorStore, change: CursorChange) -> None:
    """LockError: a run is writing; CursorError: the cursor, or the last cut, has moved."""
    sink = build_sink(config)
    with sink.lock():
        _check_unmoved(change, cursors.read())
        cut = sink.last_cut()
        if cut is None or cut.cursor != change.new:
            raise CursorError(
                "the last cut has changed since the change was planned",
                next_step=f"run `cdc-pipeline cursor show {config.name}`",
            )
        metadata = cursor_metadata(cut.interval, cut) | {
            "notes": [note.model_dump() for note in change.notes]
        }
        cursors.write(cut.cursor, metadata, replace=True)
