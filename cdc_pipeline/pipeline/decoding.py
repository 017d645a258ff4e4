"""From slices of events to the changes of each captured table.

Rules:
- Rows of a transaction that ends with ROLLBACK never count.
- A value that its Delta type cannot hold stops the run, with table, column, journal and offset.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cdc_pipeline.binlog.chunk import EventSlice, Role
from cdc_pipeline.binlog.decoded import DecodedRows
from cdc_pipeline.binlog.rows import RowsSelection, decode_rows
from cdc_pipeline.binlog.table_schema import TableSchema
from cdc_pipeline.errors import UnrepresentableValueError
from cdc_pipeline.transaction.table_maps import TableMaps


@dataclass(frozen=True, slots=True)
class DecodedRun:
    """The changes of some consecutive slices.

    Attributes:
        tables: one entry per table and schema version, in order of first appearance.
        row_events_ignored: rows events of tables that are not captured.
        transactions_applied: transactions with at least one row of a captured table.
    """

    tables: tuple[DecodedRows, ...]
    row_events_ignored: int
    transactions_applied: int


class RunDecoder:
    """Decodes slices in the order of the log; carries the table maps of an open transaction from piece to piece."""

    def __init__(self, *, captured: Callable[[str, str], bool], epoch: int) -> None:
        self._maps = TableMaps(captured)
        self._epoch = epoch

    def reset(self) -> None:
        """Forget the table maps of a transaction that never ended."""
        self._maps.reset()

    def decode(self, slices: Sequence[EventSlice]) -> DecodedRun:
        """Changes of `slices`.

        Raises:
            BinlogError, SchemaError: with journal and offset; nothing of `slices` counts then.
        """
        selections: dict[TableSchema, list[RowsSelection]] = {}
        ignored = 0
        applied: set[tuple[str, int]] = set()
        for piece in slices:
            rolled_back = _rolled_back(piece)
            for group in self._maps.resolve(piece):
                rows = group.rows
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
            tables.append(decoded)
        return DecodedRun(tuple(tables), ignored, len(applied))


def _rolled_back(piece: EventSlice) -> NDArray[np.int64]:
    events = piece.events
    offsets: NDArray[np.int64] = events["tx_offset"][events["role"] == Role.ROLLBACK]
    return offsets


def _unrepresentable(decoded: DecodedRows, parts: Sequence[RowsSelection]) -> UnrepresentableValueError:
    value = decoded.invalid[0]
    at = int(decoded.event_row[value.row])
    for part in parts:
        if at < len(part.rows):
            break
        at -= len(part.rows)
    column = decoded.schema.columns[value.column]
    more = f" and {len(decoded.invalid) - 1} more" if len(decoded.invalid) > 1 else ""
    return UnrepresentableValueError(
        f"column {column.name} holds a value that its Delta type cannot hold: {value.reason}",
        journal=part.chunk.journal,
        offset=int(part.chunk.events["offset"][part.rows[at]]),
        table=decoded.schema.full_name,
        expected=f"a value of {column.kind}",
        got=f"{value.text!r} in the {value.image} image{more}",
        next_step="correct the value at the source and start after it, or exclude the table",
    )
