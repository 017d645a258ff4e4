"""Include and exclude patterns."""

from pathlib import Path
from typing import Any

import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.targets.table_filter import TableFilter


def filter_of(names: int = 0, **tables: Any) -> TableFilter:
    """The filter of a pipeline over an archive whose server compares names so."""
    source = {"kind": "archive", "directory": Path(), "lower_case_table_names": names}
    return TableFilter(
        PipelineConfig.model_validate(
            {
                "name": "shop",
                "source": source,
                "tables": tables,
                "sink": {"lake_path": Path("lake")},
            }
        )
    )


@pytest.mark.parametrize(
    ("name", "captured"),
    [
        ("shop.orders", True),
        ("shop.tmp_orders", False),
        ("Shop.orders", False),
        ("shop2.orders", False),
        ("mysql.user", False),
        ("sys.x", False),
    ],
)
def test_patterns(name: str, captured: bool) -> None:
    tables = filter_of(include=["shop.*", "mysql.*", "sys.*"], exclude=["*.tmp_*"])
    assert tables.captured(*name.split(".")) is captured


def test_names_with_dots_belong_to_the_table() -> None:
    tables = filter_of(include=["shop.*"])
    assert tables.captured_names(["shop.b.c", "shop.a", "other.x"]) == ["shop.a", "shop.b.c"]
