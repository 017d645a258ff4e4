"""Cuts and cursors as Dagster metadata.

Rules:
- Entries are ordered by interest to a reader: Dagster keeps that order.
- Dagster plots every number. So what a person would plot is a number in its own entry (rows, bytes,
  seconds); other numbers, such as versions, are texts (`is_plotted`).
- The cursor is stored under `cursor`, and the recorder adds that entry; the other entries of its
  event are for people. Together they do not grow with the number of tables (K25): what does not fit
  is shortened, because the cut has all of it.
- Entries for people are shortened until they fit an event (K25): the largest text, list or mapping
  is halved until all fit, the entry `shortened` names what is not whole; numbers are never touched.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

import dagster as dg
from pydantic import BaseModel, ValidationError

from cdc_pipeline.clock import time_of
from cdc_pipeline.lake.records import Cut, Interval
from cdc_pipeline.lake.suspensions import way_out
from cdc_pipeline.position.cursor import CursorState, Suspension
from cdc_pipeline.position.short_cursor import short_document
from cdc_pipeline.schema.evolution.steps import DdlDecision

Metadata = dict[str, dg.MetadataValue]

CURSOR_ENTRY = "cursor"
_PLOTTED = re.compile(r"(^|_)(rows|bytes|seconds|s|percent)(_|$)")
_TABLES_NAMED_MAX = 20
# Entries of the capture that repeat the cut's own entries in another form.
_SAID_BY_CUT = frozenset({"source_time_us", "published_at_us", "tables", "rows", "ddl"})


def table_event_metadata(cut: Cut, table: str, *, path: Path, row_count: int | None) -> Metadata:
    """Statements with their outcome, and the rows changed."""
    of_table = cut.tables[table]
    metadata: Metadata = {
        **_ddl_metadata(ddl_of(cut, table)),
        "rows_inserted": dg.MetadataValue.int(of_table.rows_inserted),
        "rows_updated": dg.MetadataValue.int(of_table.rows_updated),
        "rows_deleted": dg.MetadataValue.int(of_table.rows_deleted),
        "delta_version": dg.MetadataValue.text(str(of_table.table_version)),
        "batch_number": dg.MetadataValue.text(str(cut.batch_number)),
        "dagster/uri": dg.MetadataValue.url(path.as_uri()),
        "path": dg.MetadataValue.path(str(path)),
        **_source_time(cut),
    }
    if of_table.engine:
        metadata["engine"] = dg.MetadataValue.text(of_table.engine)
    if of_table.rescued:
        metadata["rescued_rows"] = dg.MetadataValue.int(of_table.rescued_rows)
        metadata["rescued"] = dg.MetadataValue.json(of_table.rescued)
    if row_count is not None:
        metadata["dagster/row_count"] = dg.MetadataValue.int(row_count)
    if cut.cursor.targets[table].partial:
        metadata["partial"] = dg.MetadataValue.bool(True)
    return shortened(metadata)


def data_version(table_version: int) -> dict[str, str]:
    """The Delta table's version, which is the same if a run changed nothing."""
    return {"dagster/data_version": str(table_version)}


def ddl_of(cut: Cut, table: str) -> list[DdlDecision]:
    """On statements of the target's source tables, in the cut's batch."""
    sources = set(cut.cursor.targets[table].source_names)
    return [decision for decision in cut.ddl if not sources.isdisjoint(decision.tables)]


def _ddl_metadata(decisions: Sequence[DdlDecision]) -> Metadata:
    if not decisions:
        return {}
    return {
        "ddl": dg.MetadataValue.text(";\n".join(decision.sql for decision in decisions)),
        "ddl_decision": dg.MetadataValue.text(
            ";\n".join(f"{decision.decision}: {decision.reason}" for decision in decisions)
        ),
    }


def cursor_event_metadata(
    cursor: CursorState, *, cut: Cut | None, given: Mapping[str, object]
) -> Metadata:
    """With the batch's counts if its cut is known; `given` never replaces an entry built here."""
    metadata: Metadata = {
        "position": dg.MetadataValue.text(str(cursor.position)),
        "gtid_set": dg.MetadataValue.text(cursor.gtid_set),
    }
    interval = _interval(given.get("interval")) or (cut.interval if cut is not None else None)
    if interval is not None:
        metadata |= _interval_metadata(interval)
    metadata["server"] = dg.MetadataValue.text(str(cursor.identity))
    metadata["batch_number"] = dg.MetadataValue.text(str(cursor.batch_number))
    metadata["open_xa"] = dg.MetadataValue.text(str(len(cursor.open_xa)))
    if cut is not None:
        metadata |= _cut_metadata(cut)
    for name, value in given.items():
        said = (
            name in metadata or name == CURSOR_ENTRY or (cut is not None and name in _SAID_BY_CUT)
        )
        if value is not None and not said:
            metadata[name] = shown(name, value)
    if cut is not None and cut.quarantine:
        metadata["quarantine_rows"] = dg.MetadataValue.int(
            sum(count.rows for count in cut.quarantine.values())
        )
        metadata["quarantine"] = dg.MetadataValue.json(
            _first({table: count.rows for table, count in sorted(cut.quarantine.items())})
        )
    partial = sorted(table for table, target in cursor.targets.items() if target.partial)
    if partial:
        metadata["partial_tables"] = dg.MetadataValue.json(list(_first(dict.fromkeys(partial))))
    if cursor.suspended:
        metadata["suspended_tables"] = dg.MetadataValue.json(
            {
                table: suspended_entry(table, suspension, source=cursor.source)
                for table, suspension in sorted(cursor.suspended.items())
            }
        )
    metadata["delta_versions"] = dg.MetadataValue.json(
        _first({table: state.table_version for table, state in sorted(cursor.targets.items())})
    )
    metadata["tables_total"] = dg.MetadataValue.text(str(len(cursor.targets)))
    return shortened(metadata)


def cursor_entry(cursor: CursorState, *, at_cut: Cut | None) -> Metadata:
    """The entry that the next run reads; what `at_cut`, the batch's cut, has may be left out."""
    document = short_document(cursor, None if at_cut is None else at_cut.cursor)
    return {CURSOR_ENTRY: dg.MetadataValue.json(document)}


def _first(entries: Mapping[str, object]) -> dict[str, object]:
    """By table: an event must not grow with the number of tables."""
    return dict(islice(entries.items(), _TABLES_NAMED_MAX))


def suspended_entry(table: str, held: Suspension, *, source: str) -> dict[str, str]:
    """Cause, position, and how to resolve it, for people."""
    return {
        "cause": held.cause,
        "stands_at": str(held.position),
        "way_out": way_out(table, held, source=source),
    }


def is_plotted(name: str) -> bool:
    return _PLOTTED.search(name) is not None


def shown(name: str, value: object) -> dg.MetadataValue:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and not is_plotted(name):
        return dg.MetadataValue.text(str(value))
    return _plain_value(value)


def _plain_value(value: object) -> dg.MetadataValue:
    if isinstance(value, bool):
        return dg.MetadataValue.bool(value)
    if isinstance(value, int):
        # Dagster refuses integers beyond 64 bits.
        return (
            dg.MetadataValue.int(value)
            if -(2**63) <= value < 2**63
            else dg.MetadataValue.text(str(value))
        )
    if isinstance(value, float):
        return dg.MetadataValue.float(value)
    if isinstance(value, Path):
        return dg.MetadataValue.path(str(value))
    if isinstance(value, BaseModel | Mapping | list | tuple | set | frozenset):
        return dg.MetadataValue.json(json.loads(json.dumps(plain(value))))
    return dg.MetadataValue.text(str(value))


def plain(value: object) -> object:
    """As JSON has it; what JSON does not have becomes its text."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return {str(name): plain(of_name) for name, of_name in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(map(str, value))
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value if value is None or isinstance(value, str | int | float) else str(value)


def _interval(value: object) -> Interval | None:
    try:
        return Interval.model_validate(value)
    except ValidationError:
        return None


def _interval_metadata(interval: Interval) -> Metadata:
    counts = interval.model_dump(exclude={"start", "end"})
    return {"interval": dg.MetadataValue.text(f"{interval.start} - {interval.end}")} | {
        name: shown(name, count) for name, count in counts.items()
    }


def _cut_metadata(cut: Cut) -> Metadata:
    changed = [table for name, table in cut.tables.items() if changed_by(cut, name)]
    metadata: Metadata = {
        "cut": dg.MetadataValue.text(str(cut.batch_number)),
        "rows_inserted": dg.MetadataValue.int(sum(table.rows_inserted for table in changed)),
        "rows_updated": dg.MetadataValue.int(sum(table.rows_updated for table in changed)),
        "rows_deleted": dg.MetadataValue.int(sum(table.rows_deleted for table in changed)),
        "tables_changed": dg.MetadataValue.text(str(len(changed))),
        **_source_time(cut),
    }
    if cut.source_time_us >= 0:
        lag_us = max(0, cut.published_at_us - cut.source_time_us)
        metadata["lag_seconds"] = dg.MetadataValue.float(round(lag_us / 1e6, 3))
    if cut.ddl:
        metadata["ddl"] = dg.MetadataValue.json(
            [decision.model_dump(mode="json") for decision in cut.ddl]
        )
    return metadata


def changed_by(cut: Cut, table: str) -> bool:
    """Whether the cut's own batch changed `table`."""
    target = cut.cursor.targets.get(table)
    return target is not None and target.applied_batch == cut.batch_number


def _source_time(cut: Cut) -> Metadata:
    if cut.source_time_us < 0:
        return {}
    at = time_of(cut.source_time_us)
    return {"source_time": dg.MetadataValue.timestamp(at)}


ENTRIES_BYTES_MAX: Final = 11_000
_NAMED: Final = "shortened"
_MORE: Final = "…"


def shortened(metadata: Mapping[str, dg.MetadataValue]) -> dict[str, dg.MetadataValue]:
    """The largest entries with their first parts only, in ENTRIES_BYTES_MAX if that can be."""
    entries = dict(metadata)
    sizes = {name: _size(name, value.value) for name, value in entries.items()}
    cut: set[str] = set()
    while sum(sizes.values()) > ENTRIES_BYTES_MAX:
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
