"""Who reads a lake needs its address and the keys of its store."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

import cdc_pipeline
from cdc_pipeline.binlog.table_schema import Kind
from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.config.sink_config import PublishConfig
from cdc_pipeline.demo import SHOP_DIRECTORY
from cdc_pipeline.errors import CdcError, ConfigError
from cdc_pipeline.sink.delta_sink import DeltaSink
from cdc_pipeline.sink.read.read import view_statements
from tests.support.object_store import Store
from tests.support.object_store_server import ACCESS_KEY, SECRET
from tests.support.sink_values import applied, column, table_schema


def test_k26_a_reader_knows_nothing_of_the_database(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = PipelineConfig.model_validate(
        {
            "name": "shop",
            "source": {"kind": "archive", "directory": SHOP_DIRECTORY / "journals"},
            "tables": {"include": ["shop.customers"]},
            "sink": store.sink_config(),
        }
    )
    report = cdc_pipeline.capture(config, bound=cdc_pipeline.bound_of(transactions=40))
    assert not report.spark_started
    expected = cdc_pipeline.read(config.sink.lake_path, "shop.customers").read_all()
    assert expected.num_rows > 0

    keys = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "aws_secret_access_key": SECRET}
    options = {"AWS_ENDPOINT_URL": store.endpoint, "AWS_ALLOW_HTTP": "true", **keys}
    address = str(config.sink.lake_path)
    lake = cdc_pipeline.open_lake(address, options)
    assert lake.sources() == ["shop"]
    cut = lake.cuts("shop")[-1]
    assert lake.read("shop.customers", as_of=cut).read_all() == expected
    uri, version = lake.table_uri("shop.customers"), cut.tables["shop.customers"]
    there = DeltaTable(uri, version=version, storage_options=lake.storage_options())
    assert [field.name for field in there.schema().fields] == expected.column_names

    for name, value in options.items():
        monkeypatch.setenv(name.upper(), value)
    assert cdc_pipeline.read(address, "shop.customers").read_all() == expected

    assert SECRET not in repr(lake) + repr(lake.path)
    with pytest.raises(ConfigError, match="unknown") as unknown:
        cdc_pipeline.open_lake(address, {"AWS_ENDPOINT_ULR": store.endpoint})
    assert "AWS_ENDPOINT_ULR" in str(unknown.value)
    with pytest.raises(ConfigError) as wrong:
        cdc_pipeline.open_lake(address, options | {"endpoint": f"http://u:{SECRET}@x"})
    assert SECRET not in str(wrong.value)


def test_a_folder_is_opened_alike(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no settings of a store"):
        cdc_pipeline.open_lake(tmp_path, {"AWS_REGION": "x"})
    assert cdc_pipeline.open_lake(tmp_path).storage_options() == {}
    with pytest.raises(CdcError):
        cdc_pipeline.open_lake(tmp_path).cuts("shop")


def test_f171_duckdb_is_shown_a_lake_in_a_bucket(store: Store, tmp_path: Path) -> None:
    """By `sink.publish`, and by the statements of `cuts sql`."""
    asked = PublishConfig.model_validate({"database": "live", "duckdb": tmp_path / "live.sql"})
    config = store.sink_config().model_copy(update={"publish": asked})
    sink = DeltaSink(source="shop", config=config)
    with sink.lock():
        cut = applied(sink, 1, (table_schema("d.t", [column("id", Kind.INT32)], "id"), [], 1))
        sink.cleanup(cut)
    assert sink.unpublished is None
    place = str(config.lake_path).replace("s3a://", "s3://")
    (view,) = view_statements(sink.paths, cut, dialect="duckdb")
    assert f"delta_scan('{place}/d/t', version => " in view
    shown = (tmp_path / "live.sql").read_text(encoding="utf-8")
    assert view.partition(" AS ")[2] in shown
