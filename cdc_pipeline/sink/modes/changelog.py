"""A changelog: one row per change of the source, appended and never changed (K10).

Table: the source's columns, ``_cdc_op`` (insert, update, delete, truncate), ``_cdc_seq``,
``_cdc_ts``, ``_cdc_transaction`` (the GTID of the transaction that committed the change, or
``journal:offset`` of its first event), ``_cdc_ordinal`` (grows with each change of a transaction,
over all tables), ``_cdc_before`` (struct of the source's columns), ``_cdc_absent`` and
``_cdc_before_absent`` (names of columns that an image does not hold, or NULL).

Rules:
- The plain columns hold the row after an insert or update, or the deleted row: a filter by key
  finds all of a row's changes. A key update is one row, its old key is in ``_cdc_before``.
- ``_cdc_before`` holds the row before an update or delete, NULL for an insert.
- With partial images, a column that only the before image has did not change: its value is taken
  from there. A column that neither has is NULL, and named in ``_cdc_absent``.
- Staged columns: ``_op``, ``_seq``, ``_ts``, ``_tx``, ``_ordinal``, ``c0 ... cN`` the plain
  columns, ``b0 ... bN`` the before image, ``_absent`` and ``_before_absent``.
- After a snapshot the old rows stay, and changes that they lack (by `seq`) are added. If they do
  not hold every change up to the snapshot's place (`RecordedContent.restarts`), a ``truncate`` is
  added there, followed by the rows that were read: a reader that applies the changes in order has
  the source's rows from there on, and a note reports the gap.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cdc_pipeline.binlog import decoded as changes
from cdc_pipeline.binlog.decoded import DecodedRows
from cdc_pipeline.binlog.seq_columns import ordinals
from cdc_pipeline.lake.records import RecordedTarget
from cdc_pipeline.schema.evolution.steps import FillColumns, columns_after
from cdc_pipeline.sink.modes.expand import (
    DELETE,
    INSERT,
    TS_TYPE,
    UPDATE,
    StagedRows,
    check_fit,
    filled,
    with_after_bit,
)
from cdc_pipeline.sink.modes.mode_columns import (
    BEFORE_COLUMN,
    OP_COLUMN,
    ORDINAL_COLUMN,
    SEQ_COLUMN,
    TRANSACTION_COLUMN,
    TS_COLUMN,
    own_columns,
)
from cdc_pipeline.sink.modes.reduce import StagedFiles
from cdc_pipeline.sink.modes.replaced import ReplacedRows, moment
from cdc_pipeline.sink.modes.sink_mode import SinkMode, filled_columns
from cdc_pipeline.sink.spark.sql import quoted, seq_literal, table_at, text_literal

if TYPE_CHECKING:
    from cdc_pipeline.schema.target_spec import TargetSpec

_COLUMN: Final = re.compile(r"`(?:[^`]|``)+`")
_IN_BEFORE: Final = rf"{BEFORE_COLUMN}.\g<0>"
_OPS: Final = {DELETE: "delete", INSERT: "insert", UPDATE: "update"}
_NAMES_TYPE = pa.list_(pa.string())


class Changelog(SinkMode):
    staged_images = "cb"

    def stage(
        self, rows: DecodedRows, spec: TargetSpec, transactions: pa.Array | None
    ) -> StagedRows:
        assert transactions is not None
        columns = tuple(column.name for column in spec.columns)
        return _expand_changes(rows, columns=columns, transactions=transactions)

    def staged_schema(self, target: RecordedTarget) -> str:
        fields = [
            "_op tinyint",
            "_seq decimal(38,0)",
            "_ts timestamp",
            "_tx string",
            "_ordinal bigint",
        ]
        for image in self.staged_images:
            fields += [
                f"{image}{position} {column.delta_type}"
                for position, column in enumerate(target.spec.columns)
            ]
        return ", ".join([*fields, "_absent array<string>", "_before_absent array<string>"])

    def batch_sql(self, staged: StagedFiles) -> str:
        return _append_sql(staged.path, staged.target)

    def fill_sql(self, path: Path, target: RecordedTarget, step: FillColumns) -> str:
        settings = [
            *filled_columns(step, live=""),
            f"{BEFORE_COLUMN} = {_filled_before(target, step)}",
        ]
        return f"UPDATE {table_at(path)} SET {', '.join(settings)}"

    def truncate_sql(
        self, path: Path, target: RecordedTarget, *, seq: int, ts_us: int, transaction: str
    ) -> str:
        """Add one row for the statement: all columns but our own are NULL."""
        return (
            f"INSERT INTO {table_at(path)} (_cdc_op, _cdc_seq, _cdc_ts, _cdc_transaction, "
            f"_cdc_ordinal) VALUES ('truncate', {seq_literal(seq)}, timestamp_micros({ts_us}), "
            f"{text_literal(transaction)}, 0)"
        )

    def replaced_sql(self, rows: ReplacedRows) -> str:
        place, following = rows.place
        read = f"{SEQ_COLUMN} >= {place} AND {SEQ_COLUMN} < {following}"
        added = f"""
            SELECT {rows.all_columns("s")} FROM loaded AS s LEFT ANTI JOIN there AS t ON
                t.{SEQ_COLUMN} = s.{SEQ_COLUMN}
            WHERE s.{SEQ_COLUMN} >= {following}"""
        if not rows.content.restarts:
            return f"SELECT {rows.all_columns('t')} FROM there AS t UNION ALL {added}"
        begin = {
            OP_COLUMN: "'truncate'",
            SEQ_COLUMN: place,
            TS_COLUMN: moment(rows.content.ts_us),
            TRANSACTION_COLUMN: f"(SELECT max({TRANSACTION_COLUMN}) FROM loaded WHERE {read})",
            ORDINAL_COLUMN: "0L",
        }
        row = [
            f"{begin.get(name, f'CAST(NULL AS {rows.types[name]})')} AS {quoted(name)}"
            for name in rows.names
        ]
        return f"""
            SELECT {rows.all_columns("t")} FROM there AS t WHERE NOT ({read})
            UNION ALL SELECT {", ".join(row)}
            UNION ALL SELECT {rows.all_columns("s")} FROM loaded AS s WHERE {read}
            UNION ALL {added}"""


def _expand_changes(
    rows: DecodedRows, *, columns: tuple[str, ...], transactions: pa.Array
) -> StagedRows:
    check_fit(rows, columns)
    names = rows.schema.column_names
    source = [names.index(name) if name in names else None for name in columns]
    inserted, updated, deleted = (
        rows.op == op for op in (changes.INSERT, changes.UPDATE, changes.DELETE)
    )
    before_present, present = rows.has_before, rows.has_after
    taken = before_present & ~present & ~inserted[:, np.newaxis]
    plain = filled(rows.after, rows.before, taken)
    absent = before_absent = pa.nulls(len(rows), _NAMES_TYPE)
    if not rows.all_present:
        absent = _absent(present | taken, names)
        before_absent = _absent(before_present | inserted[:, np.newaxis], names)
    op = np.where(inserted, INSERT, np.where(updated, UPDATE, DELETE)).astype(np.int8)
    # Deletes keep the seq of the before image, as in the other modes.
    both = pa.chunked_array([rows.seq, with_after_bit(rows.seq)]).combine_chunks()
    at = np.arange(len(rows)) + np.where(deleted, 0, len(rows))
    arrays: dict[str, Any] = {
        "_op": pa.array(op),
        "_seq": both.take(pa.array(at)),
        "_ts": pa.array(rows.commit_ts_us.astype(np.int64)).cast(pa.timestamp("us")).cast(TS_TYPE),
        "_tx": transactions,
        "_ordinal": pa.array(ordinals(rows.seq)),
    }
    for position, index in enumerate(source):
        if index is not None:  # Spark reads a column that a file does not have as NULL
            arrays[f"c{position}"] = plain.column(index)
            arrays[f"b{position}"] = rows.before.column(index)
    arrays["_absent"], arrays["_before_absent"] = absent, before_absent
    return StagedRows(
        table=pa.table(arrays),
        partial=not rows.all_present,
        partial_key_updates=0,
        rows_inserted=int(inserted.sum()),
        rows_updated=int(updated.sum()),
        rows_deleted=int(deleted.sum()),
    )


def _absent(present: NDArray[np.bool_], names: tuple[str, ...]) -> pa.Array:
    """The names without a bit in each row of `present` (n, columns); null if all have one."""
    patterns, which = np.unique(present, axis=0, return_inverse=True)
    listed = [
        [name for name, there in zip(names, row, strict=True) if not there] or None
        for row in patterns.tolist()
    ]
    return pa.array(listed, _NAMES_TYPE).take(pa.array(which.reshape(-1)))


def _append_sql(path: Path, target: RecordedTarget) -> str:
    spec = target.spec
    own = own_columns(spec.mode, spec.columns, spec.key)
    names = [quoted(column.name) for column in (*spec.columns, *own)]
    op = (
        "CASE _op "
        + " ".join(f"WHEN {code} THEN {text_literal(name)}" for code, name in _OPS.items())
        + " END"
    )
    fields = ", ".join(
        f"{text_literal(column.name)}, b{at}" for at, column in enumerate(target.spec.columns)
    )
    before = f"CASE WHEN _op <> {INSERT} THEN named_struct({fields}) END"
    values = [
        *(f"c{position}" for position in range(len(target.spec.columns))),
        op,
        "_seq",
        "_ts",
        "_tx",
        "_ordinal",
        before,
    ]
    values += ["_absent", "_before_absent"]
    return (
        f"INSERT INTO {table_at(path)} ({', '.join(names)}) SELECT {', '.join(values)} FROM staged"
    )


def _filled_before(target: RecordedTarget, step: FillColumns) -> str:
    values_by_field = {
        name: f"CAST({_COLUMN.sub(_IN_BEFORE, value)} AS {kind})"
        for name, kind, value in step.values
    }
    columns = target.columns_before
    for other in target.schema_steps:
        if isinstance(other, FillColumns):  # the columns at this point of the batch
            break
        columns = columns_after(columns, other)
    names = [column.name for column in columns]
    fields = ", ".join(
        f"{text_literal(name)}, {values_by_field.get(name, f'{BEFORE_COLUMN}.{quoted(name)}')}"
        for name in names
    )
    return f"CASE WHEN {BEFORE_COLUMN} IS NOT NULL THEN named_struct({fields}) END"
