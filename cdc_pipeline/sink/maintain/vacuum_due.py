"""Decide when a vacuum of a table would find something: plain values, all times in microseconds
since 1970.

Rules:
- A file that was replaced at t can be removed from t + retention on. A vacuum at v removes what was
  replaced until v - retention.
- Only the first and the last of the changes that no vacuum has covered are kept. There may be
  others in between, so a vacuum is due again as soon as the retention of any of them could be over.
- Earlier changes are not known at first, so the first vacuum is due at once.
- A time in the future is of a clock that was ahead; it is as good as none. VACUUM itself goes by
  the table's own retention, so one too many removes nothing that is young.
"""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict


class VacuumState(BaseModel):
    """The stored state of one table: the last batch that was seen to have changed it, the first
    and last change that no vacuum has covered yet, the last vacuum and the last that listed the
    folder (or the first vacuum); 0: none.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    app_id: str
    applied_batch: int
    changed_first_us: int | None = 0
    changed_last_us: int
    vacuum_us: int = 0
    full_vacuum_us: int = 0

    def changed(self, now_us: int, *, applied_batch: int | None = None) -> Self:
        first = now_us if self.changed_first_us is None else self.changed_first_us
        batch = self.applied_batch if applied_batch is None else applied_batch
        return self.model_copy(
            update={"applied_batch": batch, "changed_first_us": first, "changed_last_us": now_us},
        )

    def is_due(self, now_us: int, *, retention_us: int, every_us: int) -> bool:
        """Whether a vacuum may find something, and the last one was long enough ago."""
        first = self.changed_first_us
        return (
            first is not None
            and _past(first, now_us) + retention_us <= now_us
            and _past(self.vacuum_us, now_us) + every_us <= now_us
        )

    def is_full_due(self, now_us: int, *, every_us: int) -> bool:
        """Whether that vacuum is to list the folder. The first of a table never is."""
        return self.vacuum_us > 0 and _past(self.full_vacuum_us, now_us) + every_us <= now_us

    def vacuumed(self, now_us: int, *, retention_us: int, is_full: bool) -> Self:
        passed_us = now_us - retention_us
        first = self.changed_first_us
        if first is not None:
            first = None if self.changed_last_us <= passed_us else max(first, passed_us)
            if first is not None and self.changed_first_us == self.changed_last_us:
                first = self.changed_first_us
        full = now_us if is_full or not self.full_vacuum_us else self.full_vacuum_us
        return self.model_copy(
            update={"changed_first_us": first, "vacuum_us": now_us, "full_vacuum_us": full}
        )


def _past(at_us: int, now_us: int) -> int:
    """0 if the clock was ahead when it was noted."""
    return at_us if at_us <= now_us else 0
