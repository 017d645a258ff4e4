"""GTID events, the sets at the head of journals, and the transactions executed by a range of
events.

Rules:
- A MySQL key is the source's uuid in lower case, or ``uuid:tag``; a MariaDB key is
  ``domain-server``.
- Anonymous transactions have no GTID and are in no set.
"""

from __future__ import annotations

import re
import struct
import uuid
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cdc_pipeline.binlog.chunk import Chunk
from cdc_pipeline.binlog.event_types import (
    FLAG_COMMIT_ALTER,
    FLAG_ROLLBACK_ALTER,
    GTID_TYPES,
    SET_TYPES,
    EventType,
    event_name,
)
from cdc_pipeline.binlog.events import gtid_kernel as kernel
from cdc_pipeline.errors import DamagedJournalError, SizeLimitError

_FLAG_GROUP_COMMIT: Final = 0x02
FLAG_PREPARED_XA: Final = 0x40
_FLAG_COMPLETED_XA: Final = 0x80
_FLAG_MULTI_ENGINE: Final = 0x01  # an extra flag: a byte with the number of engines follows

NUMBER_MAX: Final = 2**63 - 2
_TAG: Final = re.compile(r"([a-z_][a-z0-9_]{0,31})?")


@dataclass(frozen=True, slots=True)
class Gtid:
    """What is read of a MySQL GTID event.

    Attributes:
        source_uuid: in lower case; "" for an anonymous transaction.
        tag: the tag; "" for none.
        number: transaction number; 0 for an anonymous transaction.
    """

    source_uuid: str
    tag: str
    number: int

    @property
    def key(self) -> str:
        return f"{self.source_uuid}:{self.tag}" if self.tag else self.source_uuid

    def __str__(self) -> str:
        return f"{self.key}:{self.number}" if self.source_uuid else "ANONYMOUS"


@dataclass(frozen=True, slots=True)
class MariadbGtid:
    """What is read of a MariaDB GTID event.

    Attributes:
        domain, server_id, number: the three parts of the GTID.
        extra_flags: 0x1 several engines, 0x2 START ALTER, 0x4 COMMIT ALTER, 0x8 ROLLBACK ALTER; 0
            if absent.
    """

    domain: int
    server_id: int
    number: int
    extra_flags: int = 0

    @property
    def key(self) -> str:
        return f"{self.domain}-{self.server_id}"

    def __str__(self) -> str:
        return f"{self.domain}-{self.server_id}-{self.number}"


def parse(body: bytes | memoryview, event_type: int, *, journal: str, offset: int) -> Gtid:
    """Parse a MySQL GTID event (types 33, 34, 42) from its bytes between header and checksum.
    Raises DamagedJournalError: the body is truncated, or is not a possible GTID.
    """
    raw = bytes(body)
    try:
        if event_type == EventType.GTID_TAGGED:
            return _parse_tagged(raw)
        return _parse_fixed(raw, anonymous=event_type == EventType.ANONYMOUS_GTID)
    except (struct.error, IndexError, OverflowError, ValueError):
        raise _too_short(event_type, raw, journal, offset) from None


def parse_mariadb(
    body: bytes | memoryview, server_id: int, *, journal: str, offset: int
) -> MariadbGtid:
    """Parse a MariaDB GTID event from its bytes between header and checksum, and its header's
    server id. Raises DamagedJournalError: the body ends too early.
    """
    raw = bytes(body)
    try:
        number, domain, flags = struct.unpack_from("<QIB", raw)
        at = 13 + 8 * bool(flags & _FLAG_GROUP_COMMIT)
        if flags & (FLAG_PREPARED_XA | _FLAG_COMPLETED_XA):
            _, global_bytes, branch_bytes = struct.unpack_from("<IBB", raw, at)
            at += 6 + global_bytes + branch_bytes
        if len(raw) < at:
            raise ValueError
        extra_flags = raw[at] if at < len(raw) else 0
        if extra_flags & (FLAG_COMMIT_ALTER | FLAG_ROLLBACK_ALTER):
            # the number of the transaction that began the ALTER, after the count of engines
            struct.unpack_from("<Q", raw, at + 1 + (extra_flags & _FLAG_MULTI_ENGINE))
    except (struct.error, ValueError):
        raise _too_short(EventType.MARIADB_GTID, raw, journal, offset) from None
    return MariadbGtid(domain, server_id, number, extra_flags)


def previous_set(body: bytes | memoryview, event_type: int, *, journal: str, offset: int) -> str:
    """The text of the set at the head of a journal: MySQL's PREVIOUS_GTIDS, or MariaDB's GTID_LIST.

    MySQL: ``uuid:1-5:7:tag:1-3,uuid:...`` as the server prints it, without blanks; MariaDB:
    ``0-1-100,1-2-3``, all servers of all domains. Raises DamagedJournalError: the body is
    truncated, or is not a possible set.
    """
    raw = bytes(body)
    try:
        return (
            _gtid_list(raw) if event_type == EventType.MARIADB_GTID_LIST else _previous_gtids(raw)
        )
    except (struct.error, IndexError, OverflowError, ValueError):
        raise _too_short(event_type, raw, journal, offset) from None


class GtidRows(NamedTuple):
    """The GTID events of some events: the k-th is event `rows[k]`, with the transaction number
    `numbers[k]` of the key `keys[key[k]]`.
    """

    keys: list[str]
    rows: NDArray[np.int64]
    key: NDArray[np.int32]
    numbers: NDArray[np.int64]


def gtid_rows(chunk: Chunk, first: int, stop: int) -> GtidRows:
    """The GTID events in rows [first, stop) of a chunk, counted from `first`. Raises
    DamagedJournalError: one is too short or has an impossible number; SizeLimitError: MariaDB's
    number is above NUMBER_MAX.
    """
    events = chunk.events[first:stop]
    size = len(events)
    rows, numbers = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
    high, low = np.empty(size, dtype=np.uint64), np.empty(size, dtype=np.uint64)
    checksum_bytes = chunk.journal_format.checksum_bytes
    count, short = kernel.executed_numbers(
        chunk.data, events, checksum_bytes, rows, high, low, numbers
    )
    rows, high, low, numbers = rows[:count], high[:count], low[:count], numbers[:count].copy()
    types = events["event_type"][rows]
    if short < 0:
        short = _impossible(types, rows, numbers)
        if short >= 0 and events["event_type"][short] == EventType.MARIADB_GTID:
            raise _too_large(chunk, first + short)
    if short >= 0:
        raise _too_short(
            int(events["event_type"][short]),
            bytes(chunk.body(first + short)),
            chunk.journal,
            int(events["offset"][short]),
        )
    keys: dict[str, int] = {}
    key = np.empty(count, np.int32)
    left = types != EventType.GTID_TAGGED
    for index in np.flatnonzero(~left).tolist():
        row = int(rows[index])
        offset = int(events["offset"][row])
        gtid = parse(
            chunk.body(first + row), EventType.GTID_TAGGED, journal=chunk.journal, offset=offset
        )
        key[index], numbers[index] = keys.setdefault(gtid.key, len(keys)), gtid.number
    while left.any():
        at = int(left.argmax())
        same = left & (high == high[at]) & (low == low[at]) & (types == types[at])
        key[same] = keys.setdefault(_key(int(types[at]), int(high[at]), int(low[at])), len(keys))
        left &= ~same
    return GtidRows(list(keys), rows, key, numbers)


def executed(chunk: Chunk, first: int, stop: int) -> dict[str, NDArray[np.int64]]:
    """The transaction numbers by key of the GTID events in rows [first, stop) of a chunk, in order;
    the key of the last event comes last. Raises the errors of `gtid_rows`.
    """
    found = gtid_rows(chunk, first, stop)
    events = [np.flatnonzero(found.key == index) for index in range(len(found.keys))]
    in_order = sorted(range(len(events)), key=lambda index: events[index][-1])
    return {found.keys[index]: found.numbers[events[index]] for index in in_order}


def listed_set(chunk: Chunk) -> str | None:
    """The set at the head of the chunk's journal, if the chunk has it. Raises as `previous_set`."""
    for row in np.flatnonzero(np.isin(chunk.events["event_type"], SET_TYPES)).tolist():
        event = chunk.events[row]
        return previous_set(
            chunk.body(row),
            int(event["event_type"]),
            journal=chunk.journal,
            offset=int(event["offset"]),
        )
    return None


def gtid_texts(chunk: Chunk, first: int, stop: int) -> dict[int, str]:
    """The GTIDs of the transactions that begin in rows [first, stop), by offset of the GTID event.
    For interactive tools: takes one Python step per transaction. Raises DamagedJournalError: a
    GTID event is too short.
    """
    texts: dict[int, str] = {}
    for row in (
        np.flatnonzero(np.isin(chunk.events["event_type"][first:stop], GTID_TYPES)) + first
    ).tolist():
        event = chunk.events[row]
        offset, event_type, body = int(event["offset"]), int(event["event_type"]), chunk.body(row)
        if event_type == EventType.MARIADB_GTID:
            server_id = int(event["server_id"])
            texts[offset] = str(
                parse_mariadb(body, server_id, journal=chunk.journal, offset=offset)
            )
        else:
            texts[offset] = str(parse(body, event_type, journal=chunk.journal, offset=offset))
    return texts


def _impossible(
    types: NDArray[np.uint8], rows: NDArray[np.int64], numbers: NDArray[np.int64]
) -> int:
    """Return the index of the first event with an impossible number; -1 for none.
    Type 42 is read elsewhere.
    """
    bad = (numbers < 0) | (numbers > NUMBER_MAX) | ((numbers == 0) & (types == EventType.GTID))
    bad &= types != EventType.GTID_TAGGED
    return int(rows[int(bad.argmax())]) if bad.any() else -1


def _too_large(chunk: Chunk, row: int) -> SizeLimitError:
    offset = int(chunk.events["offset"][row])
    server_id = int(chunk.events["server_id"][row])
    found = parse_mariadb(chunk.body(row), server_id, journal=chunk.journal, offset=offset)
    return SizeLimitError(
        "the number of a transaction's GTID is too large",
        at=(chunk.journal, offset),
        expected=f"at most {NUMBER_MAX}",
        got=str(found),
        next_step="SET GLOBAL gtid_domain_id to an unused domain at the source, whose numbers "
        "begin again, and start after the last transaction of this one",
    )


def _key(event_type: int, high: int, low: int) -> str:
    """The key from the two words of `gtid_kernel.executed_numbers`; not for tagged GTIDs."""
    if event_type == EventType.MARIADB_GTID:
        return f"{high}-{low}"
    return str(uuid.UUID(int=high << 64 | low))


def _too_short(event_type: int, raw: bytes, journal: str, offset: int) -> DamagedJournalError:
    return DamagedJournalError(
        f"a {event_name(event_type)} event is shorter than its own fields, or has "
        "impossible values",
        at=(journal, offset),
        got=f"{len(raw)} bytes: {raw[:64].hex(' ')}",
    )


def _parse_fixed(raw: bytes, *, anonymous: bool) -> Gtid:
    _, source, number = struct.unpack_from("<B16sq", raw)
    if anonymous:
        return Gtid("", "", 0)
    if not 1 <= number <= NUMBER_MAX:
        raise ValueError
    return Gtid(str(uuid.UUID(bytes=source)), "", number)


def _varlen(raw: bytes, at: int) -> tuple[int, int]:
    first = raw[at]
    size = 1
    while size < 9 and first >> (size - 1) & 1:
        size += 1
    if at + size > len(raw):
        raise ValueError
    if size == 9:
        return int.from_bytes(raw[at + 1 : at + 9], "little"), at + 9
    return int.from_bytes(raw[at : at + size], "little") >> size, at + size


def _tag(raw: bytes, at: int) -> tuple[str, int]:
    length, at = _varlen(raw, at)
    tag = raw[at : at + length].decode("ascii")
    if len(tag) < length or not _TAG.fullmatch(tag):
        raise ValueError
    return tag, at + length


def _parse_tagged(raw: bytes) -> Gtid:
    version, at = _varlen(raw, 0)
    size, at = _varlen(raw, at)
    _, at = _varlen(raw, at)
    if version != 1 or size > len(raw):
        raise ValueError
    source, tag, number = b"", "", 0
    # A newer server adds fields after the known ones.
    while at < size:
        field, at = _varlen(raw, at)
        if field > kernel.FIELD_GROUP_TICKET:
            break
        if field == kernel.FIELD_SOURCE_ID:
            values = []
            for _ in range(16):
                value, at = _varlen(raw, at)
                values.append(value)
            source = bytes(values)
        elif field == kernel.FIELD_TAG:
            tag, at = _tag(raw, at)
        else:
            value, at = _varlen(raw, at)
            if field == kernel.FIELD_NUMBER:
                number = ~(value >> 1) if value & 1 else value >> 1
    if not 1 <= number <= NUMBER_MAX:
        raise ValueError
    return Gtid(str(uuid.UUID(bytes=source)), tag, number)


def _previous_gtids(raw: bytes) -> str:
    (head,) = struct.unpack_from("<Q", raw)
    tagged = head >> 56 == 1
    count = (head >> 8) & (1 << 48) - 1 if tagged else head
    at = 8
    parts: dict[str, list[str]] = {}
    for _ in range(count):
        source = str(uuid.UUID(bytes=raw[at : at + 16]))
        at += 16
        tag = ""
        if tagged:
            tag, at = _tag(raw, at)
        (intervals,) = struct.unpack_from("<Q", raw, at)
        at += 8
        part = parts.setdefault(source, [])
        if intervals == 0 or (part and not tag):  # after a tag, numbers would count as the tag's
            raise ValueError
        if tag:
            part.append(tag)
        for _ in range(intervals):
            first, stop = struct.unpack_from("<qq", raw, at)
            at += 16
            if not 1 <= first < stop:
                raise ValueError
            part.append(str(first) if stop == first + 1 else f"{first}-{stop - 1}")
    return ",".join(":".join([source, *part]) for source, part in parts.items())


def _gtid_list(raw: bytes) -> str:
    (count,) = struct.unpack_from("<I", raw)
    entries = [
        struct.unpack_from("<IIQ", raw, 4 + 16 * index) for index in range(count & (1 << 28) - 1)
    ]
    if len({entry[:2] for entry in entries}) < len(entries):
        raise ValueError
    return ",".join(f"{domain}-{server}-{number}" for domain, server, number in entries)
