"""Frame a buffer of contiguous events as a chunk, one row per event, in one compiled pass.

Rules:
- Everything before a bad event is delivered: `feed` returns the good events, and only the next
  `feed` or `finish` raises.
- Offsets are computed from lengths in 64 bits, because header positions have 32 bits and are 0 in
  some events of MariaDB 11.4 and newer. A position in a header must agree, otherwise the journal is
  damaged.
- A journal begins with its format description at offset 4 and has no other.
- In a dump, artificial events and heartbeats are not rows (`artificial` lists them). The offset
  jumps forward when a server skips events, and never back.
- Compressed events leave unpacked (see `compressed`).
- A chunk refers to the fed bytes, which must not change afterwards, or to new bytes if it had
  compressed events.
"""

from __future__ import annotations

import re
import struct
import zlib
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cdc_pipeline.binlog.chunk import EVENT_DTYPE, Chunk, JournalFormat
from cdc_pipeline.binlog.event_types import (
    ENCRYPTED_STEP,
    FLAG_ARTIFICIAL,
    HEADER_BYTES,
    IN_TRANSACTIONS,
    STOP_REASONS,
    EventType,
    event_name,
)
from cdc_pipeline.binlog.events import format_description, rotate
from cdc_pipeline.binlog.framing.ahead import FramedAhead
from cdc_pipeline.binlog.framing.compressed import EVENT_UNPACKED_BYTES_MAX, unpack
from cdc_pipeline.binlog.framing.framing_kernel import (
    AHEAD_IGNORED,
    AHEAD_OFFSET,
    AHEAD_PACKED,
    AHEAD_POSITION,
    EVENT_BYTES_MAX,
    EVENT_CLASSES,
    Status,
    frame,
)
from cdc_pipeline.binlog.native.checksum import CHECKSUM_BYTES
from cdc_pipeline.binlog.seq import OFFSET_BITS
from cdc_pipeline.errors import (
    BinlogError,
    CdcError,
    DamagedJournalError,
    TruncatedJournalError,
    UnknownEventError,
    UnsupportedEventError,
)

_EVENT_BYTES_GUESS = 128
_SPARE_ROWS = 64
_JOURNAL_NAME = re.compile(rb"[^/\0]+\.\d+")
_INCIDENTS = {0: "NONE", 1: "LOST_EVENTS"}


class EventHeader(NamedTuple):
    timestamp_s: int
    event_type: int
    server_id: int
    event_length: int
    log_position: int
    flags: int


def parse_header(data: bytes | memoryview | NDArray[np.uint8], at: int = 0) -> EventHeader:
    return EventHeader(*struct.unpack_from("<IBIIIH", memoryview(data), at))  # type: ignore[arg-type]


def _says_how_it_is_kept(event: NDArray[np.uint8]) -> bool:
    """Whether an event only says how the server keeps its file: its dump is in plain."""
    return bool(event[4] == EventType.MARIADB_START_ENCRYPTION)


def encrypted_journal(
    journal: str, offset: int, *, expected: str, got: str
) -> UnsupportedEventError:
    """The error for a file whose events only its server can decrypt."""
    return UnsupportedEventError(
        "the journal is encrypted, with a key that only its server has",
        at=(journal, offset),
        expected=expected,
        got=got,
        next_step=ENCRYPTED_STEP,
    )


class EventFramer:
    """Frames the bytes of one journal, or of a dump that goes through several.

    Attributes:
        journal: the current journal; in a dump it changes with artificial rotate events.
        offset: journal offset of the next byte.
        journal_format: None until the journal's format description is read.
        ignored_events: count by type of unknown events with the ignorable flag; they are rows of
            their chunks.
        artificial: headers of the events that the server generated in the last `feed`, in order.

    Args:
        dump: whether the bytes come from a server.
        by_gtid: after a GTID set.
        prefix_bytes: PREFIX_BYTES of `packets` if they are still in their packets, else 0.
        unpacked_bytes_max: maximum unpacked size of one compressed event.
    """

    def __init__(
        self,
        journal: str,
        *,
        offset: int = 4,
        journal_format: JournalFormat | None = None,
        dump: bool = False,
        by_gtid: bool = False,
        prefix_bytes: int = 0,
        unpacked_bytes_max: int = EVENT_UNPACKED_BYTES_MAX,
    ) -> None:
        if not dump and journal_format is None and offset != 4:
            raise BinlogError(
                "reading inside a journal needs its format description first",
                at=(journal, offset),
                next_step="frame the event at offset 4 first and pass its format",
            )
        self.journal = journal
        self.offset = offset
        self.journal_format = journal_format
        self.dump = dump
        self._by_gtid = by_gtid
        self._prefix_bytes = prefix_bytes
        self._unpacked_bytes_max = unpacked_bytes_max
        self.ignored_events: dict[int, int] = {}
        self.artificial: list[EventHeader] = []
        self._failure: CdcError | None = None
        self._event_bytes = _EVENT_BYTES_GUESS  # of the last chunk, a little less than the mean
        self._ahead: FramedAhead | None = None

    def ahead(self) -> FramedAhead:
        """Where to frame the events of the next `feed` as they come."""
        if self._ahead is None:
            checksum_bytes, table_id_bytes = self._widths()
            self._ahead = FramedAhead(
                self.offset, checksum_bytes=checksum_bytes, table_id_bytes=table_id_bytes
            )
        return self._ahead

    def feed(self, data: NDArray[np.uint8]) -> tuple[Chunk | None, int]:
        """Frame the whole events at the front of `data`.

        Args:
            data: uint8 (n,), contiguous: the rest of the last feed and the bytes received since.

        Returns:
            (chunk or None if there is no new row, consumed bytes). Feed bytes that were not
            consumed again, before newer ones. (None, 0) means that more bytes are needed; otherwise
            feed the rest again.

        Raises:
            DamagedJournalError: a checksum, length, position or first event is wrong.
            UnknownEventError: an unknown type that is not ignorable.
            UnsupportedEventError: a type of STOP_REASONS, or an unknown format.
            SizeLimitError: a compressed event that would unpack to more than `unpacked_bytes_max`.
        """
        self._raise_failure()
        self.artificial = []
        journal, end_offset = self.journal, self.offset
        events, position, row, packed_events = self._framed(len(data))
        known_mark = -1
        while True:
            checksum_bytes, table_id_bytes = self._widths()
            first_row = row
            status, position, row, self.offset, ignored, packed = frame(
                data, position, events, row, self.offset, checksum_bytes, table_id_bytes, self.dump,
                self._prefix_bytes, known_mark, EVENT_CLASSES,
            )  # fmt: skip
            end_offset = self.offset
            packed_events += packed
            if ignored:
                self._count_ignored(events["event_type"][first_row:row])
            if status in (Status.DONE, Status.INCOMPLETE):
                break
            if status == Status.FULL:
                more = (len(data) - position) * row // max(position, 1)
                events = np.concatenate(
                    [events, np.empty(row // 4 + more + _SPARE_ROWS, dtype=EVENT_DTYPE)]
                )
                continue
            at = position + self._prefix_bytes
            try:
                if self.dump and status == Status.STOP_TYPE and _says_how_it_is_kept(data[at:]):
                    header = parse_header(data, at)
                    self._skip_to(header.log_position)
                    position, end_offset = at + header.event_length, self.offset
                    continue
                if status != Status.MARK:
                    raise self._error(Status(status), data, at)
                header = parse_header(data, at)
                event = data[at : at + header.event_length].tobytes()
                if not (self.dump and self._is_artificial(header)):
                    self._begin_journal(header, event)
                    known_mark = position
                    continue
                self._take_artificial(header, event)
            except CdcError as error:
                self._failure = error
                break
            position = at + header.event_length
            if header.event_type == EventType.ROTATE:
                if row:
                    break  # a chunk belongs to one journal
                journal = self.journal
            end_offset = self.offset
        chunk: Chunk | None = None
        if row:
            self._event_bytes = max(position * 7 // (row * 8), HEADER_BYTES)
            assert self.journal_format is not None
            # A failure or a rotation may have changed these: the chunk has the values for its own
            # rows.
            chunk = Chunk(journal, self.journal_format, data[:position], events[:row], end_offset)
            if packed_events:
                chunk, position = self._unpack(chunk)
        if chunk is None and position == 0:
            self._raise_failure()
        return chunk, position

    def _framed(self, size_bytes: int) -> tuple[np.ndarray, int, int, int]:
        """Return the rows of the next chunk, where framing continues in its bytes and in its rows,
        and how many compressed events are among those that were framed ahead."""
        ahead, self._ahead = self._ahead, None
        if ahead is None or not ahead.rows:
            events = np.empty(size_bytes // self._event_bytes + _SPARE_ROWS, dtype=EVENT_DTYPE)
            return events, 0, 0, 0
        state, rows = ahead.state.tolist(), ahead.rows
        self.offset = state[AHEAD_OFFSET]
        if state[AHEAD_IGNORED]:
            self._count_ignored(ahead.events["event_type"][:rows])
        return ahead.events, state[AHEAD_POSITION], rows, state[AHEAD_PACKED]

    def finish(self, remaining_bytes: int) -> None:
        """Mark the end of the input: `remaining_bytes` were fed and not consumed. Raises
        TruncatedJournalError: the journal ends in the middle of an event (or has no event at
        all); BinlogError: the error at which the last `feed` stopped.
        """
        self._raise_failure()
        if remaining_bytes or self.journal_format is None:
            raise TruncatedJournalError(
                "the journal ends in the middle of an event",
                at=self,
                expected="a complete event",
                got=f"{remaining_bytes} bytes",
                next_step="copy the journal again: everything before this offset is good; if the "
                "server's own file ends there too, after a power cut, cut the copy there: "
                f"`truncate --size {self.offset} FILE`",
            )

    def _unpack(self, chunk: Chunk) -> tuple[Chunk | None, int]:
        """The chunk with compressed events unpacked, and how many fed bytes it consumes."""
        # Artificial events in between must be reported only once, so such a chunk is not cut.
        unpacked = unpack(
            chunk, whole=bool(self.artificial), event_unpacked_bytes_max=self._unpacked_bytes_max
        )
        self._count_ignored(unpacked.ignored)
        if unpacked.events_done == len(chunk.events):
            return unpacked.chunk, len(chunk.data)
        # The framer stops at the error or at the cut; the caller keeps the bytes.
        if unpacked.error is None:
            # They come again.
            self._count_ignored(chunk.events["event_type"][unpacked.events_done :], sign=-1)
        self._failure = unpacked.error
        self.journal, self.offset = chunk.journal, int(chunk.events["offset"][unpacked.events_done])
        good = unpacked.chunk if unpacked.events_done else None
        return good, int(chunk.events["start"][unpacked.events_done]) - self._prefix_bytes

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _widths(self) -> tuple[int, int]:
        if self.journal_format is None:
            return -1, 6
        return self.journal_format.checksum_bytes, self.journal_format.table_id_bytes

    def _count_ignored(self, event_types: NDArray[np.uint8] | list[int], *, sign: int = 1) -> None:
        for event_type, count in unknown_types(event_types).items():
            self.ignored_events[event_type] = self.ignored_events.get(event_type, 0) + sign * count

    def _begin_journal(self, header: EventHeader, event: bytes) -> None:
        if header.event_type == EventType.START_V3 and self.journal_format is None:
            raise self._unsupported(header, f"{len(event)} bytes")
        if header.event_type != EventType.FORMAT_DESCRIPTION:
            raise DamagedJournalError(
                "the journal does not begin with a format description",
                at=self,
                expected=event_name(EventType.FORMAT_DESCRIPTION),
                got=event_name(header.event_type),
            )
        if self.offset != 4:
            raise DamagedJournalError(
                "a format description is in the middle of the journal",
                at=self,
                expected="only one, at offset 4",
                next_step="journals that were joined into one file cannot be read: pass them "
                "separately",
            )
        self.journal_format = format_description.parse(
            event, journal=self.journal, offset=self.offset, is_changed=self._by_gtid
        )

    @staticmethod
    def _is_artificial(header: EventHeader) -> bool:
        return bool(
            header.flags & FLAG_ARTIFICIAL
            or header.event_type in (EventType.HEARTBEAT, EventType.HEARTBEAT_V2)
            or (
                header.log_position == 0
                and header.event_type in (EventType.ROTATE, EventType.FORMAT_DESCRIPTION)
            )
        )

    def _take_artificial(self, header: EventHeader, event: bytes) -> None:
        if header.event_type in IN_TRANSACTIONS:
            raise self._damaged(
                "an event of a transaction is marked as made up by the server", header, header.flags
            )
        if header.event_type == EventType.FORMAT_DESCRIPTION:
            self.journal_format = format_description.parse(
                event, journal=self.journal, offset=self.offset, is_changed=True
            )
            body = event[HEADER_BYTES:]
        else:
            body = self._artificial_body(header, event)
        self.artificial.append(header)
        if header.event_type == EventType.ROTATE:
            self.journal, self.offset = rotate.parse(body, journal=self.journal, offset=self.offset)
        elif header.event_type == EventType.HEARTBEAT:
            if body.rstrip(b"\0") == self.journal.encode():
                self._skip_to(header.log_position)
        elif header.event_type == EventType.HEARTBEAT_V2:
            name, position = _heartbeat_v2(body)
            if position >> OFFSET_BITS:
                raise self._damaged("a heartbeat has an impossible position", header, position)
            if name == self.journal.encode() and position > self.offset:
                self.offset = position

    def _artificial_body(self, header: EventHeader, event: bytes) -> bytes:
        """The body without the checksum, whose presence depends on the server's current setting."""
        stored = int.from_bytes(event[-CHECKSUM_BYTES:], "little")
        has_checksum = (
            len(event) >= HEADER_BYTES + CHECKSUM_BYTES
            and zlib.crc32(event[:-CHECKSUM_BYTES]) == stored
        )
        if has_checksum:
            return event[HEADER_BYTES:-CHECKSUM_BYTES]
        known = self.journal_format is not None and self.journal_format.checksum_bytes > 0
        # The rotate event is between two journals, which may differ in their checksums.
        switched = header.event_type == EventType.ROTATE and _JOURNAL_NAME.fullmatch(
            event[HEADER_BYTES + 8 :]
        )
        if known and not switched:
            raise self._damaged("the checksum of an artificial event is wrong", header, stored)
        return event[HEADER_BYTES:]

    def _skip_to(self, log_position: int) -> None:
        jump = (log_position - self.offset) & 0xFFFFFFFF
        if log_position and jump < 1 << 31:
            self.offset += jump

    def _unsupported(self, header: EventHeader, got: str) -> UnsupportedEventError:
        return UnsupportedEventError(
            f"a {event_name(header.event_type)} event cannot be applied",
            at=self,
            got=got,
            next_step=STOP_REASONS[EventType(header.event_type)],
        )

    def _error(self, status: Status, data: NDArray[np.uint8], position: int) -> CdcError:
        if len(data) - position < HEADER_BYTES:
            return DamagedJournalError(
                "a packet from the server is shorter than an event's header",
                at=self,
                expected=f"at least {HEADER_BYTES} bytes",
                got=f"{len(data) - position} bytes",
                next_step="run again: reading continues at the last acked position",
            )
        header = parse_header(data, position)
        name = event_name(header.event_type)
        if status is Status.UNKNOWN_TYPE:
            return UnknownEventError(
                "an unknown event type",
                at=self,
                expected="a known type, or one flagged as ignorable",
                got=f"{name}, {header.event_length} bytes, flags {header.flags:#06x}",
                next_step="start after this event if it cannot change a captured table, and "
                "please report its type",
            )
        if status is Status.STOP_TYPE and _says_how_it_is_kept(data[position:]):
            return encrypted_journal(
                self.journal, self.offset, expected="events in plain", got=f"a {name} event"
            )
        if status is Status.STOP_TYPE:
            said = f"{header.event_length} bytes"
            if header.event_type == EventType.INCIDENT:
                end = position + header.event_length - max(self._widths()[0], 0)
                said += f": {_incident_text(data[position + HEADER_BYTES : end].tobytes())}"
            return self._unsupported(header, said)
        if status is Status.BAD_CHECKSUM:
            end = position + header.event_length - CHECKSUM_BYTES
            stored = int.from_bytes(data[end : end + CHECKSUM_BYTES].tobytes(), "little")
            return self._damaged(
                f"the checksum of a {name} event is wrong",
                header,
                stored,
                zlib.crc32(data[position:end].tobytes()),
            )
        end = (self.offset + header.event_length) & 0xFFFFFFFF
        if (
            status is Status.BAD_LENGTH
            and header.event_length > EVENT_BYTES_MAX
            and header.log_position == end
        ):
            return UnsupportedEventError(
                f"a {name} event is too large to be read",
                at=self,
                expected=f"at most {EVENT_BYTES_MAX} bytes",
                got=f"{header.event_length} bytes",
                next_step="start after its transaction, and take new snapshots of the tables that "
                "it changed",
            )
        if status is Status.BAD_LENGTH:
            return DamagedJournalError(
                "an impossible event length",
                at=self,
                expected=f"{HEADER_BYTES} to {EVENT_BYTES_MAX} bytes and room for the "
                "event's fixed parts",
                got=f"{header.event_length} bytes for {name}",
            )
        return DamagedJournalError(
            "an event's end position contradicts its offset",
            at=self,
            expected=end,
            got=f"{header.log_position} for {name} of {header.event_length} bytes",
        )

    def _damaged(
        self, what: str, header: EventHeader, stored: int, computed: int | None = None
    ) -> DamagedJournalError:
        return DamagedJournalError(
            what,
            at=self,
            expected=None if computed is None else f"{computed:#010x}",
            got=f"{stored:#010x} ({event_name(header.event_type)}, {header.event_length} bytes)",
        )


def unknown_types(event_types: NDArray[np.uint8] | list[int]) -> dict[int, int]:
    """Count the framed events of each unknown type; these have the ignorable flag."""
    types = np.asarray(event_types, dtype=np.uint8)
    types, counts = np.unique(types[EVENT_CLASSES[types] == 0], return_counts=True)
    return dict(zip(types.tolist(), counts.tolist(), strict=True))


def _incident_text(body: bytes) -> str:
    """Number, name and message of an incident (the server reports that its log has a gap here) from
    its body, which may be truncated: two bytes of number, one of length, the message.
    """
    number = int.from_bytes(body[:2], "little")
    size = body[2] if len(body) > 2 else 0
    message = body[3 : 3 + size].decode("utf-8", "replace")
    return f"incident {number} ({_INCIDENTS.get(number, 'unknown')}), message {message!r}"


def _heartbeat_v2(body: bytes) -> tuple[bytes, int]:
    """Parse journal name and position of a heartbeat v2:
    (type, length, value) fields, ended by type 0.
    """
    name, position, at = b"", 0, 0
    while at + 1 < len(body) and body[at] != 0:
        field, size = body[at], body[at + 1]
        value = body[at + 2 : at + 2 + size]
        if field == 1:
            name = value
        elif field == 2:
            position = _length_encoded(value)
        at += 2 + size
    return name, position


def _length_encoded(value: bytes) -> int:
    if not value:
        return 0
    width = {0xFC: 2, 0xFD: 3, 0xFE: 8}.get(value[0], 0)
    return int.from_bytes(value[1 : 1 + width], "little") if width else value[0]
