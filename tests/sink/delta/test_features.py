"""The setting sink.reader_features: what may be switched on, for whom that matters, and what is
refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from cdc_pipeline.binlog.table_schema import Kind
from cdc_pipeline.config.pipeline_config import READER_FEATURES, PipelineConfig, SinkConfig
from cdc_pipeline.errors import FeatureNotAllowedError
from cdc_pipeline.schema.types import features_of_type
from cdc_pipeline.sink.delta.features import (
    Allowed,
    allowed,
    creation_properties,
    excluded,
    features_of_table,
)
from cdc_pipeline.targets.confirmed import confirmed
from cdc_pipeline.targets.targets import targets_at
from tests.support.sink_values import column, table_schema


def _sink(*names: str) -> SinkConfig:
    return SinkConfig(lake_path=Path("lake"), reader_features=names)


def _allowed(*names: str) -> Allowed:
    return allowed(_sink(*names))


def test_all_is_the_default_and_permits_everything() -> None:
    permitted = allowed(SinkConfig(lake_path=Path("lake")))
    assert all(permitted.permits(feature) for feature in READER_FEATURES)


def test_a_preset_permits_what_its_reader_knows_and_two_what_both_know() -> None:
    assert _allowed("duckdb").permits("deletionVectors")
    assert not _allowed("duckdb", "polars").permits("deletionVectors")
    assert _allowed("duckdb", "polars").permits("timestampNtz")
    assert not _allowed().permits("timestampNtz")


def test_a_feature_beside_a_preset_is_added_to_it() -> None:
    permitted = _allowed("polars", "deletionVectors")
    assert permitted.permits("deletionVectors")
    assert permitted.permits("timestampNtz")
    assert not permitted.permits("columnMapping")


def test_features_of_writers_alone_keep_nobody_out() -> None:
    assert _allowed("delta-rs").permits("clustering")
    assert excluded("clustering", "changeDataFeed") == ()


@pytest.mark.parametrize("value", ["some", ["deletionvectors"], [3], 3, None])
def test_what_is_no_feature_is_refused_with_the_list(value: object) -> None:
    with pytest.raises(ValidationError, match="deletionVectors") as caught:
        SinkConfig.model_validate({"lake_path": "lake", "reader_features": value})
    assert [error["loc"] for error in caught.value.errors()] == [("reader_features",)]


def test_require_names_the_setting_the_table_and_who_cannot_read() -> None:
    with pytest.raises(FeatureNotAllowedError, match="typeWidening") as caught:
        _allowed("polars").require(
            "typeWidening", "column `n` grows from int to bigint", table="shop.orders"
        )
    assert caught.value.table == "shop.orders"
    assert "setting sink.reader_features" in str(caught.value)
    assert "delta-rs" in str(caught.value)
    assert "spark-4.0" not in str(caught.value)


def test_types_bring_features_on() -> None:
    assert features_of_type("array<timestamp_ntz>") == ("timestampNtz",)
    assert features_of_type("timestamp") == ()
    assert features_of_table(["int", "variant"], Allowed()) == ("deletionVectors", "variantType")
    assert features_of_table(["timestamp_ntz"], _allowed("delta-rs")) == ("timestampNtz",)


def test_new_tables_get_deletion_vectors_only_if_permitted() -> None:
    assert creation_properties(Allowed()) == {"delta.enableDeletionVectors": "true"}
    assert creation_properties(_allowed("delta-rs")) == {}


def test_a_datetime_without_its_feature_stops_its_table_by_name() -> None:
    config = PipelineConfig.model_validate(
        {
            "name": "shop",
            "source": {"kind": "archive", "directory": "journals"},
            "sink": {"lake_path": "lake", "reader_features": ["deletionVectors"]},
        }
    )
    targets = targets_at(config, None)
    plain = [column("id", Kind.INT32)]
    with pytest.raises(FeatureNotAllowedError, match="`at` is stored as timestamp_ntz") as caught:
        confirmed(targets, table_schema("shop.orders", [*plain, column("at", Kind.DATETIME)], "id"))
    assert caught.value.table == "shop.orders"
    _, (target,) = confirmed(targets, table_schema("shop.orders", plain, "id"))
    assert [made.name for made in target.spec.columns] == ["id"]
