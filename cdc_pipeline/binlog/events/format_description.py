"""The format description event: the first event of every journal, which describes the others.

Source: MySQL "Format_description_event": 2 bytes version, 50 bytes server version, 4 bytes creation
time, 1 byte header length, one post-header length per event type, and, from MySQL 5.6.1 and MariaDB
5.3 on, 1 byte checksum algorithm and 4 bytes checksum.

Rules:
- The event itself has a checksum if the server knows checksums, whatever the algorithm.
- The in-use flag is set after the checksum is computed, so it counts as cleared.
- A server clears the creation time of what it sends when it begins a dump in the middle of a
  journal, and in a dump after a GTID set (MySQL: of every journal that a start of the server
  created). Without checksums it leaves the stored one as it was, which then says nothing.
"""

from __future__ import annotations

import re
import struct
import zlib
from typing import Final

from cdc_pipeline.binlog.chunk import JournalFormat
from cdc_pipeline.binlog.event_types import FLAG_IN_USE, FLAG_RELAY_LOG, HEADER_BYTES, EventType
from cdc_pipeline.binlog.native.checksum import CHECKSUM_BYTES
from cdc_pipeline.errors import DamagedJournalError, UnsupportedEventError

_FIXED_BYTES: Final = 2 + 50 + 4 + 1
_CREATED: Final = slice(HEADER_BYTES + 52, HEADER_BYTES + 56)
_READABLE: Final = (
    "journals of MySQL 5.0, 5.1 since its release and newer, and of MariaDB can be read"
)
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")
_CHECKSUM_NONE: Final = 0
_CHECKSUM_CRC32: Final = 1
_TYPES_BEFORE_CHECKSUMS: Final = 27


def parse(
    event: bytes, *, journal: str, offset: int = 4, is_changed: bool = False
) -> JournalFormat:
    """Parse a whole format description event, including header and checksum. `is_changed`: whether
    a server may have cleared its creation time. Raises DamagedJournalError: too short, or a wrong
    checksum; UnsupportedEventError: a relay log, MySQL 5.1 before its release, an unknown binlog
    version or checksum algorithm.
    """
    if len(event) < HEADER_BYTES + _FIXED_BYTES or event[4] != EventType.FORMAT_DESCRIPTION:
        raise DamagedJournalError(
            "the format description event is damaged",
            at=(journal, offset),
            expected=f"type {EventType.FORMAT_DESCRIPTION.value}, at least "
            f"{HEADER_BYTES + _FIXED_BYTES} bytes",
            got=f"type {event[4] if len(event) > 4 else 'none'}, {len(event)} bytes",
        )
    timestamp_s, _, server_id, _, _, flags = struct.unpack_from("<IBIIIH", event)
    if flags & FLAG_RELAY_LOG:
        raise UnsupportedEventError(
            "the file is a relay log: its events have their places in another server's journals",
            at=(journal, offset),
            expected="a journal that a server wrote itself",
            got=f"flags {flags:#06x}",
            next_step="read the journals of the replica's source, or those that the replica writes "
            "itself (log_replica_updates; MariaDB: log_slave_updates)",
        )
    version, raw_server, _, header_bytes = struct.unpack_from("<H50sIB", event, HEADER_BYTES)
    server_version = raw_server.split(b"\0", 1)[0].decode("ascii", "replace")
    if version != 4 or header_bytes != HEADER_BYTES:
        raise UnsupportedEventError(
            "the journal's format is unknown",
            at=(journal, offset),
            expected=f"binlog version 4 with headers of {HEADER_BYTES} bytes",
            got=f"version {version} with headers of {header_bytes} bytes, server "
            f"{server_version!r}",
            next_step=_READABLE,
        )
    lengths = event[HEADER_BYTES + _FIXED_BYTES :]
    if EventType.TABLE_MAP <= len(lengths) < EventType.DELETE_ROWS_V1:
        raise UnsupportedEventError(
            "the journal is of MySQL 5.1 before its release, which wrote rows in another format",
            at=(journal, offset),
            expected="a server that knows WRITE_ROWS_V1 and the types after it",
            got=f"{len(lengths)} types, server {server_version!r}",
            next_step=_READABLE,
        )
    checksum_bytes = 0
    # A damaged version text must not disable the check: servers without checksums know at most 27
    # event types.
    if _knows_checksums(server_version) or len(lengths) > _TYPES_BEFORE_CHECKSUMS:
        algorithm = _verify(event, flags, journal, offset, is_changed=is_changed)
        checksum_bytes = CHECKSUM_BYTES if algorithm == _CHECKSUM_CRC32 else 0
        lengths = lengths[: -1 - CHECKSUM_BYTES]
    return JournalFormat(
        binlog_version=version,
        server_version=server_version,
        is_mariadb="mariadb" in server_version.lower() or len(lengths) >= EventType.MARIADB_GTID,
        created_s=timestamp_s,
        server_id=server_id,
        checksum_bytes=checksum_bytes,
        post_header_lengths=tuple(lengths),
        in_use=bool(flags & FLAG_IN_USE),
    )


def _knows_checksums(server_version: str) -> bool:
    match = _VERSION.search(server_version)
    if match is None:
        return True
    number = tuple(int(part) for part in match.groups())
    # MariaDB 5.3 to 5.5 know checksums too, and always have their name in the version.
    return number >= (5, 6, 1) or ("mariadb" in server_version.lower() and number >= (5, 3, 0))


def _verify(event: bytes, flags: int, journal: str, offset: int, *, is_changed: bool) -> int:
    stored = int.from_bytes(event[-CHECKSUM_BYTES:], "little")
    checked = bytearray(event[:-CHECKSUM_BYTES])
    struct.pack_into("<H", checked, 17, flags & ~FLAG_IN_USE)
    computed = zlib.crc32(checked)
    algorithm = event[-CHECKSUM_BYTES - 1]
    was_sealed = not (is_changed and algorithm == _CHECKSUM_NONE and not any(event[_CREATED]))
    if stored != computed and was_sealed:
        raise DamagedJournalError(
            "the checksum of the format description event is wrong",
            at=(journal, offset),
            expected=f"{computed:#010x}",
            got=f"{stored:#010x}",
        )
    if algorithm not in (_CHECKSUM_NONE, _CHECKSUM_CRC32):
        raise UnsupportedEventError(
            "the journal's checksum algorithm is unknown",
            at=(journal, offset),
            expected="0 (none) or 1 (CRC32)",
            got=algorithm,
            next_step="SET GLOBAL binlog_checksum = 'CRC32' and start after this journal",
        )
    return algorithm
