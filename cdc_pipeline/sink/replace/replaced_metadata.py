"""Build the metadata and the protocol of a table whose content a side table replaces, in the JSON
form of Delta's log.

Rules:
- Columns, their order, partitions, properties and comments are the side table's; what the target's
  owner has added (comments and a description where the source has none, further properties) stays;
  what its source gave before goes.
- Our properties are the source, the target's name and its new application id.
- A table with column mapping keeps it. Files that were written without it hold columns under their
  own names: these become the physical names, under ids that no column of the table ever had.
- The protocol is what both tables need: no feature that old versions were written with goes.

Source: Delta's protocol: "Change Metadata", "Column Mapping", "Protocol Evolution", "Valid Feature
Names in Table Features".
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from typing import Any, Final

from cdc_pipeline.sink.delta.table_log import APP_ID_PROPERTY, SOURCE_PROPERTY, TABLE_PROPERTY

_MAPPING_MODE: Final = "delta.columnMapping.mode"
_MAPPING_ID_MAX: Final = "delta.columnMapping.maxColumnId"
_ID: Final = "delta.columnMapping.id"
_PHYSICAL: Final = "delta.columnMapping.physicalName"
_COMMENT: Final = "comment"
_SET_BY_DELTA: Final = (
    _MAPPING_ID_MAX,
    "delta.inCommitTimestampEnablement",
    "delta.rowTracking.materialized",
)
# Properties of the old table that are set again.
_NOT_KEPT: Final = ("delta.columnMapping.", "cdc.")


def replaced_metadata(
    side: dict[str, Any],
    old: dict[str, Any] | None,
    *,
    source: str,
    table: str,
    app_id: str,
    extra: Mapping[str, str],
    told: Mapping[str, str],
) -> dict[str, Any]:
    """`extra` properties override both tables'; `told`: comments from its source ("": its own)."""
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
    metadata = {**side, "id": str(uuid.uuid4())}
    metadata.pop("name", None)
    if old is not None:
        metadata |= {
            name: old[name]
            for name in ("id", "name", "description", "createdTime")
            if old.get(name) is not None
            and not (name == "description" and (side.get(name) or old[name] == told.get("")))
        }
        before = json.loads(old["schemaString"])
        _keep_comments(schema, dict(comments_of(old).items() - told.items()))
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
    """`are_named`: files use their own names, else they get new ones. Returns the highest id."""
    for field in _fields(schema):
        if _ID not in field.get("metadata", {}):
            highest += 1
            physical = field["name"] if are_named else f"col-{uuid.uuid4()}"
            field["metadata"] = {**field.get("metadata", {}), _ID: highest, _PHYSICAL: physical}
    return highest


def _keep_comments(schema: dict[str, Any], old: Mapping[str, str]) -> None:
    comments = {name.lower(): comment for name, comment in old.items()}
    for field in schema["fields"]:
        comment = comments.get(field["name"].lower())
        if comment is not None and _COMMENT not in field.get("metadata", {}):
            field["metadata"] = {**field.get("metadata", {}), _COMMENT: comment}


def comments_of(metadata: Mapping[str, Any]) -> dict[str, str]:
    fields = json.loads(metadata["schemaString"])["fields"]
    comments = ((field["name"], field.get("metadata", {}).get(_COMMENT)) for field in fields)
    return {name: comment for name, comment in comments if comment is not None}


def properties_for_spark(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Those that a statement may set: Delta itself sets the others."""
    return {
        name: value
        for name, value in metadata["configuration"].items()
        if not name.startswith(_SET_BY_DELTA)
    }


def features_of(protocol: Mapping[str, Any]) -> set[str]:
    """By name: those that follow from old versions of the protocol are known to every commit."""
    return {*protocol.get("readerFeatures", ()), *protocol.get("writerFeatures", ())}


# The features that versions of the protocol without features stand for.
_IMPLIED: Final[Mapping[str, Mapping[int, tuple[str, ...]]]] = {
    "Reader": {2: ("columnMapping",)},
    "Writer": {
        2: ("appendOnly", "invariants"),
        3: ("checkConstraints",),
        4: ("changeDataFeed", "generatedColumns"),
        5: ("columnMapping",),
        6: ("identityColumns",),
    },
}
_WITH_FEATURES: Final = (3, 7)


def merged_protocol(old: dict[str, Any] | None, side: dict[str, Any]) -> dict[str, Any]:
    if old is None or old == side:
        return side
    readers = max(old["minReaderVersion"], side["minReaderVersion"])
    writers = max(old["minWriterVersion"], side["minWriterVersion"])
    if writers < _WITH_FEATURES[1]:
        return {"minReaderVersion": readers, "minWriterVersion": writers}
    sides = ["Writer", "Reader"] if readers == _WITH_FEATURES[0] else ["Writer"]
    features = {
        f"{kind.lower()}Features": sorted(_features(old, kind) | _features(side, kind))
        for kind in sides
    }
    same = all(set(old.get(name, ())) == set(names) for name, names in features.items())
    versions = (old["minReaderVersion"], old["minWriterVersion"])
    if same and versions == (readers, writers):
        return old
    return {"minReaderVersion": readers, "minWriterVersion": writers, **features}


def _features(protocol: Mapping[str, Any], kind: str) -> set[str]:
    """Of a ``Reader`` or a ``Writer``: those that it names, or that its version stands for."""
    if (named := protocol.get(f"{kind.lower()}Features")) is not None:
        return set(named)
    version = protocol[f"min{kind}Version"]
    return {name for at, names in _IMPLIED[kind].items() if at <= version for name in names}
