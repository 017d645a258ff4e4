"""One store for the tests of this folder; each test has a lake of its own in it.

With REAL_STORE set, which `make nightly` does, it is a real S3 server, and its tests skip where
none can be had.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.storage import lease
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


@pytest.fixture
def skipped_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease waits for nothing: its clock goes on by each wait at once. Only one thread may wait
    for it at a time."""
    now_s, skipped_s = lease._now_s, [0.0]

    class Skipped(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            skipped_s[0] += timeout or 0.0
            return super().wait(0.01)

    monkeypatch.setattr(lease, "_now_s", lambda: now_s() + skipped_s[0])
    in_lease = SimpleNamespace(Event=Skipped, Thread=threading.Thread)
    monkeypatch.setattr(lease, "threading", in_lease)
