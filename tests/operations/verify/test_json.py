"""What ``--json`` prints is documented, field by field: `verify.md`, `backfill.md` and
`snapshot.md` in docs/reference."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from cdc_pipeline.operations.backfill.backfill import BackfillReport
from cdc_pipeline.operations.backfill.gap import GapReport
from cdc_pipeline.operations.backfill.rebuild import RebuildReport
from cdc_pipeline.operations.snapshot.report import SnapshotReport, SnapshotTarget
from cdc_pipeline.operations.verify.report import (
    Difference,
    ExternalChange,
    Intervals,
    TableVerified,
    VerifyReport,
)
from cdc_pipeline.operations.verify.reread import RepairReport
from cdc_pipeline.run.report import ParallelReport

DOCS = Path(__file__).parents[3] / "docs" / "reference"


@pytest.mark.parametrize(
    ("page", "models", "more"),
    [
        (
            "verify.md",
            (VerifyReport, TableVerified, Difference, Intervals, ExternalChange),
            {"status", "exit_code"},
        ),
        (
            "snapshot.md",
            (SnapshotReport, SnapshotTarget, RepairReport),
            {"journal", "offset", "kind", "text"},
        ),
        ("backfill.md", (BackfillReport, RebuildReport, GapReport, ParallelReport), set()),
    ],
)
def test_every_field_of_a_report_is_documented_and_no_other(
    page: str, models: tuple[type[BaseModel], ...], more: set[str]
) -> None:
    section = (
        (DOCS / page).read_text().partition("## The report (`--json`)")[2].partition("\n## ")[0]
    )
    rows = [line for line in section.splitlines() if line.startswith(("| `", "- `"))]
    told = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    fields = {name for model in models for name in model.model_fields} | more
    assert not fields - told, "not documented"
    names = [re.split("^- |: |[|]", row)[1] for row in rows]
    first = {name for of_row in names for name in re.findall(r"`(\w+)`", of_row)}
    assert not first - fields, "there is no such field"
