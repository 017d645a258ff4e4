"""One cluster and one S3 server for the tests of this folder; a lake of its own for each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.gateway import Gateway, gateway_or_skip
from tests.cluster.spark import Cluster, running_cluster


@pytest.fixture(scope="package")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with gateway_or_skip(tmp_path_factory.mktemp("gateway")) as running:
        yield running


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running
