"""Rows of small tables, read without a JVM, are those that Spark reads."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_pipeline.errors import SparkNeededError
from cdc_pipeline.sink.delta.deletion_vectors import bitmap_bytes, write_vectors
from cdc_pipeline.sink.delta.replay import readable_state
from cdc_pipeline.sink.read.read import table_frame
from cdc_pipeline.sink.read.rows import open_rows


def whole(path: Path, version: int, **how: Any) -> pa.Table:
    opened = open_rows(path, readable_state(path, version), **how)
    return pa.concat_tables([opened.schema.empty_table(), *opened.batches()])


@pytest.mark.spark
@pytest.mark.whole
def test_a_table_with_every_feature_that_is_known_is_read_as_spark_reads_it(
    spark: Any, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    table = f"delta.`{path}`"
    features = ("columnMapping.mode' = 'name", "enableDeletionVectors' = 'true",
                "enableTypeWidening' = 'true", "checkpointInterval' = '3")  # fmt: skip
    properties = ", ".join(f"'delta.{feature}'" for feature in features)
    for statement in (
        f"CREATE TABLE {table} (id int, `a.b` string, n int, at timestamp_ntz, m map<string,string>"
        f", s struct<x:int,y:struct<v:string>>) USING delta TBLPROPERTIES ({properties})",
        f"INSERT INTO {table} SELECT id, concat('x', id), id, timestamp_ntz'1001-01-01 00:00:00', "
        "map('k', string(id)), if(id % 5 = 0, NULL, struct(id, struct(id))) FROM range(50)",
        f"ALTER TABLE {table} RENAME COLUMN `a.b` TO b",
        f"ALTER TABLE {table} RENAME COLUMN s.x TO `x.z`",
        f"ALTER TABLE {table} RENAME COLUMN s.y.v TO w",
        f"ALTER TABLE {table} ADD COLUMNS (c timestamp, s.y.v int)",
        f"ALTER TABLE {table} ALTER COLUMN n TYPE bigint",
        f"DELETE FROM {table} WHERE id % 7 = 3",
        f"INSERT INTO {table} VALUES (100, NULL, 5000000000, NULL, NULL, "
        "struct(1, struct('w', 2)), timestamp'1969-12-31 23:59:59.999999Z')",
        f"UPDATE {table} SET b = '' WHERE id = 4",
    ):
        spark.sql(statement)
    for version in range(1, 10):
        expected = table_frame(spark, path, version=version).toArrow()
        read = whole(path, version)
        assert read.column_names == expected.column_names
        assert sorted(read.to_pylist(), key=repr) == sorted(expected.to_pylist(), key=repr)
    assert whole(path, 9, columns=["b", "none"]).column_names == ["b"]

    # Another table, whose files have their partitions' values in the log alone.
    parted = tmp_path / "parted"
    spark.sql(
        f"CREATE TABLE delta.`{parted}` (id int, p int, day date, `t/x` string, at timestamp, l "
        "timestamp_ntz, f boolean, n decimal(5,2), d double) USING delta "
        "PARTITIONED BY (p, day, `t/x`, at, l, f, n, d)"
    )
    spark.sql(
        f"INSERT INTO delta.`{parted}` VALUES (1, 7, date'1000-02-28', 'a/b c', "
        "timestamp'1000-01-01 00:00:00.000001Z', timestamp_ntz'0001-01-01 00:00:00', true, 1.5, "
        "double('-Infinity')), (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL), (3, -7, "
        "date'9999-12-31', '%41', timestamp'2000-01-01 00:00:00Z', timestamp_ntz'2000-01-01 "
        "00:00:00.5', false, -100, 1e300), (4, 7, date'1000-02-28', 'a/b c', NULL, NULL, true, 0, "
        "double('NaN'))"
    )
    for columns in (None, ["p"], ["id", "t/x"]):
        expected = table_frame(spark, parted).select(*(columns or "*")).toArrow()
        read = whole(parted, 1, columns=columns)
        assert sorted(map(repr, read.to_pylist())) == sorted(map(repr, expected.to_pylist()))
    some_rows = open_rows(
        parted, readable_state(parted, 1), filters=[("p", "=", 7), ("id", ">", 1)]
    ).batches()
    assert [part.column("id").to_pylist() for part in some_rows if len(part)] == [[4]]
    refused = (
        ("n int, p binary) USING delta PARTITIONED BY (p)", "partitions of type binary"),
        (f"l array<struct<x:int>>) USING delta TBLPROPERTIES ({properties})", "lists of structs"),
    )
    for columns_sql, why in refused:
        other = tmp_path / why
        spark.sql(f"CREATE TABLE delta.`{other}` ({columns_sql}")
        with pytest.raises(SparkNeededError, match=why):
            open_rows(other, readable_state(other))
    state = readable_state(parted)
    next(iter(state.adds.values()))["partitionValues"]["at"] = "2000-01-01 00:00:00"
    with pytest.raises(SparkNeededError, match="times in an unknown zone"):
        open_rows(parted, state)


_NUMBERS = st.integers(-2, 2)
_TEXTS = st.sampled_from(["", "a", "a" * 40, "é", "\uffff", "😀", "\x00"])
_ROW = st.tuples(_NUMBERS, _TEXTS)
_ROWS = st.one_of(  # a file's bounds say nothing where it has a NULL
    st.lists(_ROW, min_size=2, max_size=4),
    st.lists(st.tuples(st.none() | _NUMBERS, st.none() | _TEXTS), min_size=1, max_size=4),
)
_TERMS = st.one_of(
    st.tuples(st.just("n"), st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), _NUMBERS),
    st.tuples(st.just("n"), st.sampled_from(["in", "not in"]), st.lists(_NUMBERS)),
    st.tuples(
        st.just("t"),
        st.sampled_from(["=", "!=", "<", "<=", ">", ">="]),
        st.sampled_from(["", "a", "a" * 40, "b", "é", "😀"]),
    ),
)


@settings(deadline=None, max_examples=40)
@given(
    files=st.lists(_ROWS, min_size=2, max_size=4),
    reads=st.lists(
        st.tuples(
            st.none() | st.lists(_TERMS, min_size=1, max_size=2),
            st.booleans(),
            st.sampled_from([None, ["n"], ["t"], ["x"]]),
            st.integers(1, 5),
        ),
        min_size=5,
        max_size=5,
    ),
    marked=st.sets(st.integers(0, 15), max_size=6),
)
def test_k3_what_is_read_is_each_row_that_passes_and_that_no_vector_marks(
    files: list[Any],
    reads: list[tuple[list[Any] | None, bool, list[str] | None, int]],
    marked: set[int],
) -> None:
    """As Arrow filters all rows of the table; wherever batches begin."""
    schema = pa.schema([("n", pa.int32()), ("t", pa.string()), ("x", pa.int64())])
    numbers = count()
    tables = [
        pa.table([*zip(*file, strict=True), [next(numbers) for _ in file]], schema=schema)
        for file in files
    ]
    unmarked = pa.concat_tables(tables).filter(~pc.field("x").isin(sorted(marked)))
    with TemporaryDirectory() as folder:
        for table in tables:
            write_deltalake(folder, table, mode="append")
        state = readable_state(Path(folder))
        for add in state.adds.values():
            _mark(Path(folder), add, marked)
        for terms, is_any, columns, batch_rows in reads:
            filters = [[term] for term in terms] if terms and is_any else terms
            opened = open_rows(Path(folder), state, columns=columns, filters=filters)
            read = pa.concat_tables([opened.schema.empty_table(), *opened.batches(batch_rows)])
            assert read.column_names == (columns or schema.names)
            passed = (
                unmarked if filters is None else unmarked.filter(pq.filters_to_expression(filters))
            )
            rows = passed.select(read.column_names).to_pylist()
            assert sorted(read.to_pylist(), key=repr) == sorted(rows, key=repr)


def _mark(path: Path, add: dict[str, Any], marked: set[int]) -> None:
    """The rows of a file whose `x` is one of these."""
    values = pq.read_table(path / add["path"], columns=["x"])["x"].to_pylist()
    if found := [row for row, value in enumerate(values) if value in marked]:
        (vector,) = write_vectors(path, [bitmap_bytes(np.array(found))])
        add["deletionVector"] = {**vector, "cardinality": len(found)}


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        ({"minReaderVersion": 4}, "the reader version 4"),
        ({"minReaderVersion": 3, "readerFeatures": ["columnMapping", "new"]}, "the features new"),
    ],
)
def test_k3_a_protocol_that_is_not_known_is_not_read(
    tmp_path: Path, change: dict[str, Any], refusal: str
) -> None:
    write_deltalake(tmp_path / "t", pa.table({"id": [1]}))
    state = readable_state(tmp_path / "t", 0)
    state.protocol.update(change)
    with pytest.raises(SparkNeededError, match=refusal):
        open_rows(tmp_path / "t", state)


def test_a_file_that_cannot_have_a_key_is_not_opened(tmp_path: Path) -> None:
    for begin in (0, 10, 20):
        write_deltalake(tmp_path / "t", pa.table({"id": range(begin, begin + 10)}), mode="append")
    state = readable_state(tmp_path / "t", 2)
    opened = open_rows(tmp_path / "t", state, filters=[("id", "in", [3, 25])])
    assert opened.known_size()[0] == 20
    assert sorted(value for part in opened.batches() for value in part["id"].to_pylist()) == [3, 25]


def test_k3_a_renamed_field_of_a_struct_is_read_where_files_have_it(tmp_path: Path) -> None:
    write_deltalake(tmp_path, pa.table({"s": [{"x": 1}, None]}))
    state = readable_state(tmp_path)
    schema = json.loads(state.metadata["schemaString"])
    (field,) = schema["fields"][0]["type"]["fields"]
    mapped = {"metadata": {"delta.columnMapping.physicalName": "x"}}
    added = {"metadata": {"delta.columnMapping.physicalName": "y"}}
    fields = [{**field, **mapped, "name": "y"}, {**field, **added, "name": "x"}]
    schema["fields"][0]["type"]["fields"] = fields
    state.metadata["schemaString"] = json.dumps(schema)
    read = [row for part in open_rows(tmp_path, state).batches() for row in part.to_pylist()]
    assert read == [{"s": {"y": 1, "x": None}}, {"s": None}]
