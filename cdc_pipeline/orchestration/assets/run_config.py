"""Settings of one run, in Dagster's launchpad or on the command line.

Rules:
- Everything is optional: a run without settings does what the YAML file says.
- The fields describe one bound (`run.bounds`), or name the tables to catch up.
- The launchpad begins with the defaults, in which a field that is not set has no line. So one field
  holds an example of each other one, and is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import dagster as dg
from pydantic import Field

from cdc_pipeline.config.pipeline_config import (
    Bound,
    BytesBoundConfig,
    GtidBoundConfig,
    PositionConfig,
    SecondsBoundConfig,
    TimeBoundConfig,
    TransactionsBoundConfig,
)
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.run.bounds import bound_of

_TABLES_NAMED_MAX: Final = 2
# The last transaction of the first server in a set: uuid:1-7 of MySQL, 0-1-7 of MariaDB.
_GTID: Final = re.compile(r"([^:,]+:)[^,]*?(\d+)(?=,|$)|(\d+-\d+-\d+)")

# One value of each field that is its own bound, or that names tables; see `unused_examples`.
EXAMPLES: Final[dict[str, Any]] = {
    "bound_journal": "binlog.000007",
    "bound_offset": 600480,
    "bound_gtid": "0-1-100",
    "bound_time": "2026-01-31T08:00:00+00:00",
    "bound_transactions": 1000,
    "bound_bytes": 1_000_000_000,
    "bound_seconds": 60.0,
    "bound_end_of_log": True,
    "only_tables": ["shop.orders"],
}


class CaptureRunConfig(dg.Config):
    """Where this run stops, in place of the YAML file's `bound`: one of bound_journal (with
    bound_offset), bound_gtid, bound_time, bound_transactions, bound_bytes, bound_seconds and
    bound_end_of_log, or none of them.
    """

    bound_journal: str | None = Field(
        default=None,
        description="Stop in this journal, such as binlog.000007, at bound_offset. "
        "Excludes other bounds.",
    )
    bound_offset: int | None = Field(
        default=None,
        description="Byte offset of an event boundary in bound_journal; default 4, the "
        "journal's beginning.",
    )
    bound_gtid: str | None = Field(
        default=None,
        description=(
            "Stop after the transaction with this GTID, such as "
            "3e11fa47-71ca-11e1-9e33-c80aa9429562:7 (MySQL) or 0-1-100 (MariaDB). Excludes "
            "other bounds."
        ),
    )
    bound_time: str | None = Field(
        default=None,
        description=(
            "Stop before the first transaction committed after this time, given with a zone, "
            "such as 2026-01-31T08:00:00+00:00. Excludes other bounds."
        ),
    )
    bound_transactions: int | None = Field(
        default=None,
        description="Stop after this many transactions, at least 1. Excludes other bounds.",
    )
    bound_bytes: int | None = Field(
        default=None,
        description="Stop at the first transaction end after this many bytes of the log. "
        "Excludes other bounds.",
    )
    bound_seconds: float | None = Field(
        default=None,
        description="Stop at the first transaction end after this much time. "
        "Excludes other bounds.",
    )
    bound_end_of_log: bool = Field(
        default=False,
        description=(
            "true: read to the end of the log when the run is planned, whatever bound the "
            "YAML file has. false: stop at the bound that another field gives, or else at the "
            "YAML file's."
        ),
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
            "next to only_tables; of the bounds, take one (bound_journal goes with bound_offset)."
        ),
    )

    def bound(self) -> Bound | None:
        """None if the YAML file decides."""
        return bound_of(
            journal=self.bound_journal,
            offset=self.bound_offset,
            gtid=self.bound_gtid,
            time=self.bound_time,
            transactions=self.bound_transactions,
            size_bytes=self.bound_bytes,
            seconds=self.bound_seconds,
            end_of_log=self.bound_end_of_log,
        )


def launchpad_fields(tables: Sequence[str], cut: Cut | None) -> dict[str, dg.Field]:
    """Those of `CaptureRunConfig`, with the source's own tables and last place as examples."""
    examples = EXAMPLES | ({"only_tables": list(tables[:_TABLES_NAMED_MAX])} if tables else {})
    if cut is not None:
        position = cut.cursor.position
        examples |= {"bound_journal": position.journal, "bound_offset": position.offset}
        if gtid := _GTID.match(cut.cursor.gtid_set):
            examples["bound_gtid"] = "".join(filter(None, gtid.groups()))
        if cut.source_time_us >= 0:
            time = datetime.fromtimestamp(cut.source_time_us // 1_000_000, UTC)
            examples["bound_time"] = time.isoformat()
    fields = CaptureRunConfig.to_fields_dict()
    default = fields["unused_examples"]
    fields["unused_examples"] = dg.Field(
        default.config_type, default_value=examples, description=default.description
    )
    return fields


def run_config_of(bound: Bound | None, tables: Sequence[str] = ()) -> dict[str, object]:
    """The fields of `CaptureRunConfig` that express `bound` and the tables to catch up."""
    fields = _bound_fields(bound)
    return fields | {"only_tables": list(tables)} if tables else fields


def _bound_fields(bound: Bound | None) -> dict[str, object]:
    if isinstance(bound, PositionConfig):
        return {"bound_journal": bound.journal, "bound_offset": bound.offset}
    if isinstance(bound, TransactionsBoundConfig):
        return {"bound_transactions": bound.transactions}
    if isinstance(bound, GtidBoundConfig):
        return {"bound_gtid": bound.gtid}
    if isinstance(bound, TimeBoundConfig):
        return {"bound_time": bound.time.isoformat()}
    if isinstance(bound, BytesBoundConfig):
        return {"bound_bytes": bound.bytes}
    if isinstance(bound, SecondsBoundConfig):
        return {"bound_seconds": bound.seconds}
    return {} if bound is None else {"bound_end_of_log": True}
