"""Whose failure it is when work on one table fails (K22: a failure is contained in its table).

Rules:
- Any exception raised in the work of one target becomes a `CdcError` of that table; nothing else
  leaves the sink.
- A failure that would recur is distinguished from one that may have passed by the next try: the
  first kind suspends at once.
- A data file or a log file that is gone or damaged comes back by itself in no try.
- A full disk is not a target's failure: it stops the batch until there is room.
"""

from __future__ import annotations

import re
from typing import Final

from cdc_pipeline.errors import (
    CdcError,
    LakeFullError,
    LakeStateError,
    LakeUnreachableError,
    LockError,
    MergeError,
    RuntimeSetupError,
    ServerUnreachableError,
    TargetRefusedError,
)
from cdc_pipeline.text.server_messages import said_by

# Spark's names for statements that it rejects, and Delta's for rows that the table rejects.
_REFUSED: Final = re.compile(
    r"AnalysisException|ParseException|InvariantViolation|DELTA_VIOLATE_|DELTA_NOT_NULL_CONSTRAINT|"
    r"CHECK_CONSTRAINT_"
)
# Of a table's own files; Delta's names for its log.
_FILES_GONE: Final = re.compile(
    r"FAILED_READ_FILE|DELTA_FILE_NOT_FOUND|DELTA_LOG_FILE_NOT_FOUND|DELTA_STATE_RECOVER_ERROR|"
    r"DELTA_TRUNCATED_TRANSACTION_LOG|DELTA_VERSIONS_NOT_CONTIGUOUS"
)
_MACHINE: Final = re.compile(r"No space left on device|Disk quota exceeded|Read-only file system")


def failure_of(error: Exception, *, table: str, batch_number: int) -> CdcError:
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
    if _FILES_GONE.search(text):
        return files_gone(error, table=table)
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


def files_gone(error: Exception, *, table: str) -> LakeStateError:
    return LakeStateError(
        "files of the table are gone or damaged",
        table=table,
        got=said_by(error),
        next_step="restore them from a backup of the lake, or take a new snapshot of the table",
    )


def reading_failed(error: Exception, *, table: str, what: str) -> CdcError:
    if isinstance(error, CdcError):
        return error
    if _FILES_GONE.search(str(error)):
        return files_gone(error, table=table)
    return MergeError(
        what, table=table, got=said_by(error), next_step="nothing was changed: try again"
    )


def is_of_one_table(error: CdcError) -> bool:
    """Whether work on a table failed because of that table: the others go on (K22)."""
    return not (
        isinstance(error, LakeUnreachableError | ServerUnreachableError) or is_of_the_machine(error)
    )


def is_of_the_machine(error: CdcError) -> bool:
    """Whether an error belongs to no target: a full disk, a lost lock, a machine not set up."""
    if isinstance(error, LockError | RuntimeSetupError | LakeFullError):
        return True
    return _MACHINE.search(str(error)) is not None
