"""A position in the log of one source (SPEC P1).

Rules:
- Positions of one source are ordered by journal number and offset; positions of different sources
  by timestamp.
- A cursor's position is the end of a whole transaction, where reading continues.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final, Literal

from cdc_pipeline.binlog.seq import journal_number, seq_of_place
from cdc_pipeline.text.table_names import NameRule

Flavor = Literal["mysql", "mariadb"]

FIRST_OFFSET: Final = 4  # of a journal's first event


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """The server that wrote the journals.

    Attributes:
        flavor: decides GTID form and event types.
        server_id: @@server_id; for an archive the one in the journals' format description events.
        server_uuid: @@server_uuid of MySQL; "" for MariaDB and archives.
        address: ``host:port`` or the archive's directory, as configured. It does not identify the
            server: only the start rules compare it with the configured addresses (SPEC P5, P6).
        names: how it compares names (K30).
    """

    flavor: Flavor
    server_id: int
    server_uuid: str = ""
    address: str = ""
    names: NameRule = NameRule.AS_GIVEN

    def same_server(self, other: ServerIdentity) -> bool:
        """By uuid if both have one, else by flavor and server id."""
        if self.flavor != other.flavor:
            return False
        if self.server_uuid and other.server_uuid:
            return self.server_uuid == other.server_uuid
        return self.server_id == other.server_id

    def __str__(self) -> str:
        return f"{self.flavor}:{self.server_uuid or self.server_id}"


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """Events that identify their journal (K24: a log that was reset must not read as the same);
    `offset`: of their first byte, `size_bytes`: with the checksums, `crc32`: without them.
    """

    offset: int
    size_bytes: int
    crc32: int


@dataclass(frozen=True, slots=True)
class LoggedTransaction:
    """It identifies the history that it belongs to (K24: a GTID can be used twice).
    `committed_us`: at the server that committed it first, microseconds since 1970 UTC; whole
    seconds on MariaDB.
    """

    gtid: str
    committed_us: int


@dataclass(frozen=True, slots=True)
class Position:
    """A place in the log: between two events, at a journal's beginning by default.

    Attributes:
        offset: at least 4.
        timestamp_s: of the event there (SPEC P1); 0 if unknown.
        server_id: of that event; 0 if unknown.
        gtid_set: all transactions executed up to here; "" without GTIDs.
        included: the event at the position is still to be delivered (SPEC S6).
        journal_created_s: timestamp of the journal's format description event; 0 if unknown. Two
            journals of the same name with different creation times are different journals.
        last_event, last_transaction: what was read last before it, if known (`start.same_log`).
            They verify the position; comparisons ignore them.
    """

    journal: str
    offset: int = FIRST_OFFSET
    timestamp_s: int = 0
    server_id: int = 0
    gtid_set: str = ""
    included: bool = True
    journal_created_s: int = 0
    last_event: LoggedEvent | None = field(default=None, compare=False)
    last_transaction: LoggedTransaction | None = field(default=None, compare=False)

    @property
    def order(self) -> tuple[int, int]:
        return (journal_number(self.journal), self.offset)

    def seq(self, epoch: int) -> int:
        """Its place in the order of changes: the first seq of what begins there."""
        return seq_of_place(epoch, self.journal, self.offset)

    @property
    def by_offset(self) -> Position:
        """Without its GTID set, so that a source reads by journal and offset."""
        return replace(self, gtid_set="") if self.gtid_set else self

    def __str__(self) -> str:
        return f"{self.journal}:{self.offset}"
