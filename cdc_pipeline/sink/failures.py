"""What one target's work failed with, as the error that suspends the target (K22).

Rules:
- Whatever is raised in the work of one target becomes a `CdcError` of that table; nothing else leaves the sink.
- What would be refused again is told apart from what can be gone at the next try: the first suspends at once.
- A full disk is no target's failure: it stops the batch until there is room.
"""

from __future__ import annotations

import re
from typing import Final

from cdc_pipeline.errors import CdcError, LockError, MergeError, RuntimeSetupError, TargetRefusedError

# Spark's own names for statements that it does not take, and Delta's for rows that the table does not.
_REFUSED: Final = re.compile(
    r"AnalysisException|ParseException|InvariantViolation|DELTA_VIOLATE_|DELTA_NOT_NULL_CONSTRAINT|CHECK_CONSTRAINT_"
)
_MACHINE: Final = re.compile(r"No space left on device|Disk quota exceeded|Read-only file system")
_VALUES: Final = re.compile(r"violated by row.*", re.DOTALL)


def failure_of(error: Exception, *, table: str, batch_number: int) -> CdcError:
    """Return what `error`, raised while a batch was applied to one target, means for that target."""
    if isinstance(error, CdcError):
        error.table = error.table or table
        return error
    got = first_lines(error)
    kind = TargetRefusedError if _REFUSED.search(got) and not _MACHINE.search(got) else MergeError
    return kind(
        f"batch {batch_number} could not be applied",
        table=table,
        got=got,
        next_step="start the run again: it finishes this batch from its recorded files before anything else, and "
        "without this table if it fails again",
    )


def is_of_the_machine(error: CdcError) -> bool:
    """Return whether an error is no target's: a disk without room, a lost lock, a machine that is not set up."""
    return isinstance(error, LockError | RuntimeSetupError) or _MACHINE.search(str(error)) is not None


def first_lines(error: Exception) -> str:
    """Return the beginning of an error's text, without the values of rows that some have."""
    text = _VALUES.sub("violated", str(error))
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    return f"{type(error).__name__}: {' '.join(lines[:3])[:600]}"
