"""Checks of a source's tables, one result each, for Dagster's asset checks or a person.

Rules:
- A check changes nothing and captures nothing. It reads the lake and, in some cases, the server's
  statistics. Only `verify` compares rows with the source; its report supplies the count and
  checksum results (`checks_of`).
- Checks that need no Spark say so, and never start it by accident.
- `passed` is None if a check cannot decide; the text gives the reason. That is not a pass.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from typing import Final, Literal

from pydantic import Field

from cdc_pipeline.config.modes import MODES
from cdc_pipeline.config.pipeline_config import LiveSourceConfig, PipelineConfig
from cdc_pipeline.errors import TableNotInCutError
from cdc_pipeline.frozen_model import FrozenModel
from cdc_pipeline.operations.verify.report import Intervals, TableVerified
from cdc_pipeline.position.cursor import CursorState
from cdc_pipeline.run.report import needed_position
from cdc_pipeline.run.telemetry.measures import age_s
from cdc_pipeline.run.wiring import build_source
from cdc_pipeline.sink.delta.row_count import row_count
from cdc_pipeline.sink.delta_sink import DeltaSink
from cdc_pipeline.sink.read.cuts import check_readable
from cdc_pipeline.sink.verify.compare import duplicate_keys, history_intervals

CheckName = Literal[
    "count", "checksum", "key_uniqueness", "interval_continuity", "lag", "retention", "readable"
]

_LAG_MAX_S: Final = 3600.0


class CheckResult(FrozenModel):
    """Result of one check; `table`: "" for the whole source, `passed`: None if undecided."""

    check: CheckName
    table: str = ""
    passed: bool | None
    text: str
    values: dict[str, int | float | str] = Field(default_factory=dict)


class IntervalResult(CheckResult):
    """Of a history; `found` describes its versions."""

    found: Intervals


def checks_of(verified: TableVerified) -> list[CheckResult]:
    """Of a verified table, without querying anything."""
    name = verified.target
    if verified.status == "not_compared":
        reason = f"not compared: {verified.reason}"
        return [
            CheckResult(check=check, table=name, passed=None, text=reason)
            for check in ("count", "checksum")
        ]
    lacking = verified.counts.get("missing", 0)
    more = verified.counts.get("extra", 0) + verified.strays
    more += verified.counts.get("duplicate", 0)
    figures: dict[str, int | float | str] = {
        "rows_source": verified.rows_source,
        "rows_lake": verified.rows_lake,
        "unsettled_keys": verified.unsettled,
        "cut": verified.cut,
    }
    settled = verified.status != "unsettled"
    same_count = not (lacking or more)
    differing = sum(verified.counts.values())
    return [
        CheckResult(
            check="count",
            table=name,
            passed=False if not same_count else True if settled else None,
            text=f"{lacking:,} rows missing in the lake, {more:,} too many"
            if not same_count
            else f"{verified.rows_source:,} rows on both sides",
            values=figures | {"missing": lacking, "extra": more},
        ),
        CheckResult(
            check="checksum",
            table=name,
            passed=False if differing else True if settled else None,
            text=f"{differing:,} keys differ"
            if differing
            else (
                f"{verified.parts - verified.parts_differing:,} of {verified.parts:,} parts "
                "have equal checksums"
            ),
            values=figures | {"parts": verified.parts, "parts_differing": verified.parts_differing},
        ),
    ]


def check_key_uniqueness(sink: DeltaSink, table: str, *, version: int | None = None) -> CheckResult:
    """Each key occurs once among a target's live rows. Starts Spark."""
    cut = sink.last_cut()
    of = None if cut is None else cut.tables.get(table)
    if cut is None or of is None or not of.spec.key:
        return CheckResult(
            check="key_uniqueness", table=table, passed=None, text="the table has no key"
        )
    at = of.table_version if version is None else version
    duplicates = duplicate_keys(
        sink.spark.session(), sink.paths.table(table), at, mode=of.spec.mode, key=of.spec.key
    )
    text = f"{duplicates:,} keys occur more than once" if duplicates else "each key occurs once"
    return CheckResult(
        check="key_uniqueness",
        table=table,
        passed=not duplicates,
        text=text,
        values={"duplicate_keys": duplicates},
    )


def check_intervals(sink: DeltaSink, table: str, *, version: int | None = None) -> IntervalResult:
    """The versions of each key in a history do not overlap and only the last is current.

    A gap means that a row was deleted and inserted again: it is counted, and is not a fault.
    Starts Spark.
    """
    cut = sink.last_cut()
    of = None if cut is None else cut.tables.get(table)
    if cut is None or of is None or not MODES[of.spec.mode].keeps_versions:
        nothing = Intervals(versions=0, keys=0, overlaps=0, not_ended=0, gaps=0)
        return IntervalResult(
            check="interval_continuity",
            table=table,
            passed=None,
            text="the table is not a history",
            found=nothing,
        )
    at = of.table_version if version is None else version
    figures = history_intervals(sink.spark.session(), sink.paths.table(table), at, key=of.spec.key)
    intervals = Intervals(**figures)
    text = f"{intervals.versions:,} versions of {intervals.keys:,} keys follow each other"
    if not intervals.is_continuous:
        text = (
            f"{intervals.overlaps:,} versions overlap, {intervals.not_ended:,} do not end where "
            "the next one begins"
        )
    return IntervalResult(
        check="interval_continuity",
        table=table,
        passed=intervals.is_continuous,
        text=text,
        values=dict(figures),
        found=intervals,
    )


def check_row_counts(sink: DeltaSink) -> list[CheckResult]:
    """From Delta's log, without Spark; to be compared with the source's own, and never failing."""
    cut = sink.last_cut()
    found = []
    for name, table in sorted(cut.tables.items()) if cut is not None else ():
        rows = row_count(sink.paths.table(name), version=table.table_version)
        text = (
            "the log does not show the number of rows"
            if rows is None
            else f"{rows:,} rows in the lake"
        )
        values: dict[str, int | float | str] = {} if rows is None else {"rows_lake": rows}
        found.append(CheckResult(check="count", table=name, passed=None, text=text, values=values))
    return found


def check_lag(
    config: PipelineConfig,
    sink: DeltaSink,
    cursor: CursorState | None,
    *,
    lag_max_s: float = _LAG_MAX_S,
) -> CheckResult:
    """How far the lake is behind the source, without Spark; queries the server.

    The lag is zero if the cursor is at the end of the log, else the age of the last cut's last
    transaction.
    """
    if cursor is None:
        return CheckResult(check="lag", passed=None, text="nothing was captured yet")
    with closing(build_source(config)) as source:
        end = source.end_position()
        same = source.identity.same_server(cursor.identity)
    if not same:
        return CheckResult(
            check="lag",
            passed=None,
            text=f"another server than the cursor's answers: {config.name}",
        )
    if end.order <= cursor.position.order or (end.gtid_set and end.gtid_set == cursor.gtid_set):
        return CheckResult(
            check="lag",
            passed=True,
            text="the cursor is at the end of the log",
            values={"lag_s": 0},
        )
    cut = sink.last_cut()
    if cut is None or cut.source_time_us < 0:
        return CheckResult(
            check="lag", passed=None, text=f"the log continues to {end}, but no cut has a time"
        )
    lag_s = (
        age_s(config.source, cut.source_time_us)
        if isinstance(config.source, LiveSourceConfig)
        else max(0.0, time.time() - cut.source_time_us / 1e6)
    )
    text = (
        f"the cursor is at {cursor.position}, and the log ends at {end}: at most "
        f"{lag_s:,.0f} s behind"
    )
    return CheckResult(
        check="lag",
        passed=lag_s <= lag_max_s,
        text=text,
        values={"lag_s": round(lag_s, 1), "lag_max_s": lag_max_s},
    )


def check_retention(
    config: PipelineConfig, cursor: CursorState | None, *, headroom_min_s: float = 24 * 3600.0
) -> CheckResult:
    """How soon the source may purge what the pipeline still needs, without Spark."""
    needed = needed_position(cursor)
    if needed is None or not isinstance(config.source, LiveSourceConfig):
        text = "nothing was captured yet" if needed is None else "an archive is purged by its owner"
        return CheckResult(check="retention", passed=None, text=text)
    from cdc_pipeline.source.live.live import LiveSource  # late: it brings the live reader
    from cdc_pipeline.source.live.retention import RetainedLog

    with closing(build_source(config)) as source:
        assert isinstance(source, LiveSource)
        log = RetainedLog(source)
        left_s = log.left_s(needed.position.journal)
    if left_s is None:
        text = f"{needed.name} needs {needed.position}; the source purges nothing by itself"
        return CheckResult(check="retention", passed=True, text=text)
    if log.has(needed.position.journal):
        what = f"which the source may purge in {left_s / 3600:,.1f} hours ({log.keeps.setting})"
    else:
        what = f"but the source begins with {log.journals[0].journal if log.journals else 'none'}"
    return CheckResult(
        check="retention",
        passed=left_s >= headroom_min_s,
        text=f"{needed.name} needs {needed.position}, {what}",
        values={"headroom_s": round(left_s)},
    )


def check_cuts_readable(sink: DeltaSink, *, tables: Sequence[str] = ()) -> list[CheckResult]:
    """Each table's version in the last cut has all its files (K15); no Spark."""
    cut = sink.last_cut()
    found = []
    for name in sorted(cut.tables) if cut is not None else ():
        if tables and name not in tables:
            continue
        assert cut is not None
        try:
            check_readable(sink.paths, cut, name)
            passed = True
            text = f"version {cut.tables[name].table_version} of cut {cut.batch_number} can be read"
        except TableNotInCutError as error:
            passed, text = False, error.what
        found.append(CheckResult(check="readable", table=name, passed=passed, text=text))
    return found
