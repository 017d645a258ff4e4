"""Whose failure it is when work on one table fails (K22: a failure is contained in its table);
a retry if a commit conflicts with another writer's: maintenance and a batch may rewrite one file.

Rules:
- Any exception raised in the work of one target becomes a `CdcError` of that table; nothing else
  leaves the sink.
- A failure that would recur is distinguished from one that may have passed by the next try: the
  first kind suspends at once.
- A data file or a log file that is gone or damaged comes back by itself in no try.
- A full disk is not a target's failure: it stops the batch until there is room.
- Delta accepts the first commit and refuses the second, which has changed nothing. A batch's work
  on a table is safe to repeat (K2: each step commits once). It is repeated a few times, then fails
  with the name of the table and what to do. It is repeated, too, if its session's Connect server
  has dropped that.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

from cdc_pipeline.errors import (
    CdcError,
    ConcurrentWriterError,
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


# A snapshot of a table with a past reads the old files as well.
OF_LOST_FILES: Final = (
    "restore them from a backup of the lake, or take a new snapshot of the table; if it keeps "
    "deleted rows, versions, changes or dropped columns, move its folder away first, which gives "
    "these up"
)


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
        next_step=OF_LOST_FILES,
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


TRIES: Final = 4
_MARKS: Final = (
    "DELTA_CONCURRENT_",
    "ConcurrentModificationException",
    "DELTA_METADATA_CHANGED",
    "MetadataChanged",
)
DROPPED: Final = "INVALID_HANDLE"  # Spark Connect's name for a session that its server dropped

P = ParamSpec("P")
T = TypeVar("T")


class VersionTakenError(MergeError):
    """The version that a commit would make exists: another writer made it first."""


def is_conflict(error: BaseException) -> bool:
    if isinstance(error, VersionTakenError):
        return True
    text = f"{type(error).__name__} {error}"
    cause = error.__cause__
    return any(mark in text for mark in _MARKS) or (cause is not None and is_conflict(cause))


def again_on_conflict(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """`work` asks for its session itself. ConcurrentWriterError: another came first (K16)."""
    for left in reversed(range(TRIES)):
        try:
            return work(*args, **kwargs)
        except MergeError as error:
            is_dropped = DROPPED in str(error)
            if not (is_dropped or is_conflict(error)) or (is_dropped and not left):
                raise
            if not left:
                raise ConcurrentWriterError(
                    f"another writer has changed the table during each of {TRIES} tries",
                    table=error.table,
                    expected="no writers but this source and occasional maintenance",
                    got=error.got,
                    next_step="stop the other writers of this Delta table (DESCRIBE HISTORY "
                    "names them), or move maintenance to another time; then start "
                    "the run again: it finishes this batch",
                ) from error
    raise AssertionError
