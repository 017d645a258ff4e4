"""Retry commits that conflict with another writer's: maintenance and a batch may rewrite the same
files.

Rules:
- Delta accepts the first commit and refuses the second, which has changed nothing. A batch's work
  on a table is safe to repeat (K2: each step commits once). It is repeated a few times, then fails
  with the name of the table and what to do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

from cdc_pipeline.errors import ConcurrentWriterError, MergeError

TRIES: Final = 4
_MARKS: Final = (
    "DELTA_CONCURRENT_",
    "ConcurrentModificationException",
    "DELTA_METADATA_CHANGED",
    "MetadataChanged",
)

P = ParamSpec("P")
T = TypeVar("T")


class VersionTakenError(MergeError):
    """The version that a commit would make exists: another writer made it first."""


def is_conflict(error: BaseException) -> bool:
    """Whether Delta refused a commit because another one came first."""
    if isinstance(error, VersionTakenError):
        return True
    text = f"{type(error).__name__} {error}"
    cause = error.__cause__
    return any(mark in text for mark in _MARKS) or (cause is not None and is_conflict(cause))


def again_on_conflict(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Raises what `work` raises; ConcurrentWriterError: another writer's commit came first every
    time (K16).
    """
    for left in reversed(range(TRIES)):
        try:
            return work(*args, **kwargs)
        except MergeError as error:
            if not is_conflict(error):
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
