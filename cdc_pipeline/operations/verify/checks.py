"""Checks of a source's tables, one result each, for Dagster's asset checks or a person.

Rules:
- A check changes nothing and captures nothing. It reads the lake and, in some cases, the server's
  statistics. Only `verify` compares rows with the source; its report supplies the count and
  checksum results (`checks_of`).
- Spark never starts.
- `passed` is None if a check cannot decide; the text gives the reason. That is not a pass.
"""

from __future__ import annotations

import time
from contextlib import closing
from itertools import pairwise
from typing import Any, Final

from pydantic import Field

from cdc_pipeline.config.dagster_config import CheckName
from cdc_pipeline.config.modes import MODES
from cdc_pipeline.config.pipeline_config import LiveSourceConfig, PipelineConfig
from cdc_pipeline.errors import CursorError
from cdc_pipeline.frozen_model import FrozenModel
from cdc_pipeline.operations.verify.report import Intervals, TableVerified
from cdc_pipeline.position.cursor import CursorState, CursorStore
from cdc_pipeline.run.report import needed_position
from cdc_pipeline.run.telemetry.measures import age_s
from cdc_pipeline.run.wiring import build_source
from cdc_pipeline.sink.delta_sink import DeltaSink
from cdc_pipeline.sink.read.spilled import Spill
from cdc_pipeline.sink.verify.tables import VersionedTable
from cdc_pipeline.sink.verify.whole_table import duplicate_keys, history_intervals

_LAG_MAX_S: Final = 3600.0
_HEADROOM_MIN_S: Final = 24 * 3600.0
_CURSORS_MAX: Final = 500
_MOVED: Final = frozenset({"cursor_set", "cursor_rebuilt"})  # kinds of notes
_GAPS_NAMED_MAX: Final = 20


class CheckResult(FrozenModel):
    """Result of one check; `table`: "" for the whole source, `passed`: None if undecided."""

    check: CheckName
    table: str = ""
    passed: bool | None
    text: str
    values: dict[str, Any] = Field(default_factory=dict)


def _result(
    check: CheckName, table: str, passed: bool | None, text: str, **values: Any
) -> CheckResult:
    return CheckResult(check=check, table=table, passed=passed, text=text, values=values)


def checks_of(verified: TableVerified) -> list[CheckResult]:
    name = verified.target
    if verified.status == "not_compared":
        reason = f"not compared: {verified.reason}"
        return [_result(check, name, None, reason) for check in ("count", "checksum")]
    lacking = verified.counts.get("missing", 0)
    more = verified.counts.get("extra", 0) + verified.strays
    more += verified.counts.get("duplicate", 0)
    figures: dict[str, int | float | str] = {
        "rows_source": verified.rows_source,
        "rows_lake": verified.rows_lake,
        "unsettled_keys": verified.unsettled,
        "cut": verified.cut,
    }
    settled = True if verified.status != "unsettled" else None
    counted, differing = not (lacking or more), sum(verified.counts.values())
    parts, equal = verified.parts, verified.parts - verified.parts_differing
    count_text = (
        f"{verified.rows_source:,} rows on both sides"
        if counted
        else f"{lacking:,} rows missing in the lake, {more:,} too many"
    )
    sum_text = (
        f"{differing:,} keys differ"
        if differing
        else f"{equal:,} of {parts:,} parts have equal checksums"
    )
    part_figures = {"parts": parts, "parts_differing": verified.parts_differing}
    return [
        _result("count", name, settled if counted else False, count_text, **figures,
                missing=lacking, extra=more),
        _result("checksum", name, False if differing else settled, sum_text, **figures,
                **part_figures),
    ]  # fmt: skip


def check_key_uniqueness(sink: DeltaSink, table: str) -> CheckResult:
    cut = sink.last_cut()
    of = None if cut is None else cut.tables.get(table)
    if of is None or not of.spec.key:
        return _result("key_uniqueness", table, None, "the table has no key")
    whole = VersionedTable(table, sink.paths.table(table), of.table_version)
    duplicates = duplicate_keys(whole, of.spec.mode, of.spec.key, Spill.beside(sink.paths.state))
    text = f"{duplicates:,} keys occur more than once" if duplicates else "each key occurs once"
    return _result("key_uniqueness", table, not duplicates, text, duplicate_keys=duplicates)


def check_intervals(sink: DeltaSink, table: str) -> CheckResult:
    """A gap, where a row was deleted and inserted again, is counted, and is not a fault."""
    cut = sink.last_cut()
    of = None if cut is None else cut.tables.get(table)
    if of is None or not MODES[of.spec.mode].keeps_versions:
        return _result("interval_continuity", table, None, "the table is not a history")
    whole = VersionedTable(table, sink.paths.table(table), of.table_version)
    figures = history_intervals(whole, of.spec.key, Spill.beside(sink.paths.state))
    passed = Intervals(**figures).is_continuous
    text = (
        "{versions:,} versions of {keys:,} keys follow each other"
        if passed
        else "{overlaps:,} versions overlap, {not_ended:,} do not end where the next one begins"
    ).format(**figures)
    return _result("interval_continuity", table, passed, text, **figures)


def check_intervals_join(cursors: CursorStore) -> CheckResult:
    """By the cursors of Dagster's events. A batch that moved no cursor covers an empty interval.
    When a person has moved the cursor, the chain starts again; so it does with another epoch.
    """
    try:
        history = cursors.history(_CURSORS_MAX)
    except CursorError as error:
        return _result("intervals_join", "", None, f"an earlier cursor cannot be read: {error}")
    covered = []  # cursor, begin, end, whether a person has moved it
    for entry in reversed(history):
        begin, dash, end = str(entry.metadata.get("interval", "")).partition(" - ")
        notes = entry.metadata.get("notes", [])
        is_moved = any(note.get("kind") in _MOVED for note in notes if isinstance(note, dict))
        if dash:
            covered.append((entry.cursor, begin, end, is_moved))
    values: dict[str, Any] = {"events": len(covered)}
    if len(covered) < 2:
        text = "fewer than two batches have recorded what they covered"
        return _result("intervals_join", "", None, text, **values)
    gaps = [
        f"batch {before.batch_number} ended at {ended}, "
        f"batch {after.batch_number} begins at {begin}"
        for (before, _, ended, _), (after, begin, _, is_moved) in pairwise(covered)
        if begin != ended and after.epoch == before.epoch and not is_moved
    ]
    values |= {
        "gaps": len(gaps),
        "moved_by_a_person": sum(is_moved for *_, is_moved in covered),
        "named": gaps[:_GAPS_NAMED_MAX],
    }
    text = (
        f"{len(gaps)} of {len(covered)} batches do not begin where the previous one ended"
        if gaps
        else f"{len(covered)} batches join, from {covered[0][1]} to {covered[-1][2]}"
    )
    return _result("intervals_join", "", not gaps, text, **values)


def check_lag(config: PipelineConfig, sink: DeltaSink, cursor: CursorState | None) -> CheckResult:
    """How far the lake is behind the source, without Spark; queries the server. Zero if the
    cursor is at the end of the log, else the age of the last cut's last transaction.
    """
    if cursor is None:
        return _result("lag", "", None, "nothing was captured yet")
    with closing(build_source(config)) as source:
        end = source.end_position()
        same = source.identity.same_server(cursor.identity)
    if not same:
        return _result("lag", "", None, f"another server than the cursor's answers: {config.name}")
    if end.order <= cursor.position.order or (end.gtid_set and end.gtid_set == cursor.gtid_set):
        return _result("lag", "", True, "the cursor is at the end of the log", lag_s=0)
    cut = sink.last_cut()
    if cut is None or cut.source_time_us < 0:
        return _result("lag", "", None, f"the log continues to {end}, but no cut has a time")
    lag_s = (
        age_s(config.source, cut.source_time_us)
        if isinstance(config.source, LiveSourceConfig)
        else max(0.0, time.time() - cut.source_time_us / 1e6)
    )
    text = (
        f"the cursor is at {cursor.position}, and the log ends at {end}: at most "
        f"{lag_s:,.0f} s behind"
    )
    figures = {"lag_s": round(lag_s, 1), "lag_max_s": _LAG_MAX_S}
    return _result("lag", "", lag_s <= _LAG_MAX_S, text, **figures)


def check_retention(config: PipelineConfig, cursor: CursorState | None) -> CheckResult:
    """How soon the source may purge what the pipeline still needs, without Spark."""
    needed = needed_position(cursor)
    if needed is None or not isinstance(config.source, LiveSourceConfig):
        text = "nothing was captured yet" if needed is None else "an archive is purged by its owner"
        return _result("retention", "", None, text)
    from cdc_pipeline.source.live.live import LiveSource  # late: it brings the live reader
    from cdc_pipeline.source.live.retention import RetainedLog

    with closing(build_source(config)) as source:
        assert isinstance(source, LiveSource)
        log = RetainedLog(source)
        left_s = log.left_s(needed.position.journal, enough_s=_HEADROOM_MIN_S)
        keeps = log.keeps
    if left_s is None and keeps.needed_grant:
        text = f"how long the source keeps its log is unknown: {keeps.needed_grant}"
        return _result("retention", "", None, text)
    if left_s is None:
        text = f"{needed.name} needs {needed.position}; the source purges nothing by itself"
        return _result("retention", "", True, text)
    if log.has(needed.position.journal):
        what = f"which the source may purge in {left_s / 3600:,.1f} hours ({keeps.setting})"
    else:
        what = f"but the source begins with {log.journals[0].journal if log.journals else 'none'}"
    text = f"{needed.name} needs {needed.position}, {what}"
    return _result("retention", "", left_s >= _HEADROOM_MIN_S, text, headroom_s=round(left_s))
