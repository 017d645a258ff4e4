"""Reconcile the cursor with the last cut at the start of a run (K3).

Rules:
- The lake decides how far data was applied. The cursor may only lag behind it, or be later in the
  log under the same batch number (a run that applied nothing moves only the position), also in the
  log of another server, under a later epoch.
- A cursor with a higher batch number than the last cut means that the lake was restored or
  replaced: the run stops.
- A cursor knows which cut it was written after. Another cut of its number means, later in the log,
  that the lake was replaced: its state at the cursor is unknown, and the run stops. A short cursor
  (`position/short_cursor.py`) has its missing parts from its own cut alone.
- Which cursor it is has been decided before (form, source, an event of a run and of no partition,
  not wiped): see `orchestration/cursor_store.py`. This table resolves every disagreement; the
  reason goes into the plan, the report and the event of the cursor that is written:

      cursor                                last cut  outcome
      none                                  none      a first run
      none (lost, wiped, never valid)       n         rebuilt from cut n
      batch 0                               none      the cursor
      batch m > 0                           none      stops: ahead
      batch m > n                           n         stops: ahead
      of another server                     n         stops
      batch m < n                           n         moved to cut n
      batch n, earlier in the log           n         moved to cut n: only `cursor set` goes back,
                                                      by a cut
      batch n, same place, other contents   n         moved to cut n; the reason says what differs
      batch n, later, another cut's         n         stops: replaced
      batch n, same place or later          n         the cursor
"""

from __future__ import annotations

from typing import NamedTuple

from cdc_pipeline.errors import LakeStateError
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.position.cursor import CursorPlace, CursorState, ShortCursor, StoredCursor
from cdc_pipeline.position.short_cursor import whole_cursor


class Reconciled(NamedTuple):
    """What the run resumes from; `emit`: the cursor store lacks it and must be given it first."""

    cursor: CursorState | None
    reason: str
    emit: bool


def reconcile(stored: StoredCursor | None, cut: Cut | None) -> Reconciled:
    """LakeStateError: the cursor is ahead, or of another lake or server."""
    if cut is None:
        if stored is None:
            return Reconciled(None, "no cursor and no cut: a first run", False)
        if stored.batch_number > 0 or isinstance(stored, ShortCursor):
            raise _ahead(stored, 0)
        return Reconciled(stored, "the cursor, before any batch was applied", False)
    if stored is None:
        return Reconciled(cut.cursor, f"no cursor: rebuilt from cut {cut.batch_number}", True)
    if stored.batch_number > cut.batch_number:
        raise _ahead(stored, cut.batch_number)
    # A cursor that has moved to another server begins an epoch (K1); within one, both are of the
    # same server.
    if stored.epoch == cut.cursor.epoch and not stored.identity.same_server(cut.cursor.identity):
        raise LakeStateError(
            "the cursor and the lake's last cut belong to different servers",
            expected=str(cut.cursor.identity),
            got=str(stored.identity),
            next_step="point the pipeline at its own server, or give the new server its own "
            "source name and lake",
        )
    if stored.batch_number < cut.batch_number and stored.epoch > cut.cursor.epoch:
        raise LakeStateError(
            "the cursor's epoch is later than that of the lake's last cut, which comes after it",
            expected=f"at most epoch {cut.cursor.epoch}, of cut {cut.batch_number}",
            got=f"epoch {stored.epoch}, batch {stored.batch_number}",
            next_step=f"run `cdc-pipeline cursor rebuild {stored.source}`: it writes the "
            "cursor of the last cut",
        )
    if stored.batch_number < cut.batch_number:
        return Reconciled(
            cut.cursor,
            f"the cursor was at batch {stored.batch_number}: moved to cut {cut.batch_number}",
            True,
        )
    if (stored.epoch, stored.position.order) < (cut.cursor.epoch, cut.cursor.position.order):
        return Reconciled(
            cut.cursor, f"the cursor was before the cut of its own number, {cut.batch_number}", True
        )
    cursor = whole_cursor(stored, cut.cursor)
    is_its_own = cursor is not None and stored.cut_published_at_us in (0, cut.published_at_us)
    if not is_its_own and stored.sort_key != cut.cursor.sort_key:
        raise _replaced(stored, cut)
    differing = _differing(stored if cursor is None else cursor, cut.cursor)
    if cursor is None or differing:
        reason = (
            f"the cursor differs from cut {cut.batch_number} in {', '.join(differing)}: "
            "moved to the cut"
        )
        return Reconciled(cut.cursor, reason, True)
    return Reconciled(
        cursor, f"the cursor of batch {cursor.batch_number}, confirmed by the last cut", False
    )


def _differing(cursor: StoredCursor, of_cut: CursorState) -> list[str]:
    if cursor.sort_key != of_cut.sort_key:
        return []
    if isinstance(cursor, ShortCursor):  # their digest contradicts it
        return list(cursor.of_cut.parts)
    return [
        name
        for name in ("gtid_set", "journal_created_s", "open_xa", "targets")
        if getattr(cursor, name) != getattr(of_cut, name)
    ]


def _replaced(cursor: CursorPlace, cut: Cut) -> LakeStateError:
    number = cut.batch_number
    return LakeStateError(
        "the cursor is later in the log than the lake's last cut, and was written after another "
        "cut of its number: the lake was restored from a backup or replaced",
        expected=f"the cut {number} that the cursor at {cursor.position} was written after",
        got=f"another cut {number}, at {cut.cursor.position}",
        next_step="restore the lake's newest state; or, to continue from the lake as it is, run "
        f"`cdc-pipeline cursor rebuild {cursor.source} --yes`",
    )


def _ahead(cursor: CursorPlace, cut_number: int) -> LakeStateError:
    return LakeStateError(
        "the cursor is ahead of the lake: the lake was restored from a backup, replaced or deleted",
        expected=f"a cut of batch {cursor.batch_number} in the lake",
        got=f"last cut: batch {cut_number}" if cut_number else "no cut",
        next_step="restore the lake's newest state; or, "
        + (
            f"to continue from the lake as it is, run `cdc-pipeline cursor rebuild {cursor.source} "
            "--yes`"
            if cut_number
            else "to start again with an empty lake, wipe the cursor asset in Dagster (`dagster "
            f"asset wipe {cursor.source}/cursor`): the next run is a first one"
        ),
    )
