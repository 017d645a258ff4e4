"""The row decoder's view of a table: names, wire types, signs, charsets, labels and key.

Rules:
- A `TableSchema` has plain values and is compared by content. It is made from a table map or the
  schema history; the decoder never sees the table map itself.
- It describes the wire; `binlog/arrow_types.py` has the Arrow types, `schema/types.py` those of
  Delta.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import cached_property

from cdc_pipeline.text.table_names import table_name


class Kind(StrEnum):
    """Logical kind of a column, decided from the wire type,
    its metadata and the optional metadata.
    """

    INT8 = "tinyint"
    INT16 = "smallint"
    INT24 = "mediumint"
    INT32 = "int"
    INT64 = "bigint"
    BIT = "bit"
    DECIMAL = "decimal"
    FLOAT = "float"
    DOUBLE = "double"
    YEAR = "year"
    DATE = "date"
    DATETIME = "datetime"
    TIMESTAMP = "timestamp"
    TIME = "time"
    TEXT = "text"  # CHAR, VARCHAR, TINYTEXT ... LONGTEXT: text in `charset`
    BINARY = "binary"  # BINARY, VARBINARY, BLOBs: bytes; `pad_bytes` for BINARY(n)
    ENUM = "enum"
    SET = "set"
    JSON = "json"
    GEOMETRY = "geometry"
    VECTOR = "vector"
    UUID = "uuid"  # MariaDB's; on the wire BINARY(16): a table map does not identify these three
    INET4 = "inet4"  # BINARY(4)
    INET6 = "inet6"  # BINARY(16)


@dataclass(frozen=True, slots=True)
class Column:
    """One column in the binlog.

    Attributes:
        name: column name.
        kind: logical kind.
        wire_type: type code of the table map (MYSQL_TYPE_*), with ENUM, SET and long CHAR unwrapped
            from STRING.
        wire_meta: the type's metadata word in the row decoder's form (for VARCHAR the maximum
            bytes; for BLOB, JSON and GEOMETRY the count of length bytes, for the "2" temporal types
            the fraction digits, for BIT the bits, for STRING the maximum bytes, for ENUM and SET
            the count of pack bytes, for NEWDECIMAL precision << 8 | scale).
        nullable: from the null bits of the table map.
        unsigned: from SIGNEDNESS; False for types without a sign.
        charset: server charset name for TEXT, ENUM and SET (``utf8mb4``, ``latin1`` ...), "" for
            others.
        labels: labels of ENUM and SET, decoded to text; index 0 is the first label.
        precision, scale: of DECIMAL.
        fraction_digits: of DATETIME, TIMESTAMP and TIME, 0 to 6; -1 if only the catalog knows them
            (a table map of MariaDB's old temporal format).
        bits: of BIT, 1 to 64.
        pad_bytes: n of BINARY(n), to which values are padded with zero bytes; 0 for others.
        char_length_max: declared length in characters or bytes if the wire has it, else 0.
        visible: False for invisible columns, including generated invisible primary keys.
        masked: the mask of the values, as written by `pipeline/targets/masks.py`; "" for plain
            values. The other attributes still describe the source's column.
    """

    name: str
    kind: Kind
    wire_type: int
    wire_meta: int
    nullable: bool
    unsigned: bool = False
    charset: str = ""
    labels: tuple[str, ...] = ()
    precision: int = 0
    scale: int = 0
    fraction_digits: int = 0
    bits: int = 0
    pad_bytes: int = 0
    char_length_max: int = 0
    visible: bool = True
    masked: str = ""


@dataclass(frozen=True)
class TableSchema:
    """A table at one version of its columns.

    Attributes:
        database, table: names at the source.
        columns: in the order of the row images.
        primary_key: indexes into `columns`, in key order; () if the table has no primary key.
    """

    database: str
    table: str
    columns: tuple[Column, ...]
    primary_key: tuple[int, ...] = ()

    @property
    def full_name(self) -> str:
        """``schema.table``."""
        return table_name(self.database, self.table)

    @cached_property
    def column_names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def key_names(self) -> tuple[str, ...]:
        return tuple(self.columns[index].name for index in self.primary_key)

    def to_json(self) -> str:
        """Return the schema as JSON text; `from_json` is its inverse."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> TableSchema:
        """Parse the text of `to_json`. Raises KeyError,
        TypeError or ValueError for any other text.
        """
        plain = json.loads(text)
        columns = tuple(
            Column(**{**column, "kind": Kind(column["kind"]), "labels": tuple(column["labels"])})
            for column in plain["columns"]
        )
        return cls(plain["database"], plain["table"], columns, tuple(plain["primary_key"]))

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.database, self.table, self.columns, self.primary_key))
