"""The error that suspends a target whose work failed (K22: a failure is contained in its table).

Rules:
- Any exception raised in the work of one target becomes a `CdcError` of that table; nothing else
  leaves the sink.
- A failure that would recur is distinguished from one that may have passed by the next try: the
  first kind suspends at once.
- A full disk is not a target's failure: it stops the batch until there is room.
"""

from __future__ import annotations

import re
from typing import Final

from cdc_pipeline.errors import (
    CdcError,
    LakeFullError,
    LockError,
    MergeError,
    RuntimeSetupError,
    TargetRefusedError,
)
from cdc_pipeline.text.server_messages import said_by

# Spark's names for statements that it rejects, and Delta's for rows that the table rejects.
_REFUSED: Final = re.compile(
    r"AnalysisException|ParseException|InvariantViolation|DELTA_VIOLATE_|DELTA_NOT_NULL_CONSTRAINT|"
    r"CHECK_CONSTRAINT_"
)
_MACHINE: Final = re.compile(r"No space left on device|Disk quota exceeded|Read-only file system")


def failure_of(error: Exception, *, table: str, batch_number: int) -> CdcError:
    """Return the error for a target from `error`, which was raised while a batch was applied to
    it."""
    if isinstance(error, CdcError):
        if not isinstance(error, RuntimeSetupError):  # that concerns the machine, not the table
            error.table = error.table or table
        return error
    text = f"{type(error).__name__}: {error}"
    full = _MACHINE.search(text)
    if full is not None:
        return LakeFullError(
            f"batch {batch_number} could not be applied: a disk refuses writes",
            table=table,
            got=full[0],
            next_step="free space on the disks of the lake and of Spark's temporary files, "
            "then start the run again: it first finishes this batch from its "
            "recorded files",
        )
    if _REFUSED.search(text):
        return TargetRefusedError(
            f"batch {batch_number} could not be applied: the table refuses it",
            table=table,
            got=said_by(error),
            next_step="remove the cause (a constraint that was added to the table), or "
            "take a new snapshot of the table",
        )
    return MergeError(
        f"batch {batch_number} could not be applied",
        table=table,
        got=said_by(error),
        next_step="start the run again: it first finishes this batch from its recorded files, "
        "and without this table if it fails again",
    )


def is_of_the_machine(error: CdcError) -> bool:
    """Return whether an error belongs to no target: a full disk, a lost lock, a machine that is not
    set up."""
    if isinstance(error, LockError | RuntimeSetupError | LakeFullError):
        return True
    return _MACHINE.search(str(error)) is not None
