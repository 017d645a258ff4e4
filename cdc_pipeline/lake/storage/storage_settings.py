"""Settings of an object store in the forms of `obstore`, `deltalake`, and Hadoop in Spark.

Rules:
- An unset value is not passed: each library then looks where its cloud's tools look (environment,
  machine, workload).
- Secrets go to Spark apart from its other settings: those are in the JVM's command line, which
  others can see.

- `fs.s3a.performance.flags` must stay without "create": with it, Hadoop 3.5 creates every new file
  without checking whether one exists, and Delta's log store relies on that check.

Sources: obstore's configuration keys (those of Rust's object_store), Hadoop 3.5 "hadoop-aws"
(S3AFileSystem.create), "hadoop-azure" and "hadoop-gcp".
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Final

from pydantic import SecretStr

from cdc_pipeline.config.storage_config import LakeUri, StorageConfig

ANSWER_S: Final = 30.0  # how long an answer is waited for
CONNECT_S: Final = 5.0

_S3A = "spark.hadoop.fs.s3a."
_PROVIDERS = "org.apache.hadoop.fs.s3a."


@dataclass(frozen=True, slots=True)
class SparkStorage:
    """Settings of a Spark session for a lake in an object store: `jar_set` as in
    `jars.JAR_SETS`; `secrets` are Hadoop's, to be set in the running JVM.
    """

    lake: str
    scheme: str
    jar_set: str
    settings: dict[str, str]
    secrets: dict[str, str] = field(default_factory=dict, repr=False)


def library_settings(scheme: str, authority: str, config: StorageConfig) -> dict[str, str]:
    """Return `obstore`'s settings for one bucket; with a prefix, the keys are `deltalake`'s."""
    if scheme == "s3a":
        settings = {
            "bucket": authority,
            "region": _region(config),
            "endpoint": endpoint_of(scheme, config),
            "access_key_id": _text(config.access_key_id),
            "secret_access_key": _text(config.secret_access_key),
            "session_token": _text(config.session_token),
            "virtual_hosted_style_request": {None: None, True: "false", False: "true"}[
                _path_style(config)
            ],
            "conditional_put": "etag",
        }
    elif scheme == "abfss":
        container, _, host = authority.partition("@")
        settings = {
            "container_name": container,
            "account_name": host.partition(".")[0],
            "endpoint": config.endpoint,
            "account_key": _text(config.account_key),
            "sas_key": _text(config.sas_token),
        }
    else:
        settings = {
            "bucket": authority,
            "service_account": config.service_account_file,
            "base_url": config.endpoint,
        }
    return {name: value for name, value in settings.items() if value is not None}


def endpoint_of(scheme: str, config: StorageConfig) -> str | None:
    """The address of the store; of S3 also from the variables that the tools of AWS read."""
    if config.endpoint is not None or scheme != "s3a":
        return config.endpoint
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or None


def delta_options(path: LakeUri) -> dict[str, str]:
    """Return `storage_options` of `deltalake` for a table in an object store."""
    config = path.storage
    prefix = {"s3a": "aws_", "abfss": "azure_", "gs": "google_"}[path.scheme]
    left_out = {"bucket", "container_name"}
    found = library_settings(path.scheme, path.authority, config)
    options = {prefix + name: value for name, value in found.items() if name not in left_out}
    options |= {
        "timeout": f"{ANSWER_S:g}s",
        "connect_timeout": f"{CONNECT_S:g}s",
        "max_retries": "1000000",  # the time alone decides
        "retry_timeout": f"{config.retry_s:g}s",
    }
    if (endpoint_of(path.scheme, config) or "").startswith("http://"):
        options["allow_http"] = "true"
    return options


def spark_storage(path: LakeUri) -> SparkStorage:
    config = path.storage
    if path.scheme == "s3a":
        return SparkStorage(str(path), "s3a", "s3", _s3a_settings(config), _s3a_secrets(config))
    if path.scheme == "abfss":
        account = path.authority.partition("@")[2]
        secrets = {f"fs.azure.account.key.{account}": _text(config.account_key)}
        settings = {}
        if config.sas_token is not None:
            settings[f"spark.hadoop.fs.azure.account.auth.type.{account}"] = "SAS"
            secrets[f"fs.azure.sas.fixed.token.{account}"] = _text(config.sas_token)
        return SparkStorage(
            str(path),
            "abfss",
            "azure",
            settings,
            {name: value for name, value in secrets.items() if value is not None},
        )
    settings = {"spark.hadoop.fs.gs.impl": "org.apache.hadoop.fs.gs.GoogleHadoopFileSystem"}
    if config.service_account_file:
        settings["spark.hadoop.fs.gs.auth.type"] = "SERVICE_ACCOUNT_JSON_KEYFILE"
        settings["spark.hadoop.fs.gs.auth.service.account.json.keyfile"] = (
            config.service_account_file
        )
    return SparkStorage(str(path), "gs", "gcs", settings)


def _s3a_settings(config: StorageConfig) -> dict[str, str]:
    found = {
        "endpoint": endpoint_of("s3a", config),
        "endpoint.region": _region(config),
        "path.style.access": None
        if _path_style(config) is None
        else str(_path_style(config)).lower(),
        # The other kinds of stream need a library that this set leaves out.
        "input.stream.type": "classic",
        "fast.upload.buffer": "bytebuffer",
        "retry.limit": "5",
        "attempts.maximum": "3",
        "connection.establish.timeout": "10s",
    }
    if config.access_key_id is not None:
        provider = "Temporary" if config.session_token is not None else "Simple"
        found["aws.credentials.provider"] = f"{_PROVIDERS}{provider}AWSCredentialsProvider"
    return {_S3A + name: value for name, value in found.items() if value is not None}


def _s3a_secrets(config: StorageConfig) -> dict[str, str]:
    found = {
        "access.key": _text(config.access_key_id),
        "secret.key": _text(config.secret_access_key),
        "session.token": _text(config.session_token),
    }
    return {f"fs.s3a.{name}": value for name, value in found.items() if value is not None}


def _region(config: StorageConfig) -> str | None:
    if config.region or endpoint_of("s3a", config) is None:
        return config.region
    # An endpoint of the environment goes with its region there.
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"


def _path_style(config: StorageConfig) -> bool | None:
    if config.path_style is not None:
        return config.path_style
    return True if endpoint_of("s3a", config) else None


def _text(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()
