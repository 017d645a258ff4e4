"""The conversion table as people read it: each source type, its Delta type, and what to know of it.

Rules:
- docs/types.md is made from this table (``make docs``); a test holds the page to it.
- Each row names definitions with the Delta type that they get. Tests hold them to `schema.types.delta_type`, to
  `binlog.arrow_types.arrow_type`, to the reading of DDL texts, and to the table maps of real servers: so no side of the
  conversion can change alone.
- Every kind of column is in a row.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from cdc_pipeline.schema.types import GEOMETRY_TYPE


@dataclass(frozen=True, slots=True)
class Conversion:
    """One row.

    Attributes:
        source: the source types, as they stand in a definition.
        note: what the values become, where the type alone does not tell; "" for nothing.
        examples: definitions, and the Delta type of each.
        shown: the Delta types as the page names them; by default those of the examples, once each, in order.
        flavor: "mysql" or "mariadb" where only one has the type; "" for both.
        in_table_map: False where a table map alone does not tell the type.
    """

    source: str
    note: str
    examples: dict[str, str] = field(hash=False)
    shown: tuple[str, ...] = ()
    flavor: str = ""
    in_table_map: bool = True

    @property
    def delta(self) -> tuple[str, ...]:
        """Delta types as the page shows them."""
        return self.shown or tuple(dict.fromkeys(self.examples.values()))


def _each(delta: str, *definitions: str) -> dict[str, str]:
    return dict.fromkeys(definitions, delta)


CONVERSIONS: Final = (
    Conversion("TINYINT, TINYINT(1), BOOL", "BOOL is a number at the source",
               _each("tinyint", "TINYINT", "TINYINT(1)", "BOOL")),
    Conversion("TINYINT UNSIGNED, SMALLINT", "", _each("smallint", "TINYINT UNSIGNED", "SMALLINT")),
    Conversion("SMALLINT UNSIGNED, MEDIUMINT (signed or not), INT", "",
               _each("int", "SMALLINT UNSIGNED", "MEDIUMINT", "MEDIUMINT UNSIGNED", "INT")),
    Conversion("INT UNSIGNED, BIGINT", "", _each("bigint", "INT UNSIGNED", "BIGINT")),
    Conversion("BIGINT UNSIGNED, SERIAL", "", _each("decimal(20,0)", "BIGINT UNSIGNED")),
    Conversion("BIT(1)", "", _each("boolean", "BIT", "BIT(1)")),
    Conversion("BIT(2) to BIT(63), BIT(64)", "",
               {"BIT(2)": "bigint", "BIT(63)": "bigint", "BIT(64)": "decimal(20,0)"}),
    Conversion("DECIMAL(p,s), p up to 38", "exact",
               {"DECIMAL(10,2)": "decimal(10,2)", "DECIMAL(38,30)": "decimal(38,30)", "NUMERIC(5)": "decimal(5,0)"},
               ("decimal(p,s)",)),
    Conversion("DECIMAL(p,s), p from 39", "plain text with s digits",
               _each("string", "DECIMAL(39,0)", "DECIMAL(65,30)")),
    Conversion("FLOAT, DOUBLE", "FLOAT(p) with p above 24 is a DOUBLE; REAL is one unless sql_mode has REAL_AS_FLOAT",
               {"FLOAT": "float", "DOUBLE": "double", "FLOAT(30)": "double", "REAL": "double"}),
    Conversion("YEAR", "0 stays 0", _each("smallint", "YEAR")),
    Conversion("DATE", "zero, partial and impossible dates are not held", _each("date", "DATE")),
    Conversion("DATETIME(f)", "a wall clock without a zone; zero, partial and impossible dates are not held",
               _each("timestamp_ntz", "DATETIME", "DATETIME(6)")),
    Conversion("TIMESTAMP(f)", "an instant; the zero timestamp is not held",
               _each("timestamp", "TIMESTAMP NULL", "TIMESTAMP(6) NULL")),
    Conversion("TIME(f)", "`[-]HH:MM:SS[.ffffff]`, up to 838 hours", _each("string", "TIME", "TIME(6)")),
    Conversion("a temporal type in MariaDB's old format (mysql56_temporal_format=OFF)",
               "as above where the schema history knows the fraction digits, which no table map tells; without it a "
               "table with one stops by name: `ALTER TABLE ... FORCE` with mysql56_temporal_format=ON",
               {}, ("as above",), "mariadb", in_table_map=False),
    Conversion("CHAR, VARCHAR, TEXT and kin",
               "decoded by the column's own charset as the server does it; bytes that are no text in it are not held",
               _each("string", "CHAR(5)", "VARCHAR(5)", "TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT",
                     "VARCHAR(5) CHARACTER SET latin1")),
    Conversion("BINARY, VARBINARY, BLOB and kin",
               "BINARY(n) is padded to n; text in CHARACTER SET binary counts as bytes",
               _each("binary", "BINARY(16)", "VARBINARY(16)", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB",
                     "VARCHAR(5) CHARACTER SET binary")),
    Conversion("ENUM, SET", "the label, '' for the number 0; labels joined by commas in the order of the definition",
               _each("string", "ENUM('a','b')", "SET('a','b')")),
    Conversion("JSON",
               "the text that MySQL's CAST(doc AS CHAR) prints; JSON null is `null`; MariaDB's JSON is a LONGTEXT",
               _each("string", "JSON")),
    Conversion("GEOMETRY, POINT and kin", "", _each(GEOMETRY_TYPE, "GEOMETRY", "POINT", "POLYGON")),
    Conversion("VECTOR (MySQL 9)", "", _each("array<float>", "VECTOR(3)"), flavor="mysql"),
    Conversion("UUID, INET4, INET6 (MariaDB)",
               "the server's text. A table map does not tell them from BINARY(n): without a schema history they are "
               "`binary`",
               _each("string", "UUID", "INET4", "INET6"), flavor="mariadb", in_table_map=False),
    Conversion("COMPRESSED text and bytes (MariaDB)", "unpacked; a value that cannot be unpacked is not held",
               {"VARCHAR(100) COMPRESSED": "string", "TEXT COMPRESSED": "string", "BLOB COMPRESSED": "binary"},
               flavor="mariadb"),
)  # fmt: skip
