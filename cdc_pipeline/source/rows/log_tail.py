"""Look up in the log which transactions may or may not be in a view (MySQL with GTIDs; K17).

It may or may not hold the few transactions between gtid_executed before it is opened and the log's
end after that (`marks`). If none of them touches the tables that are read, the view of these tables
is exactly what precedes the log's end.

Rules:
- The candidates are read with SHOW BINLOG EVENTS, from a place before which everything is proved to
  be in gtid_executed: at first a place that the caller passes with its set, later the end of an
  earlier lookup.
- Anything that is not certainly harmless counts as touching: statements other than BEGIN, COMMIT
  and savepoints (DDL, XA, changes in statement format), compressed transactions, types of events
  that are not listed here.
- The server begins a new journal only when everything in the old one is committed: its beginning is
  proved for the next lookup, but not for this one, whose view may be older.

Source: MySQL manual "SHOW BINLOG EVENTS", "GTID functions"; `MYSQL_BIN_LOG::new_file_impl`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Sequence
from typing import Final

from cdc_pipeline.errors import StatementError
from cdc_pipeline.position.position import Position
from cdc_pipeline.source.live.answers import AnswerRow, loose_text, number_of
from cdc_pipeline.source.live.connection import compact_set
from cdc_pipeline.source.rows.table_reader import TableReader
from cdc_pipeline.text.table_names import NameRule

# A name that is the same but for its letters' case may be another table's, where the server tells
# them apart: then the next view is tried.
_AS_ANY: Final = NameRule.LOWER
EVENTS_MAX: Final = 200_000  # of one lookup
_READABLE_WITHIN_S: Final = 1.0
_POLL_S: Final = 0.005
_GTID: Final = re.compile(r"GTID_NEXT\s*=\s*'([0-9A-Fa-f-]{36}:[^'\s]+)'")
_STATEMENT: Final = re.compile(
    r"(BEGIN|COMMIT|(ROLLBACK TO |RELEASE )?SAVEPOINT\b.*)", re.IGNORECASE | re.DOTALL
)
# Harmless by itself: its table maps and its end decide.
_HARMLESS: Final = frozenset(
    {
        "Write_rows",
        "Update_rows",
        "Delete_rows",
        "Write_rows_v1",
        "Update_rows_v1",
        "Delete_rows_v1",
        "Update_rows_partial",
        "Xid",
        "Rows_query",
        "Format_desc",
        "Previous_gtids",
        "Rotate",
        "Stop",
    }
)


class LogTail:
    """The end of one server's log, with regard to `tables`. `reader` queries in its view if
    there is one; `since` has the set of all transactions before it.
    """

    def __init__(
        self, reader: TableReader, tables: Collection[tuple[str, str]], since: Position
    ) -> None:
        self._reader = reader
        self._names = [_AS_ANY.fold(f"({database}.{table})") for database, table in tables]
        self._is_plain = all(name.isascii() for name in self._names)
        self._base = since
        self._next: Position | None = None
        self._is_proved = False  # the base, for every lookup from now on

    def set_at(self, executed: str, place: Position) -> str | None:
        """The set of all transactions before `place`, if the view holds exactly their changes of
        the tables; None if that is not known: the next view may succeed.

        Args:
            executed: gtid_executed before the view was opened.
            place: the log's end, read after it was opened.
        """
        if not self._has_base(executed, place):
            return None
        events = self._read_events(place)
        if events is None:
            return None
        gtids, touching = events
        whole = self._joined(executed, gtids)
        self._next = Position(place.journal, place.offset, gtid_set=whole)
        if touching is None or (touching and not self._is_in(",".join(touching), executed)):
            return None
        return whole

    def _has_base(self, executed: str, place: Position) -> bool:
        if self._next is not None and self._is_in(self._next.gtid_set, executed):
            self._base, self._next, self._is_proved = self._next, None, True
        if self._base.journal != place.journal:
            self._base = Position(place.journal)
            self._next = None
            self._is_proved = True
            return False
        if not self._is_proved:
            self._is_proved = bool(self._base.gtid_set) and self._is_in(
                self._base.gtid_set, executed
            )
        return self._is_proved

    def _read_events(self, place: Position) -> tuple[list[str], list[str] | None] | None:
        """The GTIDs from the base up to `place`, and of those that touch the tables, None if one
        is not known. None for both if the log could not be read up to there.
        """
        until_s = time.monotonic() + _READABLE_WITHIN_S
        sql = f"SHOW BINLOG EVENTS IN %s FROM {self._base.offset:d} LIMIT {EVENTS_MAX:d}"
        while True:
            try:
                rows = self._reader.rows(sql, (self._base.journal,))
            except StatementError:
                return None  # the account may not see it, or it is gone: the caller tries without
            if (rows[-1].number("end_log_pos") if rows else self._base.offset) >= place.offset:
                return self._sorted(rows, place)
            if len(rows) >= EVENTS_MAX or time.monotonic() >= until_s:
                return None
            time.sleep(_POLL_S)  # the reported end is not synced yet

    def _sorted(
        self, rows: Sequence[AnswerRow], place: Position
    ) -> tuple[list[str], list[str] | None]:
        gtids: list[str] = []
        touching: dict[str, None] = {}
        is_known = True
        for row in rows:
            if row.number("pos") >= place.offset:
                break
            text, kind = loose_text(row["info"]), row.text("event_type")
            if kind.lower().startswith(("gtid", "anonymous")):
                gtid_match = _GTID.search(text)
                is_known = is_known and gtid_match is not None
                gtids += [gtid_match[1]] if gtid_match is not None else []
            elif not self._is_harmless(kind, text):
                is_known = is_known and bool(gtids)
                touching.update(dict.fromkeys(gtids[-1:]))
        return gtids, list(touching) if is_known else None

    def _is_harmless(self, kind: str, text: str) -> bool:
        if kind == "Table_map":
            folded = _AS_ANY.fold(text)
            return self._is_plain and not any(name in folded for name in self._names)
        return kind in _HARMLESS or (
            kind == "Query" and _STATEMENT.fullmatch(text.strip()) is not None
        )

    def _is_in(self, part: str, whole: str) -> bool:
        asked = "SELECT GTID_SUBSET(%s, %s)"
        value = self._reader.value(asked, (part, whole))
        return bool(number_of(value, address=self._reader.address, asked=asked))

    def _joined(self, executed: str, gtids: Sequence[str]) -> str:
        text = ",".join((executed, *gtids)) if executed else ",".join(gtids)
        return compact_set(self._reader.text("SELECT GTID_SUBTRACT(%s, '')", (text,)))
