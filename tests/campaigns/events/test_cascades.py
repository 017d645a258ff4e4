"""Foreign keys that cascade: MySQL 9.7 logs the children's rows, MariaDB does not, and the plan
says so."""

from __future__ import annotations

from cdc_pipeline.binlog.decoded import DELETE, UPDATE
from cdc_pipeline.source.live.cascades import cascade_findings
from tests.campaigns.events.replay import closed_journal
from tests.servers import Server
from tests.support.decoded_journals import decode_journal, select_tables
from tests.support.live_source import live_source


def _family(server: Server, database: str) -> None:
    server.execute_all(
        f"USE `{database}`",
        "CREATE TABLE parent (id INT PRIMARY KEY) ENGINE=InnoDB",
        "CREATE TABLE child (id INT PRIMARY KEY, p INT, CONSTRAINT fk_gone FOREIGN KEY (p) "
        "REFERENCES parent (id) ON DELETE CASCADE ON UPDATE SET NULL) ENGINE=InnoDB",
        "CREATE TABLE firm (id INT PRIMARY KEY, p INT, CONSTRAINT fk_firm FOREIGN KEY (p) "
        "REFERENCES parent (id)) ENGINE=InnoDB",
        "INSERT INTO parent VALUES (1), (2), (3)",
        "INSERT INTO child VALUES (10, 1), (11, 1), (20, 2), (30, 3)",
    )
    server.flush_journal()
    server.execute_all("DELETE FROM parent WHERE id = 1", "UPDATE parent SET id = 9 WHERE id = 2")


def test_b09_mysql_logs_the_rows_of_a_cascade(mysql_server: Server, mysql_database: str) -> None:
    _family(mysql_server, mysql_database)
    mysql_server.flush_journal()
    rows = decode_journal(mysql_server.journals()[-2], f"{mysql_database}.child")
    assert sorted(rows.op.tolist()) == [UPDATE, DELETE, DELETE]
    live = live_source(mysql_server)
    assert (
        cascade_findings(live.server, [f"{mysql_database}.child", f"{mysql_database}.firm"]) == []
    )
    live.close()


def test_b09_mariadb_does_not_log_a_cascade_and_the_plan_names_the_constraint(
    mariadb_server: Server, mariadb_database: str
) -> None:
    _family(mariadb_server, mariadb_database)
    chunk = closed_journal(mariadb_server)
    assert f"{mariadb_database}.child" not in select_tables(chunk)
    child, firm = f"{mariadb_database}.child", f"{mariadb_database}.firm"
    live = live_source(mariadb_server)
    (warning,) = live.warnings([child, firm])
    assert "`fk_gone`" in warning
    assert child in warning
    assert "ON DELETE CASCADE ON UPDATE SET NULL" in warning
    assert live.warnings([firm]) == ()
    assert live.warnings([]) == ()
    live.close()
