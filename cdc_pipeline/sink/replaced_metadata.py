"""Metadata of a table whose content a side table replaces, as Delta's log has it in JSON.

Rules:
- Columns, their order, partitions and properties are the side table's; what its owner has said of the target besides
  (comments, description, further properties) stays.
- Ours are the source, the target's name and its new application id.
- A table with column mapping keeps it. Files that were written without it hold columns under their own names: these
  become the physical names, under ids that no column of the table ever had.

Source: Delta's protocol: "Change Metadata", "Column Mapping".
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from typing import Any, Final

from cdc_pipeline.sink.delta_log import APP_ID_PROPERTY, SOURCE_PROPERTY, TABLE_PROPERTY

MAPPING_MODE: Final = "delta.columnMapping.mode"
MAPPING_ID_MAX: Final = "delta.columnMapping.maxColumnId"
_ID: Final = "delta.columnMapping.id"
_PHYSICAL: Final = "delta.columnMapping.physicalName"
_COMMENT: Final = "comment"
# Of the old table's own: told anew.
_NOT_KEPT: Final = ("delta.columnMapping.", "cdc.")


def replaced_metadata(
    side: dict[str, Any], old: dict[str, Any] | None, *, source: str, table: str, app_id: str, extra: Mapping[str, str]
) -> dict[str, Any]:
    """The metadata of a target after the commit.

    Args:
        side: of the side table.
        old: of the target; None where there is none.
        extra: properties that win over both tables'.
    """
    schema = json.loads(side["schemaString"])
    kept = {} if old is None else old.get("configuration", {})
    configuration = {
        **{name: value for name, value in kept.items() if not name.startswith(_NOT_KEPT)},
        **side.get("configuration", {}),
        **extra,
        SOURCE_PROPERTY: source,
        TABLE_PROPERTY: table,
        APP_ID_PROPERTY: app_id,
    }
    made = {**side, "id": str(uuid.uuid4())}
    made.pop("name", None)
    made.pop("description", None)
    if old is not None:
        made |= {name: old[name] for name in ("id", "name", "description", "createdTime") if old.get(name) is not None}
        before = json.loads(old["schemaString"])
        _keep_comments(schema, before)
        ids = [_id_max(kept), _id_max(configuration), *_ids(before), *_ids(schema)]
        if _mode(kept) != "none":
            if _mode(side.get("configuration", {})) == "none":
                highest = _map_columns(schema, max(ids))
                configuration[MAPPING_MODE] = kept[MAPPING_MODE]
            else:
                highest = max(ids)
            configuration[MAPPING_ID_MAX] = str(highest)
    made["schemaString"] = json.dumps(schema)
    made["configuration"] = configuration
    return made


def mapping_mode(metadata: Mapping[str, Any]) -> str:
    """``none``, ``name`` or ``id``."""
    return _mode(metadata.get("configuration", {}))


def _mode(configuration: Mapping[str, str]) -> str:
    return configuration.get(MAPPING_MODE, "none")


def _id_max(configuration: Mapping[str, str]) -> int:
    return int(configuration.get(MAPPING_ID_MAX, "0"))


def _fields(kind: Any) -> Iterator[dict[str, Any]]:
    """Every field of a type, nested ones too, outer ones first."""
    if not isinstance(kind, dict):
        return
    for field in kind.get("fields", ()):
        yield field
        yield from _fields(field["type"])
    for inner in ("elementType", "keyType", "valueType"):
        yield from _fields(kind.get(inner))


def _ids(schema: dict[str, Any]) -> list[int]:
    return [int(field.get("metadata", {}).get(_ID, 0)) for field in _fields(schema)]


def _map_columns(schema: dict[str, Any], highest: int) -> int:
    """Physical names as the files have them, and new ids; the highest of them."""
    for field in _fields(schema):
        highest += 1
        field["metadata"] = {**field.get("metadata", {}), _ID: highest, _PHYSICAL: field["name"]}
    return highest


def _keep_comments(schema: dict[str, Any], before: dict[str, Any]) -> None:
    said = {field["name"].lower(): field.get("metadata", {}).get(_COMMENT) for field in before["fields"]}
    for field in schema["fields"]:
        comment = said.get(field["name"].lower())
        if comment is not None and _COMMENT not in field.get("metadata", {}):
            field["metadata"] = {**field.get("metadata", {}), _COMMENT: comment}
