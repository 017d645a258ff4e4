"""What a comparison compares: rows of the source with rows of the lake that represent them.

Rules:
- Only columns that the source has are compared. Columns that it has dropped and the target keeps
  are left out.
- Equal means the same bits (-0.0 is not 0.0); NULL equals NULL.
- A row of the lake counts if it represents a present row of the source, not if it is soft-deleted
  or an ended version. In a changelog the rows count that its changes leave (`changelog.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from cdc_pipeline.config.modes import MODES
from cdc_pipeline.lake.records import ColumnDefault, EarlierLayout, RecordedTarget
from cdc_pipeline.sink.verify.tables import VersionedTable


@dataclass(frozen=True)
class ComparisonSides:
    """`target`: with `_cdc_rescued` among its columns, if it has one; `columns`: that the source
    has; `key`: () for all of them, with multiplicity; `shard`: column and value of the lake's rows
    of this source table; `source`: an earlier version of the Delta table that takes the source's
    place; for a changelog, `column_defaults`: the values at the source of rows older than a column,
    and `layouts`: what earlier rows were written with, oldest first, which name keys by
    `source_table`; `after_seq`: rows with a later seq changed meanwhile; `sampled`: the lake's rows
    count only with keys of the source's.
    """

    target: RecordedTarget
    columns: tuple[str, ...]
    key: tuple[str, ...]
    lake: VersionedTable
    shard: tuple[str, str] | None = None
    source: VersionedTable | None = None
    column_defaults: tuple[ColumnDefault, ...] = ()
    layouts: tuple[EarlierLayout, ...] = ()
    source_table: str = ""
    after_seq: int | None = None
    sampled: bool = False

    @property
    def is_sum(self) -> bool:
        return MODES[self.target.spec.mode].rows_are_changes and not self.key

    @property
    def positions(self) -> list[int]:
        named = set(self.columns)
        return [at for at, column in enumerate(self.target.spec.columns) if column.name in named]

    @property
    def key_positions(self) -> list[int]:
        names = [column.name for column in self.target.spec.columns]
        return [names.index(name) for name in self.key] if self.key else self.positions

    @property
    def value_positions(self) -> list[int]:
        key = set(self.key_positions)
        return [at for at in self.positions if at not in key]

    @property
    def keys(self) -> list[str]:
        return [f"k{number}" for number in range(len(self.key_positions))]

    def type_of(self, position: int) -> str:
        return self.target.spec.columns[position].delta_type

    def name_of(self, position: int) -> str:
        return self.target.spec.columns[position].name
