"""Servers that no package has: MySQL 5.7, 8.0 and 8.4, by what they answer (docs/trust.md).

Each conversation is a statement and its answer, with the column names of that release; a statement
that a release does not know is a syntax error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from cdc_pipeline.config.pipeline_config import LiveSourceConfig
from cdc_pipeline.errors import ReplicaIdError, StatementError
from cdc_pipeline.position.position import Position
from cdc_pipeline.position.start.same_log import begin_again
from cdc_pipeline.source.live import server_errors
from cdc_pipeline.source.live.connection import ServerConnection

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
Answer = tuple[list[str], list[tuple[Any, ...]]]

LOG_STATUS: Answer = (
    ["File", "Position", "Binlog_Do_DB", "Binlog_Ignore_DB", "Executed_Gtid_Set"],
    [("binlog.000007", 154, "", "", f"{UUID}:1-5")],
)
OLD_HOSTS: Answer = (
    ["Server_id", "Host", "Port", "Master_id", "Slave_UUID"],
    [(2, "replica", 3306, 1, "a-uuid")],
)
NEW_HOSTS: Answer = (
    ["Server_Id", "Host", "Port", "Source_Id", "Replica_UUID"],
    [(2, "replica", 3306, 1, "a-uuid")],
)
OLD_REPLICATION: Answer = (["Master_Host", "Slave_IO_Running"], [("primary", "Yes")])
NEW_REPLICATION: Answer = (["Source_Host", "Replica_IO_Running"], [("primary", "Yes")])
OLD_LOGS: Answer = (["Log_name", "File_size"], [("binlog.000007", 154)])
NEW_LOGS: Answer = (["Log_name", "File_size", "Encrypted"], [("binlog.000007", 666, "Yes")])

RELEASES: dict[str, dict[str, Answer]] = {
    "5.7": {
        "SHOW MASTER STATUS": LOG_STATUS,
        "SHOW SLAVE HOSTS": OLD_HOSTS,
        "SHOW SLAVE STATUS": OLD_REPLICATION,
        "SHOW BINARY LOGS": OLD_LOGS,
    },
    "8.0": {
        "SHOW MASTER STATUS": LOG_STATUS,
        "SHOW SLAVE HOSTS": OLD_HOSTS,
        "SHOW REPLICAS": NEW_HOSTS,
        "SHOW SLAVE STATUS": OLD_REPLICATION,
        "SHOW REPLICA STATUS": NEW_REPLICATION,
        "SHOW BINARY LOGS": NEW_LOGS,
    },
    "8.4": {
        "SHOW BINARY LOG STATUS": LOG_STATUS,
        "SHOW REPLICAS": NEW_HOSTS,
        "SHOW REPLICA STATUS": NEW_REPLICATION,
        "SHOW BINARY LOGS": NEW_LOGS,
    },
}


class Recorded(ServerConnection):
    """A server that answers as a release does."""

    def __init__(self, release: str) -> None:
        super().__init__(
            LiveSourceConfig(kind="live", host="db", user="u", password="p", flavor="mysql")
        )
        self._answers = RELEASES[release]

    def query(self, sql: str, arguments: Sequence[object] = ()) -> Answer:
        if sql in self._answers:
            return self._answers[sql]
        if sql.startswith("SHOW GLOBAL VARIABLES"):
            return ["Variable_name", "Value"], [("gtid_mode", "ON")]
        if "gtid_binlog_pos" in sql:
            number, text = server_errors.UNKNOWN_VARIABLE, "Unknown system variable"
        else:
            number, text = server_errors.PARSE_ERROR, "You have an error in your SQL syntax"
        raise StatementError(number, text, address=self.address)


@pytest.mark.parametrize("release", RELEASES)
def test_the_end_of_the_log_its_journals_and_replicas_by_the_words_of_each_release(
    release: str,
) -> None:
    server = Recorded(release)
    assert server.flavor == "mysql"
    assert server.end_position() == Position("binlog.000007", 154, gtid_set=f"{UUID}:1-5")
    assert [(one.journal, one.size_bytes) for one in server.journals()] == [("binlog.000007", 154)]
    (replica,) = server.replicas() or ()
    assert (replica.number("server_id"), replica.text("host")) == (2, "replica")
    assert len(server.replication() or ()) == 1


@pytest.mark.parametrize(
    "said",
    [
        "A slave with the same server_uuid/server_id as this slave has connected to the master",
        "A slave with the same server_id is already connected",  # MariaDB 11.8
    ],
)
def test_another_reader_with_our_id_by_the_words_of_each_release(said: str) -> None:
    error = server_errors.stream_error(4052, said, at=Position("b.000001"), address="db:3306")
    assert isinstance(error, ReplicaIdError)


def test_the_ways_out_of_a_purge_name_the_pipeline_whose_second_connection_met_it() -> None:
    error = server_errors.stream_error(
        1236, "Could not find first log file name", at=Position("b.000001"), address="db:3306",
        begin_again=begin_again("shop/programs"),
    )  # fmt: skip
    assert "`cdc-pipeline cursor set shop --from latest`" in str(error.next_step)
