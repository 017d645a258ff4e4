from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from cdc_pipeline.lake.records import RecordedTarget
from cdc_pipeline.lake.storage.storage import storage_of
from cdc_pipeline.sink.spark.sql import literal_of
from cdc_pipeline.text.table_names import quoted


class KeyFacts:
    """Whether the key can be NULL, and the range of its first column, by the files' footers."""

    def __init__(self, target: RecordedTarget, files: list[Path]) -> None:
        names = [column.name for column in target.spec.columns]
        positions = [names.index(name) for name in target.spec.key]
        self.has_null = False
        lows: list[Any] = []
        highs: list[Any] = []
        complete = True
        for file in files:
            metadata = pq.read_metadata(storage_of(file).arrow_source(file))
            index = {metadata.schema.column(i).path: i for i in range(metadata.num_columns)}
            for group in range(metadata.num_row_groups):
                for position in positions:
                    statistics = metadata.row_group(group).column(index[f"c{position}"]).statistics
                    if statistics is None or not statistics.has_null_count or statistics.null_count:
                        self.has_null = True
                    if position != positions[0]:
                        continue
                    if statistics is None or not statistics.has_min_max:
                        complete = False
                    else:
                        lows.append(statistics.min)
                        highs.append(statistics.max)
        self.first = target.spec.key[0]
        self.range: tuple[str, str] | None = None
        if complete and lows and not self.has_null:
            delta_type = target.spec.columns[positions[0]].delta_type
            low, high = literal_of(min(lows), delta_type), literal_of(max(highs), delta_type)
            if low is not None and high is not None:
                self.range = (low, high)

    @property
    def equals(self) -> str:
        return "<=>" if self.has_null else "="

    @property
    def within(self) -> str:
        """Over the target as ``t``."""
        return "true" if self.predicate is None else f"t.{self.predicate}"

    @property
    def predicate(self) -> str | None:
        """Satisfied by every row of the target with one of the keys; None if nothing is known."""
        return (
            None
            if self.range is None
            else f"{quoted(self.first)} BETWEEN {self.range[0]} AND {self.range[1]}"
        )
