"""Find prepared XA transactions whose end is not in the log (K8, K34).

Rules:
- A live server lists what is prepared. What it did not list before the run's end was fixed has
  ended before that end. If the log up to there does not end it, its end is lost: it was written
  with sql_log_bin = 0.
- Whether its rows count cannot be known then. Each run that reads to the log's end does all else,
  and fails, until `accept.unknown_xa` names the xid: its rows are dropped, which is noted. One
  without rows of captured tables is dropped at once.
- An archive lists nothing, nor does MySQL for an account without XA_RECOVER_ADMIN.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from shlex import quote

from cdc_pipeline.errors import TransactionError
from cdc_pipeline.lake.records import Interval, Note
from cdc_pipeline.lake.suspensions import new_snapshot
from cdc_pipeline.position.cursor import OpenXa
from cdc_pipeline.position.position import Position
from cdc_pipeline.run.capture.capture_session import CaptureContext
from cdc_pipeline.run.capture.summary import RunState
from cdc_pipeline.schema.ddl.session import canonical_xid


def drop_lost(
    context: CaptureContext, state: RunState, *, before: Sequence[OpenXa], listed: Collection[str]
) -> tuple[RunState, TransactionError | None]:
    """Forget transactions `before` the run whose end is lost, where a person has accepted that;
    with the error of the first other one. `listed`: xids at the server before the end of the log
    was fixed.
    """
    cursor = state.cursor
    if cursor is None:
        return state, None
    old = {(xa.xid, xa.epoch, xa.begin) for xa in before}
    lost = [
        xa for xa in cursor.open_xa if xa.xid not in listed and (xa.xid, xa.epoch, xa.begin) in old
    ]
    accepted = {canonical_xid(text) for text in context.config.accept.unknown_xa}
    dropped = [xa for xa in lost if not xa.files or xa.xid in accepted]
    if dropped:
        kept = tuple(xa for xa in cursor.open_xa if xa not in dropped)
        cursor = cursor.model_copy(update={"open_xa": kept})
        notes = tuple(
            unknown_xa_note(
                f"{xa.rows} rows of {xa.xid} were dropped: the server no longer has it, and the "
                "log that was read lacks its end",
                xa.begin.journal,
                xa.begin.offset,
            )
            for xa in dropped
        )
        interval = Interval(start=cursor.position, end=cursor.position)
        context.move(cursor, interval, notes=notes)
        state.main.moved(interval, (), notes)
        state = replace(state, cursor=cursor)
    left = next((xa for xa in lost if xa not in dropped), None)
    if left is None:
        return state, None
    rows: Counter[str] = Counter()
    for file in left.files:
        rows[file.table] += file.rows
    source, found = context.config.name, "the server no longer has it"
    return state, lost_end(left.xid, left.begin, rows, source=source, found=found)


def lost_end(
    xid: str, begin: Position, rows: Mapping[str, int], *, source: str, found: str
) -> TransactionError:
    """`rows`: how many wait, by source table; `found`: what shows that it has ended."""
    tables = sorted(rows)
    place, count = f"{begin.journal}:{begin.offset}", sum(rows.values())
    snapshots = "; ".join(new_snapshot(source, table) for table in tables)
    return TransactionError(
        f"the XA transaction {xid} is still open in the lake, but {found}",
        at=begin,
        table=", ".join(tables) or None,
        setting="accept.unknown_xa",
        expected="its XA COMMIT or XA ROLLBACK in the log that was read",
        got=f"neither since its transaction at {place}, of which {count} rows wait: the end "
        "was written with sql_log_bin = 0",
        next_step=f"if the log from there still exists, `cdc-pipeline cursor set {quote(source)} "
        f"--from {place}` and run again: what lies behind is read again, with the end if the log "
        "has it. Otherwise list this xid in accept.unknown_xa and run again, which drops the "
        "waiting rows and notes it; then take snapshots of what it changed"
        + (f": {snapshots}" if snapshots else " of captured tables"),
    )


def unknown_xa_note(text: str, journal: str, offset: int) -> Note:
    """Of a transaction whose begin or end is not in the log, as a person accepts."""
    return Note(kind="accepted_unknown_xa", text=text, journal=journal, offset=offset)
