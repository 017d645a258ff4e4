"""Replicating pairs and the virtual IP, which the failover tests stand on."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pymysql
import pytest
from pymysql.connections import Connection

from cdc_pipeline.errors import RuntimeSetupError
from tests.servers import FLAVORS, Flavor, Forwarder, ReplicaPair, Server

_KINDS = [("mysql", True), ("mysql", False), ("mariadb", True)]


@pytest.mark.parametrize(("flavor", "gtid"), _KINDS)
def test_replica_follows_and_takes_over(flavor: Flavor, gtid: bool) -> None:
    with ReplicaPair(flavor, gtid=gtid) as pair:
        old = pair.primary
        old.execute_all(
            "CREATE DATABASE shop",
            "CREATE TABLE shop.t (a INT PRIMARY KEY)",
            "INSERT INTO shop.t VALUES (1), (2)",
        )
        pair.wait_caught_up()
        assert pair.replica.query("SELECT a FROM shop.t ORDER BY a") == [(1,), (2,)]
        assert pair.replica.variable("read_only") == "1"
        old.flush_journal()
        pair.wait_caught_up()
        if gtid:
            assert pair.replica.gtid_set() == old.gtid_set()
        elif flavor == "mysql":
            assert old.gtid_set() == pair.replica.gtid_set() == ""
        # Positions of one server mean nothing on the other.
        assert old.end_position() != pair.replica.end_position()
        new = pair.promote()
        assert not old.running
        assert pair.primary is new
        new.execute("INSERT INTO shop.t VALUES (3)")
        assert new.query("SELECT COUNT(*) FROM shop.t") == [(3,)]
        assert new.variable("read_only") == "0"


def test_a_broken_replica_is_told_at_once() -> None:
    with ReplicaPair("mariadb") as pair:
        pair.primary.execute_all("CREATE DATABASE shop", "CREATE TABLE shop.t (a INT PRIMARY KEY)")
        pair.wait_caught_up()
        pair.replica.execute_all("SET sql_log_bin = 0", "DROP TABLE shop.t", "SET sql_log_bin = 1")
        pair.primary.execute("INSERT INTO shop.t VALUES (1)")
        with pytest.raises(RuntimeSetupError, match=r"shop\.t"):
            pair.wait_caught_up()


def test_a_lagging_replica_is_told_at_the_deadline() -> None:
    with ReplicaPair("mariadb") as pair:
        pair.stop_replication()
        pair.primary.execute("CREATE DATABASE shop")
        with pytest.raises(RuntimeSetupError, match="did not catch up"):
            pair.wait_caught_up(deadline_s=0.1)
        pair.start_replication()
        pair.wait_caught_up()
        assert pair.replica.query("SHOW DATABASES LIKE 'shop'") == [("shop",)]


@pytest.fixture
def two_servers() -> Iterator[tuple[Server, Server]]:
    with Server("mariadb") as one, Server("mariadb") as other:
        yield one, other


def test_the_virtual_ip_moves(two_servers: tuple[Server, Server]) -> None:
    one, other = two_servers

    def connect(forwarder: Forwarder) -> Connection[Any]:
        return pymysql.connect(
            host=forwarder.host, port=forwarder.port, user="root", connect_timeout=5
        )

    def asked(connection: Connection[Any]) -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT @@GLOBAL.server_id")
            (row,) = cursor.fetchall()
            return int(row[0])

    with Forwarder(one) as forwarder:
        connection = connect(forwarder)
        assert asked(connection) == one.server_id
        forwarder.point_to(other)
        with pytest.raises(pymysql.err.OperationalError):
            asked(connection)
        again = connect(forwarder)
        assert asked(again) == other.server_id
        assert forwarder.accepted == 2
        assert forwarder.drop_connections() == 2
        forwarder.point_to(None)
        with pytest.raises(pymysql.err.OperationalError):
            connect(forwarder)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((forwarder.host, forwarder.port), timeout=5)


def test_pairs_are_made_of_every_flavor() -> None:
    assert {flavor for flavor, _ in _KINDS} == set(FLAVORS)
