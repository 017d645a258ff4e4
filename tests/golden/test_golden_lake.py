"""State that a released version wrote is read and continued: records, cuts, staged files, schema
history, cursor, tables, and Dagster's own. `record_state.py` says what an archive holds; there is
one a release, and none before the first.
"""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import cdc_pipeline
from cdc_pipeline.cli.app import cli
from cdc_pipeline.config.pipeline_config import PipelineConfig, load_config
from cdc_pipeline.config.spark_config import SparkConfig
from cdc_pipeline.demo import SHOP_DIRECTORY
from cdc_pipeline.demo.verify import compare, read_expected
from cdc_pipeline.operations.status import status
from cdc_pipeline.orchestration.runs.execute import load_source, open_instance
from cdc_pipeline.position.cursor_file import FileCursorStore
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.sink.spark.session import SparkProvider
from tests.golden.record_state import config_text
from tests.support.captures import SPARK

_FOLDER = Path(__file__).parent
_ARCHIVES = {file.name: file for file in _FOLDER.glob("state-*.tar.xz")}
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


@pytest.fixture(params=sorted(_ARCHIVES))
def old(tmp_path: Path, request: pytest.FixtureRequest) -> PipelineConfig:
    """The pipeline of the older version, with its lake and its cursor."""
    with tarfile.open(_ARCHIVES[request.param]) as archive:
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
    assert [cut.number for cut in kept] == list(range(1, len(kept) + 1))
    assert now.unfinished_batch == len(kept) + 1


@pytest.mark.spark
@pytest.mark.whole
def test_k2_k3_a_run_finishes_the_batch_of_an_older_version_and_goes_on(
    old: PipelineConfig, spark: Any
) -> None:
    lake, before = old.sink.lake_path, cdc_pipeline.cuts(old.sink.lake_path, "shop")
    report = capture(old, cursors=_cursors(old))
    assert report.outcome == "applied"
    _is_whole(lake, spark, at_middle=before[-1].number)


@pytest.mark.spark
@pytest.mark.whole
@pytest.mark.parametrize("name", sorted(_ARCHIVES))
def test_k3_dagster_goes_on_in_the_home_of_an_older_version(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its cursor is read from the events of the older version's run."""
    with tarfile.open(_ARCHIVES[name]) as archive:
        archive.extractall(tmp_path, filter="data")
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    (jobs / "shop.yaml").write_text(config_text(SHOP_DIRECTORY / "journals"))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster_home"))
    before = cdc_pipeline.cuts(tmp_path / "lake", "shop")
    with open_instance() as instance:
        cursor = load_source(jobs, "shop").cursors(instance).read()
        assert cursor is not None
        assert cursor.batch_number == before[-1].number
    done = CliRunner().invoke(cli, ["--jobs", str(jobs), "run", "shop"])
    assert done.exit_code == 0, done.output
    with open_instance() as instance:
        cursor = load_source(jobs, "shop").cursors(instance).read()
        assert cursor is not None
        assert cursor.batch_number > before[-1].number
        assert instance.get_runs_count() == 2
    spark = SparkProvider(SparkConfig(**SPARK)).session()
    _is_whole(tmp_path / "lake", spark, at_middle=before[-1].number)


def _is_whole(lake: Path, spark: Any, *, at_middle: int) -> None:
    """Every table is as the source at the end of the shop, and a cut as it was in the middle."""
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
    middle = cdc_pipeline.read(spark, lake, "shop.customers", as_of=at_middle)
    names = [column["name"] for column in header["columns"]]
    assert (
        compare("shop.customers", middle.select(*names).toArrow(), header, expected).differences
        == ()
    )
