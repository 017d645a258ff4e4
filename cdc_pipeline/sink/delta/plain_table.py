"""Decide whether a table's data files can be read and written without Delta's own code
(`data_file`, `key_lookup`), and whether commits can be (`plain_commit`).

Rules:
- A table is plain only if everything it has is known not to affect data files: writer features by
  name, properties by pattern, and whatever a column's metadata says.
- The files hold its columns under their own names, as plain Parquet values, rows of all partitions
  together.
- A commit needs nothing but its files and its transaction id only if every property of Delta that
  the table has is known not to ask for more. Unlike files, commits have no second reader before
  they count: a property that is not in the list means Delta's own code.

Source: Delta's protocol, "Table Features", "Column Metadata", "Column Mapping", "Requirements for
Writers".
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
_PROPERTIES_OF_DELTA: Final = ("delta.", "io.unitycatalog.", "unityCatalog", "ucTableId")
# They affect other files, or other operations, than a commit that adds and marks rows.
_PLAIN_PROPERTIES: Final = frozenset(
    {
        "delta.appendOnly",  # see `_PROPERTIES`
        "delta.checkpointInterval",
        "delta.columnMapping.mode",  # see `_PROPERTIES`
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
_READER_VERSION_MAX: Final = 3
_WRITER_VERSION_MAX: Final = 7


def takes_plain_commits(table: DeltaTable) -> bool:
    """Whether a commit needs only ``txn``, ``add``, ``remove``, and at times a plain checkpoint."""
    protocol = table.protocol()
    return (
        is_plain(table)
        and protocol.min_reader_version <= _READER_VERSION_MAX
        and protocol.min_writer_version <= _WRITER_VERSION_MAX
        and all(
            name in _PLAIN_PROPERTIES or value in ("false", "none")
            for name, value in table.metadata().configuration.items()
            if name.startswith(_PROPERTIES_OF_DELTA)
        )
    )


def is_plain(table: DeltaTable) -> bool:
    """Whether only names and types of its columns decide what a table's data files hold."""
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
