"""State that an older version wrote is read and continued: records, cuts, staged files, schema
history, cursor, tables.

``lake-9168b91.tar.xz`` holds what commit 9168b91 (version 0.1.0) left of the recorded shop: a run
up to the middle in three batches (``merge_rows: 4000``; one table in each mode), and a second run
that was killed between the merges of batch 4, whose record and staged files are there and whose cut
is not. ``cursors`` is the folder of its cursor.
"""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import pytest

import cdc_pipeline
from cdc_pipeline.config.pipeline_config import PipelineConfig, load_config
from cdc_pipeline.config.spark_config import SparkConfig
from cdc_pipeline.demo import SHOP_DIRECTORY
from cdc_pipeline.demo.verify import compare, read_expected
from cdc_pipeline.pipeline.capture.capture import capture
from cdc_pipeline.pipeline.operate.status import status
from cdc_pipeline.position.cursor_file import FileCursorStore
from cdc_pipeline.sink.spark.session import SparkProvider
from tests.support.captures import SPARK

_ARCHIVE = Path(__file__).with_name("lake-9168b91.tar.xz")
_CONFIG = """
source: {{kind: archive, directory: {journals}}}
tables: {{include: [shop.customers, shop.products, shop.orders, shop.stock_movements]}}
sink: {{lake_path: lake}}
targets:
  - {{tables: [shop.products], mode: soft_delete}}
  - {{tables: [shop.orders], mode: history}}
  - {{tables: [shop.stock_movements], mode: changelog}}
"""
# Rows that the source has at a cut, by what each mode's table says; a changelog's are its newest
# change of each key.
_TARGETS = {
    "customers": ("customers", "true"),
    "products": ("products", "NOT _cdc_deleted"),
    "orders": ("orders_history", "__END_AT IS NULL"),
    "stock_movements": ("stock_movements_changelog", ""),
}


@pytest.fixture
def old(tmp_path: Path) -> PipelineConfig:
    """The pipeline of the older version, with its lake and its cursor."""
    with tarfile.open(_ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    file = tmp_path / "shop.yaml"
    file.write_text(_CONFIG.format(journals=SHOP_DIRECTORY / "journals"))
    config = load_config(file)
    sink = config.sink.model_copy(update={"spark": SparkConfig(**SPARK)})
    return config.model_copy(update={"sink": sink})


@pytest.fixture
def spark(old: PipelineConfig) -> Any:
    return SparkProvider(old.sink.spark).session()


def _cursors(config: PipelineConfig) -> FileCursorStore:
    return FileCursorStore(config.sink.lake_path.parent / "cursors", source="shop")


def test_k3_the_state_of_an_older_version_is_read(old: PipelineConfig) -> None:
    now = status(old, cursors=_cursors(old))
    assert set(now.tables) == {f"shop.{target}" for target, _ in _TARGETS.values()}
    kept = cdc_pipeline.cuts(old.sink.lake_path, "shop")
    assert [cut.number for cut in kept] == [1, 2, 3]


@pytest.mark.spark
@pytest.mark.whole
def test_k2_k3_a_run_finishes_the_batch_of_an_older_version_and_goes_on(
    old: PipelineConfig, spark: Any
) -> None:
    lake, before = old.sink.lake_path, cdc_pipeline.cuts(old.sink.lake_path, "shop")
    report = capture(old, cursors=_cursors(old))
    assert report.outcome == "applied"
    for name, (target, has_now) in _TARGETS.items():
        header, expected = read_expected(SHOP_DIRECTORY / "expected" / f"{name}.jsonl.gz")
        frame = cdc_pipeline.read(spark, lake, f"shop.{target}")
        if has_now:
            frame = frame.where(has_now)
        else:
            key = ", ".join(f"`{column}`" for column in header["key"])
            frame.createOrReplaceTempView("changes")
            newest = (
                f"row_number() OVER (PARTITION BY {key} ORDER BY _cdc_seq DESC, _cdc_ordinal DESC)"
            )
            frame = spark.sql(
                f"SELECT * FROM (SELECT *, {newest} AS place FROM changes) WHERE place = 1"
            )
            frame = frame.where("_cdc_op <> 'delete'")
        columns = [column["name"] for column in header["columns"]]
        found = compare(f"shop.{name}", frame.select(*columns).toArrow(), header, expected)
        assert found.differences == ()
    header, expected = read_expected(SHOP_DIRECTORY / "expected_middle" / "customers.jsonl.gz")
    middle = cdc_pipeline.read(spark, lake, "shop.customers", as_of=before[-1].number)
    names = [column["name"] for column in header["columns"]]
    assert (
        compare("shop.customers", middle.select(*names).toArrow(), header, expected).differences
        == ()
    )
