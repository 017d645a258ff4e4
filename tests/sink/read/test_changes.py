"""Changes between cuts: what comparing the whole tables at both cuts shows, from the files that
differ. No JVM but for what only Spark writes."""

from __future__ import annotations

import json
import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import cdc_pipeline
from cdc_pipeline.binlog.seq import pack_seq
from cdc_pipeline.binlog.seq_columns import SEQ_TYPE
from cdc_pipeline.binlog.table_schema import Kind
from cdc_pipeline.config.pipeline_config import SinkConfig
from cdc_pipeline.errors import (
    ConfigError,
    CutNotFoundError,
    CutsNotComparableError,
    SinkError,
    TableNotInCutError,
)
from cdc_pipeline.lake.state import read_cut
from cdc_pipeline.schema.evolution.steps import (
    AddColumn,
    DropColumn,
    RenameColumn,
    WidenColumn,
    columns_after,
)
from cdc_pipeline.schema.target_spec import TargetSpec
from cdc_pipeline.schema.types import TargetColumn
from cdc_pipeline.sink.delta.plain_commit import put_commit
from cdc_pipeline.sink.delta.replay import readable_state
from cdc_pipeline.sink.delta_sink import DeltaSink
from cdc_pipeline.sink.modes.mode_columns import (
    BEFORE_COLUMN,
    OP_COLUMN,
    ORDINAL_COLUMN,
    SEQ_COLUMN,
)
from cdc_pipeline.sink.read import changes as between_cuts
from cdc_pipeline.sink.read import table_changes
from cdc_pipeline.sink.read.rows import open_rows
from cdc_pipeline.sink.read.table_changes import TableVersion
from cdc_pipeline.sink.spark.sql import table_at
from tests.sink.read.conftest import suspension
from tests.support.sink_values import (
    AddedColumn,
    Change,
    applied,
    column,
    decoded,
    delete,
    head_of,
    insert,
    record_added_columns,
    table_schema,
    target_of,
    update,
)

SCHEMA = table_schema(
    "shop.orders",
    [
        column("id", Kind.INT32),
        column("code", Kind.TEXT),
        column("total", Kind.INT64),
        column("weight", Kind.DOUBLE),
    ],
    "id",
    "code",
)
Row = dict[str, Any]


def random_row(choose: random.Random) -> Row:
    return {
        "id": choose.randint(1, 9),
        "code": choose.choice(["a", "b", "ü" * 20]),
        "total": choose.choice([None, 1, 2, 1 << 40]),
        "weight": choose.choice([None, 0.0, -0.0, 1.5]),
    }


def random_changes(choose: random.Random, rows: dict[Any, Row], count: int) -> list[Change]:
    """`rows` by key, which they change; some change nothing in the end."""
    changes: list[Change] = []
    for _ in range(count):
        after = random_row(choose)
        key = (after["id"], after["code"])
        if key in rows:
            before = rows.pop(key)
            if choose.random() < 0.4:
                changes.append(delete(**before))
                continue
            changes.append(update(before, after))
        else:
            changes.append(insert(**after))
        rows[key] = after
    return changes


def as_text(row: Row | None) -> str:
    return repr(row)


def net_by_hand(old: Sequence[Row], new: Sequence[Row], key: Sequence[str]) -> Counter[str]:
    """Of full tables; without a key each operation with its count."""
    if not key:
        before, after = (Counter(map(repr, rows)) for rows in (old, new))
        gone, come = before - after, after - before
        return Counter({f"delete {row}": count for row, count in gone.items()}) + Counter(
            {f"insert {row}": count for row, count in come.items()}
        )
    of_key = [{tuple(row[name] for name in key): row for row in rows} for rows in (old, new)]
    found: Counter[str] = Counter()
    for at in of_key[0].keys() | of_key[1].keys():
        was, now = of_key[0].get(at), of_key[1].get(at)
        if repr(was) != repr(now):
            operation = "insert" if was is None else "delete" if now is None else "update"
            found[f"{operation} {at} {was} {now}"] += 1
    return found


def told(rows: pa.Table) -> Counter[str]:
    found: Counter[str] = Counter()
    for row in rows.to_pylist():
        if "key" in row:
            key = tuple(row["key"].values())
            found[f"{row['operation']} {key} {row['before']} {row['after']}"] += 1
        else:
            found[f"{row['operation']} {row['after'] or row['before']}"] += row["count"]
    return found


def composed(parts: Sequence[pa.Table]) -> Counter[str]:
    """The net of changes that follow each other."""
    first: dict[Any, Row | None] = {}
    last: dict[Any, Row | None] = {}
    for row in (row for part in parts for row in part.to_pylist()):
        key = tuple(row["key"].values())
        first.setdefault(key, row["before"])
        last[key] = row["after"]
    old = [row for row in first.values() if row is not None]
    new = [row for row in last.values() if row is not None]
    return net_by_hand(old, new, tuple(SCHEMA.key_names))


def read_rows(sink: DeltaSink, cut: int | None, columns: Sequence[str] | None = None) -> list[Row]:
    if cut is None:
        return []
    names = list(columns or SCHEMA.column_names)
    lake = sink.paths.lake
    rows: list[Row] = (
        cdc_pipeline.read(lake, "shop.orders", as_of=cut, columns=names).read_all().to_pylist()
    )
    return rows


def changes_of(sink: DeltaSink, old: int | None, new: int, **options: Any) -> pa.Table:
    changes = cdc_pipeline.changes(sink.paths.lake, "shop.orders", old, new, **options)
    assert (changes.from_cut, changes.to_cut) == (old, new)
    return changes.read("shop.orders").read_all()


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.whole) for seed in (2, 3))]
)
def test_k3_net_changes_of_a_mirror_are_those_of_its_whole_tables(
    no_spark: DeltaSink, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose, rows = random.Random(seed), dict[Any, Row]()
    with no_spark.lock():
        for number in range(1, 6):
            changes = random_changes(choose, rows, choose.choice((1, 5, 20)))
            applied(no_spark, number, (SCHEMA, changes, 100 * number))
    if seed % 2:  # as if there were more than memory holds
        monkeypatch.setattr(table_changes, "_HELD_BYTES_MAX", 600)
    cuts: list[int | None] = [None, 1, 2, 3, 4, 5]
    full = {cut: read_rows(no_spark, cut) for cut in cuts}
    for at, old in enumerate(cuts):
        for new in cuts[max(at, 1) :]:
            assert new is not None
            expected = net_by_hand(full[old], full[new], ("id", "code"))
            assert told(changes_of(no_spark, old, new)) == expected, (old, new)
            middle = choose.randint(old or 1, new)
            parts = [changes_of(no_spark, old, middle), changes_of(no_spark, middle, new)]
            assert composed(parts) == expected, (old, middle, new)
    assert sum(told(changes_of(no_spark, 1, 5)).values()) > 3


LIVE = {
    "mirror": lambda _: True,
    "soft_delete": lambda row: not row["_cdc_deleted"],
    "history": lambda row: row["__END_AT"] is None,
}
KEYLESS = table_schema("shop.orders", SCHEMA.columns)
SPARK_MARKS = [pytest.mark.spark, pytest.mark.whole]


@pytest.mark.parametrize(
    ("mode", "key"),
    [
        pytest.param("soft_delete", ("id", "code"), marks=SPARK_MARKS),
        pytest.param("history", ("id", "code"), marks=[*SPARK_MARKS, pytest.mark.nightly]),
        pytest.param("mirror", (), marks=SPARK_MARKS),
    ],
)
def test_k3_net_changes_in_each_mode(sink: DeltaSink, mode: str, key: tuple[str, ...]) -> None:
    """With a compaction in between; what two parts have together is what the whole has."""
    choose, rows = random.Random(mode), dict[Any, Row]()
    schema, full = SCHEMA if key else KEYLESS, dict[int | None, list[Row]]({None: []})
    for number in range(1, 5):
        applied(sink, number, (schema, random_changes(choose, rows, 12), 100 * number), mode=mode)
        if number == 2:
            table = table_at(sink.paths.table("shop.orders"))
            sink.spark.session().sql(f"OPTIMIZE {table}").collect()
        everything = cdc_pipeline.read(sink.paths.lake, "shop.orders").read_all().to_pylist()
        full[number] = [
            {name: row[name] for name in schema.column_names}
            for row in everything
            if LIVE[mode](row)
        ]
    for old, new in ((None, 4), (1, 2), (2, 3), (1, 4), (3, 3)):
        rows_told = changes_of(sink, old, new)
        assert told(rows_told) == net_by_hand(full[old], full[new], key), (mode, old, new)
    changes = cdc_pipeline.changes(sink.paths.lake, None, 1)
    frame = changes.read("shop.orders", spark=sink.spark.session())
    assert told(frame.toArrow()) == net_by_hand(full[1], full[4], key)


def log_changes(sink: DeltaSink, number: int, changes: list[Change]) -> None:
    target = target_of(SCHEMA).with_spec(mode="changelog")
    batch = sink.begin(number)
    if number == 1:
        batch.create(target)
    rows = decoded(SCHEMA, changes, first_place=100 * number)
    batch.add(rows, target, transactions=pa.array([f"gtid:{number}"] * len(changes)))
    head = head_of(number)
    sink.finish(batch.record(head))


@pytest.mark.spark
@pytest.mark.whole
def test_every_change_of_a_changelog(sink: DeltaSink) -> None:
    choose, rows = random.Random(7), dict[Any, Row]()
    batches = [random_changes(choose, rows, 8) for _ in range(3)]
    for number, changes in enumerate(batches, 1):
        log_changes(sink, number, changes)
    table = table_at(sink.paths.table("shop.orders"))
    sink.spark.session().sql(f"OPTIMIZE {table}").collect()
    log_changes(sink, 4, [insert(id=77, code="a", total=None, weight=None)])
    told_rows = changes_of(sink, 1, 3, net=False).to_pylist()
    assert [(row["before"], row["after"]) for row in told_rows] == [
        (before, after) for changes in batches[1:] for _, before, after in changes
    ]
    assert [row["seq"] for row in told_rows] == sorted(row["seq"] for row in told_rows)
    (last,) = changes_of(sink, 3, 4, net=False).to_pylist()
    assert (last["operation"], last["key"]) == ("insert", {"id": 77, "code": "a"})
    with pytest.raises(ConfigError, match="no net changes"):
        cdc_pipeline.changes(sink.paths.lake, "shop.orders", 1)
    assert cdc_pipeline.changes(sink.paths.lake, None, 1).tables == ()


WIDE = table_schema("shop.orders", [*SCHEMA.columns, column("note", Kind.TEXT)], "id", "code")


@pytest.mark.spark
@pytest.mark.whole
def test_k13_changes_over_ddl_are_in_the_newer_columns(sink: DeltaSink) -> None:
    """Added with a value for old rows, renamed, widened, dropped and added again."""
    first = {"id": 1, "code": "a", "total": 5, "weight": 1.5}
    applied(sink, 1, (SCHEMA, [insert(**first), insert(**first | {"id": 2})], 100))
    sink.finish(record_added_columns(sink, 2, WIDE, AddedColumn("note", "string", "'x'")))
    (one, _) = changes_of(sink, 1, 2).to_pylist()
    assert one["before"] == one["after"] | {"note": None}
    assert one["after"]["note"] == "x"
    columns = target_of(WIDE).spec.columns
    for number, step in enumerate(
        (
            RenameColumn(name="note", new_name="remark"),
            WidenColumn(name="id", delta_type="bigint"),
            DropColumn(name="remark"),
            AddColumn(name="remark", delta_type="string"),
            RenameColumn(name="code", new_name="kind"),
        ),
        3,
    ):
        key = ("id", "kind" if number == 7 else "code")
        target = target_of(SCHEMA).with_spec(columns=columns_after(columns, step), key=key)
        batch = sink.begin(number)
        batch.change(target, columns, (step,))
        head = head_of(number)
        sink.finish(batch.record(head))
        columns = columns_after(columns, step)
    changes = cdc_pipeline.changes(sink.paths.lake, "shop.orders", 2, 4)
    assert changes.renamed("shop.orders") == {"note": "remark"}
    assert changes.read("shop.orders").read_all().num_rows == 0
    with pytest.raises(CutsNotComparableError, match="remark was dropped and added again"):
        changes_of(sink, 4, 6)
    assert cdc_pipeline.changes(sink.paths.lake, "shop.orders", 6).renamed("shop.orders") == {
        "code": "kind"
    }
    assert changes_of(sink, 5, 7).num_rows == 0
    everything = changes_of(sink, None, 7)
    assert everything.column("after").to_pylist() == read_rows(
        sink, 7, ["id", "kind", "total", "weight", "remark"]
    )


def test_k15_what_cannot_be_compared_is_refused(no_spark: DeltaSink) -> None:
    lake = no_spark.paths.lake
    other = table_schema("shop.orders", SCHEMA.columns, "id")
    first, second = ({"id": n, "code": "a", "total": n, "weight": None} for n in (1, 2))
    with no_spark.lock():
        applied(no_spark, 1, (SCHEMA, [insert(**first)], 100))
        applied(no_spark, 2, (SCHEMA, [insert(**second)], 200))
        applied(no_spark, 3, (SCHEMA, [delete(**first)], 300))
        applied(no_spark, 4, (other, [insert(**first)], 400))
    with pytest.raises(CutNotFoundError, match="from an older cut"):
        cdc_pipeline.changes(lake, "shop.orders", 2, 1)
    with pytest.raises(CutsNotComparableError, match="the key was id, code and is id"):
        cdc_pipeline.changes(lake, "shop.orders", 3)
    with pytest.raises(ConfigError, match="only a changelog"):
        cdc_pipeline.changes(lake, "shop.orders", 1, 2, net=False)
    gone = no_spark.paths.table("shop.orders")
    oldest_file = min(gone.glob("*.parquet"), key=lambda file: file.stat().st_mtime_ns)
    oldest_file.rename(gone / "kept")
    with pytest.raises(TableNotInCutError, match="was removed") as refused:
        cdc_pipeline.changes(lake, "shop.orders", 1, 4)
    assert "begin after is 3" in str(refused.value.next_step)


def test_k14_nothing_stays_of_rows_on_disk_and_a_full_disk_is_named(
    no_spark: DeltaSink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose, rows = random.Random(1), dict[Any, Row]()
    monkeypatch.setattr(table_changes, "_HELD_BYTES_MAX", 600)
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    with no_spark.lock():
        for number in (1, 2):
            applied(no_spark, number, (SCHEMA, random_changes(choose, rows, 20), 100 * number))
    reader = cdc_pipeline.changes(no_spark.paths.lake, "shop.orders", 1).read("shop.orders")
    reader.read_next_batch()
    assert list(folder.iterdir()) == []
    folder.rmdir()
    with pytest.raises(SinkError, match=f"sorted on disk, in {folder}") as refused:
        changes_of(no_spark, 1, 2)
    assert "TMPDIR" in str(refused.value.next_step)


def test_k4_what_both_cuts_do_not_have_alike_is_named_or_refused(
    no_spark: DeltaSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    with no_spark.lock():
        row = {"id": 1, "code": "a", "total": 1, "weight": None}
        applied(no_spark, 1, (SCHEMA, [insert(**row)], 100))
        applied(no_spark, 2, (SCHEMA, [delete(**row)], 200))
    lake = no_spark.paths.lake
    cuts = {number: read_cut(no_spark.paths, number) for number in (1, 2)}
    monkeypatch.setattr(between_cuts, "find_cut", lambda _, number: cuts[number])

    def put(number: int, table: str, **values: Any) -> None:
        targets = cuts[number].cursor.targets
        target = targets["shop.orders"].model_copy(update={"table": table, **values})
        cursor = cuts[number].cursor.model_copy(update={"targets": {**targets, table: target}})
        cuts[number] = cuts[number].model_copy(update={"cursor": cursor})

    put(2, "shop.late", suspended=suspension())
    with pytest.raises(TableNotInCutError, match="suspended in cut 2"):
        cdc_pipeline.changes(lake, None, 1, 2)
    between = cdc_pipeline.changes(lake, None, 1, 2, allow_suspended=True)
    assert (between.tables, between.not_created) == (("shop.orders",), ("shop.late",))

    # The older cut has no such table yet: all rows are inserts.
    older = cuts[1]
    put(1, "shop.orders", suspended=suspension())
    cuts[1] = cuts[1].model_copy(update={"tables": {}})
    with pytest.raises(TableNotInCutError, match="suspended in cut 1"):
        cdc_pipeline.changes(lake, "shop.orders", 1, 2)
    begun = cdc_pipeline.changes(lake, "shop.orders", 1, 2, allow_suspended=True)
    assert begun.read("shop.orders").read_all().num_rows == 0

    cuts[1], (table,) = older, cuts[2].tables.values()
    other = table.model_copy(update={"spec": table.spec.model_copy(update={"mode": "changelog"})})
    cuts[2] = cuts[2].model_copy(update={"tables": {"shop.orders": other}})
    for net in (True, False):
        with pytest.raises(CutsNotComparableError, match="the mode was mirror and is changelog"):
            cdc_pipeline.changes(lake, None, 1, 2, net=net, allow_suspended=True)


def test_k3_more_changes_of_a_changelog_than_memory_holds_come_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those of one transaction, in files that have them in no order."""
    monkeypatch.setattr(table_changes, "_HELD_BYTES_MAX", 4000)
    ids = list(range(500))
    random.Random(7).shuffle(ids)
    seqs = [Decimal(pack_seq(1, 1, 10**9 * (number // 300), number)) for number in ids]
    rows = {
        "id": pa.array(ids),
        SEQ_COLUMN: pa.array(seqs, SEQ_TYPE),
        OP_COLUMN: pa.array(["insert"] * 500),
        ORDINAL_COLUMN: pa.nulls(500, pa.int32()),
        BEFORE_COLUMN: pa.nulls(500, pa.struct([("id", pa.int64())])),
    }
    rows |= {
        name: pa.nulls(500, field.type)
        for name, field in table_changes._OF_CHANGE.items()
        if name not in rows
    }
    for begin in (0, 250):
        write_deltalake(tmp_path, pa.table(rows).slice(begin, 250), mode="append")
    old, new = (version_of(tmp_path, number, "app", ("id", "bigint")) for number in (0, 1))
    spec = new.spec.model_copy(update={"mode": "changelog", "key": ()})
    old, new = old._replace(spec=spec), new._replace(spec=spec)
    for before, changes in ((None, ids), (old, ids[250:])):
        reader = table_changes.table_changes("shop.t", tmp_path, before, new).read()
        parts = [batch.column("after").field("id").to_pylist() for batch in reader if len(batch)]
        assert len(parts) > 50
        assert [number for part in parts for number in part] == sorted(changes)


def test_k3_a_range_of_wide_rows_of_a_changelog_is_divided_down_to_one_seq(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A column that came later: nearly all bytes are in a few ranges of equally many rows."""
    monkeypatch.setattr(table_changes, "_HELD_BYTES_MAX", 9000)
    count = 3000
    texts = ["w" * 4000 if 2000 <= number < 2030 else "" for number in range(count)]
    rows = {
        "id": pa.array(range(count)),
        "note": pa.array(texts),
        SEQ_COLUMN: pa.array([Decimal(pack_seq(1, 1, n, 0)) for n in range(count)], SEQ_TYPE),
        OP_COLUMN: pa.array(["insert"] * count),
        ORDINAL_COLUMN: pa.nulls(count, pa.int32()),
        BEFORE_COLUMN: pa.nulls(count, pa.struct([("id", pa.int64())])),
    }
    rows |= {
        name: pa.nulls(count, field.type)
        for name, field in table_changes._OF_CHANGE.items()
        if name not in rows
    }
    write_deltalake(tmp_path, pa.table(rows))
    new = version_of(tmp_path, 0, "app", ("id", "bigint"), ("note", "string"))
    spec = new.spec.model_copy(update={"mode": "changelog", "key": ()})
    changes = table_changes.table_changes("shop.t", tmp_path, None, new._replace(spec=spec))
    afters = changes.read().read_all().column("after").combine_chunks()
    assert afters.field("id").to_pylist() == list(range(count))
    assert afters.field("note").to_pylist() == texts
    monkeypatch.setattr(table_changes, "_HELD_BYTES_MAX", 3000)
    with pytest.raises(CutsNotComparableError, match="compared together take more") as refused:
        changes.read().read_all()
    assert "a cut in between as to_cut" in str(refused.value.next_step)


@pytest.mark.parametrize("held_bytes", [1 << 20, 600])
def test_k3_two_rows_of_a_key_are_no_inserts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held_bytes: int
) -> None:
    """Neither without an older version nor with one."""
    monkeypatch.setattr(table_changes, "_HELD_BYTES_MAX", held_bytes)
    write_deltalake(tmp_path, pa.table({"id": [1]}))
    write_deltalake(tmp_path, pa.table({"id": [*range(2, 99), 7]}), mode="append")
    old, new = (version_of(tmp_path, number, "app", ("id", "bigint")) for number in (0, 1))
    for before in (None, old):
        reader = table_changes.table_changes("shop.t", tmp_path, before, new).read()
        with pytest.raises(CutsNotComparableError, match="a key has several rows"):
            reader.read_all()


def test_k13_a_text_that_was_a_decimal_is_not_compared() -> None:
    """The source may write other texts than Arrow does."""
    is_comparable = table_changes._is_comparable
    assert is_comparable("int", "string")
    assert is_comparable("string", "string")
    assert is_comparable("int", "bigint")
    for kind in ("decimal(9,2)", "double", "timestamp", "date", "boolean"):
        assert not is_comparable(kind, "string")


def version_of(path: Path, number: int, app_id: str, *types: tuple[str, str]) -> TableVersion:
    columns = tuple(TargetColumn(name=name, delta_type=kind) for name, kind in types)
    spec = TargetSpec(columns=columns, key=("id",))
    return TableVersion(app_id, spec, readable_state(path, number))


def test_k13_a_file_without_a_nested_column_has_nulls_there(tmp_path: Path) -> None:
    kinds = {
        "_cdc_rescued": pa.map_(pa.string(), pa.string()),
        "tags": pa.list_(pa.string()),
        "at": pa.struct([pa.field("x", pa.int64())]),
    }
    write_deltalake(tmp_path, pa.table({"id": [1, 2]}))
    full = {"_cdc_rescued": [("a", "b")], "tags": ["t"], "at": {"x": 1}}
    columns = {"id": pa.array([3])} | {n: pa.array([full[n]], kinds[n]) for n in kinds}
    write_deltalake(tmp_path, pa.table(columns), mode="append", schema_mode="merge")
    none = dict.fromkeys(kinds)
    state = readable_state(tmp_path, 1)
    read = [row for part in open_rows(tmp_path, state).batches() for row in part.to_pylist()]
    expected = [{"id": 1} | none, {"id": 2} | none, {"id": 3} | full]
    assert sorted(read, key=lambda row: row["id"]) == expected
    types = (("id", "bigint"), ("tags", "array<string>"))
    old, new = (version_of(tmp_path, number, "app", *types) for number in (0, 1))
    for before, count in ((None, 3), (old, 1)):
        told_rows = table_changes.table_changes("shop.t", tmp_path, before, new).read().read_all()
        images = told_rows.column("after").to_pylist()
        assert len(images) == count
        assert {"id": 3, "tags": ["t"], "_cdc_rescued": [("a", "b")]} in images


def test_k3_after_a_snapshot_columns_are_those_of_the_same_name(tmp_path: Path) -> None:
    """And not those of the same place: `was` is in the files where the newer table has `a`."""
    write_deltalake(tmp_path, pa.table({"id": [1, 2, 3], "n": [1, 2, 3], "a": ["x", "x", "x"]}))
    newer = pa.table({"a": ["x"] * 3, "n": pa.array([1, 9, 4], pa.float64()), "id": [1, 2, 4]})
    write_deltalake(tmp_path, newer, mode="overwrite", schema_mode="overwrite")
    old = version_of(tmp_path, 0, "app 1", ("id", "bigint"), ("n", "bigint"), ("was", "string"))
    schema = json.loads(old.state.metadata["schemaString"])
    schema["fields"][2]["name"] = "was"
    schema["fields"][2]["metadata"] = {"delta.columnMapping.physicalName": "a"}
    old.state.metadata["schemaString"] = json.dumps(schema)
    new = version_of(tmp_path, 1, "app 2", ("a", "string"), ("id", "bigint"))
    rows = table_changes.table_changes("shop.t", tmp_path, old, new).read().read_all().to_pylist()
    assert sorted((r["operation"], r["key"]["id"], r["before"], r["after"]) for r in rows) == [
        ("delete", 3, {"a": None, "id": 3}, None),
        ("insert", 4, None, {"a": "x", "id": 4}),
        ("update", 1, {"a": None, "id": 1}, {"a": "x", "id": 1}),
        ("update", 2, {"a": None, "id": 2}, {"a": "x", "id": 2}),
    ]
    wrong = version_of(tmp_path, 1, "app 2", ("n", "double"), ("id", "bigint"))
    with pytest.raises(CutsNotComparableError, match="column n was bigint and is double"):
        table_changes.table_changes("shop.t", tmp_path, old, wrong)


def test_k15_f161_a_tables_log_goes_back_to_what_a_kept_cut_names(tmp_path: Path) -> None:
    """Maintenance alone has followed the cut that was the newest until now, long ago."""
    sink = DeltaSink(source="shop", config=SinkConfig(lake_path=tmp_path / "lake"))
    orders = table_schema("shop.orders", [column("id", Kind.INT32)], "id")
    path = sink.paths.table("shop.orders")
    with sink.lock():
        applied(sink, 1, (orders, [insert(id=1)], 10))
        for version in range(2, 11):
            put_commit(path, version, [], "OPTIMIZE", {}, note="")
        DeltaTable(path).create_checkpoint()
        long_ago_s = time.time() - 8 * 86400
        for file in (path / "_delta_log").iterdir():
            os.utime(file, (long_ago_s, long_ago_s))
        applied(sink, 2, (orders, [insert(id=2)], 20))
        found = cdc_pipeline.changes(sink.paths.lake, ["shop.orders"], 1)
        rows = found.read("shop.orders").read_all().to_pylist()
        assert [(row["operation"], row["key"]["id"]) for row in rows] == [("insert", 2)]
