"""Computed columns and row filters in Spark, over staged rows and before their reduction (K14).

Rules:
- Computed columns are staged as nulls; here they are replaced by values computed from the row's own
  columns.
- A row that does not pass the filter becomes the DELETE of its key: an update that leaves the
  filter deletes, one that enters upserts, and an insert that does not pass states that there is no
  such row. NULL does not pass.
- Expressions are evaluated only for rows that hold a row's present values: deletes carry only their
  key (those of a soft_delete all values).
- A changelog has both images: a change that leaves the filter becomes a delete, one that enters it
  an insert, and one that was outside and stays outside is dropped. Computed columns are in both
  images.
- Spark's verdict on an expression holds: one that it calls non-deterministic, or that contains a
  query, is refused before the table is created.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cdc_pipeline.config.modes import MODES
from cdc_pipeline.errors import ConfigError
from cdc_pipeline.lake.records import RecordedTarget
from cdc_pipeline.sink.modes.expand import ARRIVE, DELETE, INSERT, UPDATE
from cdc_pipeline.sink.spark.sql import quoted
from cdc_pipeline.text.server_messages import said_by

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc_pipeline.schema.target_spec import TargetSpec

_REFUSED: Final = {
    "[INVALID_NON_DETERMINISTIC_EXPRESSIONS]": "Spark: the expression is not deterministic",
    "[UNSUPPORTED_SUBQUERY_EXPRESSION": "Spark: the expression contains a query",
}
_UPSERTS: Final = f"({INSERT}, {UPDATE}, {ARRIVE})"


def needs_shaping(spec: TargetSpec) -> bool:
    shape = spec.shape
    return shape is not None and bool(shape.computed or shape.filter)


def shaped_sql(target: RecordedTarget, view: str, staged_columns: list[str]) -> str:
    """With ``_op`` and ``c0 ... cN`` after computed columns and filter; the same columns."""
    shape = target.spec.shape
    assert shape is not None
    computed = {column.name: column for column in shape.computed}
    places = {
        f"c{at}": computed[column.name]
        for at, column in enumerate(target.spec.columns)
        if column.name in computed
    }
    # The row itself is one column with a reserved name, so that no source column can be mistaken
    # for one of ours.
    row = "_cdc_row"
    named = [
        f"c{at} AS {quoted(column.name)}"
        for at, column in enumerate(target.spec.columns)
        if column.name not in computed
    ]
    says = "true" if MODES[target.spec.mode].marks_deleted_rows else f"{row}._op IN {_UPSERTS}"
    selected = []
    for name in staged_columns:
        value = f"{row}.{name}"
        if name == "_op" and shape.filter:
            passes = f"coalesce(CAST((\n{shape.filter}\n) AS boolean), false)"
            value = (
                f"CASE WHEN {says} THEN IF({passes}, {value}, CAST({DELETE} AS tinyint)) "
                f"ELSE {value} END"
            )
        if name in places:
            column = places[name]
            value = (
                f"CASE WHEN {says} THEN CAST((\n{column.expression}\n) AS {column.delta_type}) END"
            )
        selected.append(f"{value} AS {name}")
    inner = ", ".join([f"struct({', '.join(staged_columns)}) AS {row}", *named])
    return f"SELECT {', '.join(selected)} FROM (SELECT {inner} FROM {view})"


def shaped_view(session: SparkSession, target: RecordedTarget, frame: Any, view: str) -> None:
    if not needs_shaping(target.spec):
        frame.createOrReplaceTempView(view)
        return
    frame.createOrReplaceTempView(f"{view}_unshaped")
    shape = changes_sql if MODES[target.spec.mode].rows_are_changes else shaped_sql
    session.sql(shape(target, f"{view}_unshaped", frame.columns)).createOrReplaceTempView(view)


def changes_sql(target: RecordedTarget, view: str, staged_columns: list[str]) -> str:
    """For a changelog: ``c0 ...`` are the row after, or deleted, ``b0 ...`` the row before."""
    shape = target.spec.shape
    assert shape is not None
    computed = {column.name: column for column in shape.computed}
    numbers = [at for at, column in enumerate(target.spec.columns) if column.name in computed]
    source = f"SELECT struct({', '.join(staged_columns)}) AS _cdc_row FROM {view}"
    carried = ["_cdc_row"]
    for image in "cb":
        named = [
            f"_cdc_row.{image}{at} AS {quoted(column.name)}"
            for at, column in enumerate(target.spec.columns)
            if column.name not in computed
        ]
        source = f"SELECT {', '.join([*carried, *named])} FROM ({source})"
        # NULL if there is no such image: then the change is not in it.
        there = f"_cdc_row._op <> {DELETE if image == 'c' else INSERT}"
        passes = (
            f"coalesce(CAST((\n{shape.filter}\n) AS boolean), false)" if shape.filter else "true"
        )
        cases = [f"CASE WHEN {there} THEN {passes} ELSE false END AS _cdc_{image}"]
        for at in numbers:
            column = computed[target.spec.columns[at].name]
            # The plain columns hold the deleted row: they have values in every change.
            when = "true" if image == "c" else there
            value = f"CAST((\n{column.expression}\n) AS {column.delta_type})"
            cases.append(f"CASE WHEN {when} THEN {value} END AS _cdc_{image}{at}")
        source = f"SELECT {', '.join([*carried, *cases])} FROM ({source})"
        carried += [f"_cdc_{image}", *(f"_cdc_{image}{at}" for at in numbers)]
    leaves = f"(_cdc_row._op = {UPDATE} AND NOT _cdc_c)"
    selected = []
    for name in staged_columns:
        value = f"_cdc_row.{name}"
        if name[:1] in "cb" and name[1:].isdigit():
            image, at = name[0], int(name[1:])
            value, before = (
                f"_cdc_{i}{at}" if at in numbers else f"_cdc_row.{i}{at}" for i in (image, "b")
            )
            value = f"IF({leaves}, {before}, {value})"
        elif name == "_op":
            ops = f"WHEN _cdc_c AND _cdc_b THEN {UPDATE} WHEN _cdc_c THEN {INSERT} ELSE {DELETE}"
            value = f"CAST(CASE {ops} END AS tinyint)"
        elif name == "_seq":
            # of the image before, as any delete
            value = f"CAST({value} - IF({leaves}, 1, 0) AS decimal(38,0))"
        elif name == "_absent":
            value = f"IF({leaves}, _cdc_row._before_absent, {value})"
        elif name == "_before_absent":
            value = f"IF(_cdc_b, {value}, NULL)"
        selected.append(f"{value} AS {name}")
    return f"SELECT {', '.join(selected)} FROM ({source}) WHERE _cdc_c OR _cdc_b"


def check_expressions(session: SparkSession, target: RecordedTarget) -> None:
    if not needs_shaping(target.spec):
        return
    assert target.spec.shape is not None
    of_source = [
        c
        for c in target.spec.columns
        if c.name not in {computed.name for computed in target.spec.shape.computed}
    ]
    listing = ", ".join(
        f"CAST(NULL AS {column.delta_type}) AS {quoted(column.name)}" for column in of_source
    )
    asked = [
        (f"computed.{c.name}", f"CAST((\n{c.expression}\n) AS {c.delta_type})")
        for c in target.spec.shape.computed
    ]
    if target.spec.shape.filter:
        asked.append(("filter", f"CAST((\n{target.spec.shape.filter}\n) AS boolean)"))
    for setting, expression in asked:
        got = ""
        try:
            # A join refuses what is not deterministic, a function of arrays what is a query.
            _ = session.sql(
                f"SELECT 1 FROM (SELECT {listing}) JOIN (SELECT 1 AS _cdc_one) "
                f"ON exists(array(1), _cdc_any -> {expression} IS NULL)"
            ).schema
        except Exception as error:
            got = said_by(error)
            got = next((said for name, said in _REFUSED.items() if name in got), got)
        if got:
            raise ConfigError(
                f"an expression of target {target.table} cannot be used",
                table=target.table,
                setting=f"targets: {setting}",
                expected="a deterministic Spark SQL expression over the columns of one row",
                got=got,
                next_step="correct the expression under `targets`, then start the run again",
            )


def placement_sql(target: RecordedTarget) -> str:
    shape = target.spec.shape
    if shape is None or not (shape.partition_by or shape.cluster_by):
        return ""
    names = {column.name.lower(): column.name for column in target.spec.columns}
    word, placed = (
        ("PARTITIONED", shape.partition_by) if shape.partition_by else ("CLUSTER", shape.cluster_by)
    )
    return f" {word} BY ({', '.join(quoted(names[name.lower()]) for name in placed)})"
