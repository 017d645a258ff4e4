from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from cdc_pipeline.lake.storage.object_path import is_object
from cdc_pipeline.schema.types import TargetColumn
from cdc_pipeline.sink.delta.data_file import plain_type
from cdc_pipeline.sink.delta.plain_commit import put_commit

_JSON_NAMES: Final = {"tinyint": "byte", "smallint": "short", "int": "integer", "bigint": "long"}
# Delta refuses some other characters in names, or needs column mapping for them.
_NAME: Final = re.compile(r"\w+")
_DEFAULTS: Final = "spark.databricks.delta.properties.defaults."
_NTZ: Final = "timestamp_ntz"


def suits(
    path: Path,
    columns: Sequence[TargetColumn],
    properties: Mapping[str, str],
    *,
    fixed: Mapping[str, str],
) -> bool:
    """Whether `create` may create the table; `fixed` are the configuration's own settings of the
    session.
    """
    return (
        not is_object(path)
        and properties.get("delta.enableDeletionVectors") == "true"
        and not any(name.startswith(_DEFAULTS) for name in fixed)
        and len({column.name.lower() for column in columns}) == len(columns)
        and all(
            _NAME.fullmatch(column.name) and plain_type(column.delta_type) is not None
            for column in columns
        )
    )


def create(
    path: Path, columns: Sequence[TargetColumn], properties: Mapping[str, str], *, note: str
) -> None:
    """The folder is empty or absent; `note` is the commit's user metadata. Raises
    VersionTakenError: another writer has created it; SinkError: the disk refuses the file.
    """
    now_ms = int(time.time() * 1000)
    fields = [
        {
            "name": column.name,
            "type": _JSON_NAMES.get(column.delta_type, column.delta_type),
            "nullable": True,
            "metadata": {},
        }
        for column in columns
    ]
    features = ["deletionVectors"]
    if any(column.delta_type == _NTZ for column in columns):
        features.append("timestampNtz")
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": features,
        "writerFeatures": [*features, "invariants", "appendOnly"],
    }
    schema = {"type": "struct", "fields": fields}
    metadata = {
        "id": str(uuid.uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(schema, ensure_ascii=False, separators=(",", ":")),
        "partitionColumns": [],
        "configuration": dict(properties),
        "createdTime": now_ms,
    }
    info = {
        "timestamp": now_ms,
        "operation": "CREATE TABLE",
        "operationParameters": {
            "partitionBy": "[]",
            "clusterBy": "[]",
            "description": None,
            "isManaged": "false",
            "properties": json.dumps(dict(properties), ensure_ascii=False, separators=(",", ":")),
        },
        "isolationLevel": "Serializable",
        "isBlindAppend": True,
        "operationMetrics": {},
        "userMetadata": note,
    }
    put_commit(path, 0, info, [{"metaData": metadata}, {"protocol": protocol}])
