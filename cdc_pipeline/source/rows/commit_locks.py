"""Find the sessions that are committing on a MySQL server: holders of metadata locks of type COMMIT
(K17).

Rules:
- A session takes such a lock before its transaction is flushed to the log, and releases it when the
  engines have committed; so do XA COMMIT and DDL. A session that holds none at a moment after a
  place in the log was flushed has nothing uncommitted before that place.
- A lock is identified by thread and event: a session that commits again holds another one. So the
  wait on a busy server is no longer than its slowest commit.
- If the locks are not visible, `MetadataLocksHiddenError` is raised: the account may not read them,
  they are not recorded, or some could not be.

Source: MySQL manual "The metadata_locks Table"; `ha_commit_trans` and `Sql_cmd_xa_commit` of its
sources take the lock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from cdc_pipeline.errors import CdcError, StatementError
from cdc_pipeline.source.live.answers import AnswerRow

_POLL_S: Final = 0.02
_ARE_RECORDED: Final = """
    SELECT (SELECT COUNT(*) FROM performance_schema.setup_instruments
            WHERE NAME = 'wait/lock/metadata/sql/mdl' AND ENABLED = 'YES') AS instrument,
        (SELECT COUNT(*) FROM performance_schema.setup_consumers
            WHERE NAME = 'global_instrumentation' AND ENABLED = 'YES') AS consumer,
        (SELECT SUM(VARIABLE_VALUE) FROM performance_schema.global_status
            WHERE VARIABLE_NAME = 'Performance_schema_metadata_lock_lost') AS lost"""
_HOLDERS: Final = """
    SELECT OWNER_THREAD_ID AS thread, OWNER_EVENT_ID AS event FROM performance_schema.metadata_locks
    WHERE OBJECT_TYPE = 'COMMIT' AND LOCK_STATUS = 'GRANTED'"""


class MetadataLocksHiddenError(CdcError):
    """The server does not show which sessions are committing."""


class CommitLocks:
    def __init__(self, rows: Callable[[str], Sequence[AnswerRow]]) -> None:
        self._rows = rows
        self._are_recorded = False

    def held(self) -> frozenset[tuple[int, int]]:
        """Thread and event of each commit under way. Raises MetadataLocksHiddenError."""
        try:
            if not self._are_recorded:
                self._check(self._rows(_ARE_RECORDED))
            return frozenset(
                (row.number("thread"), row.number("event")) for row in self._rows(_HOLDERS)
            )
        except StatementError as error:
            raise MetadataLocksHiddenError(
                f"its locks cannot be read: error {error.number}"
            ) from None

    def wait_over(self, *, timeout_s: float) -> bool:
        """Whether every commit that is under way now ended in time. Raises as `held`."""
        deadline_s = time.monotonic() + timeout_s
        pending = self.held()
        while pending:
            if time.monotonic() > deadline_s:
                return False
            time.sleep(_POLL_S)
            pending &= self.held()
        return True

    def _check(self, rows: Sequence[AnswerRow]) -> None:
        if not rows:
            raise MetadataLocksHiddenError("performance_schema does not say what it records")
        row = rows[0]
        if not row.number("instrument") or not row.number("consumer"):
            raise MetadataLocksHiddenError("performance_schema does not record metadata locks")
        if str(row["lost"] or 0) not in ("0", "0.0"):
            raise MetadataLocksHiddenError("performance_schema has no room for all metadata locks")
        self._are_recorded = True
