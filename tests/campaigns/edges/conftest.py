"""The evidence of each server is gathered once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.campaigns.edges.cases import CASES, REALS
from tests.campaigns.edges.evidence import Evidence, evidence_of
from tests.servers import Server


@pytest.fixture(scope="session")
def mysql_evidence(mysql_server: Server) -> Iterator[Evidence]:
    with evidence_of(mysql_server, [*CASES, *REALS]) as evidence:
        yield evidence


@pytest.fixture(scope="session")
def mariadb_evidence(mariadb_server: Server) -> Iterator[Evidence]:
    with evidence_of(mariadb_server, [*CASES, *REALS]) as evidence:
        yield evidence


@pytest.fixture(
    params=[
        pytest.param("mysql", marks=pytest.mark.mysql, id="mysql"),
        pytest.param("mariadb", marks=pytest.mark.mariadb, id="mariadb"),
    ]
)
def evidence(request: pytest.FixtureRequest) -> Evidence:
    shared: Evidence = request.getfixturevalue(f"{request.param}_evidence")
    return shared
