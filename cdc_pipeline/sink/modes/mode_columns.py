"""Our own columns of a target's table, by its mode, and which of its rows stand for a row of the source now.

Rules:
- ``_cdc_op``, ``_cdc_seq`` and ``_cdc_ts`` tell of the change that gave a row its present values: what, its place in
  the order of all changes (K1), and when it was committed at the source.
- A target finds a row by its key; a mirror without a key by all of the row's values.
"""

from __future__ import annotations

from typing import Final

from cdc_pipeline.config.target_config import Mode
from cdc_pipeline.schema.types import TargetColumn
from cdc_pipeline.sink.spark.sql import quoted

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

SEQ_TYPE: Final = "decimal(38,0)"
CDC_COLUMNS: Final = (
    TargetColumn(name=OP_COLUMN, delta_type="string"),
    TargetColumn(name=SEQ_COLUMN, delta_type=SEQ_TYPE),
    TargetColumn(name=TS_COLUMN, delta_type="timestamp"),
)
_SOFT_DELETE: Final = (TargetColumn(name=DELETED_COLUMN, delta_type="boolean"),)
_HISTORY: Final = (
    TargetColumn(name=START_COLUMN, delta_type=SEQ_TYPE),
    TargetColumn(name=END_COLUMN, delta_type=SEQ_TYPE),
    TargetColumn(name=END_TS_COLUMN, delta_type="timestamp"),
)
_KEYLESS: Final = (TargetColumn(name=ROW_NUMBER_COLUMN, delta_type="bigint"),)


def is_keyless_mirror(mode: Mode, key: tuple[str, ...]) -> bool:
    """Whether a target finds its rows by all of their values, with multiplicity."""
    return mode == "mirror" and not key


def keeps_every_change(mode: Mode, key: tuple[str, ...]) -> bool:
    """Whether a change that is applied twice leaves a mark: no key and seq tell that it was applied before (K7)."""
    return mode in ("history", "changelog") or not key


def cdc_columns(mode: Mode, columns: tuple[TargetColumn, ...], key: tuple[str, ...]) -> tuple[TargetColumn, ...]:
    """The columns that stand behind the source's own `columns`."""
    if mode == "soft_delete":
        return CDC_COLUMNS + _SOFT_DELETE
    if mode == "history":
        return CDC_COLUMNS + _HISTORY
    if mode == "changelog":
        absent = (ABSENT_COLUMN, BEFORE_ABSENT_COLUMN)
        return (
            *CDC_COLUMNS,
            TargetColumn(name=TRANSACTION_COLUMN, delta_type="string"),
            TargetColumn(name=ORDINAL_COLUMN, delta_type="bigint"),
            TargetColumn(name=BEFORE_COLUMN, delta_type=_before_type(columns)),
            *(TargetColumn(name=name, delta_type="array<string>") for name in absent),
        )
    return CDC_COLUMNS + (_KEYLESS if is_keyless_mirror(mode, key) else ())


def _before_type(columns: tuple[TargetColumn, ...]) -> str:
    """Type of a changelog's ``_cdc_before``: the source's columns."""
    return f"struct<{', '.join(f'{quoted(column.name)}: {column.delta_type}' for column in columns)}>"


def live_rows(mode: Mode) -> str | None:
    """SQL predicate of the rows that stand for a row that the source has now; "" for all of them, None where rows tell
    of changes and not of what is."""
    if mode == "changelog":
        return None
    if mode == "history":
        return f"{END_COLUMN} IS NULL"
    return f"NOT {DELETED_COLUMN}" if mode == "soft_delete" else ""
