"""A sample of the campaign: each kind of fault in each conversation with both
servers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from tests.campaigns.network.campaign import server_with_tls
from tests.campaigns.network.conversations import NAMES, Play, Shop
from tests.campaigns.network.faulty_proxy import KINDS, Direction, Fault, FaultyProxy
from tests.campaigns.network.judge import Conversation
from tests.conftest import temporary_database

QUIT_BYTES = 5  # of COM_QUIT, the last packet of a client


@pytest.fixture(scope="module", params=["mysql", pytest.param("mariadb", marks=pytest.mark.whole)])
def shop(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shop]:
    folder = tmp_path_factory.mktemp("tls")
    for above in (folder, *folder.parents[:2]):
        above.chmod(0o755)  # a server that runs as another user reads its certificate there
    with (
        server_with_tls(request.param, folder / "certificate") as server,
        temporary_database(server) as database,
    ):
        yield Shop.at(server, database)


@pytest.mark.whole
def test_k25_a_connection_that_fails_ends_a_run_that_the_next_one_goes_on_with(
    shop: Shop, tmp_path: Path
) -> None:
    """K25: a broken, stalled or slow connection gives the server's rows or a retryable error. Every
    second conversation on each server, with TLS and without in turn."""
    first = 1 if shop.server.flavor == "mysql" else 0
    for number, name in list(enumerate(NAMES))[first::2]:
        conversation = Conversation(shop, name, ("off", "required")[number // 2 % 2], tmp_path)
        faults = conversation.faults(len(KINDS), seed=number)
        ended = [conversation.judge(fault) for fault in faults]
        assert not [f"{name} {one.fault}: {one.finding}" for one in ended if one.finding]
        assert sum(one.happened for one in ended) > len(KINDS) / 2


@pytest.mark.parametrize("way", get_args(Direction))
def test_k25_a_tls_handshake_that_breaks_is_a_broken_connection(
    shop: Shop, way: Direction, tmp_path: Path
) -> None:
    """Cut anywhere while TLS is established, it is not mistaken for a certificate that does not
    fit."""
    conversation = Conversation(shop, "doctor", "required", tmp_path)
    sent = sum(conversation.lengths[1][way])
    faults = [Fault("end", 1, way, at) for at in range(1, sent, sent // 6)]
    ended = [conversation.judge(fault) for fault in faults]
    assert not [f"{one.fault}: {one.finding}" for one in ended if one.finding]
    assert {one.outcome for one in ended} <= {"server-unreachable", "equal"}


def test_k25_a_reset_in_the_middle_of_rows_is_a_broken_connection(
    shop: Shop, tmp_path: Path
) -> None:
    """Its number is the operating system's, and no error of the server."""
    conversation = Conversation(shop, "rows", "off", tmp_path)
    middle = sum(conversation.lengths[0]["to_client"]) // 2
    ended = conversation.judge(Fault("reset", 0, "to_client", middle))
    assert (ended.finding, ended.outcome) == ("", "server-unreachable")


def test_k25_a_registration_without_an_answer_is_a_broken_connection(
    shop: Shop, tmp_path: Path
) -> None:
    conversation = Conversation(shop, "doctor", "off", tmp_path)
    *_, answer = conversation.lengths[1]["to_client"]
    before = sum(conversation.lengths[1]["to_client"]) - answer
    ended = conversation.judge(Fault("stall", 1, "to_client", before))
    assert (ended.finding, ended.outcome) == ("", "server-unreachable")


def test_k25_a_registration_that_the_server_still_lists_is_no_other_reader(
    shop: Shop, tmp_path: Path
) -> None:
    """The account is tried under the dump's own name: over a slow connection the server lists it
    after its end."""
    conversation = Conversation(shop, "doctor", "off", tmp_path)
    quits = sum(conversation.lengths[1]["to_server"]) - QUIT_BYTES
    fault = Fault("stall", 1, "to_server", quits)
    with FaultyProxy((shop.server.host, shop.server.port), fault) as proxy:
        play = Play(shop, "doctor", "off", tmp_path / "lake")
        play.run(proxy.port)
        statement = "SHOW REPLICAS" if shop.server.flavor == "mysql" else "SHOW REPLICA HOSTS"
        assert next(row[1] for row in shop.server.query(statement)).startswith("cdc-bank@")
        assert play.run(proxy.port) == conversation.expected
