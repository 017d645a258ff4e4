"""Names of our own columns in a target's table, and the columns that every mode has.

``_cdc_op``, ``_cdc_seq`` and ``_cdc_ts`` describe the change that gave a row its present values:
its kind, its place in the order of all changes (K1), and its commit time at the source.
"""

from __future__ import annotations

from typing import Final

from cdc_pipeline.schema.types import TargetColumn

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
