"""Include and exclude patterns."""

import pytest

from cdc_pipeline.config.pipeline_config import TablesConfig
from cdc_pipeline.pipeline.targets.table_filter import TableFilter


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
    tables = TableFilter(TablesConfig(include=("shop.*", "mysql.*", "sys.*"), exclude=("*.tmp_*",)))
    assert tables.captured(*name.split(".")) is captured


def test_names_with_dots_belong_to_the_table() -> None:
    tables = TableFilter(TablesConfig(include=("shop.*",)))
    assert tables.captured_names(["shop.b.c", "shop.a", "other.x"]) == ["shop.a", "shop.b.c"]
