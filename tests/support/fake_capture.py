"""A capture without a source or a lake: publishes given batches as the pipeline does, in the order
of K2.

It is handed to `build_definitions` as a parameter. What it shows is Dagster's side of a capture
alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from cdc_pipeline.config.pipeline_config import Bound, PipelineConfig
from cdc_pipeline.fault_points import reach
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.records import Cut, CutTable, Interval
from cdc_pipeline.lake.table_facts import put_cut
from cdc_pipeline.position.cursor import (
    CursorState,
    CursorStore,
    ShortCursor,
    StoredCursor,
    Suspension,
    TargetState,
)
from cdc_pipeline.position.position import Position
from cdc_pipeline.position.short_cursor import whole_cursor
from cdc_pipeline.run.capture.suspension import check_suspended
from cdc_pipeline.run.observer import RunObserver
from cdc_pipeline.run.report import CapturePlan, CaptureReport
from cdc_pipeline.schema.evolution.steps import DdlDecision
from cdc_pipeline.schema.target_spec import TargetSpec
from cdc_pipeline.schema.types import TargetColumn
from cdc_pipeline.targets.known_tables import newest_cut

COLUMNS = (
    TargetColumn(name="id", delta_type="bigint"),
    TargetColumn(name="note", delta_type="string"),
)
PUBLISHED_AT_US = 1_700_000_060_000_000
SOURCE_TIME_US = 1_700_000_000_000_000


def write_config(
    jobs: Path, source: str, *, include: tuple[str, ...] = ("shop.orders",), extra: str = ""
) -> Path:
    jobs.mkdir(parents=True, exist_ok=True)
    file = jobs / f"{source}.yaml"
    listing = "".join(f"\n    - {pattern!r}" for pattern in include)
    file.write_text(
        f"source:\n  kind: archive\n  directory: journals\n"
        f"tables:\n  include:{listing}\nsink:\n  lake_path: ../lake\n{extra}"
    )
    return file


def cursor(
    source: str = "shop",
    *,
    batch: int = 1,
    offset: int = 1000,
    tables: dict[str, int] | None = None,
) -> CursorState:
    """`tables` gives each table's last applied batch."""
    return CursorState(
        source=source,
        batch_number=batch,
        flavor="mysql",
        server_id=7,
        server_uuid="3e11fa47-71ca-11e1-9e33-c80aa9429562",
        journal="binlog.000003",
        offset=offset,
        gtid_set="3e11fa47-71ca-11e1-9e33-c80aa9429562:1-9",
        targets={
            table: TargetState(
                table=table,
                app_id=f"app-{table}",
                table_version=10 + applied,
                applied_batch=applied,
            )
            for table, applied in (tables or {}).items()
        },
    )


def added_column(table: str) -> DdlDecision:
    return DdlDecision(
        journal="binlog.000003",
        offset=1200,
        sql=f"ALTER TABLE {table} ADD COLUMN coupon INT",
        kind="alter_table",
        tables=(table,),
        decision="applied",
        reason="adds coupon",
    )


def cut(
    source: str = "shop", *, batch: int, tables: dict[str, int], ddl: tuple[DdlDecision, ...] = ()
) -> Cut:
    """`tables` gives each table's last applied batch."""
    after = cursor(source, batch=batch, offset=1000 * batch, tables=tables)
    return Cut(
        source=source,
        batch_number=batch,
        published_at_us=PUBLISHED_AT_US,
        source_time_us=SOURCE_TIME_US,
        interval=Interval(
            start=Position("binlog.000003", 1000 * batch - 900),
            end=Position("binlog.000003", 1000 * batch),
            transactions_seen=5,
            transactions_applied=3,
        ),
        cursor=after,
        tables={
            table: CutTable(
                table_version=10 + applied,
                spec=TargetSpec(columns=COLUMNS, key=("id",)),
                rows_inserted=4,
                rows_updated=2,
                rows_deleted=1,
            )
            for table, applied in tables.items()
        },
        ddl=ddl,
    )


def write_cut(config_lake: Path, value: Cut) -> None:
    put_cut(LakePaths(config_lake, value.source), value)


def plan_of(source: str, *, suspended: Mapping[str, Suspension] | None = None) -> CapturePlan:
    return CapturePlan(
        suspended=dict(suspended or {}),
        source=source,
        identity="mysql:7",
        start=Position("binlog.000003"),
        start_reasons=("no cursor and no cut: a first run",),
        end=Position("binlog.000003", 9000),
        end_reason="the end of the log at planning time",
        bytes_between=8996,
        journals=("binlog.000003",),
        tables=("shop.orders",),
        partial_tables=(),
    )


class FakeCapture:
    """Publishes `cuts` newer than the cursor; `before` may raise at the begin of each call."""

    def __init__(
        self, cuts: list[Cut], *, before: Callable[[int], None] = lambda _call: None
    ) -> None:
        self.cuts = cuts
        self.before = before
        self.bounds: list[Bound | None] = []
        self.run_ids: list[str] = []
        self.tables: list[Sequence[str] | None] = []
        self.starts: list[StoredCursor | None] = []

    def __call__(
        self,
        config: PipelineConfig,
        *,
        cursors: CursorStore,
        bound: Bound | None = None,
        observer: RunObserver | None = None,
        run_id: str = "",
        tables: Sequence[str] | None = None,
    ) -> CaptureReport:
        self.tables.append(tables)
        observer = observer or RunObserver()
        start = cursors.read()
        self.bounds.append(bound)
        self.run_ids.append(run_id)
        self.starts.append(start)
        self.before(len(self.bounds))
        newest = newest_cut(config)
        found = start if newest is None or start is None else whole_cursor(start, newest.cursor)
        assert not isinstance(found, ShortCursor)
        plan = plan_of(config.name, suspended=None if found is None else found.suspended)
        observer.planned(plan)
        last = found
        if newest is not None and (start is None or start.batch_number < newest.batch_number):
            last = newest.cursor  # K3: a cursor behind the last cut is moved to it
            cursors.write(last, {"interval": newest.interval.model_dump()})
        begin = last
        done = 0 if last is None else last.batch_number
        for value in (value for value in self.cuts if value.batch_number > done):
            reach("before_cut")
            write_cut(config.sink.lake_path, value)
            observer.published(value)
            reach("before_cursor")
            cursors.write(
                value.cursor,
                {
                    "interval": value.interval.model_dump(),
                    "cut": value.batch_number,
                    "note": "extra",
                },
            )
            last = value.cursor
        check_suspended(last, tables)
        applied = last is not None and (last is not begin or begin is not found)
        return CaptureReport(
            source=config.name,
            outcome="applied" if applied else "nothing_new",
            reason="all was applied" if applied else "the end is the start",
            plan=plan,
            interval=self.cuts[-1].interval,
            cursor=last,
        )
