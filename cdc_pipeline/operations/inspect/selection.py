"""Select the transactions and changes of journals that a person wants to see.

Rules:
- All conditions must hold. Time, position and GTIDs choose whole transactions; tables and
  operations choose changes.
- A transaction's time is its commit time at the source: from `from_us` on, and before `to_us`. A
  time condition excludes transactions whose time is unknown.
- A position chooses the transactions that begin at it or later, or before it: `JOURNAL:OFFSET` by
  the journal's number.
- A MySQL set holds the transactions that it names; a GTID of MariaDB stands for itself and all
  before it in its domain. Transactions without a GTID are in no set.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cdc_pipeline.binlog.chunk import Chunk
from cdc_pipeline.binlog.event_types import EventType
from cdc_pipeline.binlog.events.gtid_columns import Gtids
from cdc_pipeline.binlog.events.query import Query
from cdc_pipeline.binlog.seq import journal_number
from cdc_pipeline.errors import ConfigError
from cdc_pipeline.position.gtid.sets import MariadbGtidSet, MysqlGtidSet, parse_gtid_set
from cdc_pipeline.position.position import Flavor, Position
from cdc_pipeline.schema.ddl.ddl import parse_logged
from cdc_pipeline.schema.ddl.statement import Statement, StatementKind
from cdc_pipeline.text.table_names import NameRule, TablePattern

INSERT: Final = "insert"
UPDATE: Final = "update"
DELETE: Final = "delete"
STATEMENT: Final = "statement"
OPERATIONS: Final = (INSERT, UPDATE, DELETE, STATEMENT)

_ROW_OPERATIONS: Final = {INSERT: "WRITE_ROWS", UPDATE: "UPDATE_ROWS", DELETE: "DELETE_ROWS"}


@dataclass(frozen=True, slots=True)
class Selection:
    """Conditions; without any, everything is wanted. `tables`: shell patterns over
    ``schema.table``; `names`: how the server that wrote the journals compares names (K30);
    `operations`: of OPERATIONS; `from_us`, `to_us`: microseconds since 1970 UTC; `gtids`,
    `exclude_gtids`: GTID sets as text, "" is no condition.
    """

    tables: tuple[str, ...] = ()
    names: NameRule = NameRule.AS_GIVEN
    operations: frozenset[str] = frozenset(OPERATIONS)
    from_us: int | None = None
    to_us: int | None = None
    from_position: Position | None = None
    to_position: Position | None = None
    gtids: str = ""
    exclude_gtids: str = ""

    def wants_table(self, database: str, table: str) -> bool:
        return not self.tables or any(
            pattern.matches(database, table) for pattern in _parsed(self.tables, self.names)
        )

    def parse(self, query: Query, *, is_mariadb: bool) -> Statement:
        return parse_logged(query, is_mariadb=is_mariadb, names=self.names)

    def wants_statement(self, statement: Statement) -> bool:
        """With patterns, a statement is wanted if it names a wanted table, or may concern one."""
        if STATEMENT not in self.operations:
            return False
        if not self.tables:
            return True
        if statement.tables:
            return any(self.wants_table(*table) for table in statement.tables)
        if statement.database:
            return any(
                pattern.schema.match(statement.database)
                for pattern in _parsed(self.tables, self.names)
            )
        # The text of these does not name their tables.
        return statement.kind in (StatementKind.UNKNOWN, StatementKind.DML)

    def wanted_types(self) -> NDArray[np.bool_]:
        """bool (256,): the rows events, by type, of the wanted operations."""
        names = tuple(
            name for operation, name in _ROW_OPERATIONS.items() if operation in self.operations
        )
        wanted = np.zeros(256, bool)
        wanted[[int(kind) for kind in EventType if any(name in kind.name for name in names)]] = True
        return wanted

    def skips_before(self, journal: str) -> bool:
        """Whether the whole journal lies before what is wanted."""
        return (
            self.from_position is not None and journal_number(journal) < self.from_position.order[0]
        )

    def skips_after(self, journal: str) -> bool:
        return self.to_position is not None and journal_number(journal) > self.to_position.order[0]


class TransactionFilter:
    """A selection's conditions on transactions, applied after the transaction pass."""

    def __init__(self, selection: Selection) -> None:
        self._selection = selection
        # where reading begins instead of the given offset, which is inside
        self.moved_from: int | None = None
        self._is_placed = selection.from_position is None

    def wanted(self, chunk: Chunk, events: np.ndarray, gtids: Gtids) -> NDArray[np.bool_]:
        """bool (n,), for EVENT_DTYPE events (n,); PositionError: a set of another flavor."""
        asked = self._selection
        keep = np.ones(len(events), bool)
        number = journal_number(chunk.journal)
        inside = events["tx_offset"] >= 0
        place = np.where(inside, events["tx_offset"], events["offset"])
        if asked.from_position is not None:
            self._find_start(events, number)
            first, offset = asked.from_position.order
            keep &= place >= offset if number == first else number > first
        if asked.to_position is not None:
            last, offset = asked.to_position.order
            keep &= place < offset if number == last else number < last
        if asked.from_us is not None:
            keep &= (events["commit_ts_us"] >= asked.from_us) & inside
        if asked.to_us is not None:
            keep &= (events["commit_ts_us"] < asked.to_us) & (events["commit_ts_us"] >= 0) & inside
        flavor: Flavor = "mariadb" if chunk.journal_format.is_mariadb else "mysql"
        if asked.gtids:
            keep &= _in_set(gtids, _parsed_set(asked.gtids, flavor)) & inside
        if asked.exclude_gtids:
            keep &= ~_in_set(gtids, _parsed_set(asked.exclude_gtids, flavor))
        return keep

    def _find_start(self, events: np.ndarray, number: int) -> None:
        """Note where the start is moved to if it is not a transaction's begin."""
        asked = self._selection.from_position
        assert asked is not None
        if self._is_placed or number != asked.order[0] or asked.offset <= 4:
            return
        begins = (events["tx_offset"] < 0) | (events["tx_ordinal"] == 0)
        behind = np.flatnonzero(
            (events["offset"] >= asked.offset) & begins & (events["parent"] < 0)
        )
        if not len(behind):
            return
        self._is_placed = True
        offset = int(events["offset"][behind[0]])
        if offset != asked.offset:
            self.moved_from = offset


def _in_set(gtids: Gtids, wanted: MysqlGtidSet | MariadbGtidSet) -> NDArray[np.bool_]:
    is_in_set = np.zeros(len(gtids.key), bool)
    for place in np.unique(gtids.key[gtids.key >= 0]).tolist():
        of_key = gtids.key == place
        is_in_set[of_key] = _covered(gtids.number[of_key], gtids.keys[place], wanted)
    return is_in_set


def _covered(
    numbers: NDArray[np.int64], key: str, wanted: MysqlGtidSet | MariadbGtidSet
) -> NDArray[np.bool_]:
    if isinstance(wanted, MariadbGtidSet):
        domain, server = map(int, key.split("-")[:2])
        limits = [
            last
            for (of_domain, of_server), last in wanted.last.items()
            if of_domain == domain and (not wanted.is_state or of_server == server)
        ]
        reached: NDArray[np.bool_] = numbers <= max(limits, default=-1)
        return reached
    intervals = wanted.intervals.get(key.removesuffix(":"), np.zeros((1, 2), np.int64))
    at = np.searchsorted(intervals[:, 0], numbers, side="right") - 1
    inside: NDArray[np.bool_] = (at >= 0) & (numbers < intervals[at, 1])
    return inside


_parsed_set = lru_cache(maxsize=4)(parse_gtid_set)


@lru_cache(maxsize=64)
def _parsed(patterns: tuple[str, ...], names: NameRule) -> tuple[TablePattern, ...]:
    try:
        return tuple(TablePattern.parse(text, names) for text in patterns)
    except ValueError as error:
        raise ConfigError(
            str(error), setting="table", next_step="name tables as schema.table"
        ) from None
