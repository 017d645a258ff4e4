"""What comes between two steps of a command: statements at the source, other commands, a target
that is left behind."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig, PositionConfig
from cdc_pipeline.errors import LakeStateError, SnapshotError, TargetSuspendedError
from cdc_pipeline.fault_points import listening
from cdc_pipeline.operations.backfill.rebuild import rebuild
from cdc_pipeline.operations.quarantine_replay import SettleResult, settle
from cdc_pipeline.operations.reset import reset
from cdc_pipeline.operations.snapshot.snapshot import take_snapshot
from cdc_pipeline.operations.status import status
from cdc_pipeline.operations.verify.reread import repair
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.run.capture.capture import capture
from tests.servers import Server
from tests.support.captures import here, live
from tests.support.comparison import lake_rows, server_rows
from tests.support.kills import AtPoint, killed_at
from tests.support.memory_sink import MemoryLake
from tests.support.xa_session import XaSession


class Bank:
    """A pipeline over a database, with its tables in memory."""

    def __init__(self, server: Server, database: str, memory: MemoryLake, folder: Path) -> None:
        self.server, self.database, self.memory = server, database, memory
        self.lake, self.cursors, self._start = folder / "lake", MemoryCursorStore(), here(server)

    def config(
        self, *rules: dict[str, Any], invalid: str = "quarantine", chunk_rows: int = 100
    ) -> PipelineConfig:
        sink = {"lake_path": self.lake, "on_bad_row": "quarantine", "on_invalid_value": invalid}
        return PipelineConfig.model_validate(
            {
                "name": "bank",
                "source": live(self.server),
                "tables": {"include": [f"{self.database}.*"]},
                "targets": rules,
                "snapshot": {"chunk_rows": chunk_rows, "readers": 1},
                "sink": sink,
                "start": self._start,
            }
        )

    def rule(self, table: str, **settings: Any) -> dict[str, Any]:
        return {"tables": [f"{self.database}.{table}"], **settings}

    def execute(self, *statements: str) -> None:
        use = ("SET sql_mode = ''", "SET binlog_row_image = 'FULL'", f"USE `{self.database}`")
        self.server.execute_all(*use, *statements)

    def capture(self, config: PipelineConfig) -> None:
        capture(config, cursors=self.cursors)

    def snapshot(self, config: PipelineConfig, *tables: str) -> Any:
        names = [f"{self.database}.{table}" for table in tables]
        return take_snapshot(config, cursors=self.cursors, tables=names or None)

    def settled(self, config: PipelineConfig, *, even_if_deleted: bool = False) -> SettleResult:
        how: dict[str, Any] = {"what": "replayed", "who": "me", "even_if_deleted": even_if_deleted}
        return settle(config, cursors=self.cursors, **how)

    def waiting(self, config: PipelineConfig) -> int:
        return sum(status(config, cursors=self.cursors).quarantine.values())

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        return lake_rows(self.memory, self.lake, self.database, table, list(columns))

    def check(self, table: str, *columns: str, source: str = "") -> None:
        name = source or table
        expected = server_rows(self.server, self.database, name, list(columns))
        assert self.rows(table, *columns) == expected

    def folder(self, table: str) -> Path:
        return self.lake / self.database / table


@pytest.fixture
def bank(mysql_server: Server, mysql_database: str, memory: MemoryLake, tmp_path: Path) -> Bank:
    return Bank(mysql_server, mysql_database, memory, tmp_path)


def test_k17_f215_a_new_table_has_all_of_its_rows_that_cannot_be_applied(bank: Bank) -> None:
    """Also those that the log brings while it is read, and a second one at the same place."""
    bank.execute("CREATE TABLE t (id INT PRIMARY KEY, d DATE)", "INSERT INTO t VALUES (1, 0)")
    config = bank.config()
    more = lambda: bank.execute("INSERT INTO t VALUES (2, 0), (3, NULL)")  # noqa: E731
    with listening(AtPoint("snapshot_read", more)):
        bank.snapshot(config, "t")
    assert (bank.rows("t", "id"), bank.waiting(config)) == ([(3,)], 2)
    for _ in range(3):
        bank.snapshot(config, "t")
        assert bank.waiting(config) == 2
    assert len(bank.settled(bank.config(invalid="rescue"), even_if_deleted=True).done) == 2
    bank.check("t", "id")


def test_k17_f216_a_shard_that_joins_a_target_keeps_its_rows(bank: Bank) -> None:
    begin = PositionConfig(**here(bank.server))
    bank.execute(
        "CREATE TABLE s1 (id INT PRIMARY KEY)",
        "CREATE TABLE s2 (id INT PRIMARY KEY)",
        "INSERT INTO s1 VALUES (1)",
        "INSERT INTO s2 VALUES (2)",
    )
    shards = bank.rule("s*", name=f"{bank.database}.all", shard_column="shard")
    config = bank.config(shards)

    def join(number: int) -> None:
        name = f"s{number}"
        bank.execute(
            f"CREATE TABLE {name} (id INT PRIMARY KEY)", f"INSERT INTO {name} VALUES ({number})"
        )

    with listening(AtPoint("snapshot_read", lambda: join(3))):
        report = bank.snapshot(config, "s1")
    assert bank.rows("all", "id") == [(1,), (2,), (3,)]
    (why,) = report.restarted[f"{bank.database}.all"]
    assert why.endswith("s3 has come to share the target")
    again = partial(rebuild, config, tables=[f"{bank.database}.s1"], cursors=bank.cursors)
    with (
        listening(AtPoint("snapshot_begun", lambda: join(4))),
        pytest.raises(SnapshotError, match="s4 has come to share"),
    ):
        again(start=begin)
    assert again(start=begin).outcome == "rebuilt"
    assert bank.rows("all", "id") == [(1,), (2,), (3,), (4,)]


@pytest.mark.parametrize("suspended", ["u", "t"])
def test_k4_f218_a_row_comes_to_all_targets_of_its_table_or_to_none(
    bank: Bank, suspended: str
) -> None:
    bank.execute("CREATE TABLE t (id INT PRIMARY KEY, d DATE)", "INSERT INTO t VALUES (1, NULL)")
    rules = bank.rule("t"), bank.rule("t", name=f"{bank.database}.u")
    config, rescuing = bank.config(*rules), bank.config(*rules, invalid="rescue")
    bank.capture(config)
    bank.execute("INSERT INTO t VALUES (2, 0)")
    bank.capture(config)
    bank.memory.write(bank.folder(suspended), rows=[])
    with pytest.raises(TargetSuspendedError):
        bank.capture(config)
    (why,) = bank.settled(rescuing).left.values()
    assert why.endswith(f"{suspended} is suspended and must be caught up first")
    with pytest.raises(Exception, match="cannot be repaired") as caught:
        repair(rescuing, cursors=bank.cursors, table=f"{bank.database}.t", where="id = 2")
    assert f"suspended targets: {bank.database}.{suspended}" in str(caught.value)
    bank.memory.undo(bank.folder(suspended))
    bank.capture(rescuing)
    assert len(bank.settled(rescuing).done) == 1
    for target in ("t", "u"):
        bank.check(target, "id", source="t")


def test_k22_f224_a_target_that_is_not_made_yet_gets_no_rows_by_hand(bank: Bank) -> None:
    """A rule that has come, and no row of its table since."""
    bank.execute("CREATE TABLE t (id INT PRIMARY KEY, d DATE)", "INSERT INTO t VALUES (1, NULL)")
    bank.execute("INSERT INTO t VALUES (2, 0)")
    bank.capture(bank.config())
    both = bank.rule("t"), bank.rule("t", name=f"{bank.database}.u")
    rescuing = bank.config(*both, invalid="rescue")
    assert len(bank.settled(rescuing).done) == 1
    repair(rescuing, cursors=bank.cursors, table=f"{bank.database}.t", where="id = 1")
    bank.check("t", "id")
    assert not status(rescuing, cursors=bank.cursors).suspended


def test_k35_f219_what_a_command_could_not_bring_to_a_target_fails_it(bank: Bank) -> None:
    """And the target, left behind while a prepared transaction is open, goes on without a
    snapshot."""
    bank.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1)")
    config, table = bank.config(), f"{bank.database}.t"
    bank.capture(config)
    unlogged = "SET SESSION sql_log_bin = 0", "UPDATE t SET v = 2", "SET SESSION sql_log_bin = 1"
    bank.execute(*unlogged)

    def refused(_table: str, step: str) -> None:
        if step == "rows":
            raise LakeStateError("damaged", next_step="restore it")

    xa = XaSession(bank.server, bank.database, "'a'").run("INSERT INTO t VALUES (3, 3)").prepare()
    bank.execute("INSERT INTO t VALUES (4, 4)")
    bank.capture(config)
    bank.memory.fault = refused
    with pytest.raises(TargetSuspendedError, match="did not get what the command brings"):
        repair(config, cursors=bank.cursors, table=table, where="id = 1")
    bank.memory.fault = lambda _table, _step: None
    xa.commit()
    bank.capture(config)
    repair(config, cursors=bank.cursors, table=table, where="id = 1")
    bank.check("t", "id", "v")


def test_k17_f220_after_a_reset_rows_are_read_anew(bank: Bank) -> None:
    """What the log does not show may have changed them since they were read."""
    values = ", ".join(f"({key}, 1)" for key in range(30))
    bank.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)", f"INSERT INTO t VALUES {values}")
    config, table = bank.config(chunk_rows=10), f"{bank.database}.t"
    bank.snapshot(config)
    whole = partial(bank.snapshot, config, "t")
    rows = partial(repair, config, cursors=bank.cursors, table=table, where="id >= 0")
    for read in (whole, rows):
        with killed_at("snapshot_chunks"):
            read()
        bank.execute(
            "SET SESSION sql_log_bin = 0", "UPDATE t SET v = v + 1", "SET SESSION sql_log_bin = 1"
        )
        reset(config, cursors=bank.cursors, tables=(table,), who="me")
        read()
        bank.check("t", "id", "v")


def test_k18_f221_a_statement_leaves_nothing_that_guards_a_row_that_is_gone(bank: Bank) -> None:
    """Where deleted rows are kept, those that were never there are not."""
    bank.execute("CREATE TABLE t (id INT PRIMARY KEY, d DATE)", "INSERT INTO t VALUES (1, NULL)")
    rule = bank.rule("t", mode="soft_delete")
    config, rescuing = bank.config(rule), bank.config(rule, invalid="rescue")
    bank.capture(config)
    bank.execute("INSERT INTO t VALUES (2, 0), (3, 0)", "DELETE FROM t WHERE id = 1")
    bank.capture(config)
    bank.execute("TRUNCATE TABLE t")
    bank.capture(config)
    left = bank.settled(rescuing).left.values()
    assert len([why for why in left if "or statements have changed it" in why]) == 2
    live_rows = [row for row in bank.rows("t", "id", "_cdc_deleted") if not row[1]]
    assert live_rows == []


def test_k10_f222_an_update_without_all_columns_takes_no_later_turn(bank: Bank) -> None:
    bank.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, d DATE, v INT)", "INSERT INTO t VALUES (1, NULL, 1)"
    )
    config, rescuing = bank.config(), bank.config(invalid="rescue")
    bank.capture(config)
    minimal = "SET binlog_row_image = 'MINIMAL'"
    bank.execute(
        "UPDATE t SET d = '2026-01-01'", minimal, "UPDATE t SET d = 0", "UPDATE t SET v = 2"
    )
    bank.capture(config)
    (why,) = bank.settled(rescuing).left.values()
    assert "its image lacks columns" in why
    repair(rescuing, cursors=bank.cursors, table=f"{bank.database}.t", where="id = 1")
    assert bank.rows("t", "d", "v") == [(None, 2)]
