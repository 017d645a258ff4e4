"""What leaves changes out of a server's log stops a run before it reads, and doctor says the same
(K31, F74)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from cdc_pipeline.config.pipeline_config import LiveSourceConfig
from cdc_pipeline.errors import ServerSettingError
from cdc_pipeline.source.live.live import LiveSource
from cdc_pipeline.source.live.server_checks import Finding, _leaves_out, log_findings
from tests.servers import Flavor, ReplicaPair, Server
from tests.support.live_source import live_config
from tests.support.waits import wait_until

UPDATES = {"mysql": "log_replica_updates", "mariadb": "log_slave_updates"}
BOTH = pytest.mark.parametrize(
    "flavor",
    [
        pytest.param("mysql", marks=pytest.mark.mysql),
        pytest.param("mariadb", marks=[pytest.mark.mariadb, pytest.mark.whole]),
    ],
)


def findings(config: LiveSourceConfig, captured: str = "shop") -> list[Finding]:
    """What the list says; a run and the examination call the same."""
    with closing(
        LiveSource(
            config,
            pipeline_name="shop",
            captured=lambda _names: lambda schema, _: schema == captured,
        )
    ) as source:
        return log_findings(source.server, source.captured_tables)


def refused(config: LiveSourceConfig) -> ServerSettingError:
    with closing(LiveSource(config, pipeline_name="shop")) as source:
        with pytest.raises(ServerSettingError) as caught:
            source.check()
        return caught.value


@BOTH
def test_k31_f74_a_replica_that_does_not_log_what_it_replicates_is_refused(flavor: Flavor) -> None:
    """A server with relay logs alone is such a replica, or one without log_bin: no third check."""
    with ReplicaPair(flavor, options={UPDATES[flavor]: False}) as pair:
        pair.primary.execute_all("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY)")
        pair.wait_caught_up()
        before = pair.replica.end_position()
        pair.primary.execute("INSERT INTO shop.t VALUES (1)")
        pair.wait_caught_up()
        assert pair.replica.query("SELECT * FROM shop.t") == [(1,)]
        assert pair.replica.end_position() == before, "the log has nothing of it"
        # The account of a capture may not see a MariaDB's replication.
        config = _config(pair.replica, pair.primary)
        error = refused(config)
        assert error.setting == UPDATES[flavor]
        assert f"set {UPDATES[flavor]} = ON" in str(error.next_step)
        # Not of a primary, whose own changes are all in its log.
        assert findings(_config(pair.primary, pair.primary)) == []
        pair.stop_replication()
        assert refused(config).setting == UPDATES[flavor]


@pytest.mark.mariadb
def test_k31_f74_triggers_that_a_replica_runs_unlogged_are_refused() -> None:
    with ReplicaPair("mariadb") as pair:
        pair.primary.execute("CREATE DATABASE shop")
        pair.wait_caught_up()
        config = _config(pair.replica, pair.primary)
        assert findings(config) == []
        pair.replica.execute("SET GLOBAL slave_run_triggers_for_rbr = 'YES'")
        assert refused(config).setting == "slave_run_triggers_for_rbr"
        pair.replica.execute("SET GLOBAL slave_run_triggers_for_rbr = 'LOGGING'")
        assert findings(config) == []


@BOTH
@pytest.mark.parametrize(
    ("option", "value"), [("binlog_do_db", "shop"), ("binlog_ignore_db", "other")]
)
def test_k31_f74_a_log_of_some_databases_is_refused(
    start_server: Callable[..., Server], flavor: Flavor, option: str, value: str
) -> None:
    """Of every database: a TRUNCATE in a session of another one is left out too."""
    server = start_server(flavor, **{option: value})
    server.execute_all(
        "CREATE DATABASE other", "CREATE DATABASE shop", "USE shop",
        "CREATE TABLE shop.t (id INT PRIMARY KEY)", "INSERT INTO shop.t VALUES (1)", "USE other",
    )  # fmt: skip
    before = server.end_position()
    server.execute("TRUNCATE TABLE shop.t")
    assert server.end_position() == before
    error = refused(live_config(server))
    assert error.setting == option
    assert str(error.got) == value


@BOTH
def test_k31_f74_filters_of_a_replica_are_told_and_refused_beside_its_primary(
    flavor: Flavor,
) -> None:
    with ReplicaPair(flavor) as pair:
        pair.primary.execute_all("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY)")
        monitor = "REPLICATION CLIENT" if flavor == "mysql" else "BINLOG MONITOR, REPLICA MONITOR"
        user, password = pair.primary.create_replication_user(
            "watcher", grants=("SELECT", "REPLICATION SLAVE", monitor)
        )
        pair.wait_caught_up()
        pair.stop_replication()
        filtered = (
            "CHANGE REPLICATION FILTER REPLICATE_WILD_IGNORE_TABLE = ('shop.%')"
            if flavor == "mysql"
            else "SET GLOBAL replicate_wild_ignore_table = 'shop.%'"
        )
        pair.replica.execute(filtered)
        alone = live_config(pair.replica, user=user, password=password)
        (warning,) = findings(alone)
        assert warning.severity == "warning"
        assert warning.error.setting == "replicate_wild_ignore_table"
        assert "shop.t" in warning.error.what
        assert findings(alone, captured="other") == []
        with closing(LiveSource(alone, pipeline_name="shop")) as source:
            source.check()
            assert any("replicate_wild_ignore_table" in note for note in source.warnings([]))
        both = alone.model_copy(update={"standby": _standby(pair)})
        assert refused(both).setting == "replicate_wild_ignore_table"


@pytest.mark.parametrize(
    ("option", "value", "left_out", "kept"),
    [
        ("replicate_do_db", "a,b", "shop.t", "a.t"),
        ("replicate_ignore_db", "shop", "shop.t", "a.t"),
        ("replicate_do_table", "shop.u", "shop.t", "shop.u"),
        ("replicate_ignore_table", "mysql.x,shop.t", "shop.t", "shop.u"),
        ("replicate_wild_do_table", "shop.o%", "shop.t", "shop.orders"),
        ("replicate_wild_ignore_table", r"sh\_p.%,shop._", "shop.t", "shop.tt"),
        ("replicate_rewrite_db", "(old,shop)", "shop.t", "a.t"),
        ("replicate_rewrite_db", "old->shop", "shop.t", "a.t"),
    ],
)
def test_k31_f74_what_a_filter_leaves_out(
    option: str, value: str, left_out: str, kept: str
) -> None:
    assert _leaves_out(option, value, left_out)
    assert not _leaves_out(option, value, kept)


def _config(server: Server, primary: Server) -> LiveSourceConfig:
    """Of one account for both servers, made on the primary."""
    if not primary.query("SELECT 1 FROM mysql.user WHERE User = 'cdc'"):
        primary.create_replication_user()
    granted = "SELECT 1 FROM mysql.user WHERE User = 'cdc' AND Repl_slave_priv = 'Y'"
    wait_until(lambda: bool(server.query(granted)), "the account is not replicated")
    return live_config(server, user="cdc", password="cdc-Secret-1")


def _standby(pair: ReplicaPair) -> Any:
    section = {"kind": "live", "host": "h", "user": "u", "password": "p",
               "standby": {"host": pair.primary.host, "port": pair.primary.port}}  # fmt: skip
    return LiveSourceConfig.model_validate(section).standby
