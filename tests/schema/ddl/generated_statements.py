"""Statements made from both servers' grammars: for each place where a name, type, charset, option,
attribute or default may stand, the spellings that one of the servers takes.

A server refuses what is not in its grammar, or contradicts itself; the caller skips that.
"""

# ruff: noqa: E501 - lists of spellings

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

CHARSET_WORDS = ("CHARACTER SET", "CHARSET", "CHAR SET", "char  set", "CHARACTER/* c */SET")
CHARSETS = (
    "latin1", "'cp1251'", "`utf8mb3`", "utf8", "UTF8MB4", "latin2", "BINARY", "ucs2", "DEFAULT",
    "ascii", "'utf16'", "koi8r",
)  # fmt: skip
COLLATIONS = (
    "latin1_bin", "'cp1251_bin'", "`utf8mb4_bin`", "utf8_bin", "utf8mb3_general_ci", "binary",
    "DEFAULT", "uca1400_ai_ci", "utf8mb4_uca1400_ai_ci", "ucs2_bin", "koi8r_bin",
)  # fmt: skip
ANY_TYPES = """
TINYINT|INT1(3)|BOOL|BOOLEAN|SMALLINT UNSIGNED|INT2|MEDIUMINT|INT3|MIDDLEINT ZEROFILL|INT(5.5)|INTEGER
INT4 SIGNED|BIGINT(20) UNSIGNED|INT8|DECIMAL|DEC(7)|NUMERIC(7,3)|FIXED(6,2) UNSIGNED|DECIMAL(19.5)
DECIMAL(0)|FLOAT|FLOAT(7.4)|FLOAT(24)|FLOAT(25)|FLOAT(30.9)|FLOAT(7,2)|FLOAT4|FLOAT8|DOUBLE|REAL
DOUBLE PRECISION|DOUBLE PRECISION(9,3)|REAL(5,2)|BIT|BIT(9)|BIT(4.2)|YEAR|YEAR(4)|DATE|TIME|TIME(3)
DATETIME|DATETIME(6)|DATETIME(3.3)|TIMESTAMP NULL|TIMESTAMP(2) NULL|BINARY|BINARY(5)|BINARY(2.5)
VARBINARY(9)|TINYBLOB|BLOB|BLOB(20.1)|BLOB(70000)|MEDIUMBLOB|LONGBLOB|LONG VARBINARY|JSON|GEOMETRY|POINT
LINESTRING|POLYGON|GEOMETRYCOLLECTION|GEOMCOLLECTION|MULTIPOINT|UUID|INET4|INET6|VECTOR(3)
mariadb_schema.date|oracle_schema.date|`oracle_schema`.date|maxdb_schema.timestamp NULL
oracle_schema.number|oracle_schema.number(5,2)|oracle_schema.varchar2(4)|oracle_schema.raw(4)
oracle_schema.clob|oracle_schema.blob|mariadb_schema.timestamp(3) NULL|CLOB|NUMBER|NUMBER(7)|NUMBER(7,2)|RAW(5)
VARCHAR2(5)
"""
TEXT_TYPES = """
CHAR|CHAR(5)|CHARACTER(5)|CHAR VARYING(5)|CHARACTER VARYING(5)|VARCHAR(5)|VARCHAR(5.9)|VARCHARACTER(5)
TINYTEXT|TEXT|TEXT(100.7)|MEDIUMTEXT|LONGTEXT|LONG|LONG VARCHAR|LONG CHAR VARYING|LONG VARCHARACTER
NCHAR(5)|NATIONAL CHAR(5)|NATIONAL CHARACTER VARYING(5)|NATIONAL VARCHAR(5)|NVARCHAR(5)|NCHAR VARYING(5)
NCHAR VARCHAR(5)|NATIONAL VARCHARACTER(5)|NATIONAL CHAR VARYING(5)
ENUM('a','b')|ENUM('a','b,)','it''s')|ENUM(0x61,'b')|ENUM(0xc3a9,x'62',b'01100011')|SET('a','b')|SET(0x78,'y')
ENUM('a ','B')|ENUM(0xe9,'ü')
"""
CHARSET_ATTRIBUTES = (
    "BYTE", "ASCII", "UNICODE", "BINARY", "ASCII BINARY", "BINARY ASCII", "UNICODE BINARY",
)  # fmt: skip
ATTRIBUTES = """
NOT NULL|NULL|COMMENT 'a, (b'|UNIQUE|UNIQUE KEY|INVISIBLE|VISIBLE|CHECK (id > 0)|CONSTRAINT CHECK (id > 0)
CONSTRAINT k1 CHECK (id > 0)|COLUMN_FORMAT DEFAULT|STORAGE DEFAULT|STORAGE MEMORY|ENGINE_ATTRIBUTE '{}'
ENGINE_ATTRIBUTE = '{}'|SECONDARY_ENGINE_ATTRIBUTE='{}'|NOT SECONDARY|CHECK (id > 1) NOT ENFORCED
CHECK (id > 1) ENFORCED|SRID 0|REF_SYSTEM_ID=0|COMPRESSED|COMPRESSED=zlib|REFERENCES o (id)
REFERENCES o (id) ON DELETE SET NULL ON UPDATE NO ACTION|WITHOUT SYSTEM VERSIONING|DEFAULT NULL
DEFAULT 1|DEFAULT -1|DEFAULT +1.5|DEFAULT '1'|DEFAULT ''|DEFAULT "1"|DEFAULT (1)|DEFAULT (1 + 1)
DEFAULT TRUE|DEFAULT b'1'|DEFAULT x'31'|DEFAULT 0x31|DEFAULT N'1'|DEFAULT _utf8mb4'1'|DEFAULT '1' '2'
DEFAULT '2024-01-02'|DEFAULT DATE '2024-01-02'|DEFAULT CURRENT_TIMESTAMP|DEFAULT NOW() ON UPDATE NOW()
DEFAULT uuid()|DEFAULT (uuid())|DEFAULT CASE WHEN 1 THEN 2 END|DEFAULT length('abc')|DEFAULT 'a\\'b'
ON UPDATE CURRENT_TIMESTAMP|`bad`=1|"opt"='x'|DEFAULT now(6)|DEFAULT LOCALTIME
"""
GENERATED = (
    "AS (id + 1)",
    "GENERATED ALWAYS AS (id + 1)",
    "AS (id + 1) VIRTUAL",
    "AS (id + 1) STORED NOT NULL",
    "AS (id + 1) PERSISTENT",
    "GENERATED ALWAYS AS (id + 1) STORED COMMENT 'x'",
)
OPTIONS = """
ENGINE InnoDB|ENGINE=InnoDB|engine = 'innodb'|TYPE = InnoDB|AUTO_INCREMENT 5|AUTO_INCREMENT=5
AVG_ROW_LENGTH 9|CHECKSUM 1|CHECKSUM=0|TABLE_CHECKSUM 1|COMMENT 'x, (y'|COMMENT='CHARSET latin1'
COMPRESSION 'none'|COMPRESSION=''|CONNECTION 'x'|DATA DIRECTORY '/tmp'|INDEX DIRECTORY = '/tmp'
DELAY_KEY_WRITE 1|ENCRYPTION 'N'|ENCRYPTION='N'|ENGINE_ATTRIBUTE '{}'|INSERT_METHOD LAST
KEY_BLOCK_SIZE 0|KEY_BLOCK_SIZE = 8|MAX_ROWS 9|MIN_ROWS=1|PACK_KEYS DEFAULT|PACK_KEYS=1|PASSWORD 'x'
ROW_FORMAT DYNAMIC|ROW_FORMAT=DEFAULT|SECONDARY_ENGINE NULL|SECONDARY_ENGINE_ATTRIBUTE='{}'
STATS_AUTO_RECALC DEFAULT|STATS_AUTO_RECALC=1|STATS_PERSISTENT 0|STATS_SAMPLE_PAGES 9
STATS_SAMPLE_PAGES = DEFAULT|TABLESPACE innodb_file_per_table|TABLESPACE = innodb_file_per_table
UNION (o)|UNION = ()|AUTOEXTEND_SIZE 4M|AUTOEXTEND_SIZE=0|PAGE_CHECKSUM 1|PAGE_CHECKSUM=1
TRANSACTIONAL 0|TRANSACTIONAL=DEFAULT|PAGE_COMPRESSED=0|`PAGE_COMPRESSED`='0'|ENCRYPTED=NO
ENCRYPTION_KEY_ID=1|IETF_QUOTES=NO|SEQUENCE 0|SEQUENCE=0|"opt"='x'
"""
KEYS = """
KEY (c)|INDEX k2 (c)|KEY k2 USING BTREE (c)|KEY k2 (c) USING BTREE|UNIQUE (id)|UNIQUE KEY k3 (id DESC)
CONSTRAINT UNIQUE (id)|CONSTRAINT k4 UNIQUE INDEX k5 (id ASC)|KEY k2 (id) KEY_BLOCK_SIZE 8
KEY k2 (id) KEY_BLOCK_SIZE 8, KEY k3 (id) KEY_BLOCK_SIZE 8|KEY (id) KEY_BLOCK_SIZE=8 COMMENT 'x'
INDEX (id) COMMENT 'a, b' INVISIBLE|INDEX (id) VISIBLE|INDEX (id) IGNORED|INDEX (id) NOT IGNORED
CHECK (id > 0)|CONSTRAINT k6 CHECK (id > 0)|CONSTRAINT CHECK (id > 0) NOT ENFORCED|KEY ((id + 1))
FOREIGN KEY (id) REFERENCES o (id)|CONSTRAINT k7 FOREIGN KEY k8 (id) REFERENCES o (id) ON DELETE CASCADE
KEY k2 (id) ENGINE_ATTRIBUTE='{}'|KEY TYPE BTREE (id)|KEY k2 TYPE BTREE (id)
"""
PARTITIONS = (
    "PARTITION BY HASH (id) PARTITIONS 2",
    "PARTITION BY KEY () PARTITIONS 2",
    "PARTITION BY RANGE (id) (PARTITION p VALUES LESS THAN (9) COMMENT 'CHARSET x', "
    "PARTITION q VALUES LESS THAN MAXVALUE)",
    "/*!50100 PARTITION BY HASH (id) */",
)


def _listed(text: str) -> list[str]:
    return [part for line in text.strip().splitlines() for part in line.split("|")]


TYPES = _listed(ANY_TYPES)
TEXTS = _listed(TEXT_TYPES)


@dataclass(frozen=True)
class Generated:
    """Statements on one table or database.

    Attributes:
        name: of the table; "" if the statements are about a database.
        statements: in order; the last one is the subject, those before it prepare it.
    """

    name: str
    statements: tuple[str, ...]


class Maker:
    """Makes statements on tables of a database whose charset is latin2, with a table `o`."""

    def __init__(self, seed: int) -> None:
        self._choose = random.Random(seed)
        self._number = 0

    def statements(self, count: int) -> Iterator[Generated]:
        """Every single spelling first, in a random order, then mixtures of them."""
        single = list(self._singles())
        self._choose.shuffle(single)
        for index in range(count):
            self._number = index
            name = f"t{index}"
            made = single[index] if index < len(single) else self._mixture()
            yield made(name)

    # -- parts -------------------------------------------------------------------------------------

    def charset(self, *, place: str = "") -> str:
        """A clause that names a charset, a collation, or both."""
        choose = self._choose
        equals = choose.choice((" ", "=", " = ")) if place else " "
        front = choose.choice(("", "DEFAULT ")) if place else ""
        charset = f"{front}{choose.choice(CHARSET_WORDS)}{equals}{choose.choice(CHARSETS)}"
        collation = f"{front}COLLATE{equals}{choose.choice(COLLATIONS)}"
        return choose.choice((charset, charset, collation, f"{charset} {collation}"))

    def type(self) -> str:
        choose = self._choose
        if choose.random() < 0.4:
            return choose.choice(TYPES)
        text = choose.choice(TEXTS)
        attribute = choose.choice((*CHARSET_ATTRIBUTES, "", "", self.charset(), self.charset()))
        return f"{text} {attribute}".strip()

    def attributes(self) -> str:
        choose = self._choose
        if choose.random() < 0.1:
            return choose.choice(GENERATED)
        attributes = choose.sample(_listed(ATTRIBUTES), choose.choice((0, 1, 1, 2, 3)))
        return " ".join(attributes)

    def options(self) -> str:
        choose = self._choose
        options = choose.sample(_listed(OPTIONS), choose.choice((0, 1, 2)))
        if choose.random() < 0.7:
            options.append(self.charset(place="table"))
        choose.shuffle(options)
        return choose.choice((" ", ", ")).join(options)

    # -- statements --------------------------------------------------------------------------------

    def _singles(self) -> Iterator[Callable[[str], Generated]]:
        for definition in TYPES + TEXTS:
            yield lambda name, d=definition: self._create(name, d)
            yield lambda name, d=definition: self._alter(name, f"ADD c {d}")
        for attribute in CHARSET_ATTRIBUTES:
            yield lambda name, a=attribute: self._create(name, f"TEXT {a}")
        for attribute in _listed(ATTRIBUTES):
            for definition in ("INT", "VARCHAR(40)", "DATETIME(6)"):
                yield lambda name, a=attribute, d=definition: self._alter(name, f"ADD c {d} {a}")
        for generated in GENERATED:
            yield lambda name, g=generated: self._alter(name, f"ADD c INT {g}")
        for option in _listed(OPTIONS):
            yield lambda name, o=option: self._create(name, "TEXT", o)
            yield lambda name, o=option: self._alter(name, o)
            yield lambda name, o=option: self._alter(name, f"ADD c TEXT, {o}")
        for key in _listed(KEYS):
            yield lambda name, k=key: self._create(name, f"VARCHAR(9), {k}")
            yield lambda name, k=key: self._alter(name, f"ADD {k}")
        for partitions in PARTITIONS:
            yield lambda name, p=partitions: self._create(name, "TEXT", f"CHAR SET latin1 {p}")
        for words in CHARSET_WORDS:
            for charset in CHARSETS:
                clause = f"{words} {charset}"
                yield lambda name, c=clause: self._create(name, f"TEXT {c}")
                yield lambda name, c=clause: self._create(name, "TEXT", c)
                yield lambda name, c=clause: self._alter(name, f"CONVERT TO {c}")
                yield lambda name, c=clause: self._alter(name, f"ADD c TEXT, {c}")
                yield lambda name, c=clause: self._database(name, c)
                yield lambda name, c=clause: self._altered_database(name, c)
        for collation in COLLATIONS:
            clause = f"COLLATE {collation}"
            yield lambda name, c=clause: self._create(name, f"TEXT NOT NULL {c}")
            yield lambda name, c=clause: self._create(name, "TEXT", c)
            yield lambda name, c=clause: self._alter(name, f"ADD c TEXT, {c}")
            yield lambda name, c=clause: self._alter(name, f"CONVERT TO CHARSET DEFAULT {c}")
            yield lambda name, c=clause: self._database(name, c)
            yield lambda name, c=clause: self._altered_database(name, c)

    def _mixture(self) -> Callable[[str], Generated]:
        choose = self._choose
        roll = choose.random()
        if roll < 0.45:
            return lambda name: self._create(
                name, f"{self.type()} {self.attributes()}", self.options()
            )
        if roll < 0.55:
            return lambda name: self._database(name, self.charset(place="database"))
        if roll < 0.65:
            return lambda name: self._altered_database(name, self.charset(place="database"))
        return lambda name: self._alter(name, self._actions(name))

    def _actions(self, name: str) -> str:
        choose = self._choose
        column = choose.choice(("d", "`d`", f"{name}.d", f"g.{name}.d"))
        new = choose.choice(("e", f"{name}.e"))
        forms = (
            lambda: f"ADD {new} {self.type()} {self.attributes()}",
            lambda: f"ADD COLUMN (e {self.type()}, f {self.type()} {self.attributes()})",
            lambda: f"MODIFY {column} {self.type()} {self.attributes()}",
            lambda: f"CHANGE COLUMN {column} {new} {self.type()} {self.attributes()} FIRST",
            lambda: f"CONVERT TO {self.charset()}",
            lambda: self.options() or "FORCE",
            lambda: f"DROP {column}",
            lambda: f"ALTER {column} SET DEFAULT 'x'",
            lambda: f"ADD {choose.choice(_listed(KEYS)).replace('(c)', '(id)')}",
        )
        return ", ".join(make() for make in choose.sample(forms, choose.choice((1, 1, 2))))

    def _create(self, name: str, definition: str, options: str = "") -> Generated:
        return Generated(
            name, (f"CREATE TABLE {name} (id INT PRIMARY KEY, c {definition}) {options}",)
        )

    def _alter(self, name: str, actions: str) -> Generated:
        base = (
            f"CREATE TABLE {name} (id INT PRIMARY KEY, d VARCHAR(9), l VARCHAR(9) CHARACTER SET "
            "latin1, n INT) CHARACTER SET cp1251"
        )
        return Generated(name, (base, f"ALTER TABLE {name} {actions}"))

    def _database(self, name: str, clause: str) -> Generated:
        return Generated("", (f"CREATE DATABASE g_{name} {clause}",))

    def _altered_database(self, name: str, clause: str) -> Generated:
        alter = f"ALTER DATABASE {self._choose.choice((f'g_{name} ', ''))}{clause}"
        return Generated(
            "", (f"CREATE DATABASE g_{name} CHARACTER SET cp1251", f"USE g_{name}", alter)
        )
