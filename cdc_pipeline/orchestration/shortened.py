"""Metadata entries for people, shortened until they fit an event (K25).

Rules:
- The largest text, list or mapping is halved until all entries fit: what is small stays whole.
- The entry `shortened` names what is not whole; numbers are never touched.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

import dagster as dg

ENTRIES_BYTES_MAX: Final = 11_000
_NAMED: Final = "shortened"
_MORE: Final = "…"


def shortened(
    metadata: Mapping[str, dg.MetadataValue], *, bytes_max: int = ENTRIES_BYTES_MAX
) -> dict[str, dg.MetadataValue]:
    """The largest entries with their first parts only, in `bytes_max` if that can be."""
    entries = dict(metadata)
    sizes = {name: _size(name, value.value) for name, value in entries.items()}
    cut: set[str] = set()
    while sum(sizes.values()) > bytes_max:
        name = max(sizes, key=sizes.__getitem__)
        value = entries[name]
        half = _halved(value.value)
        if isinstance(value, dg.TextMetadataValue):
            entries[name] = dg.MetadataValue.text(str(half))
        elif isinstance(value, dg.JsonMetadataValue):
            entries[name] = dg.MetadataValue.json(half)
        size = _size(name, entries[name].value)
        if size >= sizes[name]:
            break  # neither text nor JSON, or nothing is left of it
        sizes[name] = size
        cut.add(name)
    if cut:
        entries[_NAMED] = dg.MetadataValue.text(", ".join(sorted(cut)))
    return entries


def _size(name: str, value: object) -> int:
    return len(json.dumps([name, value], default=str))


def _halved(value: Any) -> Any:
    """Of one with one item, half of that; of a record in a list, its largest field halved."""
    if isinstance(value, str):
        return value[: len(value) // 2].removesuffix(_MORE) + _MORE if len(value) > 1 else value
    if isinstance(value, list):
        return value[: len(value) // 2] if len(value) > 1 else [_halved_record(v) for v in value]
    if isinstance(value, dict):
        if len(value) > 1:
            return dict(islice(value.items(), len(value) // 2))
        return {key: _halved_record(v) for key, v in value.items()}
    return value


def _halved_record(value: Any) -> Any:
    if not isinstance(value, dict) or not value:
        return _halved(value)
    largest = max(value, key=lambda name: _size(name, value[name]))
    return value | {largest: _halved(value[largest])}
