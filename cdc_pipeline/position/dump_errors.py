"""Runs whose dump failed, one after another: what a later start must know of them (SPEC P5, P7).

Rules:
- A run that fails to read the log adds one; a run that reaches its end, and a start that acts on the count, reset it.
- Settings and grants are no dump errors: they say nothing about which server answers.
- After rows without a table map (C3) the next start goes back to the begin of a transaction (P7).
"""

from __future__ import annotations

from typing import Protocol

from pydantic import BaseModel, ConfigDict, Field

from cdc_pipeline.errors import (
    CdcError,
    DamagedJournalError,
    MissingGrantError,
    ServerSettingError,
    SourceError,
    TableIdNotFoundError,
)


class DumpErrors(BaseModel):
    """Attributes:
    count: consecutive runs whose dump failed.
    table_id_not_found: the last of them met rows without a table map.
    last: what the last of them said, for people.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    count: int = Field(default=0, ge=0)
    table_id_not_found: bool = False
    last: str = ""

    def after(self, error: CdcError) -> DumpErrors:
        """The state after a run that failed with `error`; the same where that was no dump error."""
        if not _is_dump_error(error):
            return self
        return DumpErrors(
            count=self.count + 1, table_id_not_found=isinstance(error, TableIdNotFoundError), last=error.what
        )


class DumpErrorStore(Protocol):
    """Keeps a source's `DumpErrors` from run to run."""

    def read(self) -> DumpErrors:
        """The state that the last run left; nothing failed where there is none."""

    def write(self, errors: DumpErrors) -> None:
        """Make `errors` the state."""


def _is_dump_error(error: CdcError) -> bool:
    """Whether `error` says that the log could not be found, reached or read."""
    if isinstance(error, MissingGrantError | ServerSettingError):
        return False
    return isinstance(error, SourceError | DamagedJournalError | TableIdNotFoundError)
