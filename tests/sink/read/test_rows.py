"""Rows of small tables, read without a JVM, are those that Spark reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from cdc_pipeline.sink.read import rows
from cdc_pipeline.sink.read.read import table_frame
from cdc_pipeline.sink.read.rows import small_rows


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

    parted = tmp_path / "parted"
    spark.sql(f"CREATE TABLE delta.`{parted}` (id int, p int) USING delta PARTITIONED BY (p)")
    assert small_rows(parted, 0) is None


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
