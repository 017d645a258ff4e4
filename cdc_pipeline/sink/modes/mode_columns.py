"""Names of our own columns in a target's table, and the columns that every mode has.

``_cdc_op``, ``_cdc_seq`` and ``_cdc_ts`` describe the change that gave a row its present values:
its kind, its place in the order of all changes (K1), and its commit time at the source.
"""

from __future__ import annotations

from typing import Final

from cdc_pipeline.config.modes import MODES, Mode, ModeSpec, is_keyless_mirror
from cdc_pipeline.schema.types import TargetColumn
from cdc_pipeline.text.table_names import quoted

OP_COLUMN: Final = "_cdc_op"
SEQ_COLUMN: Final = "_cdc_seq"
TS_COLUMN: Final = "_cdc_ts"
DELETED_COLUMN: Final = "_cdc_deleted"
START_COLUMN: Final = "__START_AT"
END_COLUMN: Final = "__END_AT"
END_TS_COLUMN: Final = "_cdc_end_ts"
TRANSACTION_COLUMN: Final = "_cdc_transaction"
ORDINAL_COLUMN: Final = "_cdc_ordinal"
BEFORE_COLUMN: Final = "_cdc_before"
ABSENT_COLUMN: Final = "_cdc_absent"
BEFORE_ABSENT_COLUMN: Final = "_cdc_before_absent"
ROW_NUMBER_COLUMN: Final = "_cdc_row_number"
RESCUED_COLUMN: Final = "_cdc_rescued"

SEQ_TYPE: Final = "decimal(38,0)"
CDC_COLUMNS: Final = (
    TargetColumn(name=OP_COLUMN, delta_type="string"),
    TargetColumn(name=SEQ_COLUMN, delta_type=SEQ_TYPE),
    TargetColumn(name=TS_COLUMN, delta_type="timestamp"),
)
RESCUED: Final = TargetColumn(name=RESCUED_COLUMN, delta_type="map<string,string>")


def live_rows_sql(mode: ModeSpec) -> str:
    """As `read.row_numbers.live_rows`, of a mode whose rows are no changes; "" for all of them."""
    if mode.marks_deleted_rows:
        return f"NOT {DELETED_COLUMN}"
    return f"{END_COLUMN} IS NULL" if mode.keeps_versions else ""


def own_columns(
    mode: Mode, columns: tuple[TargetColumn, ...], key: tuple[str, ...]
) -> tuple[TargetColumn, ...]:
    """The columns that follow the source's own, by the facts of the mode."""
    types: dict[str, str] = {}
    if is_keyless_mirror(mode, key):
        types |= {ROW_NUMBER_COLUMN: "bigint"}
    if MODES[mode].marks_deleted_rows:
        types |= {DELETED_COLUMN: "boolean"}
    if MODES[mode].keeps_versions:
        types |= {START_COLUMN: SEQ_TYPE, END_COLUMN: SEQ_TYPE, END_TS_COLUMN: "timestamp"}
    if MODES[mode].rows_are_changes:
        before = ", ".join(f"{quoted(column.name)}: {column.delta_type}" for column in columns)
        types |= {TRANSACTION_COLUMN: "string", ORDINAL_COLUMN: "bigint"}
        types |= {BEFORE_COLUMN: f"struct<{before}>"}
        types |= dict.fromkeys((ABSENT_COLUMN, BEFORE_ABSENT_COLUMN), "array<string>")
    own = (TargetColumn(name=name, delta_type=type_) for name, type_ in types.items())
    return (*CDC_COLUMNS, *own)
