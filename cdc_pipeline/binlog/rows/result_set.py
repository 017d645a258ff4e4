"""A result set of the binary protocol: bytes of packets in, batches of rows out. No I/O.

Rules:
- The announced columns are checked before the first row is read.
- A batch ends at a count of rows or of bytes, whichever comes first. Only a row above the limit in
  bytes makes the memory grow, until it is gone.
- A row above the limit is refused as soon as a header announces it, as are impossible column counts
  (K25: no input may exhaust memory).
- Rows are rewritten once (`kernels.result_rows`); then the decoder of the log builds columns
  (`columns.build_columns`).

Source: MySQL client/server protocol, "COM_STMT_EXECUTE Response", "MySQL Packets".
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cdc_pipeline.binlog.arrow_types import arrow_schema
from cdc_pipeline.binlog.decoded import InvalidValue
from cdc_pipeline.binlog.framing.framing_kernel import EVENT_BYTES_MAX
from cdc_pipeline.binlog.framing.packets import (
    PacketEnd,
    out_of_order,
    packet_too_large,
    parse_end,
)
from cdc_pipeline.binlog.kernels import result_rows as kernel
from cdc_pipeline.binlog.rows.cells import Block
from cdc_pipeline.binlog.rows.columns import build_columns
from cdc_pipeline.binlog.rows.result_columns import (
    ColumnDefinition,
    ResultPlan,
    column_count,
    column_definition,
)
from cdc_pipeline.binlog.selected import SelectedRows
from cdc_pipeline.binlog.tables.table_map import COLUMNS_MAX
from cdc_pipeline.errors import BinlogError, TableChangedError

_INPUT_BYTES: Final = 4 << 20
_READ_BYTES_MIN: Final = 1 << 20
KEPT_BYTES: Final = 32 << 20  # input memory that is kept between rows
BATCH_BYTES: Final = 32 << 20
BATCH_ROWS: Final = 65_536
_CELLS_MAX: Final = 4 << 20  # cells of the matrix of offsets

_ERROR: Final = 0xFF
_NO_PLACES: Final = np.zeros(0, np.int64)


class ResultSet:
    """One result set as it arrives.

    Args:
        plan: the expected columns.
        is_mariadb: the kind of server.
        batch_rows, batch_bytes: where a batch ends.
        packet_bytes_max: maximum size of a row as sent by the server.

    Attributes:
        end: how the result ended; None before; `code` 0 for a complete result.
    """

    def __init__(
        self,
        plan: ResultPlan,
        *,
        is_mariadb: bool,
        batch_rows: int = BATCH_ROWS,
        batch_bytes: int = BATCH_BYTES,
        packet_bytes_max: int = EVENT_BYTES_MAX,
    ) -> None:
        columns = len(plan.schema.columns)
        self.end: PacketEnd | None = None
        self._plan = plan
        self._program = plan.program
        self._is_mariadb = is_mariadb
        self._packet_bytes_max = packet_bytes_max
        self._data: NDArray[np.uint8] = np.empty(_INPUT_BYTES, np.uint8)
        self._stop = 0
        self._state = np.zeros(kernel.STATE_WORDS, np.int64)
        self._state[kernel.S_SEQUENCE] = 1
        self._announced = -1  # number of columns; -1 until received
        self._definitions: list[ColumnDefinition] | None = []
        self._batch_bytes = batch_bytes
        self._batch_rows = max(1, min(batch_rows, _CELLS_MAX // columns))
        self._out: NDArray[np.uint8] = np.empty(batch_bytes, np.uint8)
        self._base = np.empty(self._batch_rows, np.int64)
        self._relative = np.empty((columns, self._batch_rows), np.int32)
        self._value_bytes = np.zeros(columns, np.int64)
        self._nulls = np.zeros(columns, np.int64)

    def room(self) -> NDArray[np.uint8]:
        """Room for the next bytes, at least _READ_BYTES_MIN; `commit` takes the number written."""
        first = int(self._state[kernel.S_POSITION])
        left = self._stop - first
        if len(self._data) - self._stop < _READ_BYTES_MIN or (
            len(self._data) > KEPT_BYTES and left < _INPUT_BYTES // 2
        ):
            size = len(self._data)
            if size > KEPT_BYTES and left < _INPUT_BYTES // 2:  # the long row is gone
                size = _INPUT_BYTES
            elif size - left < _READ_BYTES_MIN:  # one row fills it
                size *= 2
            target = self._data if size == len(self._data) else np.empty(size, np.uint8)
            target[:left] = self._data[first : self._stop].copy()
            self._data, self._stop = target, left
            self._state[kernel.S_POSITION] = 0
        return self._data[self._stop : self._stop + _INPUT_BYTES]

    def commit(self, count: int) -> None:
        """Count the first `count` bytes of the last `room` as received."""
        self._stop += count

    def take(self) -> SelectedRows | None:
        """The next batch: a full one, or the rest at the result's end; None if more bytes are
        needed or nothing is left. Raises TableChangedError: columns or values do not match the
        schema; BinlogError: malformed packets; SizeLimitError: a row larger than the limit.
        """
        while self._definitions is not None and self.end is None:
            payload = self._next_packet()
            if payload is None:
                return None
            self._read_head(payload)
        while self.end is None:
            status = self._rewrite(self._data, self._stop, is_long=False)
            if status == kernel.NEED:
                return None
            if status == kernel.FULL:
                return self._batch()
            if status == kernel.ROOM:
                if self._state[kernel.S_ROWS]:
                    return self._batch()
                self._out = np.empty(int(self._state[kernel.S_ROOM]), np.uint8)
            elif status == kernel.LONG:
                long = self._long_packet()
                if long is None:
                    return None
                batch = self._long_row(long)
                if batch is not None:
                    return batch
            elif status == kernel.END:
                ended = self._next_packet()
                assert ended is not None  # the kernel saw all of it
                self.end = parse_end(ended)
            else:
                raise self._error(int(status))
        return self._batch() if self._state[kernel.S_ROWS] else None

    def _rewrite(self, data: NDArray[np.uint8], stop: int, *, is_long: bool) -> int:
        status: int = kernel.rewrite_rows(
            data, stop, is_long, self._batch_rows, self._program, self._state, self._out,
            self._base, self._relative, self._value_bytes, self._nulls,
        )  # fmt: skip
        return status

    # -- packets -----------------------------------------------------------------------------------

    def _next_packet(self) -> bytes | None:
        at = int(self._state[kernel.S_POSITION])
        if at + kernel.HEADER_BYTES > self._stop:
            return None
        end = at + kernel.HEADER_BYTES + int.from_bytes(self._data[at : at + 3].tobytes(), "little")
        if end > self._stop:
            return None
        if self._data[at + 3] != self._state[kernel.S_SEQUENCE]:
            self._state[kernel.S_GOT] = self._data[at + 3]
            raise self._error(kernel.SEQUENCE)
        self._state[kernel.S_POSITION] = end
        self._state[kernel.S_SEQUENCE] = (self._state[kernel.S_SEQUENCE] + 1) & 0xFF
        return self._data[at + kernel.HEADER_BYTES : end].tobytes()

    def _read_head(self, payload: bytes) -> None:
        """Read a packet before the rows: the count of columns, a column, or an end."""
        assert self._definitions is not None
        if payload[:1] == bytes([_ERROR]):
            self.end = parse_end(payload)
        elif self._announced < 0:
            self._announced = column_count(payload)
            if not 1 <= self._announced <= COLUMNS_MAX:
                raise BinlogError(
                    "a result from the server has an impossible number of columns",
                    table=self._plan.schema.full_name,
                    expected=f"1 to {COLUMNS_MAX} columns",
                    got=self._announced,
                    next_step="check that the address leads to your server",
                )
        elif len(self._definitions) < self._announced:
            self._definitions.append(column_definition(payload))
        else:
            parse_end(payload)
            self._program = self._plan.checked(self._definitions)
            self._definitions = None

    def _long_packet(self) -> NDArray[np.uint8] | None:
        """The payload of a row in several packets; None if it is incomplete."""
        at = int(self._state[kernel.S_POSITION])
        sequence = int(self._state[kernel.S_SEQUENCE])
        pieces = []
        total_bytes = 0
        while True:
            if at + kernel.HEADER_BYTES > self._stop:
                return None
            length = int.from_bytes(self._data[at : at + 3].tobytes(), "little")
            if self._data[at + 3] != sequence:
                self._state[kernel.S_SEQUENCE] = sequence
                self._state[kernel.S_GOT] = self._data[at + 3]
                raise self._error(kernel.SEQUENCE)
            total_bytes += length
            if total_bytes > self._packet_bytes_max:
                raise packet_too_large(
                    "a row", self._packet_bytes_max, total_bytes, table=self._plan.schema.full_name
                )
            sequence = (sequence + 1) & 0xFF
            at += kernel.HEADER_BYTES + length
            if at > self._stop:
                return None
            pieces.append(self._data[at - length : at])
            if length < kernel.PACKET_BYTES_MAX:
                break
        payload = np.concatenate(pieces)
        self._state[kernel.S_POSITION], self._state[kernel.S_SEQUENCE] = at, sequence
        return payload

    def _long_row(self, payload: NDArray[np.uint8]) -> SelectedRows | None:
        """Rewrite one long row; return a batch if the rows before it had to make room."""
        position, sequence = self._state[kernel.S_POSITION], self._state[kernel.S_SEQUENCE]
        ready: SelectedRows | None = None
        while True:
            self._state[kernel.S_POSITION] = 0
            status = self._rewrite(payload, len(payload), is_long=True)
            if status not in (kernel.FULL, kernel.ROOM):
                break
            if self._state[kernel.S_ROWS]:
                ready = self._batch()
            else:
                self._out = np.empty(int(self._state[kernel.S_ROOM]), np.uint8)
        self._state[kernel.S_POSITION], self._state[kernel.S_SEQUENCE] = position, sequence
        if status != kernel.NEED:
            raise self._error(int(status))
        return ready

    # -- rows --------------------------------------------------------------------------------------

    def _batch(self) -> SelectedRows:
        plan, count = self._plan, int(self._state[kernel.S_ROWS])
        block = Block(
            self._out,
            self._base[:count],
            _NO_PLACES,
            _NO_PLACES,
            self._relative[:, :0],
            self._relative,
            0,
            count,
        )
        invalid: list[InvalidValue] = []
        arrays = build_columns(
            plan.rewritten,
            [block],
            image="after",
            rows=count,
            present=True,
            bitmap=None,
            value_bytes=self._value_bytes,
            nulls=self._nulls,
            rules=plan.rules,
            is_mariadb=self._is_mariadb,
            invalid=invalid,
        )
        self._state[kernel.S_ROWS] = self._state[kernel.S_OUT] = 0
        self._value_bytes[:] = 0
        self._nulls[:] = 0
        if len(self._out) > self._batch_bytes:
            self._out = np.empty(self._batch_bytes, np.uint8)
        return SelectedRows(
            plan.schema,
            pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(plan.schema)),
            invalid,
        )

    def _error(self, status: int) -> BinlogError | TableChangedError:
        table = self._plan.schema.full_name
        if status == kernel.SEQUENCE:
            expected, got = self._state[[kernel.S_SEQUENCE, kernel.S_GOT]]
            return out_of_order(expected, got, table=table)
        index = int(self._state[kernel.S_COLUMN])
        if index >= 0:
            name = self._plan.schema.columns[index].name
            what = "does not fit it" if status == kernel.UNFIT else "exceeds the row's end"
            return TableChangedError(
                f"a value of column {name!r} {what}",
                table=table,
                expected="values of the schema's type",
                got=f"another value in row {int(self._state[kernel.S_ROWS])} of the batch",
            )
        return BinlogError(
            "a row from the server does not match its columns",
            table=table,
            expected="values that fill the row's packet exactly",
            got="a packet of another length",
            next_step="start the run again",
        )
