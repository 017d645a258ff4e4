"""K13: a table under the name that another one had after a RENAME."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import SchemaError
from cdc_pipeline.schema.ddl.ddl import parse_statement
from cdc_pipeline.schema.evolution.changes import decide
from cdc_pipeline.schema.evolution.statement_context import StatementContext
from cdc_pipeline.targets.decided import decided, known
from cdc_pipeline.targets.targets import targets_at
from tests.targets.test_exact import said


def test_k13_a_table_made_under_the_name_of_a_renamed_and_dropped_one_has_a_target_of_its_own() -> (
    None
):
    source = {"kind": "archive", "directory": Path("journals")}
    targets = targets_at(
        PipelineConfig.model_validate(
            {"name": "bank", "source": source, "sink": {"lake_path": "lake"}}
        ),
        None,
    )
    for sql in (
        "CREATE TABLE t (a INT PRIMARY KEY)",
        "ALTER TABLE t RENAME TO u",
        "DROP TABLE u",
        "CREATE TABLE u (a INT PRIMARY KEY, b INT)",
    ):
        targets = said(targets, sql, rename_table="follow")
    assert [target.name for target in targets.following("d", "u")] == ["d.u"]
    assert [column.name for column in targets.by_name["d.u"].spec.columns] == ["a", "b"]
    old = targets.by_name["d.t"]
    assert [column.name for column in old.spec.columns] == ["a"]
    assert old.spec.sources["d.u"].gone


@pytest.mark.parametrize("mode", ["soft_delete", "history", "changelog"])
def test_k13_what_keeps_the_past_stops_at_a_create_whose_columns_only_a_table_map_will_tell(
    mode: str,
) -> None:
    """It stopped at the first row instead, emptied in between."""
    document = {
        "name": "bank",
        "source": {"kind": "archive", "directory": Path("journals")},
        "sink": {"lake_path": "lake"},
        "targets": [{"tables": ["d.t"], "mode": mode, "name": "d.t"}],
    }
    targets = targets_at(PipelineConfig.model_validate(document), None)
    for sql in ("CREATE TABLE t (a INT PRIMARY KEY)", "DROP TABLE t"):
        targets, _ = decided(
            targets,
            decide(
                StatementContext(
                    parse_statement(sql, "d"),
                    captured=lambda *_: True,
                    known=partial(known, targets),
                )
            ),
        )
    again = decide(
        StatementContext(
            parse_statement("CREATE TABLE t (a INT)", "d"),
            captured=lambda *_: True,
            known=partial(known, targets),
        )
    )
    with pytest.raises(SchemaError, match="keeps the past"):
        decided(targets, again)
    emptied = decide(
        StatementContext(
            parse_statement("DROP TABLE t", "d"),
            captured=lambda *_: True,
            known=partial(known, targets),
        )
    )
    decided(targets, emptied)  # a DROP alone asks nothing of it
