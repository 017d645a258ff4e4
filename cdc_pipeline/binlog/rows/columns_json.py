r"""JSON columns as canonical text, by `kernels/json/jsonb.py` (documents) and
`kernels/json/json_diff.py` (changed documents).

Rule: the canonical text is the server's own, ``SELECT CAST(doc AS CHAR CHARACTER SET utf8mb4)``, so
that a row from a load and the same row from the log have the same bytes. On MySQL that means:

- Members are ordered by the length of their keys in UTF-8 bytes, then by those bytes; each key
  once.
- ``", "`` between elements and ``": "`` after keys; no other space and no line ends.
- In strings ``"`` and ``\`` are escaped by a backslash, U+0008, U+0009, U+000A, U+000C and U+000D
  by their letters, other characters below U+0020 as ``\u00xx`` with small letters; everything else
  is unchanged UTF-8.
- Integers are plain. Doubles are the shortest digits that read back: plain if the point is -14 to
  15 digits from the front or between two digits, with ``.0`` if they have no fraction; else
  ``d.ddde[-]x``.
- DECIMAL values are plain digits with all digits of their scale. DATE, TIME, DATETIME and TIMESTAMP
  are strings, the last three with six digits of fraction. All other opaque values are
  ``"base64:type<number>:<base64>"``, with an escaped line end after each 76 characters.
- The JSON null is the text ``null``. SQL's NULL is NULL.

MariaDB's JSON is a LONGTEXT: its canonical text is the column's text, unchanged.
"""

from __future__ import annotations

import json
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cdc_pipeline.binlog.arrow_types import check_column_bytes
from cdc_pipeline.binlog.decoded import InvalidValue
from cdc_pipeline.binlog.kernels.json import json_changes, json_diff, jsonb
from cdc_pipeline.binlog.kernels.numbers import VALID
from cdc_pipeline.binlog.kernels.text.shortest import powers_of_ten
from cdc_pipeline.binlog.rows.cells import Block, Cells
from cdc_pipeline.binlog.rows.partial_rows import NO_DOCUMENT, NOT_FITTING
from cdc_pipeline.binlog.tables.table_map_metadata import Reader

_OPERATIONS: Final = ("replace", "insert", "remove")


class _Writer:
    def __init__(self, cells: Cells) -> None:
        self._cells = cells
        # The text of a document is seldom longer than twice its bytes; the kernels stop if they
        # need more room.
        self.out = np.empty(2 * cells.value_bytes + (64 << 10), np.uint8)
        self.offsets = np.zeros(cells.rows + 1, np.int32)
        self.end = 0
        self._powers = powers_of_ten()
        self._stack = np.empty(jsonb.STACK_SHAPE, np.int64)
        self._walk = np.empty(json_changes.WALK_SHAPE, np.int64)
        self._tops = np.zeros(json_diff.TOPS, np.int64)
        self._resize_scratch(256)

    def documents(self, block: Block, relative: NDArray[np.int32], rows: slice) -> None:
        data = _read_only(block.data)
        done = 0
        while done < block.rows:
            done_now, self.end = jsonb.gather_json(
                data,
                block.base[done:],
                relative[done:],
                -self._cells.rule,
                self._powers,
                self._stack,
                self.out,
                self.end,
                self.offsets[rows.start + done : rows.stop + 1],
                self._cells.state[rows.start + done : rows.stop],
            )
            done += done_now
            if done < block.rows:
                self._grow()

    def changes(
        self, block: Block, relative: NDArray[np.int32], rows: slice, what: NDArray[np.uint8]
    ) -> None:
        before = block.before[self._cells.index, : block.rows]
        data = _read_only(block.data)
        done = 0
        while done < block.rows:
            done_now, self.end, code = json_changes.gather_changed_json(
                data,
                block.base[done:],
                before[done:],
                relative[done:],
                -self._cells.rule,
                what[done:],
                self._nodes,
                self._children,
                self._names,
                self._tops,
                self._powers,
                self._stack,
                self._walk,
                self.out,
                self.end,
                self.offsets[rows.start + done : rows.stop + 1],
                self._cells.state[rows.start + done : rows.stop],
            )
            done += done_now
            if code == json_changes.FULL:
                self._grow()
            elif code == json_changes.SCRATCH_FULL:
                self._resize_scratch(4 * len(self._nodes))

    def _resize_scratch(self, nodes: int) -> None:
        """Allocate room for so many nodes, and for children and names in proportion."""
        self._nodes = np.empty((nodes, json_diff.NODE_WORDS), np.int64)
        self._children = np.empty(32 * nodes, np.int64)
        self._names = np.empty(16 * nodes, np.uint8)

    def _grow(self) -> None:
        self.check_bytes()
        larger = np.empty(2 * len(self.out), np.uint8)
        larger[: self.end] = self.out[: self.end]
        self.out = larger

    def check_bytes(self) -> None:
        """Raise BinlogError if the text is longer than Arrow's offsets can address."""
        check_column_bytes(self._cells.column, self._cells.rows, self.end)


def json_column(cells: Cells, kind: pa.DataType) -> pa.Array:
    writer = _Writer(cells)
    for block, relative, rows in cells.parts():
        what = _kinds(cells, block)
        if what is None:
            writer.documents(block, relative, rows)
            continue
        writer.changes(block, relative, rows, what)
        unchanged = np.flatnonzero(what == json_changes.UNCHANGED_ABSENT)
        if len(unchanged) and block.partial is not None:
            block.partial.unchanged.append((unchanged + rows.start, cells.index))
    writer.check_bytes()
    return cells.array(kind, [pa.py_buffer(writer.offsets), pa.py_buffer(writer.out[: writer.end])])


def json_invalid(cells: Cells, bad: NDArray[np.int64], reason: str) -> list[InvalidValue]:
    """Reason and text of values: hex of malformed documents, JSON of inapplicable differences."""
    found = []
    for row in bad.tolist():
        raw = cells.raw(row)
        text, why = raw.hex(), reason
        block = next(block for block, _, rows in cells.parts() if rows.start <= row < rows.stop)
        what = _kinds(cells, block)
        if what is not None and what[row - block.first_row] == json_changes.DIFFS:
            why = NOT_FITTING
            if block.before[cells.index, row - block.first_row] < 0:
                why = NO_DOCUMENT
            text = _diffs_text(raw) or text
        found.append(InvalidValue(row, cells.image, cells.index, why, text))
    return found


def _diffs_text(raw: bytes) -> str:
    """Differences as JSON: a list of objects with op, path and usually value; "" if malformed."""
    found: list[dict[str, Any]] = []
    reader = Reader(raw)
    try:
        while not reader.at_end:
            operation = reader.take(1)[0]
            difference = {"op": _OPERATIONS[operation], "path": reader.text().decode()}
            if operation != json_diff.REMOVE:
                difference["value"] = json.loads(_text_of(reader.text()))
            found.append(difference)
    except (IndexError, ValueError):
        return ""
    return json.dumps(found, ensure_ascii=False)


def _text_of(document: bytes) -> bytes:
    """The canonical text of one document; raises ValueError if it is malformed."""
    prefix = 4
    data = np.frombuffer(len(document).to_bytes(prefix, "little") + document, np.uint8)
    out = np.empty(jsonb.TEXT_BYTES_PER_BYTE * len(document) + jsonb.TEXT_BYTES_MORE, np.uint8)
    offsets, state = np.zeros(2, np.int32), np.zeros(1, np.uint8)
    jsonb.gather_json(
        data, np.zeros(1, np.int64), np.zeros(1, np.int32), prefix, powers_of_ten(),
        np.empty(jsonb.STACK_SHAPE, np.int64), out, 0, offsets, state,
    )  # fmt: skip
    if state[0] != VALID:
        raise ValueError("no document")
    return out[: int(offsets[1])].tobytes()


def _read_only(data: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A read-only view of chunk bytes, so that numba compiles only for read-only arrays."""
    view = data.view()
    view.setflags(write=False)
    return view


def _kinds(cells: Cells, block: Block) -> NDArray[np.uint8] | None:
    """Per row whether the value is differences; None if the block has none."""
    if block.partial is None or cells.image != "after":
        return None
    what = block.partial.is_diff(block.events, block.ordinals, cells.index)
    return what if what.any() else None
