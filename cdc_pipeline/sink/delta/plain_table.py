"""Decide whether a table can be written without Delta's own code: what a commit of ours knows.

Rules:
- A commit has no second reader before it counts: a feature, a property or a version of the protocol
  that is not in the lists here means Spark.
- Rows can be written as plain Parquet files only if names and types of the columns decide what such
  a file holds: no partitions, no constraints, nothing in a column's metadata that computes values.
- With column mapping by name, files and statistics hold the columns under their physical names and
  carry the columns' ids.

Source: Delta's protocol, "Table Features", "Column Metadata", "Column Mapping", "Requirements for
Writers".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

_FEATURES: Final = frozenset(
    {
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "clustering",
        "columnMapping",
        "deletionVectors",
        "domainMetadata",
        "generatedColumns",
        "identityColumns",
        "inCommitTimestamp",
        "invariants",
        "timestampNtz",
        "typeWidening",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        "variantType",
    }
)
# Files need statistics of the clustering columns.
_FEATURES_OF_SPARKS_FILES: Final = frozenset({"clustering"})
# Spark reads and writes these rows; what the log says is the same.
_FEATURES_OF_ROWS: Final = frozenset({"variantShredding"})
_MAPPING: Final = "delta.columnMapping.mode"
_PHYSICAL: Final = "delta.columnMapping.physicalName"
_ID: Final = "delta.columnMapping.id"
_COLUMN_METADATA: Final = frozenset({"comment", "delta.typeChanges", _PHYSICAL, _ID})
_PROPERTIES_OF_DELTA: Final = ("delta.", "io.unitycatalog.", "unityCatalog", "ucTableId")
# They affect other files, or other operations, than a commit that adds and marks rows.
_PROPERTIES: Final = frozenset(
    {
        "delta.checkpointInterval",
        "delta.columnMapping.maxColumnId",
        "delta.dataSkippingNumIndexedCols",
        "delta.deletedFileRetentionDuration",
        "delta.enableDeletionVectors",
        "delta.enableExpiredLogCleanup",
        "delta.enableTypeWidening",
        "delta.logRetentionDuration",
        "delta.targetFileSize",
        "delta.tuneFileSizesForRewrites",
    }
)
_VALUES: Final = frozenset({(_MAPPING, "name")})
# "false" is no way to switch these off: it is an expression, or the unusual value.
_NOT_OFF: Final = ("delta.constraints.", "delta.checkpoint.")
_READER_VERSION_MAX: Final = 3
_WRITER_VERSION_MAX: Final = 7


class MappedColumn(NamedTuple):
    """How data files hold a column of a table with column mapping."""

    name: str
    id: int


def unknown_to_readers(protocol: Mapping[str, Any]) -> str:
    """A feature or version under which a log may mean something else; "" if all are known."""
    if protocol["minReaderVersion"] > _READER_VERSION_MAX:
        return f"the reader version {protocol['minReaderVersion']}"
    features = (name.removesuffix("-preview") for name in protocol.get("readerFeatures") or ())
    unknown = sorted(set(features) - _FEATURES - _FEATURES_OF_ROWS)
    return f"the reader feature {', '.join(unknown)}" if unknown else ""


def commit_refusal(
    features: Iterable[str], properties: Mapping[str, str], *, versions: tuple[int, int]
) -> str:
    """Why Spark must make a table's commits, or ""; `versions`: for readers and writers."""
    if versions[0] > _READER_VERSION_MAX or versions[1] > _WRITER_VERSION_MAX:
        return f"the table's protocol is {versions[0]}, {versions[1]}"
    refused = sorted(set(features) - _FEATURES)
    if refused:
        return f"the table has the feature {', '.join(refused)}"
    refused = sorted(
        f"{name}={value}"
        for name, value in properties.items()
        if name.startswith(_PROPERTIES_OF_DELTA)
        and name not in _PROPERTIES
        and (name, value) not in _VALUES
        and (value not in ("false", "none") or name.startswith(_NOT_OFF))
    )
    return f"the table has the property {', '.join(refused)}" if refused else ""


def rows_refusal(
    metadata: Mapping[str, Any], protocol: Mapping[str, Any], fields: Sequence[Mapping[str, Any]]
) -> str:
    """Why Spark must write a table's rows and commit them, or ""; `fields` of the schema."""
    features = {*(protocol.get("writerFeatures") or ()), *(protocol.get("readerFeatures") or ())}
    refusal = commit_refusal(
        features,
        metadata.get("configuration") or {},
        versions=(protocol["minReaderVersion"], protocol["minWriterVersion"]),
    )
    if refusal:
        return refusal
    if metadata.get("partitionColumns"):
        return "the table has partitions"
    if features & _FEATURES_OF_SPARKS_FILES:
        return "the table is clustered"
    for field in fields:
        if not field["nullable"]:
            return f"column {field['name']} is NOT NULL"
        refused = sorted(set(field.get("metadata") or {}) - _COLUMN_METADATA)
        if refused:
            return f"column {field['name']} has {', '.join(refused)}"
    return ""


def mapped_columns(
    properties: Mapping[str, str], fields: Sequence[Mapping[str, Any]]
) -> dict[str, MappedColumn]:
    """Of a table with column mapping by name; none of another."""
    if properties.get(_MAPPING) != "name":
        return {}
    return {
        field["name"]: MappedColumn(str(field["metadata"][_PHYSICAL]), int(field["metadata"][_ID]))
        for field in fields
        if _PHYSICAL in (field.get("metadata") or {})
    }
