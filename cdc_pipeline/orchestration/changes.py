"""The changes of a lake's tables for an asset of one's own, each once.

Rules:
- The cut that an asset has taken changes up to is in the metadata of its newest materialization by
  a run, like a source's cursor: a step that fails moves nothing.
- What a step begins to take is an observation of the asset. A step after one that failed takes the
  same changes, and later ones the next time.
- A cut means something in its source alone, and of the tables that were taken: another source, or a
  table more, is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import dagster as dg

from cdc_pipeline.errors import ConfigError, CutNotFoundError, SinkError
from cdc_pipeline.orchestration.cursor_store import materializations
from cdc_pipeline.sink.read.lake import Lake, open_lake

if TYPE_CHECKING:
    from cdc_pipeline.sink.read.changes import Changes

CHANGES_ENTRY: Final = "cdc_changes"
_WIPE: Final = "wipe the asset's materializations: then every row comes as an insert"


def cdc_changes(
    context: dg.AssetExecutionContext,
    lake: str | Path | Lake,
    tables: str | Sequence[str] | None,
    *,
    net: bool = True,
    source: str | None = None,
    key: dg.AssetKey | None = None,
) -> Changes:
    """Return the changes since the asset's last materialization; at first all rows. `key`: the
    asset's, if the step has several. Raises ConfigError, too: another source, more tables, or
    partitions.
    """
    if context.has_partition_key:
        raise ConfigError(
            "changes follow each other, and an asset with partitions has no order",
            next_step="take them in an asset without partitions",
        )
    key = context.asset_key if key is None else key
    opened, named = open_lake(lake), [tables] if isinstance(tables, str) else tables
    taken = _newest(materializations(context.instance, key))
    from_cut: int | None = taken.get("to_cut")
    asked = {"tables": named and sorted(named), "net": net, "from_cut": from_cut}
    records = context.instance.fetch_observations(key, limit=1).records
    begun = _newest(record.event_log_entry for record in records)
    to_cut = begun["to_cut"] if begun and asked.items() <= begun.items() else None
    try:
        changes = opened.changes(named, from_cut, to_cut, net=net, source=source)
    except SinkError as error:
        if taken:
            error.next_step = f"{error.next_step}; or {_WIPE}"
        if taken or to_cut is None or not isinstance(error, CutNotFoundError):
            raise
        changes = opened.changes(named, None, net=net, source=source)  # that cut was removed
    more = () if named is None else set(named) - set(taken.get("tables") or named)
    if taken and (
        more
        or taken["source"] != changes.source
        or taken["net"] != net
        or (named is None and taken["tables"] is not None)
    ):
        raise ConfigError(
            f"the asset {key.to_user_string()} has taken other changes until now",
            expected=f"source {taken['source']}, tables {taken['tables']}, net={taken['net']}",
            got=f"source {changes.source}, tables {asked['tables']}, net={net}",
            next_step=f"take these in an asset of their own; or {_WIPE}",
        )
    entry = {**asked, "source": changes.source, "to_cut": changes.to_cut}
    metadata = {CHANGES_ENTRY: dg.MetadataValue.json(entry)}
    context.log_event(dg.AssetObservation(key, metadata=metadata))
    context.add_asset_metadata(metadata, asset_key=key)
    return changes


def _newest(entries: Iterable[dg.EventLogEntry]) -> dict[str, Any]:
    """That of the newest event of a run that has one, else {}."""
    for entry in entries:
        event = entry.asset_materialization or entry.asset_observation
        value = None if event is None else event.metadata.get(CHANGES_ENTRY)
        if entry.run_id and isinstance(value, dg.JsonMetadataValue):
            entry_value: Any = value.value
            return dict(entry_value)
    return {}
