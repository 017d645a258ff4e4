"""The rows that a changelog's changes leave, against a table in memory that the same changes
went through."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from cdc_pipeline.lake.records import ColumnDefault, EarlierLayout, RecordedTarget
from cdc_pipeline.schema.target_spec import TargetSpec
from cdc_pipeline.schema.types import TargetColumn
from cdc_pipeline.sink.read import spilled
from cdc_pipeline.sink.read.spilled import Spill
from cdc_pipeline.sink.verify import tables
from cdc_pipeline.sink.verify.changelog import IncompleteChangelogError, rows_left
from cdc_pipeline.sink.verify.sides import ComparisonSides
from cdc_pipeline.sink.verify.tables import VersionedTable

COLUMNS = {"a": ("double", pa.float64()), "b": ("int", pa.int32()), "w": ("int", pa.int32())}
IMAGE = pa.struct([(name, kind) for name, (_, kind) in COLUMNS.items()])
SEQ, NAMES = pa.decimal128(38, 0), pa.list_(pa.string())
FLOATS = (0.0, -0.0, 1.0, 2.0, 3.0)
Row = tuple[Any, ...]
Key = tuple[int, ...]


class History:
    """Changes of a table whose key is another one in each phase; `w` is added with the second."""

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)
        self.keys = self.choose.choices([(0,), (1,), ()], k=self.choose.randint(1, 3))
        self.rows: list[Row] = []
        self.changes: list[dict[str, Any]] = []
        self.ends: list[int] = []
        for number, key in enumerate(self.keys):
            if number == 1:
                self.rows = [(*row[:2], 7) for row in self.rows]
            self._leave_one_row_of_each(key)
            for _ in range(self.choose.randrange(30)):
                self._change(key, w=[None, 1, 7] if number else [None])
            self.ends.append(2 * len(self.changes))

    def _leave_one_row_of_each(self, key: Key) -> None:
        kept: dict[Row, Row] = {}
        for row in self.rows if key else ():
            if kept.setdefault(of_key(row, key), row) is not row:
                self.log("delete", row, row)
        self.rows = [*kept.values()] if key else self.rows

    def _change(self, key: Key, *, w: list[int | None]) -> None:
        new = self.choose.choice(FLOATS), self.choose.randrange(5), self.choose.choice(w)
        others, old = list(self.rows), None
        if others and self.choose.random() < 0.6:
            old = others.pop(self.choose.randrange(len(others)))
        if self.choose.random() < 0.03:
            self.log("truncate", None, None)
            self.rows = []
        elif old is not None and self.choose.random() < 0.3:
            self.log("delete", old, old)
            self.rows = others
        elif not key or of_key(new, key) not in {of_key(row, key) for row in others}:
            self.log("insert" if old is None else "update", new, old)
            self.rows = [*others, new]

    def log(self, op: str, after: Row | None, before: Row | None) -> None:
        row = dict(zip(COLUMNS, after or (None,) * 3, strict=True))
        image = before if op == "update" else None
        row["_cdc_before"] = None if image is None else dict(zip(COLUMNS, image, strict=True))
        self.changes.append(row | {"_cdc_op": op})

    def write(self, path: Path, absent: list[str] | None = None) -> ComparisonSides:
        count = len(self.changes)
        arrays = {
            name: pa.array([change[name] for change in self.changes], kind)
            for name, kind in [*((n, k) for n, (_, k) in COLUMNS.items()), ("_cdc_op", pa.string()),
                               ("_cdc_before", IMAGE)]
        }  # fmt: skip
        arrays["_cdc_seq"] = pa.array([Decimal(2 * at + 1) for at in range(count)], SEQ)
        arrays["_cdc_absent"] = pa.array([absent] * count, NAMES)
        arrays["_cdc_before_absent"] = pa.nulls(count, NAMES)
        order = list(range(count))
        self.choose.shuffle(order)
        write_deltalake(path, pa.table(arrays).take(order))
        columns = tuple(TargetColumn(name=n, delta_type=kind) for n, (kind, _) in COLUMNS.items())
        spec = TargetSpec(columns=columns, key=(), mode="changelog")
        names = list(COLUMNS)
        keys = [tuple(names[at] for at in key) for key in self.keys]
        default = ColumnDefault(
            column="w", delta_type="int", value="CAST('7' AS int)", seq=str(self.ends[0])
        )
        return ComparisonSides(
            target=RecordedTarget(table="d.t", app_id="x", spec=spec),
            columns=tuple(names),
            key=keys[-1],
            lake=VersionedTable("d.t", path, 0),
            column_defaults=(default,) if len(keys) > 1 else (),
            layouts=tuple(
                EarlierLayout(seq=str(end), keys={"d.t": key})
                for end, key in zip(self.ends, keys[:-1], strict=False)
            ),
            source_table="d.t",
        )


def of_key(row: Row, key: Key) -> Row:
    return tuple(row[at] for at in key)


def left(sides: ComparisonSides) -> Counter[Row]:
    own = ("op", "seq", "before", "absent", "before_absent")
    columns = [*COLUMNS, *(f"_cdc_{name}" for name in own)]
    rows = sides.lake.rows(columns)
    counts: Counter[Row] = Counter()
    for part in rows_left(sides, rows, Spill()).batches():
        for row in part.to_pylist():
            counts[told((row["c0"], row["c1"], row["c2"]))] += row["_weight"]
    return Counter({row: count for row, count in counts.items() if count})


def told(row: Row) -> Row:
    return (math.copysign(1, row[0]), *row)


@pytest.mark.parametrize("partitions", [1, 3])
def test_k10_k17_what_changes_leave_is_what_they_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partitions: int
) -> None:
    if partitions > 1:
        monkeypatch.setattr(spilled, "SMALL_ROWS", 15)
        monkeypatch.setattr(tables, "_SMALL_BATCH_ROWS", 4)
    for seed in range(60):
        history = History(seed)
        if not history.changes:
            continue
        sides = history.write(tmp_path / str(seed))
        expected = Counter(map(told, history.rows))
        assert left(sides) == expected, (seed, history.keys)


def test_k10_k17_what_images_lack_is_told_by_the_names_of_today(tmp_path: Path) -> None:
    """An image lacks `old`, which has become `b` since: the new key."""
    history = History(0)
    history.keys, history.ends, history.changes = [(0,), (1,)], [2, 2], []
    history.log("insert", (1.0, None, 1), None)
    sides = history.write(tmp_path / "t", absent=["old"])
    assert left(sides) == Counter({told((1.0, None, 1)): 1})
    (layout,) = sides.layouts
    renamed = layout.model_copy(update={"names": {"x": (), "old": ("c", "b")}})
    with pytest.raises(IncompleteChangelogError, match="1 rows from before a change"):
        left(replace(sides, layouts=(renamed,)))
