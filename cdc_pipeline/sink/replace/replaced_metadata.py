"""Build the metadata of a table whose content a side table replaces, in the JSON form of Delta's
log.

Rules:
- Columns, their order, partitions and properties are the side table's; what the target's owner has
  added (comments, description, further properties) stays.
- Our properties are the source, the target's name and its new application id.
- A table with column mapping keeps it. Files that were written without it hold columns under their
  own names: these become the physical names, under ids that no column of the table ever had.
- Rows that Spark writes may also have columns of the old table.

Source: Delta's protocol: "Change Metadata", "Column Mapping".
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from typing import Any, Final

from cdc_pipeline.sink.delta.log import APP_ID_PROPERTY, SOURCE_PROPERTY, TABLE_PROPERTY

_MAPPING_MODE: Final = "delta.columnMapping.mode"
_MAPPING_ID_MAX: Final = "delta.columnMapping.maxColumnId"
_ID: Final = "delta.columnMapping.id"
_PHYSICAL: Final = "delta.columnMapping.physicalName"
_COMMENT: Final = "comment"
# Properties of the old table that are set again.
_NOT_KEPT: Final = ("delta.columnMapping.", "cdc.")


def replaced_metadata(
    side: dict[str, Any],
    old: dict[str, Any] | None,
    *,
    rows: dict[str, Any] | None,
    source: str,
    table: str,
    app_id: str,
    extra: Mapping[str, str],
) -> dict[str, Any]:
    """The metadata of a target after the commit. `rows` is the schema of rows that Spark writes,
    None if files are adopted; the properties `extra` override those of both tables.
    """
    schema = json.loads(side["schemaString"])
    if rows is not None:
        schema = _written(schema, rows)
    kept = {} if old is None else old.get("configuration", {})
    configuration = {
        **{name: value for name, value in kept.items() if not name.startswith(_NOT_KEPT)},
        **side.get("configuration", {}),
        **extra,
        SOURCE_PROPERTY: source,
        TABLE_PROPERTY: table,
        APP_ID_PROPERTY: app_id,
    }
    metadata = {**side, "id": str(uuid.uuid4())}
    metadata.pop("name", None)
    metadata.pop("description", None)
    if old is not None:
        metadata |= {
            name: old[name]
            for name in ("id", "name", "description", "createdTime")
            if old.get(name) is not None
        }
        before = json.loads(old["schemaString"])
        _keep_comments(schema, before)
        mapped = _mode(side.get("configuration", {})) != "none"
        if mapped or _mode(kept) != "none":
            ids = [_id_max(kept), _id_max(configuration), *_ids(before), *_ids(schema)]
            configuration[_MAPPING_MODE] = (configuration if mapped else kept)[_MAPPING_MODE]
            configuration[_MAPPING_ID_MAX] = str(
                _map_columns(schema, max(ids), are_named=not mapped)
            )
    metadata["schemaString"] = json.dumps(schema)
    metadata["configuration"] = configuration
    return metadata


def mapping_mode(metadata: Mapping[str, Any]) -> str:
    return _mode(metadata.get("configuration", {}))


def _mode(configuration: Mapping[str, str]) -> str:
    return configuration.get(_MAPPING_MODE, "none")


def _id_max(configuration: Mapping[str, str]) -> int:
    return int(configuration.get(_MAPPING_ID_MAX, "0"))


def _fields(kind: Any) -> Iterator[dict[str, Any]]:
    """Nested ones too, outer ones first."""
    if not isinstance(kind, dict):
        return
    for field in kind.get("fields", ()):
        yield field
        yield from _fields(field["type"])
    for inner in ("elementType", "keyType", "valueType"):
        yield from _fields(kind.get(inner))


def _ids(schema: dict[str, Any]) -> list[int]:
    return [int(field.get("metadata", {}).get(_ID, 0)) for field in _fields(schema)]


def _map_columns(schema: dict[str, Any], highest: int, *, are_named: bool) -> int:
    """Give ids and physical names to columns that lack them: their own names if files use those
    (`are_named`), else new ones. Return the highest id.
    """
    for field in _fields(schema):
        if _ID not in field.get("metadata", {}):
            highest += 1
            physical = field["name"] if are_named else f"col-{uuid.uuid4()}"
            field["metadata"] = {**field.get("metadata", {}), _ID: highest, _PHYSICAL: physical}
    return highest


def _written(side: dict[str, Any], rows: dict[str, Any]) -> dict[str, Any]:
    """The columns of `rows`, with the side table's definition of those that it has."""
    known = {field["name"]: field for field in side["fields"]}

    def field_of(row: dict[str, Any]) -> dict[str, Any]:
        there = known.get(row["name"])
        plain = {**row, "nullable": True, "metadata": {}}
        return (
            there if there is not None and _plain(there["type"]) == _plain(row["type"]) else plain
        )

    return {**side, "fields": [field_of(row) for row in rows["fields"]]}


def _plain(kind: Any) -> Any:
    """A type without the metadata of its fields."""
    if not isinstance(kind, dict):
        return kind
    inner = {
        name: _plain(kind[name]) for name in ("elementType", "keyType", "valueType") if name in kind
    }
    fields = [(field["name"], _plain(field["type"])) for field in kind.get("fields", ())]
    return {"type": kind["type"], **inner, "fields": fields}


def _keep_comments(schema: dict[str, Any], before: dict[str, Any]) -> None:
    said = {
        field["name"].lower(): field.get("metadata", {}).get(_COMMENT) for field in before["fields"]
    }
    for field in schema["fields"]:
        comment = said.get(field["name"].lower())
        if comment is not None and _COMMENT not in field.get("metadata", {}):
            field["metadata"] = {**field.get("metadata", {}), _COMMENT: comment}
