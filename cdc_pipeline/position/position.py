"""A place in the log of one source (SPEC P1).

Rules:
- Positions of one source are ordered by journal number and offset; positions of different sources by timestamp.
- A position that a cursor holds is the end of a whole transaction: reading goes on there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from cdc_pipeline.binlog.seq import journal_number

Flavor = Literal["mysql", "mariadb"]


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """Who wrote the journals.

    Attributes:
        flavor: decides GTID form and event types.
        server_id: @@server_id; for an archive that of the journals' format description events.
        server_uuid: @@server_uuid of MySQL; "" where there is none (MariaDB, archives).
        address: ``host:port`` or the archive's directory, as configured. It does not tell who answers there: only the
            rules of the start compare it, with the addresses of the configuration (SPEC P5, P6).
    """

    flavor: Flavor
    server_id: int
    server_uuid: str = ""
    address: str = ""

    def same_server(self, other: ServerIdentity) -> bool:
        """True where both name the same server: by uuid where both have one, else by flavor and server id."""
        if self.flavor != other.flavor:
            return False
        if self.server_uuid and other.server_uuid:
            return self.server_uuid == other.server_uuid
        return self.server_id == other.server_id

    def __str__(self) -> str:
        return f"{self.flavor}:{self.server_uuid or self.server_id}"


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """An event of a journal, by which the journal is recognised (K24).

    Attributes:
        offset: of its first byte in the journal.
        size_bytes: its length there, checksum included.
        crc32: of its bytes without the checksum.
    """

    offset: int
    size_bytes: int
    crc32: int


@dataclass(frozen=True, slots=True)
class Position:
    """A byte position between two events.

    Attributes:
        journal: journal name.
        offset: byte offset in it; at least 4.
        timestamp_s: timestamp of the event there (SPEC P1), 0 where unknown.
        server_id: server id of that event, 0 where unknown.
        gtid_set: set of all transactions executed up to here, as text; "" where there are no GTIDs.
        included: whether the event at the position itself is still to be delivered (SPEC S6).
        journal_created_s: timestamp of the journal's format description event; 0 where unknown. Two journals of one
            name with different creation times are different journals (the log was reset).
        last_event: the last event that was read before it in this journal, if that is known (`position.same_log`). It
            proves the place and is no part of it: positions are compared without it.
    """

    journal: str
    offset: int
    timestamp_s: int = 0
    server_id: int = 0
    gtid_set: str = ""
    included: bool = True
    journal_created_s: int = 0
    last_event: LoggedEvent | None = field(default=None, compare=False)

    @property
    def order(self) -> tuple[int, int]:
        """Sort key among positions of one source."""
        return (journal_number(self.journal), self.offset)

    def __str__(self) -> str:
        return f"{self.journal}:{self.offset}"
