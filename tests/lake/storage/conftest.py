"""One store for the tests of this folder; each test has a lake of its own in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cdc_pipeline.lake.paths import LakePaths
from tests.support.object_store import Store, running_store


@pytest.fixture(scope="package")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with running_store(tmp_path_factory.mktemp("store")) as found:
        yield found


@pytest.fixture
def lake(store: Store) -> Path:
    """A new lake, ready to be read and written."""
    return LakePaths(store.sink_config().lake_path, "shop").lake
