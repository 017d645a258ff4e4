"""The row decoder's view of a table: names, wire types, signs, charsets, labels and key.

Rules:
- A `TableSchema` has plain values and is compared by content. It is made from a table map or the
  schema history; the decoder never sees the table map itself.
- What a column's type means is a row of `column_types.TYPES`.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from functools import cached_property

from cdc_pipeline.binlog.column_types import Column as Column
from cdc_pipeline.binlog.column_types import Kind as Kind
from cdc_pipeline.text.table_names import table_name


@dataclass(frozen=True)
class TableSchema:
    """A table at one version of its columns.

    Attributes:
        database, table: names at the source.
        columns: the table's own, in the order of the row images.
        primary_key: indexes into `columns`, in key order; () if the table has no primary key.
        hidden: columns that the server adds behind them in the row images
            (`tables/server_columns.py`).
        row_end: the column, among `columns` or `hidden`, that says until when a row was current;
            "" without system versioning.
    """

    database: str
    table: str
    columns: tuple[Column, ...]
    primary_key: tuple[int, ...] = ()
    hidden: tuple[Column, ...] = ()
    row_end: str = ""

    @property
    def full_name(self) -> str:
        return table_name(self.database, self.table)

    @cached_property
    def column_names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def key_names(self) -> tuple[str, ...]:
        return tuple(self.columns[index].name for index in self.primary_key)

    def found_by(self, names: Collection[str]) -> TableSchema:
        """With these columns in the key, too: a target finds rows by them."""
        more = [at for at, name in enumerate(self.column_names) if name in names]
        key = tuple(dict.fromkeys((*self.primary_key, *more)))
        return self if key == self.primary_key else replace(self, primary_key=key)

    @cached_property
    def logged(self) -> TableSchema:
        """The table as its row images are: the server's columns among its own, and every row."""
        if not self.hidden and not self.row_end:
            return self
        return replace(self, columns=(*self.columns, *self.hidden), hidden=(), row_end="")

    def to_json(self) -> str:
        """The schema as JSON text; `from_json` is its inverse."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> TableSchema:
        """Parse what `to_json` gives. Raises KeyError, TypeError or ValueError for other text."""
        plain = json.loads(text)
        columns, hidden = (
            tuple(
                Column(
                    **{**column, "kind": Kind(column["kind"]), "labels": tuple(column["labels"])}
                )
                for column in listed
            )
            for listed in (plain["columns"], plain.get("hidden", ()))
        )
        key = tuple(plain["primary_key"])
        return cls(
            plain["database"], plain["table"], columns, key, hidden, plain.get("row_end", "")
        )

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(
            (self.database, self.table, self.columns, self.primary_key, self.hidden, self.row_end)
        )
