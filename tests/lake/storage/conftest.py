"""One store for the tests of this folder; each test has a lake of its own in it.

With REAL_STORE set, which `make nightly` does, it is a real S3 server, and its tests skip where
none can be had.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from cdc_pipeline.lake.paths import LakePaths
from tests.cluster.gateway import gateway_or_skip
from tests.support.object_store import Store, running_store


@pytest.fixture(scope="package")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    folder = tmp_path_factory.mktemp("store")
    if os.environ.get("REAL_STORE"):
        with gateway_or_skip(folder) as gateway:
            yield gateway.store
    else:
        with running_store(folder) as found:
            yield found


@pytest.fixture
def lake(store: Store) -> Path:
    return LakePaths(store.sink_config().lake_path, "shop").lake
