"""Keys that the server tells apart, and their texts do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cdc_pipeline.binlog.kernels.text.text import LEAD_BYTE
from cdc_pipeline.binlog.tables import charsets
from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import TargetSuspendedError, UnrepresentableValueError
from cdc_pipeline.operations.snapshot.snapshot import take_snapshot
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.run.capture.capture import capture
from tests.servers import Server
from tests.support.captures import here, live
from tests.support.comparison import lake_rows, server_rows
from tests.support.memory_sink import MemoryLake, memory_sink


class Captured:
    """Tables of a database in memory, each compared with the server's."""

    def __init__(self, server: Server, database: str, config: PipelineConfig) -> None:
        self._server, self._database, self._config = server, database, config
        self._lake, self._cursors = MemoryLake(), MemoryCursorStore()

    def run(self) -> None:
        sink = memory_sink(self._lake, source=self._config.name, config=self._config.sink)
        capture(self._config, cursors=self._cursors, sink=sink)

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        path = self._config.sink.lake_path
        return lake_rows(self._lake, path, self._database, table, list(columns))

    def check(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        rows = self.rows(table, *columns)
        assert rows == server_rows(self._server, self._database, table, list(columns))
        return rows


@pytest.fixture
def captured(
    mysql_server: Server, mysql_database: str, make_config: Callable[..., PipelineConfig]
) -> Captured:
    start = here(mysql_server)
    config = make_config(live(mysql_server), include=[f"{mysql_database}.*"], start=start)
    return Captured(mysql_server, mysql_database, config)


def test_k11_f165_the_number_0_of_an_enum_is_no_key_beside_an_empty_label(
    mysql_server: Server, mysql_database: str, captured: Captured
) -> None:
    use = f"USE `{mysql_database}`"
    mysql_server.execute_all(
        use,
        "SET sql_mode = ''",
        "CREATE TABLE plain (k ENUM('x', 'y') PRIMARY KEY, v ENUM('', 'x'))",
        "CREATE TABLE told (k ENUM('', 'x') PRIMARY KEY, v INT)",
        "INSERT INTO plain VALUES ('bad', ''), ('x', 'bad'), ('y', NULL)",
        "INSERT INTO told VALUES ('', 1), ('x', 2)",
    )
    captured.run()
    assert captured.check("plain", "k", "v") == [("", ""), ("x", ""), ("y", None)]
    assert captured.check("told", "k", "v") == [("", 1), ("x", 2)]
    mysql_server.execute_all(use, "SET sql_mode = ''", "INSERT INTO told VALUES (0, 3)")
    with pytest.raises(TargetSuspendedError, match="'' is a label"):
        captured.run()
    assert ("", 1) in captured.rows("told", "k", "v")


def test_k11_f185_a_label_without_text_is_no_key_of_its_own(
    mysql_server: Server, mysql_database: str, captured: Captured
) -> None:
    """Of a SET: no comma follows it at the beginning, so that it adds nothing to the text."""
    use = f"USE `{mysql_database}`"
    numbers = ", ".join(f"({n}, {n}, {n})" for n in range(8))
    mysql_server.execute_all(
        use,
        "CREATE TABLE plain (k INT PRIMARY KEY, v SET('', 'a', 'b'), w SET('a', '', 'b'))",
        f"INSERT INTO plain VALUES {numbers}",
        "CREATE TABLE told (k SET('', 'a') PRIMARY KEY)",
        "INSERT INTO told VALUES (0), (2)",
        "ALTER TABLE plain ADD d SET('', 'a', 'b') NOT NULL DEFAULT ',b'",
    )
    captured.run()
    texts = ["", "", "a", "a", "b", "b", "a,b", "a,b"]
    assert [row[1] for row in captured.check("plain", "k", "v", "w", "d")] == texts
    captured.check("told", "k")
    mysql_server.execute_all(use, "INSERT INTO told VALUES (3)")
    with pytest.raises(TargetSuspendedError, match="one of '' that adds no text"):
        captured.run()


def test_k11_f186_a_key_of_a_rule_is_a_key(
    mysql_server: Server,
    mysql_database: str,
    make_config: Callable[..., PipelineConfig],
    memory: MemoryLake,
) -> None:
    """Also of a target that is yet to be made, and to a snapshot."""
    mysql_server.execute_all(
        f"USE `{mysql_database}`",
        "SET sql_mode = ''",
        "CREATE TABLE e (k INT PRIMARY KEY, r ENUM('', 'x'), c VARCHAR(9)) CHARSET cp932",
        "CREATE TABLE d (k INT PRIMARY KEY, r DATE)",
    )
    bad = {
        "e": ("r", "(1, ''), (2, 0)", "'' is a label"),
        "f": ("c", "(1, _cp932 0x81E0), (2, _cp932 0x8790)", "cp932 in a key"),
        "d": ("r", "(1, '2024-01-01'), (2, 0)", "zero or partial date"),
        "n": ("r", "(1, '2024-01-01'), (2, NULL)", "NULL in a key"),
    }
    mysql_server.execute("CREATE TABLE f LIKE e")
    mysql_server.execute("CREATE TABLE n LIKE d")
    for table, (key, rows, what) in bad.items():
        name = f"{mysql_database}.{table}"
        rules = [{"tables": [name], "key": [key]}]
        source = {"source": live(mysql_server), "include": [name], "targets": rules}
        config = make_config(**source, name=f"log_{table}", start=here(mysql_server))
        mysql_server.execute(f"INSERT INTO {table} (k, {key}) VALUES {rows}")
        with pytest.raises(UnrepresentableValueError, match=what):
            capture(config, cursors=MemoryCursorStore())
        config = make_config(**source, name=f"rows_{table}", start=here(mysql_server))
        with pytest.raises(UnrepresentableValueError, match=what) as raised:
            take_snapshot(config, cursors=MemoryCursorStore(), tables=[name])
        assert raised.value.journal is None


@pytest.mark.parametrize("masks", [{}, {"r": {"hash": {"salt": "a salt that is long enough"}}}])
def test_k11_f227_null_is_no_key_of_a_rule(
    mysql_server: Server,
    mysql_database: str,
    make_config: Callable[..., PipelineConfig],
    masks: dict[str, Any],
) -> None:
    """The server may have several rows with it."""
    name = f"{mysql_database}.t"
    rule = {"tables": [name], "key": ["q", "r"], "masks": masks, "on_bad_row": "quarantine"}
    source = {"source": live(mysql_server), "include": [name], "start": here(mysql_server)}
    captured = Captured(mysql_server, mysql_database, make_config(**source, targets=[rule]))
    mysql_server.execute_all(
        f"USE `{mysql_database}`",
        "CREATE TABLE t (k INT PRIMARY KEY, q INT NOT NULL, r DATE, UNIQUE KEY (q, r))",
        "INSERT INTO t VALUES (1, 1, '2024-01-01'), (2, 1, NULL), (3, 1, NULL), (4, 2, NULL)",
        "DELETE FROM t WHERE k = 2",
        "UPDATE t SET q = 3 WHERE k = 1",
    )
    captured.run()
    assert captured.rows("t", "k", "q") == [(1, 3)]
    failing = make_config(**source, targets=[{**rule, "on_bad_row": "fail"}], name="failing")
    with pytest.raises(UnrepresentableValueError, match="column r") as stopped:
        capture(failing, cursors=MemoryCursorStore())
    assert masks or "NULL in a key, which finds no row" in str(stopped.value)


def test_k11_f166_a_character_has_one_code_in_a_key(
    mysql_server: Server, mysql_database: str, captured: Captured
) -> None:
    """That which the server writes for it; other columns have each."""
    use, table = f"USE `{mysql_database}`", "(k VARCHAR(9) PRIMARY KEY, v VARCHAR(9))"
    mysql_server.execute_all(
        use,
        f"CREATE TABLE told {table} DEFAULT CHARSET=cp932 COLLATE=cp932_bin",
        "INSERT INTO told VALUES (_cp932 0x81E0, _cp932 0x8790), ('?', _cp932 0x81AD)",
    )
    captured.run()
    assert captured.check("told", "k", "v") == [("?", "?"), ("\u2252", "\u2252")]
    mysql_server.execute_all(use, "INSERT INTO told VALUES (_cp932 0x8790, 'other')")
    with pytest.raises(UnrepresentableValueError, match="cp932 in a key"):
        captured.run()
    assert len(captured.rows("told", "k", "v")) == 2


def test_k22_f190_a_value_of_one_table_keeps_no_other_from_its_snapshot(
    mysql_server: Server,
    mysql_database: str,
    make_config: Callable[..., PipelineConfig],
    memory: MemoryLake,
) -> None:
    """And nothing of it stays that a later snapshot would go on with."""
    mysql_server.execute_all(
        f"USE `{mysql_database}`",
        "SET sql_mode = ''",
        "CREATE TABLE a (d DATE PRIMARY KEY)",
        "CREATE TABLE b (k INT PRIMARY KEY)",
        "INSERT INTO a VALUES (0)",
        "INSERT INTO b VALUES (1)",
    )
    include, cursors = [f"{mysql_database}.*"], MemoryCursorStore()
    config = make_config(live(mysql_server), include=include, start=here(mysql_server))
    for _ in range(2):
        with pytest.raises(UnrepresentableValueError, match="zero or partial date"):
            take_snapshot(config, cursors=cursors)
        folder = config.sink.lake_path
        assert lake_rows(memory, folder, mysql_database, "b", ["k"]) == [(1,)]
    assert take_snapshot(config, cursors=cursors, tables=[f"{mysql_database}.b"]).targets


def test_k22_f223_nor_one_that_is_read_in_the_same_view(
    mysql_server: Server,
    mysql_database: str,
    make_config: Callable[..., PipelineConfig],
    memory: MemoryLake,
) -> None:
    mysql_server.execute_all(
        f"USE `{mysql_database}`",
        "SET sql_mode = ''",
        *(f"CREATE TABLE {table} (d DATE PRIMARY KEY)" for table in "abc"),
        "INSERT INTO a VALUES ('2024-01-01')",
        "INSERT INTO b VALUES (0)",
        "INSERT INTO c VALUES ('2024-01-01')",
    )
    include, rule = [f"{mysql_database}.*"], {"tables": ["*.*"], "mode": "history"}
    source, start = live(mysql_server), here(mysql_server)
    config = make_config(source, include=include, start=start, targets=[rule])
    with pytest.raises(UnrepresentableValueError, match="zero or partial date"):
        take_snapshot(config, cursors=MemoryCursorStore())
    for table in "ac":
        name = f"{table}_history"
        found = lake_rows(memory, config.sink.lake_path, mysql_database, name, ["d"])
        assert len(found) == 1


def test_k11_f188_a_date_that_is_kept_as_text_is_a_key(
    mysql_server: Server,
    mysql_database: str,
    make_config: Callable[..., PipelineConfig],
) -> None:
    """Whatever the policies say of dates that are not."""
    rule = {"tables": ["*.*"], "types": {"d": "string"}, "zero_dates": "null"}
    start, database = here(mysql_server), mysql_database
    config = make_config(live(mysql_server), include=[f"{database}.*"], start=start, targets=[rule])
    captured = Captured(mysql_server, database, config)
    mysql_server.execute_all(
        f"USE `{database}`",
        "SET sql_mode = ''",
        "CREATE TABLE t (d DATE PRIMARY KEY, v INT)",
        "INSERT INTO t VALUES (0, 1), ('2024-00-01', 2), ('2024-01-01', 3)",
    )
    captured.run()
    mysql_server.execute("UPDATE t SET v = 9 WHERE v = 1")
    mysql_server.execute("DELETE FROM t WHERE v = 2")
    captured.run()
    assert captured.rows("t", "d", "v") == [("0000-00-00", 9), ("2024-01-01", 3)]


@pytest.mark.parametrize("charset", charsets.known_charsets())
def test_k11_f166_no_two_codes_of_a_key_are_one_character(charset: str) -> None:
    """But for ASCII's, of which each is in use."""
    for is_mariadb in (False, True):
        found = charsets.find_charset(charset, is_mariadb=is_mariadb, is_key=True)
        points = np.concatenate([found.one, found.two, found.three])
        points = points[(points > 0x7F) & (points < LEAD_BYTE)]
        assert len(np.unique(points)) == len(points)
        plain = charsets.find_charset(charset, is_mariadb=is_mariadb)
        every = np.concatenate([plain.one, plain.two, plain.three])
        lost = np.setdiff1d(every[every < LEAD_BYTE], points)
        assert (lost[lost > 0x7F] == 0xFFFD).all()
