"""A local S3-compatible store and lakes in it, for tests of any part."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from cdc_pipeline.config.pipeline_config import SinkConfig
from cdc_pipeline.config.storage_config import StorageConfig
from tests.support.object_store_server import ACCESS_KEY, SECRET

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Store:
    endpoint: str
    bucket: str
    log: Path

    def settings(self, **changes: object) -> StorageConfig:
        given = {
            "endpoint": self.endpoint,
            "region": "us-east-1",
            "access_key_id": SecretStr(ACCESS_KEY),
            "secret_access_key": SecretStr(SECRET),
            "retry_s": 5,
        }
        return StorageConfig.model_validate(given | changes)

    def lake(self) -> str:
        return f"s3a://{self.bucket}/{uuid.uuid4().hex[:12]}/lake"

    def sink_config(self, lake: str | None = None, **changes: object) -> SinkConfig:
        return SinkConfig.model_validate(
            {
                "lake_path": lake or self.lake(),
                "storage": self.settings(**changes),
                "merge_threads": 2,
            }
        )

    def make_folder(self, path: object) -> None:
        """A console, or Hadoop, shows an empty folder by such an object."""
        bucket, _, key = str(path).removeprefix("s3a://").partition("/")
        s3_client(self.endpoint).put_object(Bucket=bucket, Key=f"{key}/", Body=b"")

    def all_keys(self, path: object) -> list[str]:
        bucket, _, key = str(path).removeprefix("s3a://").partition("/")
        pages = (
            s3_client(self.endpoint)
            .get_paginator("list_objects_v2")
            .paginate(Bucket=bucket, Prefix=f"{key}/")
        )
        return [item["Key"] for page in pages for item in page.get("Contents", ())]

    def writes(self) -> list[str]:
        """The log's lines: method, path, conditional or plain, status."""
        return self.log.read_text().splitlines() if self.log.exists() else []

    def requests(self) -> list[str]:
        """All requests so far: method, path, query."""
        return self.log.with_suffix(".requests").read_text().splitlines()


@contextmanager
def running_store(folder: Path) -> Iterator[Store]:
    log = folder / "store.log"
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.object_store_server", str(log)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        endpoint = f"http://127.0.0.1:{int(process.stdout.readline())}"
        make_bucket(endpoint, "lakes")
        yield Store(endpoint, "lakes", log)
    finally:
        process.kill()
        process.communicate()


def make_bucket(endpoint: str, bucket: str) -> None:
    s3_client(endpoint).create_bucket(Bucket=bucket)


def s3_client(endpoint: str) -> Any:
    import boto3

    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET,
    )
