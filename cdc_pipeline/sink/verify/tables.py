"""The rows of one version of a table, part by part."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from cdc_pipeline.sink.delta.replay import readable_state
from cdc_pipeline.sink.read.rows import (
    SMALL_BYTES,
    TableRows,
    open_rows,
    read_errors,
    values_within,
)

Values: TypeAlias = tuple[str, pa.Array]

_BATCH_ROWS: Final = 64, 65_536
_BATCH_BYTES: Final = 8 << 20
_SMALL_BATCH_ROWS: Final = 2048  # a dictionary's few bytes can stand for many


class VersionedTable(NamedTuple):
    table: str
    path: Path
    version: int

    def rows(self, columns: Collection[str], values: Values | None = None) -> VersionRows:
        """`values`: only rows that have one of them. LakeStateError, SparkNeededError."""
        state = readable_state(self.path, self.version)
        opened = open_rows(self.path, state, columns=columns, filters=values_within(values))
        return VersionRows(self.table, opened, values, *opened.known_size())


@dataclass(frozen=True)
class VersionRows:
    """`rows`, if known, and `size_bytes` of its files: also of rows that are not read."""

    table: str
    _opened: TableRows
    _values: Values | None
    rows: int | None
    size_bytes: int

    @property
    def schema(self) -> pa.Schema:
        return self._opened.schema

    def batches(self, columns: Collection[str] | None = None) -> Iterator[pa.Table]:
        """Of all columns, or these. Raises LakeStateError: a file is gone or damaged."""
        opened = self._opened if columns is None else self._opened.only(columns)
        batch_rows = _SMALL_BATCH_ROWS
        if self.size_bytes > SMALL_BYTES:
            few = _BATCH_BYTES * (self.rows or 0) // self.size_bytes
            batch_rows = min(max(few, _BATCH_ROWS[0]), _BATCH_ROWS[1])
        with read_errors(self.table):
            for part in opened.batches(batch_rows):
                if self._values is not None:
                    name, wanted = self._values
                    part = part.filter(pc.is_in(part.column(name), value_set=wanted))  # noqa: PLW2901
                yield part
