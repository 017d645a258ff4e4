"""Consecutive runs whose dump failed, as later starts need them (SPEC P5, P7).

Rules:
- A run that fails to read the log adds one. A run that completes, and a start that acts on the
  count, reset it.
- Errors of settings, grants and logins are not dump errors: they say nothing about which server
  answers.
- After rows without a table map (C3), the next start goes back to the begin of a transaction (P7).
"""

from __future__ import annotations

from pydantic import Field

from cdc_pipeline.errors import (
    CdcError,
    DamagedJournalError,
    LoginError,
    MissingGrantError,
    ServerSettingError,
    SourceError,
    TableIdNotFoundError,
)
from cdc_pipeline.frozen_model import FrozenModel


class DumpErrors(FrozenModel):
    """`table_id_not_found`: of the last of `count` consecutive runs; `last`: its message, for
    people.
    """

    count: int = Field(default=0, ge=0)
    table_id_not_found: bool = False
    last: str = ""

    def after(self, error: CdcError) -> DumpErrors:
        """The state after a run that failed with `error`; unchanged if that was no dump error."""
        if not _is_dump_error(error):
            return self
        return DumpErrors(
            count=self.count + 1,
            table_id_not_found=isinstance(error, TableIdNotFoundError),
            last=error.what,
        )


def _is_dump_error(error: CdcError) -> bool:
    if isinstance(error, LoginError | MissingGrantError | ServerSettingError):
        return False
    return isinstance(error, SourceError | DamagedJournalError | TableIdNotFoundError)
