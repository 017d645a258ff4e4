"""Data files and looks without Spark: bounds that hold every value, rows found where a plain scan
finds them."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from cdc_pipeline.lake.staged_file import CountingFile
from cdc_pipeline.sink.apply.key_lookup import rows_with_keys
from cdc_pipeline.sink.delta import data_file
from cdc_pipeline.sink.delta.data_file import (
    DataFileWriter,
    data_layout,
    json_text,
    plain_type,
    read_statistics,
    write_data_files,
)
from cdc_pipeline.sink.delta.replay import table_state
from cdc_pipeline.sink.delta.table_log import read_table_log

MARKS = {"delta.enableDeletionVectors": "true"}
FEW = {**MARKS, "delta.dataSkippingNumIndexedCols": "1"}
COLUMNS: dict[str, tuple[str, list[Any]]] = {
    "id": ("bigint", [3, -(2**63), 2**63 - 1, None]),
    "small": ("tinyint", [-128, 127, 0, None]),
    "amount": (
        "decimal(38,10)",
        [Decimal("-9999999999999999999999999999.9999999999"), Decimal("0.0000000001"), None, 1],
    ),
    "price": ("decimal(7,2)", [Decimal("-99999.99"), Decimal("0.01"), None, Decimal("99999.99")]),
    "ratio": ("double", [0.1, -1e300, None, 5.0]),
    "zero": ("double", [0.0, -0.0, None, 5.0]),
    "minus": ("float", [-0.0, 0.0, None, -5.0]),
    "odd": ("double", [float("nan"), 1.0, None, 2.0]),
    "endless": ("float", [float("inf"), 1.0, None, 2.0]),
    "name": ("string", ["ä" * 40, "", None, "Ω" * 33]),
    "top": ("string", ["a" * 32 + "\U0010ffff", "Z", None, ""]),
    "raw": ("binary", [b"\xff", b"", None, b"\x00"]),
    "flag": ("boolean", [True, False, None, True]),
    "day": ("date", [date(1, 1, 1), date(9999, 12, 31), None, date(1582, 10, 10)]),
    "at": (
        "timestamp",
        [
            datetime(1, 1, 1, 0, 0, 0, 1, UTC),
            datetime(9999, 12, 31, 23, 59, 59, 998_001, UTC),
            None,
            datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
        ],
    ),
    "local": (
        "timestamp_ntz",
        [np.datetime64(at, "us") for at in ("1500-01-01", "2026-01-01T00:00:00.999999")] * 2,
    ),
}
NO_BOUNDS = {"odd", "endless", "top", "raw", "flag"}


def types() -> dict[str, pa.DataType]:
    found = {name: plain_type(delta_type) for name, (delta_type, _) in COLUMNS.items()}
    assert None not in found.values()
    return {name: kind for name, kind in found.items() if kind is not None}


def rows() -> pa.Table:
    return pa.table({name: pa.array(COLUMNS[name][1], kind) for name, kind in types().items()})


def test_bounds_hold_every_value_and_a_reader_gets_every_row(tmp_path: Path) -> None:
    (add,) = write_data_files(tmp_path, [rows()], data_layout(types(), properties=MARKS))
    file = tmp_path / add["path"]
    assert add["size"] == file.stat().st_size
    read = pq.read_table(file)
    assert read.drop(["odd"]).equals(rows().drop(["odd"]))
    assert str(read.column("odd")) == str(rows().column("odd"))  # NaN equals nothing
    found = read_statistics(add["stats"])
    assert (found["numRecords"], found["tightBounds"]) == (4, True)
    assert found["nullCount"] == {**dict.fromkeys(COLUMNS, 1), "local": 0}
    lows, highs = found["minValues"], found["maxValues"]
    assert set(COLUMNS) - set(lows) == set(COLUMNS) - set(highs) == NO_BOUNDS
    assert (lows["id"], highs["id"]) == (-(2**63), 2**63 - 1)
    assert lows["amount"] == COLUMNS["amount"][1][0]
    assert (str(lows["zero"]), str(highs["minus"])) == ("-0.0", "0.0")
    assert lows["price"] == Decimal("-99999.99")
    assert lows["name"] == ""
    assert highs["name"] == "Ω" * 32 + "\U0010ffff"
    assert (lows["day"], highs["day"]) == ("0001-01-01", "9999-12-31")
    assert (lows["at"], highs["at"]) == ("0001-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z")
    assert (lows["local"], highs["local"]) == ("1500-01-01T00:00:00.000", "2026-01-01T00:00:01.000")


@pytest.mark.parametrize(
    ("values", "condition"), [([-5.0, -0.0, 0.0], "x >= 0.0"), ([0.0, -0.0, 5.0], "x <= -0.0")]
)
def test_f154_a_reader_to_whom_minus_zero_is_less_than_zero_leaves_no_file_out(
    tmp_path: Path, log: Log, values: list[float], condition: str
) -> None:
    piece = pa.table({"x": values})
    (add,) = write_data_files(tmp_path, [piece], data_layout({"x": pa.float64()}, properties={}))
    log([*described([column_of("x", "double")]), {"add": add}])
    assert DeltaTable(tmp_path).delete(condition)["num_deleted_rows"] > 0


@pytest.mark.parametrize("is_told", [False, True])
def test_f155_a_file_says_that_its_dates_are_of_one_calendar(tmp_path: Path, is_told: bool) -> None:
    """As Spark's `DataSourceUtils.datetimeRebaseSpec` asks for it."""
    writer = DataFileWriter(CountingFile(tmp_path / "f"), data_layout(types(), properties=MARKS))
    writer.write(rows())
    writer.end(is_told=is_told)
    told = pq.read_metadata(tmp_path / "f").metadata
    assert int(told[b"org.apache.spark.version"].split(b".")[0]) >= 3
    assert b"org.apache.spark.legacyDateTime" not in told


def test_bounds_go_through_a_rewrite_digit_by_digit() -> None:
    text = (
        '{"numRecords":1,"minValues":{"a '
        '\\"b\\"":12345678901234567.8900000001,"x":1E+2},"tightBounds":true}'
    )
    again = json_text(read_statistics(text))
    assert '"a \\"b\\"":12345678901234567.8900000001' in again
    assert json.loads(again)["minValues"]["x"] == 100


def test_a_value_that_does_not_fit_fails_and_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(pa.ArrowInvalid):
        write_data_files(
            tmp_path,
            [pa.table({"a": [1]}), pa.table({"a": [300]})],
            data_layout({"a": pa.int8()}, properties=MARKS),
        )
    assert list(tmp_path.iterdir()) == []


def test_many_pieces_become_files_of_bounded_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_file, "_ROW_GROUP_ROWS", 100)
    monkeypatch.setattr(data_file, "FILE_BYTES", 4_000)
    rng = np.random.default_rng(1)
    values = rng.integers(0, 1 << 62, 5_000)
    pieces = [pa.table({"a": values[at : at + 70]}) for at in range(0, 5_000, 70)]
    adds = write_data_files(tmp_path, pieces, data_layout({"a": pa.int64()}, properties=MARKS))
    assert len(adds) > 5
    read = pa.concat_tables([pq.read_table(tmp_path / add["path"]) for add in adds])
    assert np.array_equal(read.column("a").to_numpy(), values)
    statistics = [read_statistics(add["stats"]) for add in adds]
    assert sum(found["numRecords"] for found in statistics) == 5_000
    assert min(found["minValues"]["a"] for found in statistics) == values.min()


# -- looks -----------------------------------------------------------------------------------------

Log = Callable[[list[dict[str, Any]]], None]


@pytest.fixture
def log(tmp_path: Path) -> Log:
    numbers = iter(range(100))

    def commit(actions: list[dict[str, Any]]) -> None:
        folder = tmp_path / "_delta_log"
        folder.mkdir(exist_ok=True)
        (folder / f"{next(numbers):020d}.json").write_text("\n".join(map(json.dumps, actions)))

    return commit


def column_of(name: str, delta_type: str) -> dict[str, Any]:
    return {"name": name, "type": delta_type, "nullable": True, "metadata": {}}


def described(
    columns: list[dict[str, Any]],
    *,
    protocol: Any = MappingProxyType({}),
    metadata: Any = MappingProxyType({}),
) -> list[dict[str, Any]]:
    """The actions of a table's first commit."""
    features = ["deletionVectors"]
    return [
        {
            "protocol": {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": features,
                "writerFeatures": features,
                **protocol,
            }
        },
        {
            "metaData": {
                "id": "1",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": columns}),
                "partitionColumns": [],
                "configuration": {},
                **metadata,
            }
        },
    ]


def table_of(path: Path, ids: np.ndarray[Any, np.dtype[np.int64]], *, seq: int) -> dict[str, Any]:
    kinds = {"id": pa.int64(), "name": pa.string(), "_cdc_seq": pa.decimal128(38, 0)}
    piece = pa.table(
        {"id": ids, "name": [f"n{n % 3}" for n in ids], "_cdc_seq": [Decimal(seq)] * len(ids)}
    )
    layout = data_layout(kinds, properties=FEW, bounded=("_cdc_seq",))
    (add,) = write_data_files(path, [piece], layout)
    return add


@pytest.mark.parametrize("key", [("id",), ("name", "id")])
def test_k10_keys_are_found_where_a_scan_finds_them(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch, key: tuple[str, ...]
) -> None:
    monkeypatch.setattr(data_file, "_ROW_GROUP_ROWS", 50)
    rng = np.random.default_rng(7)
    ids = rng.permutation(1_000)
    adds = [table_of(tmp_path, part, seq=at) for at, part in enumerate(np.split(ids, 4))]
    adds.append(table_of(tmp_path, np.arange(5_000, 5_100), seq=5))
    vector = {
        "storageType": "u",
        "pathOrInlineDv": "x",
        "offset": 1,
        "sizeInBytes": 4,
        "cardinality": 1,
    }
    log([{"add": adds[0]}, {"add": adds[1]}])
    log([{"add": add} for add in adds[2:]])
    # A file that is gone, and one that is another since rows of it were marked.
    log([{"remove": {"path": adds[1]["path"]}}, {"add": {**adds[0], "deletionVector": vector}}])
    log([{"remove": {"path": adds[0]["path"]}}])
    wanted = rng.choice(2_000, 300, replace=False)
    keys = pa.table({"id": wanted, "name": [f"n{n % 3}" for n in wanted]}).select(list(key))
    found = rows_with_keys(tmp_path, 3, keys, seq_column="_cdc_seq", lowest_seq=6)
    assert found is not None
    places = {file.name: sorted(numbers.tolist()) for file, numbers in found}
    expected = {
        adds[at]["path"]: np.flatnonzero(np.isin(part, wanted)).tolist()
        for at, part in enumerate(np.split(ids, 4))
        if at != 1
    }
    assert places == expected
    assert [
        file.action.get("deletionVector") for file, _ in found if file.name == adds[0]["path"]
    ] == [vector]
    # What the look must leave to Spark: rows that may be newer, versions that the log cannot tell.
    assert rows_with_keys(tmp_path, 3, keys, seq_column="_cdc_seq", lowest_seq=2) is None
    (tmp_path / "_delta_log" / f"{1:020d}.json").unlink()
    assert rows_with_keys(tmp_path, 3, keys, seq_column="_cdc_seq", lowest_seq=6) is None


def test_a_file_that_lies_elsewhere_or_lacks_the_key_is_left_to_spark(
    tmp_path: Path, log: Log
) -> None:
    add = table_of(tmp_path, np.arange(10), seq=1)
    log([{"add": add}])
    state = table_state(tmp_path, 0)
    assert state is not None
    assert list(state.adds.values()) == [add]
    keys = pa.table({"other": pa.array([1], pa.int64())})
    assert rows_with_keys(tmp_path, 0, keys, seq_column="_cdc_seq", lowest_seq=5) is None
    log([{"add": {**add, "path": "s3://bucket/x.parquet"}}])
    assert (
        rows_with_keys(
            tmp_path,
            1,
            pa.table({"id": pa.array([1], pa.int64())}),
            seq_column="_cdc_seq",
            lowest_seq=5,
        )
        is None
    )


# -- which tables ----------------------------------------------------------------------------------

MAPPED = {"metadata": {"delta.columnMapping.id": 2, "delta.columnMapping.physicalName": "col-2"}}


@pytest.mark.parametrize(
    ("is_plain", "protocol", "metadata", "column"),
    [
        (True, {}, {}, {}),
        (True, {}, {}, {"metadata": {"comment": "of a person"}}),
        (False, {"writerFeatures": ["rowTracking", "deletionVectors"]}, {}, {}),
        (False, {"writerFeatures": ["somethingNew", "deletionVectors"]}, {}, {}),
        (False, {}, {"partitionColumns": ["id"]}, {}),
        (True, {}, {"configuration": {"delta.columnMapping.mode": "name"}}, MAPPED),
        (False, {}, {"configuration": {"delta.columnMapping.mode": "id"}}, MAPPED),
        (False, {}, {"configuration": {"delta.enableInCommitTimestamps": "true"}}, {}),
        (False, {"writerFeatures": ["clustering", "deletionVectors"]}, {}, {}),
        (False, {}, {"configuration": {"delta.constraints.small": "id < 5"}}, {}),
        (False, {}, {"configuration": {"delta.appendOnly": "true"}}, {}),
        (False, {}, {}, {"nullable": False}),
        (False, {}, {}, {"metadata": {"delta.generationExpression": "id + 1"}}),
    ],
)
def test_what_asks_for_more_than_columns_is_left_to_spark(
    tmp_path: Path, log: Log, is_plain: bool, protocol: Any, metadata: Any, column: Any
) -> None:
    columns = [column_of("id", "long"), {**column_of("b", "integer"), **column}]
    log(described(columns, protocol=protocol, metadata=metadata))
    there = read_table_log(tmp_path)
    assert there is not None
    assert (not there.needs_spark) == is_plain
