"""Random tables: hostile names, keys of every kind, columns of many types."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from tests.campaigns.sink.capabilities import FEATURES
from tests.campaigns.sink.column_types import ColumnType, types_for

Row = dict[str, str]  # column name -> SQL literal

COLUMN_NAMES = (
    "id", "name", "select", "Größe", "a.b", "tick`et", 'quo"te', "it's", "漢字", "a-b", "$x",
    "per%cent", "back\\slash",
    "#--", "/*c*/", "order", "value", "key", "b", "Ωmega", "n1", "n2", "n3", "n4",
    "{{0}}".strip("{}"),
)  # fmt: skip
# Delta takes these only with column mapping.
ODD_COLUMN_NAMES = ("two words", "a,b", "x=y", "(p)", "{c}", "semi;colon")
TABLE_NAMES = (
    "orders",
    "Tabelle_ü",
    "table",
    "漢字表",
    "it's",
    "tick`et",
    "a-b",
    "dot.ted",
    "back\\slash",
    "100%",
)
KEY_SHAPES = ("int", "int", "int", "any", "any", "composite", "composite", "string")


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


@dataclass
class Column:
    name: str
    type: ColumnType
    nullable: bool = True
    generated: str = ""  # expression; the server gives the values

    @property
    def definition(self) -> str:
        if self.generated:
            return (
                f"{quoted(self.name)} {self.type.declared} GENERATED ALWAYS AS "
                f"({self.generated}) STORED"
            )
        declared = self.type.declared.removesuffix(" NULL")
        return f"{quoted(self.name)} {declared} {'NULL' if self.nullable else 'NOT NULL'}"

    def literal(self, choose: random.Random) -> str:
        if self.nullable and choose.random() < 0.2:
            return "NULL"
        return self.type.literal(choose)


@dataclass
class Table:
    """A table as the generator believes it to be; a statement that the server refuses changes
    nothing here. `keys`: literals of keys that may exist; `unique`: the key is a unique not-null
    key instead of the primary key.
    """

    database: str
    name: str
    columns: list[Column]
    key: tuple[str, ...]
    unique: bool = False
    options: str = ""
    indexes: list[str] = field(default_factory=list)
    keys: list[Row] = field(default_factory=list)

    @property
    def full_name(self) -> str:
        return f"{self.database}.{self.name}"

    @property
    def sql_name(self) -> str:
        return f"{quoted(self.database)}.{quoted(self.name)}"

    @property
    def written(self) -> list[Column]:
        """Columns that a statement gives values to."""
        return [column for column in self.columns if not column.generated]

    def column(self, name: str) -> Column:
        return next(column for column in self.columns if column.name == name)

    def others(self) -> list[Column]:
        """Columns outside of the key that a statement gives values to."""
        return [column for column in self.written if column.name not in self.key]

    def create_sql(self) -> str:
        lines = [column.definition for column in self.columns]
        if self.key:
            listed = ", ".join(quoted(name) for name in self.key)
            lines.append(f"UNIQUE KEY uk ({listed})" if self.unique else f"PRIMARY KEY ({listed})")
        return f"CREATE TABLE {self.sql_name} ({', '.join(lines)}) {self.options}".rstrip()

    def row(self, choose: random.Random) -> Row:
        return {column.name: column.literal(choose) for column in self.written}

    def where(self, key: Row) -> str:
        return " AND ".join(f"{quoted(name)} <=> {value}" for name, value in key.items())

    def fresh_name(self, choose: random.Random) -> str:
        taken = {column.name.lower() for column in self.columns}
        names = COLUMN_NAMES + (ODD_COLUMN_NAMES if "odd_names" in FEATURES else ())
        free = [name for name in names if name.lower() not in taken]
        return choose.choice(free) if free else f"c{choose.randrange(10**6)}"


def random_table(choose: random.Random, *, database: str, flavor: str, keyless: bool) -> Table:
    """A table with one of the key shapes (none at all, where `keyless`) and 3 to 12 columns."""
    types = types_for(flavor)
    shapes = KEY_SHAPES + (("none",) if keyless and "keyless" in FEATURES else ())
    shape = choose.choice(shapes)
    key_types = {
        "int": [next(known for known in types if known.declared == "INT")],
        "string": [
            choose.choice([known for known in types if known.key and "CHAR" in known.declared])
        ],
        "any": [choose.choice([known for known in types if known.key])],
        "composite": choose.sample([known for known in types if known.key], choose.randint(2, 3)),
        "none": [],
    }[shape]
    table = Table(database, choose.choice(TABLE_NAMES), [], ())
    names: list[str] = []
    for key_type in key_types:
        names.append(table.fresh_name(choose))
        table.columns.append(Column(names[-1], key_type, nullable=False))
    table.key = tuple(names)
    table.unique = bool(names) and "unique_key" in FEATURES and choose.random() < 0.15
    for _ in range(choose.randint(3, 12) - len(names)):
        column = Column(
            table.fresh_name(choose), choose.choice(types), nullable=choose.random() < 0.8
        )
        table.columns.append(column)
    numbers = [column for column in table.columns if column.type.declared == "SMALLINT"]
    if numbers and choose.random() < 0.5:
        twice = next(known for known in types if known.declared == "INT")
        expression = f"{quoted(numbers[0].name)} * 2"
        table.columns.append(Column(table.fresh_name(choose), twice, generated=expression))
    if choose.random() < 0.5:  # the key is not always in front
        choose.shuffle(table.columns)
    table.options = choose.choice(
        ("", "", "CHARACTER SET utf8mb4", "ROW_FORMAT=DYNAMIC", "CHARACTER SET latin1")
    )
    if table.options.endswith("latin1"):
        for column in table.columns:
            if column.type.declared.startswith(
                ("CHAR", "VARCHAR", "TEXT", "MEDIUMTEXT", "ENUM", "SET")
            ):
                table.options = "CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
    return table
