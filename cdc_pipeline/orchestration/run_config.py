"""What a person may set for one run, in Dagster's launchpad or on the command line.

Rules:
- Everything is optional: a run without settings does what the YAML file says.
- The fields describe one bound: a journal with an offset, a number of transactions, or the end of the log.
"""

from __future__ import annotations

import dagster as dg
from pydantic import Field

from cdc_pipeline.config import Bound, PositionConfig, TransactionsBoundConfig
from cdc_pipeline.errors import ConfigError


class CaptureRunConfig(dg.Config):
    """Where this run stops, in place of the YAML file's `bound`: one of bound_journal (with bound_offset),
    bound_transactions and bound_end_of_log, or none of them.
    """

    bound_journal: str | None = Field(
        default=None,
        description="Stop in this journal, such as binlog.000007, at bound_offset. Not with another bound.",
    )
    bound_offset: int | None = Field(
        default=None,
        description="Byte offset of an event boundary in bound_journal; without it 4, the journal's begin.",
    )
    bound_transactions: int | None = Field(
        default=None, description="Stop after this many transactions, at least 1. Not with another bound."
    )
    bound_end_of_log: bool = Field(
        default=False,
        description=(
            "true: read to where the log ends when the run is planned, whatever the YAML file's bound is. false: stop "
            "at bound_journal and bound_offset, or after bound_transactions, where one is given, else at the YAML "
            "file's bound."
        ),
    )

    def bound(self) -> Bound | None:
        """The run's own bound; None where the YAML file decides."""
        return bound_of(
            journal=self.bound_journal,
            offset=self.bound_offset,
            transactions=self.bound_transactions,
            end_of_log=self.bound_end_of_log,
        )


def bound_of(
    *, journal: str | None, offset: int | None, transactions: int | None, end_of_log: bool = False
) -> Bound | None:
    """One bound from its parts; None where none is given.

    Raises:
        ConfigError: parts of two bounds, an offset without a journal, or a number that is too small.
    """
    if sum((journal is not None, transactions is not None, end_of_log)) > 1:
        raise _wrong("more than one bound", "a journal, or a number of transactions, or the end of the log")
    if offset is not None and journal is None:
        raise _wrong("an offset without a journal", "both, such as binlog.000007 and 4")
    if offset is not None and offset < 4:
        raise _wrong(f"offset {offset}", "at least 4, the first event's offset in a journal")
    if transactions is not None and transactions < 1:
        raise _wrong(f"{transactions} transactions", "at least 1")
    if journal is not None:
        return PositionConfig(journal=journal) if offset is None else PositionConfig(journal=journal, offset=offset)
    if transactions is not None:
        return TransactionsBoundConfig(transactions=transactions)
    return "end_of_log" if end_of_log else None


def bound_text(bound: Bound) -> str:
    """Where a run with this bound stops, after "stops"."""
    if isinstance(bound, PositionConfig):
        return f"at {bound.journal}:{bound.offset}"
    if isinstance(bound, TransactionsBoundConfig):
        return f"after {bound.transactions:,} transaction{'s' if bound.transactions != 1 else ''}"
    return "where the log ends when the run is planned"


def run_config_of(bound: Bound | None) -> dict[str, object]:
    """The fields of `CaptureRunConfig` that say `bound`."""
    if isinstance(bound, PositionConfig):
        return {"bound_journal": bound.journal, "bound_offset": bound.offset}
    if isinstance(bound, TransactionsBoundConfig):
        return {"bound_transactions": bound.transactions}
    return {} if bound is None else {"bound_end_of_log": True}


def _wrong(got: str, expected: str) -> ConfigError:
    return ConfigError(
        "the run's bound cannot be understood",
        setting="bound",
        expected=expected,
        got=got,
        next_step="give one bound, or none to use the YAML file's",
    )
