"""Rows of small tables, read without a JVM, are those that Spark reads."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_pipeline.errors import SparkNeededError
from cdc_pipeline.sink.delta.replay import readable_state
from cdc_pipeline.sink.read import rows
from cdc_pipeline.sink.read.read import table_frame
from cdc_pipeline.sink.read.rows import open_rows, small_rows


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
        f") USING delta TBLPROPERTIES ({properties})",
        f"INSERT INTO {table} SELECT id, concat('x', id), id, timestamp_ntz'1001-01-01 00:00:00', "
        "map('k', string(id)) FROM range(50)",
        f"ALTER TABLE {table} RENAME COLUMN `a.b` TO b",
        f"ALTER TABLE {table} ADD COLUMN c timestamp",
        f"ALTER TABLE {table} ALTER COLUMN n TYPE bigint",
        f"DELETE FROM {table} WHERE id % 7 = 3",
        f"INSERT INTO {table} VALUES (100, NULL, 5000000000, NULL, NULL, "
        "timestamp'1969-12-31 23:59:59.999999Z')",
        f"UPDATE {table} SET b = '' WHERE id = 4",
    ):
        spark.sql(statement)
    for version in range(1, 8):
        expected = table_frame(spark, path, version=version).toArrow()
        read = small_rows(path, version)
        assert read is not None
        assert read.column_names == expected.column_names
        assert sorted(read.to_pylist(), key=repr) == sorted(expected.to_pylist(), key=repr)
    some = small_rows(path, 7, columns=["b", "none"])
    assert some is not None
    assert some.column_names == ["b"]
    assert small_rows(path, 99) is None

    # Another table, whose files have their partitions' values in the log alone.
    parted = tmp_path / "parted"
    spark.sql(
        f"CREATE TABLE delta.`{parted}` (id int, p int, day date, `t/x` string) USING delta "
        "PARTITIONED BY (p, day, `t/x`)"
    )
    spark.sql(
        f"INSERT INTO delta.`{parted}` VALUES (1, 7, date'1000-02-28', 'a/b c'), (2, NULL, NULL, "
        "NULL), (3, -7, date'9999-12-31', '%41'), (4, 7, date'1000-02-28', 'a/b c')"
    )
    for columns in (None, ["p"], ["id", "t/x"]):
        expected = table_frame(spark, parted).select(*(columns or "*")).toArrow()
        read = small_rows(parted, 1, columns=columns)
        assert read is not None
        assert sorted(read.to_pylist(), key=repr) == sorted(expected.to_pylist(), key=repr)
    some_rows = open_rows(
        parted, readable_state(parted, 1), filters=[("p", "=", 7), ("id", ">", 1)]
    ).batches()
    assert [part.column("id").to_pylist() for part in some_rows if len(part)] == [[4]]
    spark.sql(
        f"CREATE TABLE delta.`{tmp_path / 'z'}` (n int, p timestamp) USING delta PARTITIONED BY (p)"
    )
    with pytest.raises(SparkNeededError, match="partitions of type timestamp"):
        open_rows(tmp_path / "z", readable_state(tmp_path / "z"))


_ROWS = st.lists(
    st.tuples(
        st.one_of(st.none(), st.integers(-5, 5)),
        st.one_of(st.none(), st.sampled_from(["", "a", "a" * 40, "é", "\uffff", "😀", "\x00"])),
    ),
    min_size=1,
    max_size=4,
)
_TERMS = st.one_of(
    st.tuples(st.just("n"), st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), st.integers(-6, 6)),
    st.tuples(st.just("n"), st.sampled_from(["in", "not in"]), st.lists(st.integers(-6, 6))),
    st.tuples(
        st.just("t"),
        st.sampled_from(["=", "!=", "<", "<=", ">", ">="]),
        st.sampled_from(["", "a", "a" * 40, "b", "é", "😀"]),
    ),
)


@settings(deadline=None)
@given(
    files=st.lists(_ROWS, min_size=1, max_size=4),
    terms=st.lists(_TERMS, min_size=1, max_size=3),
    is_any=st.booleans(),
    columns=st.sampled_from([None, ["n"], ["t"], ["x"]]),
)
def test_filters_leave_out_files_and_no_row(
    files: list[Any], terms: list[Any], is_any: bool, columns: list[str] | None
) -> None:
    """As Arrow filters all rows of the table."""
    schema = pa.schema([("n", pa.int32()), ("t", pa.string()), ("x", pa.int64())])
    tables = [
        pa.table([*zip(*file, strict=True), range(len(file))], schema=schema) for file in files
    ]
    filters = [[term] for term in terms] if is_any else terms
    expected = pa.concat_tables(tables).filter(pq.filters_to_expression(filters))
    with TemporaryDirectory() as folder:
        for table in tables:
            write_deltalake(folder, table, mode="append")
        opened = open_rows(
            Path(folder), readable_state(Path(folder)), columns=columns, filters=filters
        )
        read = pa.concat_tables([opened.schema.empty_table(), *opened.batches()])
    assert read.column_names == (columns or schema.names)
    rows = expected.select(read.column_names).to_pylist()
    assert sorted(read.to_pylist(), key=repr) == sorted(rows, key=repr)


def test_a_file_that_cannot_have_a_key_is_not_opened(tmp_path: Path) -> None:
    for begin in (0, 10, 20):
        write_deltalake(tmp_path / "t", pa.table({"id": range(begin, begin + 10)}), mode="append")
    state = readable_state(tmp_path / "t", 2)
    opened = open_rows(tmp_path / "t", state, filters=[("id", "in", [3, 25])])
    assert opened.known_size()[0] == 20
    assert sorted(value for part in opened.batches() for value in part["id"].to_pylist()) == [3, 25]


def test_k25_values_that_a_dictionary_repeats_count_as_often_as_they_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_deltalake(tmp_path / "t", pa.table({"v": ["x" * 100_000] * 100}))
    monkeypatch.setattr(rows, "_DECODED_BYTES_MAX", 11_000_000)
    read = small_rows(tmp_path / "t", 0)
    assert read is not None
    assert read.num_rows == 100
    monkeypatch.setattr(rows, "_DECODED_BYTES_MAX", 9_000_000)
    assert small_rows(tmp_path / "t", 0) is None
