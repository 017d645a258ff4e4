"""One cluster and one S3 server for the tests of this folder; a lake of its own for each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cdc_pipeline.errors import RuntimeSetupError
from tests.cluster.gateway import Gateway, find_gateway, running_gateway
from tests.cluster.spark import Cluster, running_cluster


@pytest.fixture(scope="package")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A real S3 server with an empty bucket."""
    try:
        find_gateway()
    except RuntimeSetupError as error:
        pytest.skip(str(error))
    with running_gateway(tmp_path_factory.mktemp("gateway")) as running:
        yield running


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A master and two workers."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running
