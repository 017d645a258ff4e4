"""A Delta table at a version, read in plain Python from its log and Parquet files: a second reader
beside Spark, and so cheap that every cut of every table can be compared.

It knows what the product's tables may have: deletion vectors, column mapping by name, widened
types, partition values. Formats: Delta's protocol (actions, deletion vectors), Roaring's portable
serialisation.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import struct
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from decimal import Context, Decimal
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_BITMAP_MAGIC = 1681511377
_NO_RUNS, _RUNS = 12346, 12347


@dataclass(frozen=True)
class DeltaTable:
    """`types`: Delta's own, from the log; `physical`: the columns' names in files; `files`: as the
    log adds them."""

    columns: tuple[str, ...]
    types: dict[str, Any]
    physical: dict[str, str]
    files: tuple[dict[str, Any], ...]
    rows: list[dict[str, Any]]


def read_delta(folder: Path, version: int) -> DeltaTable:
    files: dict[tuple[str, str], dict[str, Any]] = {}
    schema: dict[str, Any] = {}
    partitions: list[str] = []
    for action in _actions(folder / "_delta_log", version):
        if "metaData" in action:
            schema = json.loads(action["metaData"]["schemaString"])
            partitions = action["metaData"]["partitionColumns"]
        if "add" in action:
            files[_identity(action["add"])] = action["add"]
        if "remove" in action:
            files.pop(_identity(action["remove"]), None)
    fields = schema["fields"]
    rows: list[dict[str, Any]] = []
    for file in files.values():
        rows += _rows(folder, file, fields, partitions)
    return DeltaTable(
        columns=tuple(field["name"] for field in fields),
        types={field["name"]: field["type"] for field in fields},
        physical={field["name"]: _physical(field) for field in fields},
        files=tuple(files.values()),
        rows=rows,
    )


def newest_version(folder: Path) -> int:
    return max(
        int(file.stem) for file in (folder / "_delta_log").glob("*.json") if file.stem.isdigit()
    )


def newest_rows(folder: Path, *columns: str) -> list[dict[str, Any]]:
    rows = read_delta(folder, newest_version(folder)).rows
    return [{name: row[name] for name in columns} for row in rows] if columns else rows


Row = dict[str, Any]


def chosen_rows(
    folder: Path, columns: Iterable[str], where: Callable[[Row], bool] = bool
) -> list[tuple[Any, ...]]:
    """Sorted."""
    found = [row for row in newest_rows(folder) if where(row)]
    return sorted((tuple(row[name] for name in columns) for row in found), key=repr)


def lives(row: Row) -> bool:
    """Of a soft_delete."""
    return not row["_cdc_deleted"]


def is_deleted(row: Row) -> bool:
    return not lives(row)


def is_open(row: Row) -> bool:
    """Of a history."""
    return row["__END_AT"] is None


def _actions(log: Path, version: int) -> Iterator[dict[str, Any]]:
    """Up to a version; of a log whose beginning was removed, from its oldest checkpoint on."""
    first = 0
    if not (log / f"{0:020d}.json").exists():
        checkpoints = sorted(log.glob("*.checkpoint.parquet"))
        if checkpoints:
            first = int(checkpoints[0].name.split(".")[0]) + 1
            for row in pq.read_table(checkpoints[0]).to_pylist(maps_as_pydicts="strict"):
                yield {name: action for name, action in row.items() if action is not None}
    for number in range(first, version + 1):
        text = (log / f"{number:020d}.json").read_text(encoding="utf-8")
        for line in filter(None, text.split("\n")):  # JSON holds U+2028 and others as they are
            yield json.loads(line)


def _identity(action: dict[str, Any]) -> tuple[str, str]:
    vector = action.get("deletionVector")
    unique = (
        ""
        if not vector
        else f"{vector['storageType']}{vector['pathOrInlineDv']}@{vector.get('offset', '')}"
    )
    return action["path"], unique


def _physical(field: dict[str, Any]) -> str:
    return str(field.get("metadata", {}).get("delta.columnMapping.physicalName", field["name"]))


def _rows(
    folder: Path, file: dict[str, Any], fields: list[Any], partitions: list[str]
) -> list[dict[str, Any]]:
    table = pq.ParquetFile(folder / unquote(file["path"])).read()
    gone = marked_rows(folder, file)
    columns: dict[str, list[Any]] = {}
    for field in fields:
        name, physical = field["name"], _physical(field)
        if name in partitions or physical in partitions:
            text = file["partitionValues"].get(physical, file["partitionValues"].get(name))
            columns[name] = [_partition_value(text, field["type"])] * table.num_rows
        elif physical in table.column_names:
            columns[name] = _values(table.column(physical), field["type"])
        else:
            columns[name] = [None] * table.num_rows
    kept = [row for row in range(table.num_rows) if row not in gone]
    return [{name: values[row] for name, values in columns.items()} for row in kept]


def _values(column: pa.ChunkedArray, delta_type: Any) -> list[Any]:
    if pa.types.is_timestamp(column.type) and column.type.unit != "us":
        column = column.cast(pa.timestamp("us", tz=column.type.tz))
    values = column.to_pylist()
    return [_logical(value, delta_type) for value in values]


def _logical(value: Any, delta_type: Any) -> Any:
    """As its column's type now has it: nested names, scale of a decimal, a widened date."""
    if value is None:
        return None
    if isinstance(delta_type, dict) and delta_type["type"] == "struct":
        return {
            # not by its own name, which an earlier column may have had in this file
            field["name"]: _logical(value.get(_physical(field)), field["type"])
            for field in delta_type["fields"]
        }
    if isinstance(delta_type, str) and delta_type.startswith("decimal("):
        scale = int(delta_type.rstrip(")").split(",")[1])
        return Decimal(value).quantize(Decimal(1).scaleb(-scale), context=_EXACT)
    if delta_type == "timestamp_ntz" and type(value) is dt.date:
        return dt.datetime.combine(value, dt.time())
    # an instant, whatever the file's own type says
    if delta_type == "timestamp" and value.tzinfo is None:
        return value.replace(tzinfo=dt.UTC)
    if delta_type == "double" and isinstance(value, int):
        return float(value)
    return value


_EXACT = Context(prec=80)


def _partition_value(text: str | None, delta_type: Any) -> Any:
    if text is None:
        return None
    if delta_type in ("byte", "short", "integer", "long"):
        return int(text)
    if delta_type == "date":
        return dt.date.fromisoformat(text)
    if delta_type == "boolean":
        return text == "true"
    return text


# -- deletion vectors ------------------------------------------------------------------------------


def marked_rows(folder: Path, file: dict[str, Any]) -> set[int]:
    """Those that a file's deletion vector marks."""
    return _deleted(folder, file["deletionVector"]) if file.get("deletionVector") else set()


def _deleted(folder: Path, vector: dict[str, Any]) -> set[int]:
    kind, where = vector["storageType"], vector["pathOrInlineDv"]
    if kind == "i":
        data = _from_z85(where)[: vector["sizeInBytes"]]
    else:
        if kind == "u":
            name = f"deletion_vector_{uuid.UUID(bytes=_from_z85(where[-20:]))}.bin"
            path = folder / where[:-20] / name
        else:
            path = Path(unquote(where.removeprefix("file:")))
        raw = path.read_bytes()
        offset = vector.get("offset", 1)
        (size,) = struct.unpack_from(">I", raw, offset)
        data = raw[offset + 4 : offset + 4 + size]
    found = _bitmap_array(data)
    assert len(found) == vector["cardinality"]
    return found


def _from_z85(text: str) -> bytes:
    return base64.b85decode(text.translate(str.maketrans(_Z85, _B85)))


def _bitmap_array(data: bytes) -> set[int]:
    magic, count = struct.unpack_from("<IQ", data, 0)
    assert magic == _BITMAP_MAGIC, magic
    at = 12
    found: set[int] = set()
    for _ in range(count):
        (high,) = struct.unpack_from("<I", data, at)
        low, at = _bitmap(data, at + 4)
        found.update(high << 32 | value for value in low)
    return found


def _bitmap(data: bytes, at: int) -> tuple[list[int], int]:
    (cookie,) = struct.unpack_from("<I", data, at)
    at += 4
    is_run = b""
    if cookie & 0xFFFF == _RUNS:
        count = (cookie >> 16) + 1
        is_run = data[at : at + (count + 7) // 8]
        at += len(is_run)
    else:
        assert cookie == _NO_RUNS, cookie
        (count,) = struct.unpack_from("<I", data, at)
        at += 4
    heads = [struct.unpack_from("<HH", data, at + 4 * number) for number in range(count)]
    at += 4 * count
    if not is_run or count >= 4:
        at += 4 * count
    found: list[int] = []
    for number, (key, less_one) in enumerate(heads):
        base = key << 16
        if is_run and is_run[number // 8] >> (number % 8) & 1:
            (runs,) = struct.unpack_from("<H", data, at)
            for run in range(runs):
                first, length = struct.unpack_from("<HH", data, at + 2 + 4 * run)
                found += range(base + first, base + first + length + 1)
            at += 2 + 4 * runs
        elif less_one < 4096:
            found += [base + low for low in struct.unpack_from(f"<{less_one + 1}H", data, at)]
            at += 2 * (less_one + 1)
        else:
            bits = data[at : at + 8192]
            found += [base + bit for bit in range(65536) if bits[bit // 8] >> (bit % 8) & 1]
            at += 8192
    return found, at
