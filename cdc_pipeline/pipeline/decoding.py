"""From slices of events to the changes of each captured table.

Rules:
- Rows of a transaction that ends with ROLLBACK never count.
- Rows of a suspended table are counted and not decoded: its table maps may be what it was suspended for (K4).
- A value that its Delta type cannot hold stops the run, with table, column, journal and offset.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cdc_pipeline.binlog.chunk import EventSlice, Role
from cdc_pipeline.binlog.decoded import INSERT, DecodedRows
from cdc_pipeline.binlog.rows import RowsSelection, decode_rows
from cdc_pipeline.binlog.table_schema import TableSchema
from cdc_pipeline.errors import IncompleteRowsError, UnrepresentableValueError
from cdc_pipeline.transaction.table_maps import TableMaps


@dataclass(frozen=True, slots=True)
class DecodedTable:
    """Changes of one table, and where the first of them stands."""

    rows: DecodedRows
    journal: str
    offset: int


@dataclass(frozen=True, slots=True)
class DecodedRun:
    """The changes of some consecutive slices.

    Attributes:
        tables: one entry per table and schema version, in order of first appearance.
        row_events_ignored: rows events of tables that are not captured.
        transactions_applied: transactions with at least one row of a captured table.
        row_events_suspended: rows events of captured tables that are suspended (K4).
    """

    tables: tuple[DecodedTable, ...]
    row_events_ignored: int
    transactions_applied: int
    row_events_suspended: int = 0


class RunDecoder:
    """Decodes slices in the order of the log; carries the table maps of an open transaction from piece to piece."""

    def __init__(
        self,
        *,
        captured: Callable[[str, str], bool],
        epoch: int,
        suspended: Callable[[str, str], bool] = lambda _database, _table: False,
    ) -> None:
        self._maps = TableMaps(lambda database, table: captured(database, table) and not suspended(database, table))
        self._epoch = epoch
        self._suspended = suspended
        self.mark = self._maps.mark
        self.rewind = self._maps.rewind

    def reset(self) -> None:
        """Forget the table maps of a transaction that never ended."""
        self._maps.reset()

    def decode(self, slices: Sequence[EventSlice]) -> DecodedRun:
        """Changes of `slices`.

        Raises:
            BinlogError, SchemaError: with journal and offset; nothing of `slices` counts then.
        """
        selections: dict[TableSchema, list[RowsSelection]] = {}
        ignored = left = 0
        applied: set[tuple[str, int]] = set()
        for piece in slices:
            rolled_back = _rolled_back(piece)
            for group in self._maps.resolve(piece):
                rows = group.rows
                if self._suspended(group.database, group.table):
                    left += len(rows)
                    continue
                if group.schema is None:
                    ignored += len(rows)
                    continue
                events = piece.chunk.events
                if len(rolled_back):
                    rows = rows[~np.isin(events["tx_offset"][rows], rolled_back)]
                if not len(rows):
                    continue
                selections.setdefault(group.schema, []).append(RowsSelection(piece.chunk, rows))
                applied.update((piece.chunk.journal, int(at)) for at in np.unique(events["tx_offset"][rows]))
        tables = []
        for schema, parts in selections.items():
            decoded = decode_rows(parts, schema, epoch=self._epoch)
            if decoded.invalid:
                raise _unrepresentable(decoded, parts)
            if not decoded.all_present:
                _check_inserts(decoded, parts)
            first = parts[0]
            offset = int(first.chunk.events["offset"][first.rows[0]])
            tables.append(DecodedTable(decoded, first.chunk.journal, offset))
        return DecodedRun(tuple(tables), ignored, len(applied), left)


def _rolled_back(piece: EventSlice) -> NDArray[np.int64]:
    events = piece.events
    offsets: NDArray[np.int64] = events["tx_offset"][events["role"] == Role.ROLLBACK]
    return offsets


def _place(decoded: DecodedRows, parts: Sequence[RowsSelection], row: int) -> tuple[str, int]:
    """Journal and offset of the rows event that change `row` came from."""
    at = int(decoded.event_row[row])
    for part in parts:
        if at < len(part.rows):
            break
        at -= len(part.rows)
    return part.chunk.journal, int(part.chunk.events["offset"][part.rows[at]])


def _check_inserts(decoded: DecodedRows, parts: Sequence[RowsSelection]) -> None:
    """An insert without a column means the column's default, which the journal does not tell."""
    columns = len(decoded.schema.columns)
    there = np.unpackbits(decoded.after_present, axis=1, bitorder="little", count=columns).astype(bool)
    lacking = np.flatnonzero((decoded.op == INSERT) & ~there.all(axis=1))
    if not len(lacking):
        return
    row = int(lacking[0])
    journal, offset = _place(decoded, parts, row)
    names = [column.name for column, here in zip(decoded.schema.columns, there[row], strict=True) if not here]
    raise IncompleteRowsError(
        f"an insert lacks the columns that got their default: {', '.join(names)}",
        journal=journal,
        offset=offset,
        table=decoded.schema.full_name,
        setting="binlog_row_image",
        expected="inserts with every column",
        got=f"{len(lacking)} inserts without some",
        next_step="SET GLOBAL binlog_row_image = 'FULL', end the sessions that are older, and start after them",
    )


def _unrepresentable(decoded: DecodedRows, parts: Sequence[RowsSelection]) -> UnrepresentableValueError:
    value = decoded.invalid[0]
    journal, offset = _place(decoded, parts, value.row)
    column = decoded.schema.columns[value.column]
    more = f" and {len(decoded.invalid) - 1} more" if len(decoded.invalid) > 1 else ""
    return UnrepresentableValueError(
        f"column {column.name} holds a value that its Delta type cannot hold: {value.reason}",
        journal=journal,
        offset=offset,
        table=decoded.schema.full_name,
        expected=f"a value of {column.kind}",
        got=f"{value.text!r} in the {value.image} image{more}",
        next_step="correct the value at the source and start after it, or exclude the table",
    )
