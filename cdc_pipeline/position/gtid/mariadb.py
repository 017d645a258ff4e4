"""MariaDB's GTID positions and states: ``domain-server-number``, separated by commas.

Rules:
- A *position* (gtid_binlog_pos, gtid_slave_pos) holds the last GTID of each domain and includes all
  earlier ones of the domain. A *state* (gtid_binlog_state, GTID_LIST events) holds the last of each
  server in each domain. A text that names one domain twice is a state; adding to a position leaves
  a position.
- The last GTID of a domain is the one that was added last. Numbers of a domain grow only under
  gtid_strict_mode, which is OFF unless it is set: a replica that is also written to logs 0-9-101
  before its primary's 0-1-101.
- What a position contains is told by numbers, as the server does. Where they do not grow that is no
  proof: a cursor goes on by offset in its own log (`position.start.decisions`).
- The text is sorted by domain; the last GTID of a domain comes last, as on the server.

Source: MariaDB Knowledge Base, "Global Transaction ID".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cdc_pipeline.position.gtid.errors import same_kind, set_error

_GTID = re.compile(r"(\d{1,10})-(\d{1,10})-(\d{1,20})")
_KEY = re.compile(r"(\d{1,10})-(\d{1,10})")


@dataclass(frozen=True, slots=True)
class MariadbGtidSet:
    """`last`: transaction number by (domain, server id); a state has the last one of each server,
    not of each domain alone.
    """

    last: Mapping[tuple[int, int], int] = field(default_factory=dict)
    is_state: bool = False

    def contains(self, other: object) -> bool:
        """Whether every GTID of `other` is at or before this set's last one.

        A state covers only the servers that it names; a position covers every server of its
        domains.
        """
        theirs = same_kind(MariadbGtidSet, other, "mariadb")
        return all(
            self._reaches(domain, server, number)
            for (domain, server), number in theirs.last.items()
        )

    def union(self, other: object) -> MariadbGtidSet:
        """`other` was executed later: its GTID of each domain, or the higher one of each server if
        either set is a state.
        """
        theirs = same_kind(MariadbGtidSet, other, "mariadb")
        is_state = self.is_state or theirs.is_state
        merged = dict(self.last)
        for key, number in theirs.last.items():
            before = merged.pop(key, 0)
            merged[key] = max(number, before) if is_state else number
        return MariadbGtidSet(merged if is_state else _positions(merged), is_state)

    def subtract(self, other: object) -> MariadbGtidSet:
        theirs = same_kind(MariadbGtidSet, other, "mariadb")
        left = {key: n for key, n in self.last.items() if not theirs._reaches(*key, n)}
        return MariadbGtidSet(left, self.is_state)

    def add_many(self, key: str, numbers: NDArray[np.int64]) -> MariadbGtidSet:
        """`key`: ``domain-server``; PositionError: it is something else."""
        match = _KEY.fullmatch(key)
        if match is None:
            raise set_error("mariadb", f"{key!r} is not a domain and a server id", key)
        if not len(numbers):
            return self
        number = int(numbers.max() if self.is_state else numbers[-1])
        return self.union(MariadbGtidSet({(int(match[1]), int(match[2])): number}, self.is_state))

    def position(self) -> MariadbGtidSet:
        """The last GTID of each domain, after which a dump starts."""
        return MariadbGtidSet(_positions(self.last)) if self.is_state else self

    def by_server(self) -> MariadbGtidSet:
        """As a state: it contains nothing of servers that it does not name."""
        return MariadbGtidSet(self.last, is_state=True)

    def highest(self) -> MariadbGtidSet:
        """The highest number of each domain, as a position."""
        by_number = dict(sorted(self.last.items(), key=lambda entry: entry[1]))
        return MariadbGtidSet(_positions(by_number))

    def within(self, other: object) -> MariadbGtidSet:
        """Without the domains that `other` does not have."""
        domains = {domain for domain, _ in same_kind(MariadbGtidSet, other, "mariadb").last}
        return MariadbGtidSet(
            {k: n for k, n in self.last.items() if k[0] in domains}, self.is_state
        )

    def count(self) -> int:
        """The sum of the domains' last numbers: the maximum number of transactions."""
        return sum(self.position().last.values())

    def _reaches(self, domain: int, server: int, number: int) -> bool:
        if self.is_state:
            return number <= self.last.get((domain, server), 0)
        return any(number <= n for (d, _), n in self.last.items() if d == domain)

    def __bool__(self) -> bool:
        return bool(self.last)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MariadbGtidSet) and self.last == other.last

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        entries = sorted(self.last.items(), key=lambda entry: entry[0][0])
        return ",".join(f"{domain}-{server}-{number}" for (domain, server), number in entries)


def parse_mariadb(text: str) -> MariadbGtidSet:
    """PositionError: no GTID list (an empty text is one), or a server comes twice in a domain."""
    last: dict[tuple[int, int], int] = {}
    for part in re.sub(r"\s+", "", text).split(","):
        if not part:
            continue
        match = _GTID.fullmatch(part)
        if (
            match is None
            or int(match[1]) >= 2**32
            or int(match[2]) >= 2**32
            or int(match[3]) >= 2**64
        ):
            raise set_error("mariadb", f"{part!r} is not a GTID", text)
        key = int(match[1]), int(match[2])
        if key in last:
            raise set_error("mariadb", f"domain {key[0]} names server {key[1]} twice", text)
        last[key] = int(match[3])
    return MariadbGtidSet(last, len({domain for domain, _ in last}) < len(last))


def _positions(last: Mapping[tuple[int, int], int]) -> dict[tuple[int, int], int]:
    found = {domain: (server, number) for (domain, server), number in last.items()}
    return {(domain, server): number for domain, (server, number) in found.items()}
