"""Apply the steps of a DDL to a target's Delta table, idempotently (K13).

Rules:
- Structure: the recorded steps lead through lists of columns, all different. The table's columns
  are looked up among them, and only the steps after that point are done. Columns that no step
  touches do not matter.
- A check only reads, and stops the target for good if a row fails it. Whatever follows it in the
  table shows that it passed; where nothing does, a property of the table says so.
- Delta's features (column mapping, type widening, TIMESTAMP_NTZ) are switched on by the first step
  that needs them.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from cdc_pipeline.config.modes import MODES
from cdc_pipeline.errors import LakeStateError, UnsupportedDdlError
from cdc_pipeline.lake.records import BatchRecord, RecordedTarget
from cdc_pipeline.schema.evolution.steps import (
    ROW_STEPS,
    AddColumn,
    CheckRows,
    Describe,
    DropColumn,
    FillColumns,
    RemoveRows,
    RenameColumn,
    Step,
    WidenColumn,
    columns_after,
)
from cdc_pipeline.schema.types import TargetColumn
from cdc_pipeline.sink.delta.commit import run_once, transaction_version
from cdc_pipeline.sink.delta.features import PROPERTIES
from cdc_pipeline.sink.delta.table_log import TableLog, read_table_log
from cdc_pipeline.sink.modes.mode_columns import BEFORE_COLUMN
from cdc_pipeline.sink.modes.registry import SINK_MODES
from cdc_pipeline.sink.spark.sql import quoted, set_properties_sql, table_at, text_literal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

_CHECKED_PROPERTY: Final = "cdc.checked_batch"
_OTHERS: Final = (*ROW_STEPS, CheckRows, Describe)  # that leave the columns as they are
_Columns = tuple[TargetColumn, ...]


def are_done(there: TableLog, record: BatchRecord, target: RecordedTarget) -> bool:
    before, steps = _steps(target)
    if not steps:
        return True
    path = _path(before, steps)
    present = [TargetColumn(name=name, delta_type=kind) for name, kind in there.columns.items()]
    if _reached(path, present) != len(path) - 1:
        return False
    if not _dml_done(there, record, steps):
        return False
    if any(_undescribed(there, step) for step in steps if isinstance(step, Describe)):
        return False
    is_checked = there.properties.get(_CHECKED_PROPERTY) == str(record.batch_number)
    return is_checked or not _ends_with_check(steps)


def run_steps(
    session: SparkSession, path: Path, record: BatchRecord, target: RecordedTarget, there: TableLog
) -> None:
    """LakeStateError: the columns match no state on the way; UnsupportedDdlError: a check fails."""
    before, steps = _steps(target)
    if not steps or are_done(there, record, target):
        return
    frame = session.read.format("delta").load(str(path))
    present = [
        TargetColumn(name=field.name, delta_type=field.dataType.simpleString())
        for field in frame.schema.fields
    ]
    states = _path(before, steps)
    reached = _reached(states, present)
    if reached is None:
        raise LakeStateError(
            "the table's columns match no stage of the recorded change",
            table=target.table,
            expected=_described(states[-1]),
            got=_described(tuple(present)),
            next_step="restore the Delta table's columns to those of the last cut, then "
            "start the run again",
        )
    structure = dml = 0
    for step in steps:
        if isinstance(step, CheckRows):
            next_dml = transaction_version(record.batch_number, dml + 1)
            if reached <= structure and there.transaction_version < next_dml:
                _check(session, path, target, step)
        elif isinstance(step, Describe):
            _describe(session, path, step)
        elif isinstance(step, ROW_STEPS):
            dml += 1
            run_once(session, _dml_sql(path, record, target, step), there, record, step=dml)
        else:
            structure += 1
            if structure > reached:
                if MODES[target.spec.mode].rows_are_changes and not _is_changed_before(
                    session, path, step
                ):
                    _change(session, path, step, within=f"{BEFORE_COLUMN}.")
                last = states[structure - 1][-1:]
                place = f" AFTER {quoted(last[0].name)}" if last else " FIRST"
                _change(session, path, step, place=place)
    if _ends_with_check(steps):
        session.sql(set_properties_sql(path, {_CHECKED_PROPERTY: str(record.batch_number)}))


def _steps(target: RecordedTarget) -> tuple[_Columns, tuple[Step, ...]]:
    """A changelog's rows are changes: no default is filled into them, and nothing is checked."""
    steps = target.schema_steps
    if MODES[target.spec.mode].rows_are_changes:
        altered_steps = [
            _made_of_columns(step) if isinstance(step, FillColumns) else step for step in steps
        ]
        steps = tuple(
            step for step in altered_steps if step is not None and not isinstance(step, CheckRows)
        )
    return target.columns_before, steps


def _made_of_columns(step: FillColumns) -> FillColumns | None:
    values = tuple(value for value in step.values if value[0] not in step.defaults)
    return step.model_copy(update={"values": values}) if values else None


def _path(before: _Columns, steps: tuple[Step, ...]) -> list[_Columns]:
    path = [before]
    for step in steps:
        if not isinstance(step, _OTHERS):
            path.append(columns_after(path[-1], step))
    return path


def _reached(path: list[_Columns], present: list[TargetColumn]) -> int | None:
    """How many steps of a path the present columns have behind them."""
    moving = {c.name.lower() for a, b in pairwise(path) for c in set(a) ^ set(b)}

    def shown(columns: list[TargetColumn] | _Columns) -> list[tuple[str, str]]:
        return [(c.name, c.delta_type) for c in columns if c.name.lower() in moving]

    there = shown(present)
    for number in range(len(path) - 1, -1, -1):
        on_path = shown(path[number])
        # A log read without a JVM has no nested types.
        if len(on_path) == len(there) and all(
            name == other and (kind == present_type or "" in (kind, present_type))
            for (name, kind), (other, present_type) in zip(on_path, there, strict=True)
        ):
            return number
    return None


def _described(columns: _Columns) -> str:
    return ", ".join(f"{column.name} {column.delta_type}" for column in columns)


def _ends_with_check(steps: tuple[Step, ...]) -> bool:
    """Nothing that follows shows that it was made."""
    last = next((step for step in reversed(steps) if not isinstance(step, Describe)), None)
    return isinstance(last, CheckRows)


def _undescribed(there: TableLog | None, step: Describe) -> dict[str, str]:
    """A later step of the batch may have renamed or dropped a column, and describes it itself."""
    if there is None:
        return dict(step.comments)
    return {
        name: text
        for name, text in step.comments
        if (not name or name in there.columns) and text != there.comments.get(name, "")
    }


def _dml_done(there: TableLog, record: BatchRecord, steps: tuple[Step, ...]) -> bool:
    count = sum(isinstance(step, ROW_STEPS) for step in steps)
    return not count or there.transaction_version >= transaction_version(record.batch_number, count)


# -- one step --------------------------------------------------------------------------------------


def _change(
    session: SparkSession, path: Path, step: Step, *, within: str = "", place: str = ""
) -> None:
    """Apply one step of structure to the columns, or to the fields `within` one (``name.``)."""
    table, name = table_at(path), f"{within}{quoted(getattr(step, 'name', ''))}"
    _switch_on(session, path, step.features)
    if isinstance(step, AddColumn):
        session.sql(f"ALTER TABLE {table} ADD COLUMNS ({name} {step.delta_type}{place})")
    elif isinstance(step, DropColumn):
        session.sql(f"ALTER TABLE {table} DROP COLUMN {name}")
    elif isinstance(step, RenameColumn):
        session.sql(f"ALTER TABLE {table} RENAME COLUMN {name} TO {quoted(step.new_name)}")
    elif isinstance(step, WidenColumn):
        session.sql(f"ALTER TABLE {table} ALTER COLUMN {name} TYPE {step.delta_type}")


def _describe(session: SparkSession, path: Path, step: Describe) -> None:
    table = table_at(path)
    for name, text in _undescribed(read_table_log(path), step).items():
        session.sql(
            f"ALTER TABLE {table} ALTER COLUMN {quoted(name)} COMMENT {text_literal(text)}"
            if name
            else set_properties_sql(path, {"comment": text})
        )


def _is_changed_before(session: SparkSession, path: Path, step: Step) -> bool:
    """Whether a step is done in the before images, which it changes first: it may be repeated."""
    fields = session.read.format("delta").load(str(path)).schema[BEFORE_COLUMN].dataType
    there = {
        field.name: field.dataType.simpleString() for field in cast("StructType", fields).fields
    }
    if isinstance(step, AddColumn):
        return step.name in there
    if isinstance(step, WidenColumn):
        return there.get(step.name) == step.delta_type
    return isinstance(step, DropColumn | RenameColumn) and step.name not in there


def _switch_on(session: SparkSession, path: Path, features: Iterable[str]) -> None:
    """The step's planner checked that they are permitted. Each statement may change the log."""
    for feature in PROPERTIES.keys() & features:
        name, value = PROPERTIES[feature]
        there = read_table_log(path)
        # `supported` stands in the protocol alone
        is_on = there is not None and (
            feature in there.reader_features
            if value == "supported"
            else there.properties.get(name) == value
        )
        if not is_on:
            session.sql(set_properties_sql(path, {name: value}))


def _dml_sql(
    path: Path, record: BatchRecord, target: RecordedTarget, step: FillColumns | RemoveRows
) -> str:
    mode = SINK_MODES[target.spec.mode]
    if isinstance(step, RemoveRows):
        transaction = step.transaction or str(record.interval.start)
        return mode.truncate_sql(
            path, target, seq=int(step.seq), ts_us=step.ts_us, transaction=transaction
        )
    return mode.fill_sql(path, target, step)


def _check(session: SparkSession, path: Path, target: RecordedTarget, step: CheckRows) -> None:
    rows = session.sql(
        f"SELECT 1 FROM {table_at(path)} WHERE NOT ({step.condition}) LIMIT 1"
    ).collect()
    if rows:
        raise UnsupportedDdlError(
            f"the source may have rewritten values without row events: {step.reason}",
            table=target.table,
            expected=step.condition,
            next_step="take a new snapshot of the table",
        )
