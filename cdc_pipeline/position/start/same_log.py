"""Check that a cursor's log is still the source's log (K24: a replaced log must not be read on).

Rules:
- A server that was set back (a disk snapshot, a power cut, a restore) writes other transactions
  under the same journal names and GTIDs. Journal, offset and GTID set may all match, and rows of
  the lost transactions would stay in the lake forever.
- A cursor therefore records the last event that was read before it: offset, length and CRC32.
  Before a run reads on, the journal must reach the cursor's offset, have the cursor's creation time
  and contain that event. Reading it costs one short dump.
- Only a small event is recorded, so that the check never transfers a large transaction again: after
  a compressed transaction it is the GTID event before the payload, which contains the payload's
  length.
- A cursor without a recorded event (from an earlier version, set by a person, or before anything
  was read) is checked by length and creation time. The next read records one.
- A purged journal cannot be compared; then GTID sets decide (`source.server_positions`).
"""

from __future__ import annotations

import zlib
from contextlib import closing
from typing import Any, Final, cast

import numpy as np

from cdc_pipeline.binlog.chunk import Chunk, EventSlice
from cdc_pipeline.binlog.event_types import EventType
from cdc_pipeline.errors import BinlogError, PositionError, SourceIdentityError
from cdc_pipeline.position.position import LoggedEvent, Position, ServerIdentity
from cdc_pipeline.position.start.types import StartSource

LOGGED_BYTES_MAX: Final = 64 << 10
_OFFSET_MAX: Final = (1 << 32) - 1  # the largest offset at which a dump can begin
# A server rewrites the first while its journal is open and when sending it, and never sends the
# second.
_UNSTABLE: Final = (EventType.FORMAT_DESCRIPTION, EventType.MARIADB_START_ENCRYPTION)


def last_logged_event(piece: EventSlice) -> LoggedEvent | None:
    """Return the last event of `piece` that can be found again in its journal; None if there is
    none.

    It is small, is equal in the journal and in memory (unlike a compressed payload), and never
    changes.
    """
    for events in (piece.events[-1:], piece.events):  # nearly always the last one qualifies
        size_bytes = events["next_offset"] - events["offset"]
        matches = (
            (events["parent"] < 0)
            & (events["event_length"] == size_bytes)
            & (size_bytes <= LOGGED_BYTES_MAX)
        )
        matches &= (events["offset"] <= _OFFSET_MAX) & ~np.isin(events["event_type"], _UNSTABLE)
        rows = np.flatnonzero(matches)
        if len(rows):
            return _logged(piece.chunk, piece.stop - len(events) + int(rows[-1]))
    return None


def check_same_log(source: StartSource, position: Position, *, pipeline_name: str = "") -> None:
    """Raise unless the journal of `position` is the one that was read up to it.

    Args:
        source: the source whose log is to be read.
        position: end of the part that was read, with the last event before it if known.
        pipeline_name: name for the commands in the error.

    Raises:
        SourceIdentityError: the journal is shorter, was created at another time, or has another
            event there.
        ServerUnreachableError, MissingGrantError: the source does not answer.
    """
    sizes = {info.journal: info.size_bytes for info in source.journals()}
    if position.journal not in sizes:
        return
    if position.offset > sizes[position.journal]:
        error = _other_log(
            source.identity,
            position,
            expected=f"a journal of at least {position.offset} bytes",
            got=f"{sizes[position.journal]} bytes",
            pipeline_name=pipeline_name,
        )
        if source.tables() is None:  # files
            error.next_step = (
                f"if {position.journal} is an incomplete copy, copy it again; {error.next_step}"
            )
        raise error
    event = position.last_event
    if event is None:
        created_s = source.journal_created_s(position.journal) if position.journal_created_s else 0
        _check_created(source, position, created_s, pipeline_name)
        return
    begin = Position(position.journal, event.offset, journal_created_s=position.journal_created_s)
    end = Position(
        position.journal,
        event.offset + event.size_bytes,
        journal_created_s=position.journal_created_s,
    )
    expected = (
        f"the event of {event.size_bytes} bytes at {event.offset} with CRC32 {event.crc32:08x}"
    )
    try:
        with closing(cast(Any, source.chunks(begin, end))) as chunks:
            chunk = next(chunks, None)
    except (BinlogError, PositionError) as error:
        raise _other_log(
            source.identity,
            position,
            expected=expected,
            got=error.what,
            pipeline_name=pipeline_name,
        ) from None
    found = None
    if chunk is not None and len(chunk.events) and chunk.journal == position.journal:
        _check_created(source, position, chunk.journal_format.created_s, pipeline_name)
        found = _logged(chunk, 0)
    if found != event:
        raise _other_log(
            source.identity,
            position,
            expected=expected,
            got="no event there"
            if found is None
            else f"one of {found.size_bytes} bytes at {found.offset} with CRC32 {found.crc32:08x}",
            pipeline_name=pipeline_name,
        )


def _other_log(
    identity: ServerIdentity,
    position: Position,
    *,
    expected: str,
    got: str,
    pipeline_name: str = "",
) -> SourceIdentityError:
    """Return an error for a log that is not the log of `position`."""
    return SourceIdentityError(
        f"the log of {identity} is not the one that the cursor came from: the server was "
        "restored to an earlier state, or its log was reset; the lake may have changes that "
        "the server has lost",
        journal=position.journal,
        offset=position.offset,
        expected=expected,
        got=got,
        next_step=begin_again(pipeline_name),
    )


def begin_again(pipeline_name: str = "") -> str:
    """Return the commands that bring a lake up to date after its source's log was replaced."""
    name = pipeline_name or "SOURCE"
    return (
        "if this server and its current state are correct, abandon the old log and read the "
        f"tables again: `cdc-pipeline cursor set {name} --from latest`, then `cdc-pipeline "
        f"snapshot {name} --restart`"
    )


def _check_created(
    source: StartSource, position: Position, created_s: int, pipeline_name: str
) -> None:
    if position.journal_created_s not in (0, created_s):
        raise _other_log(
            source.identity,
            position,
            expected=f"a journal created at {position.journal_created_s} (seconds since 1970)",
            got=f"one created at {created_s}",
            pipeline_name=pipeline_name,
        )


def _logged(chunk: Chunk, row: int) -> LoggedEvent:
    event = chunk.events[row]
    # Computed without the stored checksum, so that journals without checksums match as well.
    stop = int(event["start"]) + int(event["event_length"]) - chunk.journal_format.checksum_bytes
    crc32 = zlib.crc32(memoryview(chunk.data)[int(event["start"]) : stop])  # type: ignore[arg-type]
    return LoggedEvent(int(event["offset"]), int(event["next_offset"] - event["offset"]), crc32)
