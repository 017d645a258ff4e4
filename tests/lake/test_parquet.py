"""Files of a lake are read without Arrow's datasets (see `cdc_pipeline/lake/parquet.py`)."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cdc_pipeline.lake.parquet import read_parquet
from cdc_pipeline.lake.staged_file import repeating
from tests.support.project import ROOT

_DATASETS = re.compile(
    r"pq\.read_table|to_pyarrow_(table|dataset)|to_pandas\(|pyarrow[. ](import )?dataset"
)


def test_a_file_is_read_whole_or_some_of_its_columns(tmp_path: Path) -> None:
    table = pa.table({"entry": [1, 2, 3], "text": ["a", None, "ü"]})
    file = tmp_path / "batch=7" / "rows.parquet"  # a name that a dataset takes for a column
    file.parent.mkdir()
    pq.write_table(table, file, row_group_size=2)
    assert read_parquet(file) == table
    assert read_parquet(file, columns=["entry"]) == table.select(["entry"])
    with pytest.raises(OSError, match="No such file"):
        read_parquet(tmp_path / "absent.parquet")


def test_the_package_uses_no_datasets_of_arrow() -> None:
    """A worker thread that releases a Python file at exit kills the process."""
    found = [
        f"{file.relative_to(ROOT)}:{number}"
        for file in sorted((ROOT / "cdc_pipeline").rglob("*.py"))
        if file.name != "parquet.py"
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1)
        if _DATASETS.search(line)
    ]
    assert not found


def test_a_dictionary_is_decided_by_more_than_the_first_rows() -> None:
    """A run's first table may have one row."""
    schema = pa.schema({"same": pa.string(), "own": pa.int64()})
    first = [
        pa.table({"same": ["x"] * len(ids), "own": list(ids)}, schema)
        for ids in (range(1), range(1, 100))
    ]
    assert repeating(schema, first) == ["same"]
    assert repeating(schema, []) == []
