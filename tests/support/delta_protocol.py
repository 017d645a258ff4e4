"""Whether the entries of a Delta log are what Delta's protocol allows.

Source: Delta's protocol, "Actions" (each action's fields, which of them are required, and which
file actions one commit may have), "Deletion Vectors" (descriptor), "Per-file Statistics".
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, Final

import jsonschema

_TEXT: Final = {"type": "string"}
_LONG: Final = {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1}
_COUNT: Final = {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}
_FLAG: Final = {"type": "boolean"}
_TEXTS: Final = {"type": "array", "items": _TEXT, "uniqueItems": True}
_MAP: Final = {"type": "object", "additionalProperties": {"type": ["string", "null"]}}


def _struct(required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": required | (optional or {}),
        "required": list(required),
        "additionalProperties": False,
    }


_VECTOR: Final = {
    "oneOf": [
        _struct(
            {
                "storageType": {"enum": kinds},
                "pathOrInlineDv": _TEXT,
                "sizeInBytes": _COUNT,
                "cardinality": {**_COUNT, "minimum": 1},
            },
            optional,
        )
        for kinds, optional in ((["u", "p"], {"offset": _COUNT}), (["i"], {}))
    ]
}
_OF_FILES: Final = {
    "stats": {"type": "string", "contentMediaType": "application/json"},
    "tags": _MAP,
    "deletionVector": _VECTOR,
    "baseRowId": _COUNT,
    "defaultRowCommitVersion": _COUNT,
}
_ACTIONS: Final = {
    "commitInfo": {"type": "object"},
    "txn": _struct({"appId": _TEXT, "version": _LONG}, {"lastUpdated": _COUNT}),
    "add": _struct(
        {
            "path": _TEXT,
            "partitionValues": _MAP,
            "size": _COUNT,
            "modificationTime": _COUNT,
            "dataChange": _FLAG,
        },
        _OF_FILES | {"clusteringProvider": _TEXT},
    ),
    "remove": _struct(
        {"path": _TEXT, "dataChange": _FLAG},
        _OF_FILES
        | {
            "deletionTimestamp": _COUNT,
            "extendedFileMetadata": _FLAG,
            "partitionValues": _MAP,
            "size": _COUNT,
        },
    ),
    "cdc": _struct(
        {"path": _TEXT, "partitionValues": _MAP, "size": _COUNT, "dataChange": {"const": False}},
        {"tags": _MAP},
    ),
    "metaData": _struct(
        {
            "id": {"type": "string", "pattern": "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"},
            "format": _struct({"provider": {"const": "parquet"}, "options": _MAP}),
            "schemaString": _TEXT,
            "partitionColumns": _TEXTS,
            "configuration": _MAP,
        },
        {"name": _TEXT, "description": _TEXT, "createdTime": _COUNT},
    ),
    "protocol": _struct(
        {"minReaderVersion": _COUNT, "minWriterVersion": _COUNT},
        {"readerFeatures": _TEXTS, "writerFeatures": _TEXTS},
    ),
    "domainMetadata": _struct({"domain": _TEXT, "configuration": _TEXT, "removed": _FLAG}),
}
_LINE: Final = jsonschema.Draft202012Validator(
    {
        "type": "object",
        "properties": _ACTIONS,
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 1,
    }
)
_ONCE: Final = ("commitInfo", "metaData", "protocol")


def check_log(table: Path) -> int:
    """The number of commits, each of which is checked. Raises AssertionError."""
    files: dict[str, Any] = {}  # path of each active file -> its vector
    commits = sorted((table / "_delta_log").glob("*.json"))
    for version, file in enumerate(commits):
        assert file.name == f"{version:020d}.json"
        lines = [json.loads(line) for line in file.read_text("utf-8").split("\n") if line]
        for line in lines:
            problems = [f"{error.json_path}: {error.message}" for error in _LINE.iter_errors(line)]
            assert not problems, (file.name, problems)
        kinds = Counter(kind for line in lines for kind in line)
        assert all(kinds[kind] <= 1 for kind in _ONCE), file.name
        assert version or (kinds["metaData"], kinds["protocol"]) == (1, 1)
        for action in _of("remove", lines):
            assert _vector(action) == files.pop(action["path"], "no file"), (file.name, action)
        for action in _of("add", lines):
            # Else a row would be there twice, or be back.
            assert action["path"] not in files, (file.name, action)
            files[action["path"]] = _vector(action)
            _check_statistics(action)
    return len(commits)


def _of(kind: str, lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    actions = [line[kind] for line in lines if kind in line]
    assert len({action["path"] for action in actions}) == len(actions)
    return actions


def _vector(action: dict[str, Any]) -> tuple[Any, ...]:
    vector = action.get("deletionVector") or {}
    return tuple(vector.get(name) for name in ("storageType", "pathOrInlineDv", "offset"))


def _check_statistics(add: dict[str, Any]) -> None:
    statistics = json.loads(add.get("stats") or "{}")
    rows = statistics.get("numRecords")
    vector = add.get("deletionVector")
    if vector is not None:  # the protocol requires the count then
        assert vector["cardinality"] < rows
        assert statistics["tightBounds"] is False
    nulls, lows, highs = (
        _leaves(statistics.get(of, {})) for of in ("nullCount", "minValues", "maxValues")
    )
    assert all(0 <= count <= rows for count in nulls.values())
    assert all(low <= highs[name] for name, low in lows.items() if name in highs), statistics


def _leaves(values: dict[str, Any], *path: str) -> dict[tuple[str, ...], Any]:
    """By path, of structs too."""
    found: dict[tuple[str, ...], Any] = {}
    for name, value in values.items():
        at = (*path, name)
        found |= _leaves(value, *at) if isinstance(value, dict) else {at: value}
    return found
