"""The changes of a lake's tables for an asset of one's own, each once.

Rules:
- The cut that an asset has taken changes up to is in the metadata of a materialization by a run,
  like a source's cursor: a step that fails moves nothing. Of several the furthest cut counts, since
  a run that began earlier may end later.
- What a step begins to take is an observation of the asset. A step after one that failed takes the
  same changes, and later ones the next time; where it took none, it goes on to the newest cut.
- While another run has begun to take changes, and has neither taken them nor ended, none begins. Of
  runs that begin at one moment the first in the storage's order goes on: each looks again at what
  was begun before it, and one that finds another run there withdraws, by another observation. That
  relies on the storage to show events in the order of their ids: once one is seen, none with a
  lower id appears. SQLite's lock grants it. PostgreSQL and MySQL number an event before they commit
  it, so that two runs may both go on, with the same changes, if one's commit outlasts the other's
  INSERT and look; what has been taken is told by the furthest cut all the same.
- A cut means something in its source alone, and of the tables that were taken: another source, or a
  table more, is refused. So is a cut with the number alone of the one that was taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import dagster as dg

from cdc_pipeline.errors import (
    ConfigError,
    CutNotFoundError,
    LockError,
    SinkError,
    TableNotInCutError,
)
from cdc_pipeline.orchestration.cursor_store import materializations
from cdc_pipeline.sink.read.cuts import AsOf
from cdc_pipeline.sink.read.lake import Lake, open_lake

if TYPE_CHECKING:
    from cdc_pipeline.sink.read.changes import Changes

CHANGES_ENTRY: Final = "cdc_changes"
_WIPE: Final = "wipe the asset's materializations: then every row comes as an insert"
_PAGE_EVENTS: Final = 50
_PAGES_MAX: Final = 20

_Entry = dict[str, Any]
_WITHDRAWN: Final[_Entry] = {"withdrawn": True}


def cdc_changes(
    context: dg.AssetExecutionContext,
    lake: str | Path | Lake,
    tables: str | Sequence[str] | None,
    *,
    net: bool = True,
    source: str | None = None,
    key: dg.AssetKey | None = None,
    from_cut: AsOf = None,
) -> Changes:
    """Return the changes since the asset's last materialization; at first all rows, or those after
    `from_cut`. `key`: the asset's, if the step has several. Raises ConfigError, too: another
    source, more tables, or partitions; LockError: another run is taking changes.
    """
    if context.has_partition_key or context.has_partition_key_range:
        raise ConfigError(
            "changes follow each other, and an asset with partitions has no order",
            next_step="take them in an asset without partitions",
        )
    key = context.asset_key if key is None else key
    named = [tables] if isinstance(tables, str) else tables
    # In this order: what was begun is either still under way, or among what was taken.
    run_id, begun = last = _last_begun(context, key)
    is_under_way = _is_under_way(context, run_id)
    ended = list(islice(_entries(materializations(context.instance, key)), _PAGE_EVENTS))
    if is_under_way and run_id not in {of_run for of_run, _ in ended}:
        raise _taken_by_another(key, run_id)
    taken: _Entry = max((entry for _, entry in ended), key=lambda it: it["to_cut"], default={})
    opened, begin = open_lake(lake), taken.get("bookmark", from_cut)
    asked = {"tables": named and sorted(named), "net": net, "begin": begin and str(begin)}
    is_begun = asked.items() <= begun.items() and begun["from_cut"] != begun["to_cut"]
    try:
        try:
            to_cut = begun["bookmark"] if is_begun else None
            changes = opened.changes(named, begin, to_cut, net=net, source=source)
        except (CutNotFoundError, TableNotInCutError) as error:
            if not is_begun:
                raise
            context.log.warning(
                f"the changes go on to the newest cut, not to cut {begun['to_cut']} as those that "
                f"a run before began to take: {error}"
            )
            changes = opened.changes(named, begin, net=net, source=source)
    except SinkError as error:
        if taken:
            error.next_step = f"{error.next_step}; or {_WIPE}"
        raise
    entry = {
        **asked,
        "source": changes.source,
        "from_cut": changes.from_cut,
        "to_cut": changes.to_cut,
        "bookmark": changes.bookmark,
    }
    if taken:
        _check_same(key, taken, entry)
    metadata = {CHANGES_ENTRY: dg.MetadataValue.json(entry)}
    context.log_event(dg.AssetObservation(key, metadata=metadata))
    before = _last_begun(context, key, before=context.run.run_id)
    if before != last:
        withdrawn = {CHANGES_ENTRY: dg.MetadataValue.json(_WITHDRAWN)}
        context.log_event(dg.AssetObservation(key, metadata=withdrawn))
        raise _taken_by_another(key, before[0])
    context.add_asset_metadata(metadata, asset_key=key)
    return changes


def run_of_bookmark(instance: dg.DagsterInstance, key: dg.AssetKey) -> str:
    """The run whose materialization an asset's next changes follow; "" if it takes none."""
    if not any(True for _ in _entries(_observations(instance, key))):
        return ""
    ended = islice(_entries(materializations(instance, key)), _PAGE_EVENTS)
    return max(ended, key=lambda it: it[1]["to_cut"], default=("", {}))[0]


def _last_begun(
    context: dg.AssetExecutionContext, key: dg.AssetKey, *, before: str = ""
) -> tuple[str, _Entry]:
    """The last run that has begun to take changes, and what; ("", {}): none. `before`: below what
    this run has begun last."""
    withdrawn: set[str] = set()
    for run_id, entry in _entries(_observations(context.instance, key)):
        if entry == _WITHDRAWN:
            withdrawn.add(run_id)
        elif run_id in withdrawn:
            withdrawn.remove(run_id)  # this is what it has withdrawn
        elif before:
            before = "" if run_id == before else before
        else:
            return run_id, entry
    return "", {}


def _is_under_way(context: dg.AssetExecutionContext, run_id: str) -> bool:
    run = context.instance.get_run_by_id(run_id) if run_id else None
    return run is not None and not run.is_finished and run_id != context.run.run_id


def _taken_by_another(key: dg.AssetKey, run_id: str) -> LockError:
    return LockError(
        f"another run is taking the changes of the asset {key.to_user_string()}",
        got=f"run {run_id}",
        next_step="wait until it has ended; if its process died, terminate it in Dagster",
    )


def _check_same(key: dg.AssetKey, taken: _Entry, entry: _Entry) -> None:
    before, now = taken["tables"], entry["tables"]
    has_more = before is not None and (now is None or not set(now) <= set(before))
    if has_more or taken["source"] != entry["source"] or taken["net"] != entry["net"]:
        raise ConfigError(
            f"the asset {key.to_user_string()} has taken other changes until now",
            expected=f"source {taken['source']}, tables {taken['tables']}, net={taken['net']}",
            got=f"source {entry['source']}, tables {entry['tables']}, net={entry['net']}",
            next_step=f"take these in an asset of their own; or {_WIPE}",
        )


def _observations(instance: dg.DagsterInstance, key: dg.AssetKey) -> Iterator[dg.EventLogEntry]:
    """The newest first, of any kind: an asset may have others."""
    page_cursor: str | None = None
    for _ in range(_PAGES_MAX):
        page = instance.fetch_observations(key, limit=_PAGE_EVENTS, cursor=page_cursor)
        yield from (record.event_log_entry for record in page.records)
        if not page.has_more:
            return
        page_cursor = page.cursor


def _entries(events: Iterable[dg.EventLogEntry]) -> Iterator[tuple[str, _Entry]]:
    """Of those that a run logged, with the run's id."""
    for logged in events:
        event = logged.asset_materialization or logged.asset_observation
        value = None if event is None else event.metadata.get(CHANGES_ENTRY)
        if logged.run_id and isinstance(value, dg.JsonMetadataValue):
            entry: Any = value.value
            yield logged.run_id, dict(entry)
