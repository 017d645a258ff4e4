"""Replicating pairs and the virtual IP, which the failover tests stand on."""

from __future__ import annotations

import pytest

from cdc_pipeline.errors import RuntimeSetupError
from tests.servers import ReplicaPair

pytestmark = pytest.mark.whole  # the failover tests would show a defect too


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
