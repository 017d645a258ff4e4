"""Decide whether a table's data files can be read and written without Delta's own code
(`data_file`, `key_lookup`).

Rules:
- A table is plain only if everything it has is known not to affect data files: writer features by
  name, properties by pattern, and whatever a column's metadata says.
- The files hold its columns under their own names, as plain Parquet values, rows of all partitions
  together.

Source: Delta's protocol, "Table Features", "Column Metadata", "Column Mapping".
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from deltalake import DeltaTable

# These affect only the marks that a commit makes, or what properties and columns say.
_WRITER_FEATURES: Final = frozenset(
    {
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "columnMapping",
        "deletionVectors",
        "generatedColumns",
        "identityColumns",
        "inCommitTimestamp",
        "invariants",
        "timestampNtz",
        "typeWidening",
        "v2Checkpoint",
        "vacuumProtocolCheck",
    }
)
_COLUMN_METADATA: Final = frozenset({"comment", "delta.typeChanges"})
_PROPERTIES: Final = re.compile(
    r"delta\.(columnMapping\.mode|enableRowTracking|enableChangeDataFeed|constraints\..*|"
    r"appendOnly|enableIcebergCompat.*|universalFormat.*|dataSkippingStatsColumns|"
    r"randomizeFilePrefixes|parquet\..*)"
)


def is_plain(table: DeltaTable) -> bool:
    """Return whether only the names and types of its columns decide what the data files of a table
    hold."""
    protocol, metadata = table.protocol(), table.metadata()
    features = set(protocol.writer_features or ()) | set(protocol.reader_features or ())
    switched_on = [
        name
        for name, value in metadata.configuration.items()
        if value not in ("false", "none") and _PROPERTIES.fullmatch(name)
    ]
    return (
        not metadata.partition_columns
        and features <= _WRITER_FEATURES
        and not switched_on
        and all(
            field.nullable and set(field.metadata or {}) <= _COLUMN_METADATA
            for field in table.schema().fields
        )
    )
