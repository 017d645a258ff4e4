"""Addresses of lakes and settings of their stores, in the configuration."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from cdc_pipeline.config.pipeline_config import ConfigMistakes, SinkConfig, load_config
from cdc_pipeline.config.spark_config import is_secret
from cdc_pipeline.config.storage_config import LakeUri, StorageConfig, parse_uri
from cdc_pipeline.errors import RuntimeSetupError
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.storage.object_path import is_object
from cdc_pipeline.lake.storage.object_storage import storage_for
from cdc_pipeline.lake.storage.storage import opened
from cdc_pipeline.lake.storage.storage_settings import (
    delta_options,
    library_settings,
    spark_storage,
)
from cdc_pipeline.sink.maintain.materialize import provider_for
from cdc_pipeline.sink.spark.session import session_settings

_JOB = """
source: {{kind: archive, directory: .}}
sink:
  lake_path: {lake}
  storage: {{access_key_id: id, secret_access_key: "${{LAKE_SECRET}}"}}
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("s3://bucket/lake", "write s3a://"),
        ("hdfs://name/lake", "cannot be at hdfs://"),
        ("file:///lake", "cannot be at file://"),
        ("s3a://", "expected s3a://bucket/folder"),
        ("s3a://key:word@bucket/lake", "must not contain credentials"),
        ("s3a://user@bucket/lake", "must not contain credentials"),
        ("abfss://account.dfs.core.windows.net/lake", "expected abfss://container@account"),
        ("gs://bucket/a/../b", r"contains \. or \.\."),
        ("s3a://bucket/lake?versionId=1", "expected s3a://"),
    ],
)
def test_what_cannot_be_a_lake_is_told_the_right_form(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_uri(text)


def test_a_job_file_takes_a_path_or_an_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKE_SECRET", "very-secret-word")
    job = tmp_path / "shop.yaml"
    job.write_text(_JOB.format(lake="s3a://bucket/some//lake/"))
    config = load_config(job)
    assert str(config.sink.lake_path) == "s3a://bucket/some/lake"
    assert (
        "very-secret-word"
        not in repr(config) + str(config.sink.lake_path) + config.model_dump_json()
    )
    lake = LakePaths(config.sink.lake_path, "shop").lake
    assert is_object(lake)
    assert delta_options(lake)["aws_secret_access_key"] == "very-secret-word"

    job.write_text(_JOB.format(lake="s3://bucket/lake"))
    with pytest.raises(ConfigMistakes, match=r"sink\.lake_path: write s3a://"):
        load_config(job)
    job.write_text(_JOB.format(lake="../lake"))
    with pytest.raises(ConfigMistakes, match="storage applies only to a lake in an object store"):
        load_config(job)
    job.write_text("source: {kind: archive, directory: .}\nsink: {lake_path: ../lake}\n")
    assert load_config(job).sink.lake_path == tmp_path.parent / "lake"


def test_an_address_is_a_value() -> None:
    lake = LakeUri("s3a", "bucket", ("lake",))
    assert lake.as_uri() == str(lake) == "s3a://bucket/lake"
    assert lake / "a/b" == LakeUri("s3a", "bucket", ("lake", "a", "b"))
    assert [str(parent) for parent in (lake / "a").parents] == ["s3a://bucket/lake", "s3a://bucket"]
    assert lake == LakeUri("s3a", "bucket", ("lake",), StorageConfig(region="x"))
    with pytest.raises(ValueError, match="is not below"):
        lake.relative_to(LakeUri("s3a", "other", ()))
    with pytest.raises(ValueError, match=r"contains \. or \.\."):
        lake / ".."


def test_secrets_stay_out_of_sparks_command_line() -> None:
    secret = SecretStr("very-secret-word")
    for lake, storage in (
        (
            "s3a://bucket/lake",
            {"access_key_id": "id", "secret_access_key": secret, "session_token": secret},
        ),
        ("abfss://c@account.dfs.core.windows.net/lake", {"account_key": secret}),
        ("abfss://c@account.dfs.core.windows.net/lake", {"sas_token": secret}),
    ):
        config = SinkConfig.model_validate({"lake_path": lake, "storage": storage})
        path = opened(config.lake_path)
        assert is_object(path)
        found = spark_storage(path)
        assert "very-secret-word" in found.secrets.values()
        assert "very-secret-word" not in repr(found)
        assert "very-secret-word" not in str(found.settings)
        assert all(name.startswith("fs.") for name in found.secrets)
        assert all(is_secret(f"spark.hadoop.{name}", "x") for name in found.secrets), (
            "it would be an argument"
        )
    assert "fs.s3a" not in str(session_settings(config.spark, warehouse="/w"))


def test_the_settings_of_all_three_users_agree() -> None:
    config = StorageConfig(
        endpoint="http://127.0.0.1:9000", region="eu-1", access_key_id=SecretStr("id")
    )
    path = opened(Path())  # a local path has none of it
    assert not is_object(path)
    lake = LakePaths(
        SinkConfig.model_validate({"lake_path": "s3a://b/l", "storage": config}).lake_path, "s"
    ).lake
    assert is_object(lake)
    spark = spark_storage(lake).settings
    assert library_settings("s3a", "b", config)["virtual_hosted_style_request"] == "false"
    assert spark["spark.hadoop.fs.s3a.path.style.access"] == "true"
    assert delta_options(lake)["allow_http"] == "true"
    for name in ("endpoint", "region"):
        value = library_settings("s3a", "b", config)[name]
        assert delta_options(lake)[f"aws_{name}"] == value
        assert (
            spark[f"spark.hadoop.fs.s3a.{'endpoint.region' if name == 'region' else name}"] == value
        )


def test_a_copy_is_reached_wherever_it_lies(tmp_path: Path) -> None:
    local = SinkConfig(lake_path=tmp_path)
    remote = SinkConfig.model_validate(
        {"lake_path": "s3a://b/l", "storage": StorageConfig(endpoint="http://h:9")}
    )
    assert provider_for(local, "/copy")._storage is None
    for config, to in ((local, "s3a://b/copy"), (remote, "/copy"), (remote, "s3a://b/copy")):
        storage = provider_for(config, to)._storage
        assert storage is not None
        assert storage.jar_set == "s3"


def test_dagsters_pages_load_while_the_store_is_away(tmp_path: Path) -> None:
    from cdc_pipeline.orchestration.definitions import build_definitions

    job = tmp_path / "shop.yaml"
    job.write_text(
        "source: {kind: archive, directory: .}\ntables: {include: [shop.orders]}\nsink:\n  "
        "lake_path: s3a://bucket/lake\n  storage: {endpoint: 'http://127.0.0.1:9', retry_s: 0.2}\n"
    )
    definitions = build_definitions(tmp_path)
    specs = {spec.key.to_user_string(): spec for spec in definitions.resolve_all_asset_specs()}
    (uri,) = {
        spec.metadata["dagster/uri"].value
        for spec in specs.values()
        if "dagster/uri" in spec.metadata
    }
    assert uri == "s3a://bucket/lake/shop/orders"


def test_a_store_without_credentials_is_not_called_a_network_problem() -> None:
    """F22: without credentials the library asks the machine for its identity, at an address that
    most do not have."""
    from obstore.exceptions import GenericError

    storage = storage_for("s3a", "lakes", StorageConfig(region="eu-1"))
    asked = (
        "Generic S3 error: Error performing PUT http://169.254.169.254/latest/api/token in "
        "1s, after 2 retries"
    )
    with pytest.raises(RuntimeSetupError, match="no credentials") as caught, storage._errors("x"):
        raise GenericError(asked)
    assert caught.value.setting == "sink.storage"
