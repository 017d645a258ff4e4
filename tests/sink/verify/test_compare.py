"""The comparison itself, on Delta tables made by hand: every kind of difference, and what counts as
equal."""

from __future__ import annotations

import datetime as dt
import math
import random
import struct
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from cdc_pipeline.errors import LakeStateError
from cdc_pipeline.lake.records import RecordedTarget
from cdc_pipeline.schema.target_spec import TargetSpec
from cdc_pipeline.schema.types import TargetColumn
from cdc_pipeline.sink.modes.expand import INSERT, TS_TYPE
from cdc_pipeline.sink.read import spilled
from cdc_pipeline.sink.read.row_hashes import RowHasher
from cdc_pipeline.sink.read.rows import seqs_within
from cdc_pipeline.sink.read.spilled import Spill, StoredRows
from cdc_pipeline.sink.verify import compare as comparing
from cdc_pipeline.sink.verify import parts, sums, tables
from cdc_pipeline.sink.verify.compare import (
    DIFFERENCES,
    ComparisonResult,
    compare,
    keys_found,
    read_differences,
)
from cdc_pipeline.sink.verify.side_columns import arrow_of
from cdc_pipeline.sink.verify.sides import ComparisonSides
from cdc_pipeline.sink.verify.tables import VersionedTable
from cdc_pipeline.sink.verify.whole_table import duplicate_keys, history_intervals

COLUMNS = (("id", "int"), ("a", "int"), ("b", "int"))
SEQ = pa.decimal128(38, 0)
Row = tuple[int | None, int | None, int | None]


def no_jvm() -> Any:
    raise AssertionError("a small table needs no JVM")


def stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both sides are read part by part, as those of large tables are, and what is unlike in parts
    by a hash."""
    monkeypatch.setattr(parts, "_held", lambda of_side: of_side)
    monkeypatch.setattr(tables, "_SMALL_BATCH_ROWS", 50)
    monkeypatch.setattr(spilled, "SMALL_ROWS", 150)


@pytest.fixture(params=["in memory", "streamed"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What starts Spark, for the comparison in one way."""
    if request.param == "streamed":
        stream(monkeypatch)
    return no_jvm


def write(path: Path, own: dict[str, pa.DataType], *rows: tuple[Any, ...]) -> None:
    """A table of `COLUMNS` and a mode's own."""
    kinds = {name: pa.int32() for name, _ in COLUMNS} | own
    columns = dict(zip(kinds, zip(*rows, strict=True), strict=True))
    write_deltalake(path, pa.table({n: pa.array(columns[n], kind) for n, kind in kinds.items()}))


def source(spill: Spill, rows: list[Row]) -> StoredRows:
    stored = StoredRows(spill)
    count = len(rows)
    arrays: dict[str, Any] = {
        "_op": pa.array([INSERT] * count, pa.int8()),
        "_seq": pa.array([Decimal(0)] * count, pa.decimal128(38, 0)),
        "_ts": pa.array([dt.datetime(2020, 1, 1, tzinfo=dt.UTC)] * count, TS_TYPE),
    }
    arrays |= {f"c{at}": pa.array([row[at] for row in rows], pa.int32()) for at in range(3)}
    stored.add(pa.table(arrays))
    return stored


def stored_keys(spill: Spill, keys: list[int | None]) -> StoredRows:
    stored = StoredRows(spill)
    stored.add(pa.table({"k0": pa.array(keys, pa.int32())}))
    return stored


def told(
    sides: ComparisonSides, found: ComparisonResult, *, limit: int = 100
) -> list[tuple[Any, ...]]:
    if not found.counts:
        return []
    kinds = (*DIFFERENCES, "left_out")
    keys = [f"c{at}" for at in sides.key_positions]
    rows = read_differences(found, kinds, limit=limit).to_pylist()
    return [
        (row["_kind"], tuple(row[key] for key in keys), tuple(row["_columns"]), row["_more"])
        for row in rows
    ]


def test_k17_each_kind_is_told_and_keys_that_changed_are_left_out(
    engine: Any, tmp_path: Path
) -> None:
    lake, spill = tmp_path / "t", Spill(tmp_path)
    # 1 and 2 hold the same values in other columns: a hash that passes over NULL cannot tell them.
    write(
        lake, {"_cdc_seq": SEQ}, (1, None, 1, 5), (2, 1, None, 5), (3, 3, 3, 5), (5, 5, 5, 5),
        (6, 6, 6, 5), (6, 6, 6, 6), (7, 7, 7, 99), (None, 8, 8, 5),
    )  # fmt: skip
    columns = tuple(TargetColumn(name=name, delta_type=kind) for name, kind in COLUMNS)
    target = RecordedTarget(table="d.t", app_id="x", spec=TargetSpec(columns=columns, key=("id",)))
    by_key = ComparisonSides(
        target=target, columns=("id", "a", "b"), key=("id",), lake=VersionedTable("d.t", lake, 0)
    )
    rows: list[Row] = [
        (1, 1, None),
        (2, 1, None),
        (3, 3, 3),
        (4, 4, 4),
        (6, 6, 6),
        (7, 70, 7),
        (None, 8, 8),
        (9, 9, 9),
    ]
    stored = source(spill, rows)

    def compared(sides: ComparisonSides, **more: Any) -> ComparisonResult:
        return compare(engine, sides, stored, spill=spill, **more)

    changed = {"changed": stored_keys(spill, [9, None])}
    first = compared(replace(by_key, after_seq=98), keys=changed)
    assert told(by_key, first) == [
        ("different", (1,), ("a", "b"), 0), ("duplicate", (6,), (), -1), ("extra", (5,), (), -1),
        ("left_out", (7,), (), 0), ("left_out", (9,), (), 0), ("left_out", (None,), (), 0),
        ("missing", (4,), (), 1),
    ]  # fmt: skip
    assert (first.rows_source, first.rows_lake, first.differences, first.counts["left_out"]) == (
        5,
        6,
        4,
        3,
    )

    left_out = keys_found(spill, first, ["left_out"])
    again = compared(by_key, keys={"wanted": left_out})
    assert told(by_key, again) == [("different", (7,), ("a",), 0), ("missing", (9,), (), 1)]
    without = compared(by_key, keys={"unread": stored_keys(spill, [5, 8])})
    assert without.stale == 1
    assert "extra" not in without.counts
    assert seqs_within(lake, 5, 98) == (7, 6)
    assert seqs_within(lake, 100, 200) == (0, None)

    by_values = ComparisonSides(
        target=target, columns=("id", "a"), key=(), lake=VersionedTable("d.t", lake, 0)
    )
    assert told(by_values, compared(by_values)) == [
        ("extra", (1, None), (), -1), ("extra", (5, 5), (), -1), ("extra", (6, 6), (), -1),
        ("extra", (7, 7), (), -1),
        ("missing", (1, 1), (), 1), ("missing", (4, 4), (), 1), ("missing", (7, 70), (), 1),
        ("missing", (9, 9), (), 1),
    ]  # fmt: skip


def test_a_changelog_is_its_last_images_and_what_they_do_not_hold_does_not_differ(
    engine: Any, tmp_path: Path
) -> None:
    lake, spill = tmp_path / "t", Spill(tmp_path)
    own = {
        "_cdc_op": pa.string(), "_cdc_seq": SEQ,
        "_cdc_before": pa.struct([(name, pa.int32()) for name, _ in COLUMNS]),
        "_cdc_absent": pa.list_(pa.string()),
    }  # fmt: skip
    old = [{"id": number, "a": 0, "b": 0} for number in range(4)]
    write(
        lake, own, (9, 9, 9, "insert", 1, None, None), (*[None] * 3, "truncate", 2, None, None),
        (1, 1, 1, "insert", 3, None, None), (2, 2, 2, "insert", 5, None, None),
        (3, 3, 3, "insert", 7, None, None), (1, 1, None, "update", 11, old[1], ["b"]),
        (4, 2, 2, "update", 13, old[2], None), (3, 3, 3, "delete", 14, old[3], None),
    )  # fmt: skip
    columns = tuple(TargetColumn(name=name, delta_type=kind) for name, kind in COLUMNS)
    target = RecordedTarget(
        table="d.t", app_id="x", spec=TargetSpec(columns=columns, key=(), mode="changelog")
    )
    sides = ComparisonSides(
        target=target, columns=("id", "a", "b"), key=("id",), lake=VersionedTable("d.t", lake, 0)
    )
    stored = source(spill, [(1, 1, 77), (4, 2, 3)])
    found = compare(engine, sides, stored, spill=spill)
    assert told(sides, found) == [("different", (4,), ("b",), 0)]
    assert (found.rows_source, found.rows_lake) == (2, 2)


def changes(path: Path, **columns: Any) -> ComparisonSides:
    """A changelog of two shards, in a table of its own."""
    image = pa.struct([(".id", pa.int32()), ("a", pa.int32())])
    rows = {
        ".id": pa.array([1, None, 2, 3, 2], pa.int32()),
        "a": pa.array([1, None, 2, 3, 5], pa.int32()),
        "shard": ["x", None, "x", "y", "x"],
        "_cdc_op": ["insert", "truncate", "insert", "insert", "update"],
        "_cdc_seq": pa.array(map(Decimal, [1, 3, 5, 7, 9]), pa.decimal128(38, 0)),
        "_cdc_before": pa.array([None] * 4 + [{".id": 2, "a": 2}], image),
        "_cdc_absent": pa.nulls(5, pa.list_(pa.string())),
        "_cdc_before_absent": pa.nulls(5, pa.list_(pa.string())),
    } | columns
    write_deltalake(path, pa.table({name: rows[name] for name in rows if rows[name] is not None}))
    named = tuple(TargetColumn(name=n, delta_type="int") for n in (".id", "a"))
    shard = TargetColumn(name="shard", delta_type="string")
    spec = TargetSpec(columns=(*named, shard), key=(), mode="changelog")
    target = RecordedTarget(table="d.t", app_id="x", spec=spec)
    return ComparisonSides(
        target=target,
        columns=(".id", "a"),
        key=(".id",),
        lake=VersionedTable("d.t", path, 0),
        shard=("shard", "x"),
    )


@pytest.mark.parametrize("key", [(".id",), ()])
def test_k17_a_truncate_ends_the_rows_of_every_shard_before_it(
    tmp_path: Path, key: tuple[str, ...]
) -> None:
    sides = replace(changes(tmp_path / "t"), key=key)
    spill = Spill(tmp_path)
    stored = StoredRows(spill)
    ints = {name: pa.array([value], pa.int32()) for name, value in (("c0", 2), ("c1", 5))}
    stored.add(pa.table(ints))
    found = compare(no_jvm, sides, stored, spill=spill)
    assert (dict(found.counts), found.rows_lake) == ({}, 1)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        *((name, None) for name in ("_cdc_seq", "_cdc_op", "_cdc_before", "_cdc_absent", "shard")),
        ("_cdc_seq", list("abcde")), ("_cdc_before", list("abcde")), ("_cdc_op", [1] * 5),
    ],
)  # fmt: skip
def test_k22_a_table_whose_columns_another_program_changed_is_an_error_of_it(
    tmp_path: Path, name: str, values: Any
) -> None:
    sides, spill = changes(tmp_path / "t", **{name: values}), Spill(tmp_path)
    with pytest.raises(LakeStateError, match=name) as refused:
        compare(no_jvm, sides, StoredRows(spill), spill=spill)
    assert refused.value.table == "d.t"


@pytest.mark.parametrize("key", [("id",), ()])
def test_k25_rows_that_are_unlike_are_held_in_parts_and_equal_ones_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: tuple[str, ...]
) -> None:
    """However many of a value there are, and however many partitions."""
    lake, spill, count = tmp_path / "t", Spill(tmp_path), 600
    ids = [at if key else at % 2 or None for at in range(count)]
    seqs = pa.array([Decimal(1)] * count, pa.decimal128(38, 0))
    write_deltalake(lake, pa.table({"id": pa.array(ids, pa.int32()), "_cdc_seq": seqs}))
    columns = (TargetColumn(name="id", delta_type="int"),)
    target = RecordedTarget(table="d.t", app_id="x", spec=TargetSpec(columns=columns, key=key))
    sides = ComparisonSides(
        target=target, columns=("id",), key=key, lake=VersionedTable("d.t", lake, 0)
    )
    lengths: list[int] = []

    def mark(_sides: ComparisonSides, rows: pa.Table, *of: Any, **how: Any) -> Any:
        lengths.append(len(rows))
        return marked(_sides, rows, *of, **how)

    stream(monkeypatch)
    marked = comparing.mark_keys
    monkeypatch.setattr(comparing, "mark_keys", mark)
    found = compare(no_jvm, sides, StoredRows(spill), spill=spill)
    assert found.rows_lake == count
    if key:
        assert len(lengths) > 3
        assert max(lengths) < count / 2
        assert dict(found.counts) == {"extra": count}
    else:
        assert max(lengths) < count / 3
        assert told(sides, found) == [("extra", (1,), (), -300), ("extra", (None,), (), -300)]


def test_k25_values_that_a_dictionary_repeats_count_as_often_as_they_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 100
    wide = {"id": pa.array(range(count), pa.int32()), "v": ["x" * 100_000] * count}
    seqs = pa.array([Decimal(1)] * count, pa.decimal128(38, 0))
    write_deltalake(tmp_path / "t", pa.table({**wide, "_cdc_seq": seqs}))
    named = (TargetColumn(name="id", delta_type="int"), TargetColumn(name="v", delta_type="string"))
    target = RecordedTarget(table="d.t", app_id="x", spec=TargetSpec(columns=named, key=("id",)))
    sides = ComparisonSides(
        target=target,
        columns=("id", "v"),
        key=("id",),
        lake=VersionedTable("d.t", tmp_path / "t", 0),
    )
    spill = Spill(tmp_path)
    for bound_bytes, is_held in ((11_000_000, True), (9_000_000, False)):
        monkeypatch.setattr(parts, "SMALL_BYTES", bound_bytes // 4)
        side = parts.lake_parts(sides, sides.lake, spill)
        assert isinstance(side, list) is is_held
        assert sum(map(len, side)) == count


def test_k25_rows_of_many_tables_are_held_together_only_within_one_bound(
    tmp_path: Path,
) -> None:
    spill = Spill(tmp_path)
    first = stored_keys(spill, [1, 2, 3])
    spill.held_bytes_max = spill.held_bytes * 3 // 2
    second = stored_keys(spill, [1, 2, 3])
    assert (first.tables is None, second.tables is None) == (False, True)
    second.add(pa.table({"k0": pa.array([4, 5], pa.int64())}))
    read = [[value for part in second.batches() for value in part["k0"].to_pylist()] for _ in "ab"]
    assert read == [[1, 2, 3, 4, 5]] * 2
    assert list(tmp_path.iterdir()) == []
    first.discard()
    assert spill.held_bytes == 0
    assert stored_keys(spill, [1, 2, 3]).tables is not None
    assert spill.held_bytes == 0, "nobody has them"


def test_versions_that_overlap_or_do_not_end_are_counted_and_two_current_ones_are_a_duplicate(
    engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, spill = tmp_path / "t", Spill(tmp_path)
    # One after the other; the first ends too late; the first does not end; a row that went and came
    # back.
    write(
        lake, dict.fromkeys(("_cdc_seq", "__START_AT", "__END_AT"), SEQ), (1, 0, 0, 1, 1, 5),
        (1, 1, 1, 5, 5, None), (2, 0, 0, 1, 1, 6), (2, 2, 2, 4, 4, None), (3, 3, 3, 1, 1, None),
        (3, 3, 3, 3, 3, None), (4, 0, 0, 1, 1, 2), (4, 9, 4, 5, 5, None),
    )  # fmt: skip
    whole = VersionedTable("d.t", lake, 0)
    monkeypatch.setattr(spilled, "SMALL_ROWS", 3)
    assert history_intervals(whole, ("id",), spill) == {
        "versions": 8, "keys": 4, "overlaps": 1, "not_ended": 1, "gaps": 1
    }  # fmt: skip
    assert duplicate_keys(whole, "history", ("id",), spill) == 1
    columns = tuple(TargetColumn(name=name, delta_type=kind) for name, kind in COLUMNS)
    target = RecordedTarget(
        table="d.t", app_id="x", spec=TargetSpec(columns=columns, key=("id",), mode="history")
    )
    sides = ComparisonSides(
        target=target, columns=("id", "a", "b"), key=("id",), lake=VersionedTable("d.t", lake, 0)
    )
    rows: list[Row] = [(1, 1, 1), (2, 2, 2), (3, 3, 3), (4, 4, 4)]
    stored = source(spill, rows)
    found = compare(engine, sides, stored, spill=spill)
    assert told(sides, found) == [("different", (4,), ("a",), 0), ("duplicate", (3,), (), -1)]


_AT = dt.datetime
VALUES: dict[str, list[Any]] = {
    "string": ["", "a", "A", "a ", "\u00e4", "a\u0308", "NULL", "0", "\x00"],
    "int": [0, -1, 2**31 - 1, -(2**31)],
    "bigint": [0, 2**63 - 1, -(2**63)],
    "boolean": [True, False],
    "float": [0.0, -0.0, math.nan, math.inf, 1.5, 2.0**-149],
    "double": [0.0, -0.0, math.nan, -math.inf, 0.1, 0.1 + 2.0**-55, 5e-324, 1.7e308],
    "decimal(38,9)": [Decimal(0), Decimal("1E-9"), Decimal("-99999999999999999999999999999.5")],
    "binary": [b"", b"\x00", b"a"],
    "date": [dt.date(1, 1, 1), dt.date(1582, 10, 10), dt.date(9999, 12, 31)],
    "timestamp_ntz": [_AT(1, 1, 1), _AT(1969, 12, 31, 23, 59, 59, 999999), _AT(9999, 12, 31)],
    "timestamp": [_AT(1970, 1, 1, tzinfo=dt.UTC), _AT(2038, 1, 19, 3, 14, 7, 1, tzinfo=dt.UTC)],
    "array<float>": [[], [0.0], [-0.0], [math.nan, None], [1.0, 2.0]],
    "struct<srid:int,wkb:binary>": [{"srid": 0, "wkb": b""}, {"srid": None, "wkb": b"x"}],
    "map<string,string>": [[], [("a", "x"), ("b", None)], [("a", "x")], [("a", "y")]],
}


def bits(value: Any) -> str:
    """The same for values that are equal: floats by their bits, every NaN alike."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else struct.pack(">d", value).hex()
    if isinstance(value, dict):
        return bits(sorted(value.items()))
    return f"[{','.join(map(bits, value))}]" if isinstance(value, list) else repr(value)


TYPES = ["int", *VALUES]
ARROW = [arrow_of(kind) for kind in TYPES]
KINDS = [[None, *of_type] for of_type in VALUES.values()]
MODES = ("mirror", "soft_delete", "history", "changelog")
KEYS = ((0,), (), (1, 6, 14))  # positions


class Generated:
    """Rows of all types, of a source and a lake: some are missing, others differ or are there
    twice."""

    def __init__(self, folder: Path, mode: Any, key: tuple[int, ...]) -> None:
        choose = random.Random(7)
        self.rows = [[number, *map(choose.choice, KINDS)] for number in range(400)]
        self.there = [list(row) for row in self.rows if choose.random() < 0.9]
        for row in choose.sample(self.there, 200):
            at = choose.randrange(len(KINDS))
            row[1 + at] = choose.choice(KINDS[at])
        self.there += [list(choose.choice(self.rows)) for _ in range(20)]
        self.named = tuple(
            TargetColumn(name=f"n{at}", delta_type=kind) for at, kind in enumerate(TYPES)
        )
        names, count = [column.name for column in self.named], len(self.there)
        own = {"_cdc_seq": pa.array([Decimal(choose.randrange(1, 10)) for _ in self.there], SEQ)}
        if mode == "soft_delete":
            own["_cdc_deleted"] = pa.array([choose.random() < 0.1 for _ in self.there])
        if mode == "history":
            own["__START_AT"] = own["_cdc_seq"]
            own["__END_AT"] = pa.array([choose.choice([None, 9]) for _ in self.there], SEQ)
        if mode == "changelog":
            image = pa.struct(list(zip(names, ARROW, strict=True)))
            own["_cdc_seq"] = pa.array(map(Decimal, range(count)), SEQ)
            own["_cdc_op"] = pa.array([choose.choice(["insert", "delete"]) for _ in self.there])
            own["_cdc_before"] = pa.nulls(count, image)
            own |= {f"_cdc_{of}absent": pa.nulls(count, pa.list_(pa.string()))
                    for of in ("", "before_")}  # fmt: skip
        columns = self._columns(self.there, range(len(TYPES)))
        write_deltalake(folder / "t", pa.table([*columns, *own.values()], [*names, *own]))
        spec = TargetSpec(
            columns=self.named, key=() if mode == "changelog" else self._names(key), mode=mode
        )
        target = RecordedTarget(table="d.t", app_id="x", spec=spec)
        self.sides = ComparisonSides(
            target=target,
            columns=tuple(names),
            key=self._names(key),
            lake=VersionedTable("d.t", folder / "t", 0),
        )
        self._spill, self._folder = Spill(folder), folder

    def _names(self, key: tuple[int, ...]) -> tuple[str, ...]:
        return tuple(self.named[at].name for at in key)

    def _columns(self, rows: list[list[Any]], positions: Any) -> list[pa.Array]:
        return [pa.array([row[at] for row in rows], ARROW[at]) for at in positions]

    def keys(self, rows: list[list[Any]]) -> StoredRows:
        stored = StoredRows(self._spill)
        stored.add(pa.table(self._columns(rows, self.sides.key_positions), self.sides.keys))
        return stored

    def found_by(
        self, start: Any, *, share: float = 1.0, after_seq: int | None = None, **how: Any
    ) -> list[Any]:
        """`share`: of the source's rows."""
        rows = self.rows[: int(len(self.rows) * share)]
        names = [f"c{at}" for at in range(len(TYPES))]
        staged = pa.table(self._columns(rows, range(len(TYPES))), names)
        stored = StoredRows(self._spill)
        stored.add(staged.append_column("_op", pa.array([INSERT] * len(rows), pa.int8())))
        sides = replace(self.sides, sampled=share < 1, after_seq=after_seq)
        found = compare(start, sides, stored, spill=self._spill, **how)
        told_rows = Counter(
            (kind, bits(list(values)), " ".join(columns), str(more))
            for kind, values, columns, more in told(self.sides, found, limit=10_000)
        )
        return [found.rows_source, found.rows_lake, found.stale, told_rows]

    def selections(self) -> list[dict[str, Any]]:
        """Keys of rows that both sides have, and that one lacks."""
        some = [*self.there[::9], *self.rows[::7]]
        changed = {"keys": {"changed": self.keys(some)}, "after_seq": 8}
        if not self.sides.key:
            return [{}]
        return [
            {},
            changed,
            {"keys": {"wanted": self.keys(some), "unread": self.keys(self.there[::5])}},
            {"keys": {"unread": self.keys(self.there[::5])}, "share": 0.5, "after_seq": 8},
        ]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("key", KEYS)
def test_k17_a_table_that_is_read_in_parts_differs_as_one_that_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, key: tuple[int, ...]
) -> None:
    made = Generated(tmp_path, mode, key)
    selections = made.selections()
    held = [made.found_by(no_jvm, **how) for how in selections]
    assert all(rows for *_, rows in held)
    stream(monkeypatch)
    assert [made.found_by(no_jvm, **how) for how in selections] == held
    monkeypatch.setattr(sums, "_SAMPLE_KEYS_MAX", 9)
    assert [made.found_by(no_jvm, **how) for how in selections] == held


def test_k17_the_number_of_times_that_each_row_is_there_is_compared(tmp_path: Path) -> None:
    made = Generated(tmp_path, "mirror", ())
    more = Counter(bits(row) for row in made.rows)
    more.subtract(bits(row) for row in made.there)
    *_, found = made.found_by(no_jvm)
    counts = Counter(int(text) for *_, text in found.elements())
    assert counts == Counter(filter(None, more.values()))


@pytest.mark.parametrize("read", ["held", "in parts"])
def test_k17_rows_that_changed_alike_on_both_sides_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    if read == "in parts":
        stream(monkeypatch)
    made = Generated(tmp_path, "mirror", (0,))
    made.rows = made.there = made.there[:300]
    *_, found = made.found_by(no_jvm, after_seq=8)
    later = {int(key[1:-1]) for kind, key, *_ in found.elements() if kind == "left_out"}
    seqs = DeltaTable(tmp_path / "t").to_pyarrow_table(columns=["n0", "_cdc_seq"]).to_pylist()
    assert later == {row["n0"] for row in seqs if row["_cdc_seq"] > 8}


def test_k17_every_kind_of_difference_is_found_among_generated_values(tmp_path: Path) -> None:
    made = Generated(tmp_path, "mirror", (0,))
    there_by_key: dict[int, list[list[Any]]] = {}
    for row in made.there:
        there_by_key.setdefault(row[0], []).append(row)
    expected = Counter(
        "missing" if not same else "duplicate" if len(same) > 1 else "different"
        for row in made.rows
        for same in [there_by_key.get(row[0], [])]
        if list(map(bits, same)) != [bits(row)]
    )
    *_, found = made.found_by(no_jvm)
    assert Counter(kind for kind, *_ in found.elements()) == expected


@pytest.mark.parametrize("kind", VALUES)
def test_k17_each_value_has_hashes_of_its_own_wherever_it_lies(kind: str) -> None:
    """Also the one that any single bit makes of a number or text; equal values have the same."""
    values = [None, *VALUES[kind]]
    if kind == "bigint":
        values = [0, *(1 << bit for bit in range(63)), -(1 << 63)]
    if kind == "binary":
        values = [b"", bytes(9), bytes(19), *(bytes([0] * at + [1 << bit] + [0] * (18 - at))
                  for at in range(19) for bit in range(8))]  # fmt: skip
    column = pa.array(values, arrow_of(kind))
    hashes = RowHasher(len(column)).take([pa.chunked_array([column])])
    for lane in hashes.T:
        assert len(set(lane.tolist())) == len(values)
    for begin in range(1, min(4, len(values))):
        rest = pa.chunked_array([column.slice(begin)])
        assert np.array_equal(RowHasher(len(rest)).take([rest]), hashes[begin:])


def test_k17_hashes_call_equal_what_is_equal() -> None:
    entries = [[("a", "x"), ("b", None)], [("b", None), ("a", "x")]]
    nans = np.array([0x7FF8000000000000, 0xFFF8000000000001], np.uint64).view(np.float64)
    for column in (pa.array(entries, pa.map_(pa.string(), pa.string())), pa.array(nans)):
        first, second = RowHasher(2).take([pa.chunked_array([column])])
        assert first.tolist() == second.tolist()


@pytest.mark.parametrize("key", [("a", "b"), ("b", "a")])
@pytest.mark.parametrize("most", [1, 4, 20])
def test_k17_keys_are_walked_once_each_in_the_order_of_the_key_with_null_last(
    tmp_path: Path, key: tuple[str, ...], most: int
) -> None:
    rows = [(a, b) for a in (2, None, 1) for b in (None, 1, 2)]
    twice = [*rows, *rows]
    columns = {name: pa.array([row[at] for row in twice]) for at, name in enumerate("ab")}
    seqs = pa.array([Decimal(1)] * len(twice), pa.decimal128(38, 0))
    write_deltalake(tmp_path, pa.table({**columns, "_cdc_seq": seqs}))
    named = tuple(TargetColumn(name=name, delta_type="bigint") for name in "ab")
    spec, after, walked = TargetSpec(columns=named, key=key), None, []
    while after is None or len(after):
        keys = parts.next_keys(tmp_path, 0, spec, after=after, most=most)
        walked += [tuple(keys.column(name)[at].as_py() for name in key) for at in range(len(keys))]
        after = keys.slice(len(keys) - 1) if len(keys) == most else keys.slice(0, 0)
    in_order = [tuple(dict(zip("ab", row, strict=True))[name] for name in key) for row in rows]
    assert walked == sorted(in_order, key=lambda row: [(v is None, v or 0) for v in row])
