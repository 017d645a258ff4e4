"""Settings and grants that are wrong on a real server: each is found, and the statement that comes
with it fixes it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from cdc_pipeline.operations.doctor import Diagnosis
from tests.operations.doctor.helpers import (
    SECRET,
    carry_out,
    diagnosis,
    is_fine,
    live,
    only,
    pipeline,
    troubles,
)
from tests.servers import Server

SETTINGS = ("server", "retention")
WRONG = {
    "both": {
        "binlog_format": "'MIXED'",
        "binlog_row_image": "'MINIMAL'",
        "binlog_checksum": "'NONE'",
        "net_write_timeout": "5",
        "max_allowed_packet": "1048576",
        "sync_binlog": "0",
        "innodb_flush_log_at_trx_commit": "2",
        "sql_mode": "''",
        "binlog_expire_logs_seconds": "600",
    },
    "mysql": {
        "binlog_row_metadata": "'MINIMAL'",
        "binlog_row_value_options": "'PARTIAL_JSON'",
        "binlog_order_commits": "OFF",
        "gtid_mode": "'ON_PERMISSIVE'",
    },
    "mariadb": {"binlog_row_metadata": "'NO_LOG'", "gtid_strict_mode": "OFF"},
}
# Check -> severity and how often.
EXPECTED = {
    "mysql": {
        "whole log": ["error", "error"],
        "row metadata": ["warning"],
        "advised settings": ["warning", "warning", "warning", "note", "note"],
        "GTIDs": ["note"],
        "patience": ["warning", "note"],
        "expiry": ["error"],
    },
    "mariadb": {
        "whole log": ["error"],
        "row metadata": ["warning"],
        "advised settings": ["warning", "warning", "note", "note"],
        "GTIDs": ["note"],
        "patience": ["warning", "note"],
        "expiry": ["error"],
    },
}


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("mysql", marks=pytest.mark.mysql, id="mysql"),
        pytest.param("mariadb", marks=pytest.mark.mariadb, id="mariadb"),
    ],
)
def poor(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server of this module's own, whose settings may be spoilt."""
    with Server(request.param) as server:
        server.execute_all("CREATE DATABASE shop", "CREATE TABLE shop.orders (id INT PRIMARY KEY)")
        yield server


def test_wrong_settings_are_found_and_their_statements_put_them_right(
    poor: Server, tmp_path: Path
) -> None:
    for name, value in (WRONG["both"] | WRONG[poor.flavor]).items():
        poor.execute(f"SET GLOBAL {name} = {value}")
    config = pipeline(live(poor), tmp_path, include=["shop.*"])
    found = diagnosis(config, every_s=3600, areas=SETTINGS)
    expected = EXPECTED[poor.flavor]
    assert {
        check: [one.severity for one in troubles(found, check)] for check in expected
    } == expected
    assert found.exit_code == 2
    modes = only(found, "zone and modes")
    assert modes.severity == "note"
    assert "NO_ZERO_DATE is not" in modes.got
    histories = pipeline(live(poor), tmp_path, include=["shop.*"], targets=[{"mode": "history"}])
    views = troubles(diagnosis(histories, areas=["tables"]), "exact views")
    assert [one.severity for one in views] == ["warning"] * (poor.flavor == "mysql")
    assert all(
        one.got.startswith("ON_PERMISSIVE, and ") and one.got.endswith(": shop.orders")
        for one in views
    )
    spoilt = [finding for check in expected for finding in troubles(found, check)]
    assert carry_out(poor, spoilt) >= len(spoilt)
    after = diagnosis(
        pipeline(live(poor), tmp_path, include=["shop.*"]), every_s=3600, areas=SETTINGS
    )
    for check in expected:
        assert is_fine(after, check), troubles(after, check)
    assert not troubles(diagnosis(histories, areas=["tables"]), "exact views")


def test_a_replica_that_does_not_follow_is_a_warning(poor: Server, tmp_path: Path) -> None:
    monitor = {"mysql": "REPLICATION CLIENT", "mariadb": "BINLOG MONITOR, SLAVE MONITOR"}[
        poor.flavor
    ]
    user, password = poor.create_replication_user(
        "watcher", grants=("SELECT", "REPLICATION SLAVE", monitor)
    )
    new = "REPLICATION SOURCE TO SOURCE" if poor.flavor == "mysql" else "MASTER TO MASTER"
    kind = new.rpartition(" ")[2]
    poor.execute(f"CHANGE {new}_HOST = '127.0.0.1', {kind}_PORT = 1, {kind}_USER = 'nobody'")
    try:
        config = pipeline(live(poor, user=user, password=password), tmp_path, include=["shop.*"])
        found = diagnosis(config, areas=["server"])
        assert only(found, "replication").got.startswith("SQL: No, IO: No")
        # ON in MySQL, OFF in MariaDB, where nobody says otherwise.
        unlogged = [one.severity for one in troubles(found, "whole log")]
        assert unlogged == ([] if poor.flavor == "mysql" else ["error"])
    finally:
        poor.execute("RESET REPLICA ALL" if poor.flavor == "mysql" else "RESET SLAVE ALL")


def test_each_missing_grant_comes_with_its_statement(poor: Server, tmp_path: Path) -> None:
    user, password = poor.create_replication_user("some'one", grants=())
    config = pipeline(live(poor, user=user, password=password), tmp_path, include=["shop.orders"])
    found = diagnosis(config, areas=["grants"])
    assert [one.severity for one in troubles(found, "privileges")] == ["error", "error"]
    assert only(found, "select").next_step == "GRANT SELECT ON `shop`.`orders` TO 'some''one'@'%';"
    assert carry_out(poor, [*troubles(found, "privileges"), *troubles(found, "select")]) == 3
    after = diagnosis(config, areas=["grants", "tables", "state"])
    for check in ("select", "more than needed", "matching", "plan"):
        assert is_fine(after, check), troubles(after, check)


def test_more_than_needed_is_a_note_and_can_be_taken_back(poor: Server, tmp_path: Path) -> None:
    user, password = poor.create_replication_user("mighty", grants=("ALL PRIVILEGES",))
    config = pipeline(live(poor, user=user, password=password), tmp_path, include=["shop.orders"])
    before = troubles(diagnosis(config, areas=["grants"]), "more than needed")
    assert {one.severity for one in before} == {"note"}
    assert carry_out(poor, before)
    after = diagnosis(config, areas=["grants", "state"])
    for check in ("privileges", "select", "more than needed", "plan"):
        assert is_fine(after, check), troubles(after, check)


@pytest.mark.parametrize("place", [r"`w_x`.*", r"`w%`.*", r"`w\_x`.*"])
def test_wildcards_of_a_grant_are_told_and_none_is_advised(
    poor: Server, tmp_path: Path, place: str
) -> None:
    _wildcards(poor, tmp_path, place)
    if poor.flavor == "mysql":
        _wildcards(poor, tmp_path, place, is_literal=True)


def _wildcards(poor: Server, tmp_path: Path, place: str, *, is_literal: bool = False) -> None:
    poor.execute_all(
        "CREATE DATABASE IF NOT EXISTS w_x", "CREATE DATABASE IF NOT EXISTS wyx",
        "CREATE TABLE IF NOT EXISTS w_x.t (id INT PRIMARY KEY)", "DROP USER IF EXISTS wild",
        *([f"SET GLOBAL partial_revokes = {is_literal}"] if poor.flavor == "mysql" else []),
    )  # fmt: skip
    user, password = poor.create_replication_user("wild")
    config = pipeline(live(poor, user=user, password=password), tmp_path, include=["w_x.*"])
    poor.execute_all(f"REVOKE SELECT ON *.* FROM {user}", f"GRANT SELECT ON {place} TO {user}")
    found = diagnosis(config, areas=["grants"])
    told = troubles(found, "more than needed")
    assert [one.got for one in told] == (
        [] if is_literal or "\\" in place else [f"SELECT on {place}, which covers wyx"]
    )
    assert carry_out(poor, told) == 2 * len(told)
    assert not troubles(diagnosis(config, areas=["grants"]), "more than needed")
    poor.execute_all(f"GRANT SELECT ON *.* TO {user}")
    if is_literal:
        poor.execute_all(
            f"REVOKE SELECT ON mysql.* FROM {user}",
            f"GRANT SHOW VIEW ON *.* TO {user}",
            f"REVOKE SHOW VIEW ON sys.* FROM {user}",
        )
    everywhere = only(diagnosis(config, areas=["grants"]), "more than needed")
    assert everywhere.got == "SELECT on *.*" + (", except mysql" if is_literal else "")
    assert carry_out(poor, [everywhere]) == 2
    after = diagnosis(config, areas=["grants"])
    assert is_fine(after, "select")
    assert is_fine(after, "more than needed"), troubles(after, "more than needed")
    if is_literal:
        poor.execute_all(f"DROP USER {user}", "SET GLOBAL partial_revokes = OFF")


# -- what cannot be reached ------------------------------------------------------------------------


def _local_is_examined(found: Diagnosis) -> bool:
    return all(is_fine(found, check) for check in ("Python", "Java", "usable", "lock"))


def test_without_a_server_the_rest_is_examined(tmp_path: Path) -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        source = {
            "kind": "live",
            "host": "127.0.0.1",
            "port": port,
            "user": "cdc",
            "password": SECRET,
        }
        found = diagnosis(pipeline(source, tmp_path))
    assert only(found, "reachable").severity == "error"
    assert found.exit_code == 2
    assert _local_is_examined(found)
    assert {one.severity for one in troubles(found, "not examined")} == {"note"}
    assert SECRET not in found.model_dump_json()


def test_a_refused_account_is_told_once(mysql_server: Server, tmp_path: Path) -> None:
    mysql_server.create_replication_user("known", password="right-Secret-1")
    found = diagnosis(pipeline(live(mysql_server, user="known", password=SECRET), tmp_path))
    assert [finding.check for finding in found.with_severity("error")] == ["reachable"]
    assert "source.password" in only(found, "reachable").what
    assert _local_is_examined(found)
    assert SECRET not in found.model_dump_json()


def test_a_standby_is_examined_too(
    mysql_server: Server, mariadb_server: Server, tmp_path: Path
) -> None:
    def standby(port: int) -> list[tuple[str, str]]:
        source = live(mysql_server, standby={"host": "127.0.0.1", "port": port})
        mariadb_server.create_replication_user()  # one account for both
        found = diagnosis(pipeline(source, tmp_path), areas=["server"])
        return [(one.severity, one.what) for one in troubles(found, "standby")]

    assert standby(mariadb_server.port) == [
        ("error", "the standby's server differs in kind from the primary's")
    ]
    assert standby(mysql_server.port) == [("error", "the standby is the primary itself")]
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        ((severity, what),) = standby(reserved.getsockname()[1])
    assert severity == "warning"
    assert "nothing takes over" in what


def test_another_reader_under_our_id_is_an_error(server: Server, tmp_path: Path) -> None:
    found = diagnosis(
        pipeline(live(server, replica_server_id=server.server_id), tmp_path), areas=["server"]
    )
    (told,) = [finding for finding in found.with_severity("error") if finding.check == "replica id"]
    assert "source.replica_server_id" in told.what
    assert "set source.replica_server_id" in told.next_step


def test_a_missing_grant_is_an_error_wherever_it_is_met_first(
    mysql_server: Server, mysql_database: str, tmp_path: Path
) -> None:
    mysql_server.execute(f"CREATE TABLE {mysql_database}.t (id INT PRIMARY KEY)")
    user, password = mysql_server.create_replication_user("reader", grants=("SELECT",))
    config = pipeline(
        live(mysql_server, user=user, password=password), tmp_path, include=[f"{mysql_database}.*"]
    )
    found = diagnosis(config, areas=["retention"])
    assert found.exit_code == 2
    (refused, *_) = found.with_severity("error")
    assert "GRANT REPLICATION CLIENT ON *.* TO 'reader'@'%';" in refused.next_step
    whole = diagnosis(config)
    assert not [one for one in whole.with_severity("error") if one.area != "grants"]
    (note,) = [one for one in troubles(whole, "not examined") if "required grants" in one.what]
    assert "expiry, plan" in note.what
