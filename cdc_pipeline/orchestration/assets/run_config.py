"""Settings of one run, in Dagster's launchpad or on the command line.

Rules:
- Everything is optional: a run without settings does what the YAML file says.
- The fields describe one bound (`run.bounds`), or name the tables to catch up.
- The launchpad begins with the defaults, in which a field that is not set has no line. So one field
  holds an example of each other one, and is ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import dagster as dg
from pydantic import Field

from cdc_pipeline.config.pipeline_config import Bound
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.run.bounds import bound_of, parts_of

_TABLES_NAMED_MAX: Final = 2

# One value of each field; see `unused_examples`.
EXAMPLES: Final[dict[str, Any]] = {
    "until": "binlog.000007:600480",
    "until_transactions": 1000,
    "until_bytes": 1_000_000_000,
    "until_seconds": 60.0,
    "only_tables": ["shop.orders"],
}
_FIELDS: Final = {
    "until": "until",
    "transactions": "until_transactions",
    "size_bytes": "until_bytes",
    "seconds": "until_seconds",
}


class CaptureRunConfig(dg.Config):
    """Where this run stops, in place of the YAML file's `bound`: one of until, until_transactions,
    until_bytes and until_seconds, or none of them.
    """

    until: str | None = Field(
        default=None,
        description="Stop there: at an event boundary in a journal, such as binlog.000007:600480; "
        "after the transaction with a GTID; before the first transaction committed after a time "
        "with its zone, such as 2026-01-31T08:00:00+00:00; or at end_of_log, as it is when the run "
        "is planned. Excludes other bounds.",
    )
    until_transactions: int | None = Field(
        default=None,
        description="Stop after this many transactions, at least 1. Excludes other bounds.",
    )
    until_bytes: int | None = Field(
        default=None,
        description="Stop at the first transaction end after this many bytes of the log. "
        "Excludes other bounds.",
    )
    until_seconds: float | None = Field(
        default=None,
        description="Stop at the first transaction end after this much time. "
        "Excludes other bounds.",
    )
    only_tables: list[str] = Field(
        default_factory=list,
        description=(
            "Catch up only these suspended tables, each as schema.table, and leave the cursor "
            "where it is. Empty: capture the source."
        ),
    )

    unused_examples: dict[str, Any] = Field(
        default=EXAMPLES,
        description=(
            "Ignored: one example of each field. To use one, copy its line to the level above, "
            "next to only_tables; of the bounds, take one."
        ),
    )

    def bound(self) -> Bound | None:
        """None if the YAML file decides."""
        return bound_of(**{part: getattr(self, name) for part, name in _FIELDS.items()})


def launchpad_fields(tables: Sequence[str], cut: Cut | None) -> dict[str, dg.Field]:
    """Those of `CaptureRunConfig`, with the source's own tables and last place as examples."""
    examples = EXAMPLES | ({"only_tables": list(tables[:_TABLES_NAMED_MAX])} if tables else {})
    if cut is not None:
        position = cut.cursor.position
        examples |= {"until": f"{position.journal}:{position.offset}"}
    fields = CaptureRunConfig.to_fields_dict()
    default = fields["unused_examples"]
    fields["unused_examples"] = dg.Field(
        default.config_type, default_value=examples, description=default.description
    )
    return fields


def run_config_of(bound: Bound | None, tables: Sequence[str] = ()) -> dict[str, object]:
    """The fields of `CaptureRunConfig` that express `bound` and the tables to catch up."""
    parts = {} if bound is None else parts_of(bound)
    fields: dict[str, object] = {_FIELDS[part]: value for part, value in parts.items()}
    return fields | {"only_tables": list(tables)} if tables else fields
