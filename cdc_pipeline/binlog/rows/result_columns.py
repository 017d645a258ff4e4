"""How each column of a table is selected, announced by the server, and rewritten for the decoder.

Rules:
- A column list is always explicit: invisible, generated and generated-key columns are in the log,
  so they must be in the result.
- ENUM and SET are selected by number (a label reveals neither its index nor that it is the empty
  error value). Types that the protocol sends as text in the decoder's form (JSON, UUID, INET4,
  INET6) are read as UTF-8 text. All other columns are selected unchanged; with
  ``character_set_results = NULL`` their text comes in the column's charset.
- If the columns that the server announces differ from the schema, the table was altered and nothing
  is read.

Source: MySQL client/server protocol, "Column Definition", "COM_STMT_EXECUTE Response".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cdc_pipeline.binlog.column_types import number_bytes
from cdc_pipeline.binlog.kernels import result_rows as rows
from cdc_pipeline.binlog.table_schema import Column, Kind, TableSchema
from cdc_pipeline.binlog.tables.collations import CHARSET_BY_COLLATION
from cdc_pipeline.binlog.tables.columns_wire import fraction_bytes, width_rule, width_rules
from cdc_pipeline.binlog.tables.table_map_metadata import Reader
from cdc_pipeline.binlog.wire_types import WireType, type_name
from cdc_pipeline.errors import BinlogError, TableChangedError
from cdc_pipeline.text.table_names import quoted

_W = WireType

_UNSIGNED_FLAG: Final = 0x20
_PROTOCOL_BYTES: Final = {
    _W.TINY: 1, _W.SHORT: 2, _W.INT24: 4, _W.LONG: 4, _W.LONGLONG: 8, _W.FLOAT: 4, _W.DOUBLE: 8,
}  # fmt: skip
_LENGTH_BYTES: Final = 4
_NUMBER: Final = "number"  # the form of ENUM and SET

_Line = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class ColumnDefinition:
    """A server's announcement of one column of a result.

    Attributes:
        name: the selected name, or the expression's text.
        collation: id of the collation; 63 for bytes and numbers.
        wire_type: MYSQL_TYPE_*.
        unsigned: the unsigned flag.
        decimals: digits after the point.
    """

    name: str
    collation: int
    wire_type: int
    unsigned: bool
    decimals: int


@dataclass(frozen=True, slots=True)
class ResultPlan:
    """A table's columns as a result of the binary protocol.

    Attributes:
        schema: the table's schema.
        rewritten: the schema of the rewritten rows: other wire types, same Arrow types and values.
        rules: width rules of `rewritten`.
        program: int64 (columns, FIELDS) of `kernels.result_rows`, for `checked`.
        expressions: the select list, one expression per column.
    """

    schema: TableSchema
    rewritten: TableSchema
    rules: NDArray[np.int32]
    program: NDArray[np.int64]
    expressions: tuple[str, ...]

    def checked(self, definitions: list[ColumnDefinition]) -> NDArray[np.int64]:
        """Check the announced columns and return the program for them: MariaDB sends ENUM and SET
        numbers with 4 or 8 bytes. Raises TableChangedError: the announced columns differ from
        the schema.
        """
        if len(definitions) != len(self.schema.columns):
            raise _changed(
                self.schema, "count of columns", len(self.schema.columns), len(definitions)
            )
        program = self.program.copy()
        for column, found, line in zip(self.schema.columns, definitions, program, strict=True):
            _check_column(self.schema, column, found)
            if column.type.result == _NUMBER:
                line[rows.WIDTH] = width_bytes = _PROTOCOL_BYTES[_W(found.wire_type)]
                if width_bytes < line[rows.SIZE]:
                    raise _changed(
                        self.schema,
                        f"column {column.name!r}",
                        f"{line[rows.SIZE]} bytes",
                        width_bytes,
                    )
        return program


@lru_cache(maxsize=256)
def result_plan(schema: TableSchema, found_by: frozenset[str] = frozenset()) -> ResultPlan:
    """How to select and rewrite a table; `found_by`: as in `decode_rows`. Raises
    UnknownColumnTypeError: a column's type or fraction digits are unknown.
    """
    lines, columns, expressions = [], [], []
    for column in schema.columns:
        made, line = FORMS[column.type.result](column)
        columns.append(made)
        lines.append(line)
        name = quoted(column.name)
        expressions.append(f"CAST({name} AS UNSIGNED)" if column.type.result == _NUMBER else name)
    rewritten = replace(schema.found_by(found_by), columns=tuple(columns))
    program = np.array(lines, np.int64).reshape(-1, rows.FIELDS)
    return ResultPlan(schema, rewritten, width_rules(rewritten), program, tuple(expressions))


def _as_sent(column: Column) -> tuple[Column, _Line]:
    column = _of_code(column)
    return column, (rows.FIXED, _PROTOCOL_BYTES[_W(column.wire_type)], width_rule(column))


def _labels(column: Column) -> tuple[Column, _Line]:
    size_bytes = number_bytes(column)
    return _of_code(column, size_bytes), (rows.FIXED, 8, size_bytes)


def _year(column: Column) -> tuple[Column, _Line]:
    return _of_code(column), (rows.YEAR, 0, 0)


def _bits(column: Column) -> tuple[Column, _Line]:
    column = _of_code(column)
    return column, (rows.BITS, 0, width_rule(column))


def _decimal(column: Column) -> tuple[Column, _Line]:
    precision, scale = column.precision, column.scale
    return _of_code(column, precision << 8 | scale), (rows.DECIMAL, precision, scale)


def _date(column: Column) -> tuple[Column, _Line]:
    return _of_code(column), (rows.DATE, 0, 0)


def _moment(column: Column, *, op: int) -> tuple[Column, _Line]:
    digits = column.fraction_digits
    return _of_code(column, digits), (op, fraction_bytes(digits), 0)


def _counted(column: Column) -> tuple[Column, _Line]:
    return replace(column, wire_type=int(_W.LONG_BLOB), wire_meta=_LENGTH_BYTES), (
        rows.COUNTED,
        _LENGTH_BYTES,
        0,
    )


def _printed(column: Column) -> tuple[Column, _Line]:
    """Rewrite a value that is sent as text in the decoder's form: JSON in UTF-8, the others in
    ASCII."""
    return _counted(replace(column, kind=Kind.TEXT, charset="utf8mb4", pad_bytes=0))


def _of_code(column: Column, wire_meta: int = 0) -> Column:
    """Return the column as today's table maps have it. Its own wire type is not used: a schema from
    DDL or the catalog has none.
    """
    return replace(column, wire_type=int(column.type.wire[0]), wire_meta=wire_meta)


# By `TypeSpec.result`: the column as it is rewritten, and its line of the program.
FORMS: Final[dict[str, Callable[[Column], tuple[Column, _Line]]]] = {
    "integer": _as_sent,
    "real": _as_sent,
    _NUMBER: _labels,
    "year": _year,
    "bits": _bits,
    "decimal": _decimal,
    "date": _date,
    "datetime": partial(_moment, op=rows.DATETIME),
    "timestamp": partial(_moment, op=rows.TIMESTAMP),
    "time": partial(_moment, op=rows.TIME),
    "bytes": _counted,
    "text": _printed,
}


def _check_column(schema: TableSchema, column: Column, found: ColumnDefinition) -> None:
    spec = column.type
    where, wanted = f"column {column.name!r}", spec.announced
    if found.wire_type not in wanted:
        raise _changed(
            schema, where, " or ".join(type_name(one) for one in wanted), type_name(found.wire_type)
        )
    if spec.integer_bits and found.unsigned != column.unsigned:
        raise _changed(
            schema,
            where,
            *("unsigned" if one else "signed" for one in (column.unsigned, found.unsigned)),
        )
    if spec.result == "decimal" and found.decimals != column.scale:
        raise _changed(schema, where, f"{column.scale} decimals", f"{found.decimals} decimals")
    if spec.has_fraction and found.decimals != column.fraction_digits:
        raise _changed(
            schema, where, f"{column.fraction_digits} fraction digits", f"{found.decimals}"
        )
    charset = CHARSET_BY_COLLATION.get(found.collation, "")
    wanted_charset = {Kind.TEXT: column.charset, Kind.BINARY: "binary"}.get(column.kind, "")
    if wanted_charset and charset and charset != wanted_charset:
        raise _changed(schema, where, f"text in {wanted_charset}", f"text in {charset}")


def _changed(schema: TableSchema, where: str, expected: object, got: object) -> TableChangedError:
    return TableChangedError(
        f"the table differs from its schema: {where}",
        table=schema.full_name,
        expected=expected,
        got=got,
    )


def column_count(payload: bytes) -> int:
    """The count of columns in the first packet of a result; 0 if it has none."""
    try:
        return Reader(payload).number()
    except ValueError:
        return 0


def column_definition(payload: bytes) -> ColumnDefinition:
    """Parse a "Column Definition" packet. Raises BinlogError: the packet is truncated."""
    reader = Reader(payload)
    try:
        # catalog, schema, table, original table, name, original name
        texts = [reader.text() for _ in range(6)]
        reader.take(1)  # length of what follows
        fixed = reader.take(10)
    except ValueError:
        raise BinlogError(
            "a packet from the server is not a column definition",
            expected="six names and ten bytes",
            got=f"{len(payload)} bytes",
            next_step="start the run again",
        ) from None
    flags = int.from_bytes(fixed[7:9], "little")
    return ColumnDefinition(
        name=texts[4].decode("utf-8", "replace"),
        collation=int.from_bytes(fixed[0:2], "little"),
        wire_type=fixed[6],
        unsigned=bool(flags & _UNSIGNED_FLAG),
        decimals=fixed[9],
    )
