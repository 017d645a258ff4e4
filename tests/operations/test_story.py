"""The story of a row, and the SQL that takes a transaction back, on real servers."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pymysql
import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import CdcError, ConfigError, PositionError, SchemaError
from cdc_pipeline.operations import story as stories
from cdc_pipeline.operations.inspect.selection import Selection
from cdc_pipeline.operations.story import Story, _Found, _joined, open_story
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.position.position import Position
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.source.live.live import LiveSource
from tests.campaigns.values.domain import Sample, samples_of
from tests.servers import Server
from tests.support.captures import here, live

_LOOSE = "ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO"


def _config(server: Server, database: str, folder: Path, **sections: Any) -> PipelineConfig:
    return PipelineConfig.model_validate(
        {
            "name": "shop",
            "source": live(server),
            "tables": {"include": [f"{database}.*"]},
            "start": here(server),
            "sink": {"lake_path": folder / "lake"},
            **sections,
        }
    )


def _from(config: PipelineConfig) -> Selection:
    assert not isinstance(config.start, str)
    return Selection(from_position=Position(config.start.journal, config.start.offset))  # type: ignore[union-attr]


def story(config: PipelineConfig, table: str, key: dict[str, str], **asked: Any) -> Story:
    with open_story(config, table, **asked) as reader:
        return reader.story(key)


def undo(
    config: PipelineConfig, table: str, key: dict[str, str], transaction: str, **asked: Any
) -> Iterator[str]:
    with open_story(config, table, **asked) as reader:
        yield from reader.undo(key, transaction)


def _run(server: Server, script: Sequence[str]) -> None:
    """As a client that ends at the first error."""
    with server.root_connection() as connection, connection.cursor() as cursor:
        for line in script:
            if not line.startswith("--"):
                cursor.execute(line)


def _state(server: Server, table: str) -> Any:
    return server.query(f"CHECKSUM TABLE {table}"), server.query(f"SELECT COUNT(*) FROM {table}")


SEEDS = {"mysql": 5, "mariadb": 6}
COLUMNS = 12


def test_what_undo_writes_gives_back_every_value_of_every_type(
    server: Server, fresh_database: str, tmp_path: Path
) -> None:
    choose = random.Random(SEEDS[server.flavor])
    # The log's reader does not tell the label '' from the value that is no label.
    samples = [s for s in samples_of(server.flavor, choose) if s.declared != "ENUM('','a')"]
    config = _config(server, fresh_database, tmp_path)
    tables = [samples[at : at + COLUMNS] for at in range(0, len(samples), COLUMNS)]
    server.execute(f"USE `{fresh_database}`")
    server.execute(f"SET SESSION sql_mode = '{_LOOSE}'")
    before = {}
    for number, columns in enumerate(tables):
        name = f"t{number}"
        _make(server, name, columns, choose)
        before[name] = _state(server, name)
        _change(server, name, columns, choose)
        after = _state(server, name)
        full = f"{fresh_database}.{name}"
        asked: Any = {"cursors": MemoryCursorStore(), "selection": _from(config)}
        told = story(config, full, {"id": "2"}, **asked)
        transaction = told.changes[-1].transaction
        assert transaction is not None
        script = [*undo(config, full, {}, transaction, **asked)]
        assert _state(server, name) == after
        _run(server, script)
        assert _state(server, name) == before[name], columns
        with pytest.raises(pymysql.err.MySQLError):
            _run(server, script)
        assert _state(server, name) == before[name]


def _make(server: Server, name: str, columns: Sequence[Sample], choose: random.Random) -> None:
    declared = ", ".join(f"c{at} {one.declared} NULL" for at, one in enumerate(columns))
    server.execute(f"CREATE TABLE {name} (id INT PRIMARY KEY, {declared})")
    server.execute("BEGIN")
    for number in range(12):
        _insert(server, name, number, columns, choose)
    server.execute("COMMIT")


def _insert(
    server: Server, name: str, number: int, columns: Sequence[Sample], choose: random.Random
) -> None:
    server.execute(f"INSERT INTO {name} (id) VALUES ({number})")
    _fill(server, name, number, columns, choose)


def _fill(
    server: Server, name: str, number: int, columns: Sequence[Sample], choose: random.Random
) -> None:
    for at, one in enumerate(columns):
        value = choose.choice((*one.values, "NULL"))
        with suppress(pymysql.err.MySQLError):  # the server has no such value of the type
            server.execute(f"UPDATE {name} SET c{at} = {value} WHERE id = {number}")


def _change(server: Server, name: str, columns: Sequence[Sample], choose: random.Random) -> None:
    server.execute("BEGIN")
    for number in range(8):
        _fill(server, name, number, columns, choose)
    server.execute(f"UPDATE {name} SET id = 100, c0 = NULL WHERE id = 3")
    server.execute(f"UPDATE {name} SET id = 3 WHERE id = 4")
    server.execute(f"DELETE FROM {name} WHERE id BETWEEN 8 AND 9")
    _insert(server, name, 8, columns, choose)
    server.execute(f"DELETE FROM {name} WHERE id = 2")
    server.execute("COMMIT")


def test_a_story_is_that_of_every_row_that_ever_had_the_key(
    server: Server, fresh_database: str, tmp_path: Path
) -> None:
    """Against a model of rows that are inserted, changed, moved to other keys and deleted."""
    choose = random.Random(SEEDS[server.flavor])
    config = _config(server, fresh_database, tmp_path)
    server.execute(f"USE `{fresh_database}`")
    server.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    lives: list[list[tuple[str, Any, Any]]] = []
    alive: dict[int, list[tuple[str, Any, Any]]] = {}
    order: list[tuple[str, Any, Any]] = []
    for number in range(60):
        key, other = choose.sample(range(8), 2)
        if key not in alive:
            server.execute(f"INSERT INTO t VALUES ({key}, {number})")
            change = ("insert", None, {"id": key, "v": number})
            lives.append(life := [change])
        else:
            life, old = alive.pop(key), {}
            old = life[-1][2]
            if choose.random() < 0.2:
                server.execute(f"DELETE FROM t WHERE id = {key}")
                change = ("delete", old, None)
            else:
                is_moved = other not in alive and choose.random() < 0.3
                new = {"id": other if is_moved else key, "v": number}
                server.execute(f"UPDATE t SET id = {new['id']}, v = {number} WHERE id = {key}")
                change = ("update", old, new)
            life.append(change)
        order.append(change)
        if change[2] is not None:
            alive[change[2]["id"]] = life
    asked: Any = {"cursors": MemoryCursorStore(), "selection": _from(config)}
    for key in range(8):
        told = story(config, f"{fresh_database}.t", {"id": str(key)}, **asked)
        mine = [life for life in lives if any(key in _ids(change) for change in life)]
        expected = [change for change in order if any(change in life for life in mine)]
        rows = [(c.op, c.before, c.after) for c in told.changes if c.op != "ddl"]
        assert rows == expected, key
        assert told.holes == ()


def _ids(change: tuple[str, Any, Any]) -> set[int]:
    return {image["id"] for image in change[1:] if image is not None}


MASKED = [{"tables": ["*.t"], "columns": {"exclude": ["other"]}, "masks": {"secret": "drop"}}]


def test_statements_are_told_and_no_column_that_no_target_shows(
    server: Server, fresh_database: str, tmp_path: Path
) -> None:
    config = _config(server, fresh_database, tmp_path, targets=MASKED)
    server.execute(f"USE `{fresh_database}`")
    server.execute("SET SESSION binlog_annotate_row_events = ON" if server.flavor == "mariadb"
                   else "SET SESSION binlog_rows_query_log_events = ON")  # fmt: skip
    server.execute_all(
        "CREATE TABLE t (id VARCHAR(9) PRIMARY KEY, secret VARCHAR(9), other INT, n INT)",
        "INSERT INTO t VALUES ('it''s', 'hush', 4711, 1), ('b', 'hush', 4711, 2)",
        "UPDATE t SET n = 2, secret = CHAR(104, 4711) WHERE other = 4711",
        "ALTER TABLE t ADD COLUMN more INT NOT NULL DEFAULT 4711",
        "TRUNCATE TABLE t",
    )
    asked: Any = {"cursors": MemoryCursorStore(), "selection": _from(config)}
    table = f"{fresh_database}.t"
    told = story(config, table, {"id": "it's"}, **asked)
    assert [change.op for change in told.changes] == ["ddl", "insert", "update", "ddl", "truncate"]
    assert told.changes[2].before == {"id": "it's", "n": 1}
    assert told.changes[2].changed == ("n",)
    assert told.changes[2].sql == "UPDATE t SET n = ?, secret = CHAR(?, ?) WHERE other = ?"
    assert "hush" not in str(told)
    assert "4711" not in str(told)
    with pytest.raises(SchemaError, match="no target shows"):
        [*undo(config, table, {}, told.changes[2].transaction or "", **asked)]
    with pytest.raises(ConfigError, match="not captured"):
        story(config, "elsewhere.t", {"id": "1"}, **asked)


def test_what_cannot_be_taken_back_is_refused(
    server: Server, fresh_database: str, tmp_path: Path
) -> None:
    config = _config(server, fresh_database, tmp_path)
    server.execute(f"USE `{fresh_database}`")
    server.execute_all(
        "CREATE TABLE t (id INT PRIMARY KEY, n INT, g INT AS (n + 1) STORED)",
        "INSERT INTO t (id, n) VALUES (1, 1), (2, 2)",
        "UPDATE t SET n = n + 10",
        "SET SESSION binlog_row_image = MINIMAL",
        "UPDATE t SET n = 5 WHERE id = 1",
        "SET SESSION binlog_row_image = FULL",
        "TRUNCATE TABLE t",
    )
    table = f"{fresh_database}.t"
    asked: Any = {"cursors": MemoryCursorStore(), "selection": _from(config)}
    told = story(config, table, {"id": "1"}, **asked).changes
    assert [change.op for change in told] == ["ddl", "insert", "update", "update", "truncate"]
    script = [*undo(config, table, {"id": "1"}, told[2].transaction or "", **asked)]
    assert [line for line in script if line.startswith("UPDATE")] == [
        f"UPDATE `{fresh_database}`.`t` SET `id` = 1, `n` = 1 WHERE `id` = 1 AND `n` = 11 LIMIT 1;"
    ]
    with pytest.raises(pymysql.err.MySQLError, match="more than 1 row"):
        _run(server, script)  # the row is gone
    with pytest.raises(SchemaError, match="does not hold all of"):
        [*undo(config, table, {"id": "1"}, told[3].transaction or "", **asked)]
    for transaction in (told[4].transaction or "", "nothing"):
        with pytest.raises(PositionError, match="how to take"):
            [*undo(config, table, {"id": "1"}, transaction, **asked)]


def test_f255_labels_in_bytes_are_taken_back(
    server: Server, fresh_database: str, tmp_path: Path
) -> None:
    config = _config(server, fresh_database, tmp_path)
    table = f"{fresh_database}.t"
    server.execute_all(
        f"CREATE TABLE {table} (id INT PRIMARY KEY,"
        " e ENUM('ab','b') CHARACTER SET binary, s SET('ab','b') CHARACTER SET binary)",
        f"INSERT INTO {table} VALUES (1, 'ab', 'ab,b')",
        f"DELETE FROM {table}",
    )
    asked: Any = {"cursors": MemoryCursorStore(), "selection": _from(config)}
    insert, delete = story(config, table, {"id": "1"}, **asked).changes[1:]
    _run(server, [*undo(config, table, {}, delete.transaction or "", **asked)])
    assert server.query(f"SELECT HEX(e), HEX(s) FROM {table}") == [("6162", "61622C62")]
    _run(server, [*undo(config, table, {}, insert.transaction or "", **asked)])
    assert not server.query(f"SELECT * FROM {table}")


def test_an_xa_transaction_counts_from_its_commit(
    server: Server, fresh_database: str, tmp_path: Path
) -> None:
    config = _config(server, fresh_database, tmp_path)
    server.execute(f"USE `{fresh_database}`")
    server.execute("CREATE TABLE t (id INT PRIMARY KEY, n INT)")
    for number, end in enumerate(("COMMIT", "ROLLBACK")):
        server.execute_all(
            f"XA START 'x{number}'", f"INSERT INTO t VALUES ({number}, 1)", f"XA END 'x{number}'",
            f"XA PREPARE 'x{number}'", f"XA {end} 'x{number}'",
        )  # fmt: skip
    asked: Any = {"cursors": MemoryCursorStore(), "selection": _from(config)}
    kept, gone = (story(config, f"{fresh_database}.t", {"id": key}, **asked) for key in "01")
    assert [(change.op, change.note) for change in kept.changes] == [("ddl", ""), ("insert", "")]
    assert [change.op for change in gone.changes] == ["ddl"]
    committed = kept.changes[1].transaction or ""
    script = [*undo(config, f"{fresh_database}.t", {}, committed, **asked)]
    assert [line.split()[0] for line in script if line[:6] in ("INSERT", "DELETE")] == ["DELETE"]


@pytest.mark.spark
def test_purged_journals_are_a_hole_and_the_lake_goes_on_knowing(
    server: Server,
    fresh_database: str,
    make_config: Callable[..., PipelineConfig],
    spark: Any,
) -> None:
    server.execute(f"USE `{fresh_database}`")
    targets = [{"tables": ["*.t"], "mode": "changelog"}, {"tables": ["*.t"], "mode": "history"}]
    start = here(server)
    config = make_config(
        live(server), include=[f"{fresh_database}.*"], start=start, targets=targets
    )
    server.execute_all(
        "CREATE TABLE t (id BIGINT PRIMARY KEY, name VARCHAR(20), at DATETIME(3), d DECIMAL(5,2))",
        "INSERT INTO t VALUES (1, 'a', '2024-02-29 01:02:03.004', 1.5), (2, 'b', NULL, NULL)",
        "UPDATE t SET name = 'aa' WHERE id = 1",
        "UPDATE t SET id = 7 WHERE id = 1",
    )
    cursors = MemoryCursorStore()
    capture(config, cursors=cursors)
    table = f"{fresh_database}.t"
    asked: Any = {"cursors": cursors, "selection": _from(config)}
    told = story(config, table, {"id": "7"}, **asked)
    everyone = ("log", f"{table}_changelog", f"{table}_history")
    assert [change.known_by for change in told.changes] == [("log",), *([everyone] * 3)]
    assert told.changes[-1].note == "its key changes"
    assert told.holes == ()

    server.execute("UPDATE t SET name = 'lost' WHERE id = 7")
    server.flush_journal()
    server.purge_to(server.end_position()[0])
    server.execute("UPDATE t SET name = 'late' WHERE id = 7")
    later = story(config, table, {"id": "7"}, cursors=cursors)
    lake = everyone[1:]
    assert [change.known_by for change in later.changes] == [lake, lake, lake, ("log",)]
    assert [(c.op, c.time, c.transaction) for c in later.changes[:3]] == [
        (c.op, c.time, c.transaction) for c in told.changes[1:]
    ]
    assert later.changes[0].after == {
        "id": 1, "name": "a", "at": "2024-02-29 01:02:03.004000", "d": "1.50",
    }  # fmt: skip
    assert [hole.why.split(",")[0] for hole in later.holes] == [
        "neither the log nor a table of the lake goes back further",
        "the lake does not have it yet",
    ]


def test_rows_whose_columns_have_no_names_are_a_hole(
    server: Server, fresh_database: str, tmp_path: Path
) -> None:
    """Masks and exclusions name columns, and `@2` is none of these."""
    level = "NO_LOG" if server.flavor == "mariadb" else "MINIMAL"
    server.execute(f"SET GLOBAL binlog_row_metadata = '{level}'")
    try:
        server.new_session()
        server.execute(f"USE `{fresh_database}`")
        server.execute("CREATE TABLE t (id INT PRIMARY KEY, secret VARCHAR(9), other INT)")
        server.flush_journal()
        config = _config(server, fresh_database, tmp_path, targets=MASKED)
        server.execute_all("INSERT INTO t VALUES (1, 'hush', 4711)", "DROP TABLE t")
        asked: Any = {"cursors": MemoryCursorStore(), "selection": _from(config)}
        told = story(config, f"{fresh_database}.t", {"id": "1"}, **asked)
        (hole,) = told.holes
        assert "columns are @1" in hole.why
        assert [change.op for change in told.changes] == ["ddl"]
        with pytest.raises(PositionError, match="how to take") as caught:
            [*undo(config, f"{fresh_database}.t", {}, "nothing", **asked)]
        assert "columns are @1" in (caught.value.got or "")
        assert not [text for text in ("hush", "4711") if text in f"{told}{caught.value}"]
    finally:
        server.execute("SET GLOBAL binlog_row_metadata = 'FULL'")
        server.new_session()


def test_texts_whose_charset_alone_is_unknown_are_told_with_a_note(
    server: Server, fresh_database: str, tmp_path: Path
) -> None:
    """The statements of the log name the columns, and the default charset of the database is not
    among them: nothing is hidden by mistake, and no SQL is written from a guess. MySQL's table maps
    have it even so.
    """
    level = "NO_LOG" if server.flavor == "mariadb" else "MINIMAL"
    server.execute(f"SET GLOBAL binlog_row_metadata = '{level}'")
    try:
        server.new_session()
        server.execute(f"USE `{fresh_database}`")
        server.flush_journal()
        config = _config(server, fresh_database, tmp_path, targets=MASKED)
        server.execute_all(
            "CREATE TABLE t (id INT PRIMARY KEY, secret VARCHAR(9), other INT, name VARCHAR(9))",
            "INSERT INTO t VALUES (1, 'hush', 4711, 'x')",
            "DROP TABLE t",
        )
        asked: Any = {"cursors": MemoryCursorStore(), "selection": _from(config)}
        told = story(config, f"{fresh_database}.t", {"id": "1"}, **asked)
        assert told.holes == ()
        assert told.changes[1].after == {"id": 1, "name": "x"}
        if server.flavor == "mysql":
            assert told.notes == ()
            return
        assert any("charset" in note for note in told.notes)
        transaction = told.changes[1].transaction or ""
        with pytest.raises(PositionError, match="how to take") as caught:
            [*undo(config, f"{fresh_database}.t", {}, transaction, **asked)]
        assert "charset" in (caught.value.got or "")
    finally:
        server.execute("SET GLOBAL binlog_row_metadata = 'FULL'")
        server.new_session()


@pytest.mark.spark
def test_a_column_that_was_renamed_to_a_masked_one_is_not_shown(
    server: Server,
    fresh_database: str,
    make_config: Callable[..., PipelineConfig],
    spark: Any,
) -> None:
    server.execute(f"USE `{fresh_database}`")
    begin = _from(_config(server, fresh_database, Path("unused")))
    server.execute_all(
        "CREATE TABLE t (id INT PRIMARY KEY, old INT)",
        "INSERT INTO t VALUES (1, 4711)",
        "ALTER TABLE t RENAME COLUMN old TO secret",
    )
    targets = [{"tables": ["*.t"], "mode": "changelog", "masks": {"secret": "drop"}}]
    config = make_config(
        live(server), include=[f"{fresh_database}.*"], start=here(server), targets=targets
    )
    server.execute("UPDATE t SET secret = 4712")
    cursors = MemoryCursorStore()
    capture(config, cursors=cursors)
    asked: Any = {"cursors": cursors, "selection": begin}
    told = story(config, f"{fresh_database}.t", {"id": "1"}, **asked)
    assert [change.op for change in told.changes] == ["ddl", "insert", "ddl", "update"]
    assert told.changes[1].after == {"id": 1}
    assert "471" not in "".join(str((c.before, c.after)) for c in told.changes)
    with pytest.raises(SchemaError, match="no target shows"):
        [*undo(config, f"{fresh_database}.t", {}, told.changes[1].transaction or "", **asked)]


@pytest.mark.parametrize(
    ("mask", "ddl"),
    [
        ("drop", ["RENAME COLUMN b TO secret", "ADD b INT"]),
        ({"hash": {"salt": "a salt of many characters"}}, ["CHANGE B secret INT", "ADD b INT"]),
        ("drop", ["RENAME COLUMN b TO secret, RENAME COLUMN secret TO b"]),
    ],
)
def test_k26_values_of_a_column_that_got_a_masked_name_are_not_shown_under_its_old_one(
    server: Server, fresh_database: str, tmp_path: Path, mask: Any, ddl: list[str]
) -> None:
    """Though a column of the old name is there again, and the range ends before the rename."""
    targets = [{"tables": ["*.t"], "masks": {"secret": mask}}]
    config = _config(server, fresh_database, tmp_path, targets=targets)
    server.execute(f"USE `{fresh_database}`")
    swapped = ", secret INT" if "TO b" in ddl[0] else ""
    server.execute_all(
        f"CREATE TABLE t (id INT PRIMARY KEY, b INT{swapped})",
        "INSERT INTO t (id, b) VALUES (1, 4711)",
    )
    begin, end = _from(config), Position(*server.end_position())
    server.execute_all(*(f"ALTER TABLE t {action}" for action in ddl))
    server.flush_journal()
    for selection in (begin, replace(begin, to_position=end)):
        asked: Any = {"cursors": MemoryCursorStore(), "selection": selection}
        told = story(config, f"{fresh_database}.t", {"id": "1"}, **asked)
        insert = told.changes[1]
        assert insert.after == {"id": 1}
        with pytest.raises(SchemaError, match="no target shows"):
            [*undo(config, f"{fresh_database}.t", {}, insert.transaction or "", **asked)]


def test_what_cannot_be_read_behind_the_range_is_no_hole_of_it(
    server: Server, fresh_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read for later names of the columns alone."""
    config = _config(server, fresh_database, tmp_path, targets=MASKED)
    server.execute(f"USE `{fresh_database}`")
    server.execute_all("CREATE TABLE t (id INT PRIMARY KEY, n INT)", "INSERT INTO t VALUES (1, 2)")
    begin, end = _from(config), Position(*server.end_position())
    server.flush_journal()
    damaged = CdcError("it is damaged", at=(server.end_position()[0], 4))
    chunks = LiveSource.chunks

    def broken(source: LiveSource, first: Any, *_: Any) -> Iterator[Any]:
        yield from chunks(source, first, end)
        raise damaged

    monkeypatch.setattr(LiveSource, "chunks", broken)
    table, cursors = f"{fresh_database}.t", MemoryCursorStore()
    asked: Any = {"cursors": cursors, "selection": replace(begin, to_position=end)}
    told = story(config, table, {"id": "1"}, **asked)
    assert told.holes == ()
    script = [*undo(config, table, {}, told.changes[1].transaction or "", **asked)]
    assert [line.split()[0] for line in script if line[:6] in ("INSERT", "DELETE")] == ["DELETE"]
    asked = {"cursors": cursors, "selection": begin}
    (hole,) = story(config, table, {"id": "1"}, **asked).holes
    assert "it is damaged" in hole.why


def test_rows_under_other_names_of_the_key_are_a_hole_and_undone_ones_are_none(
    server: Server, fresh_database: str, tmp_path: Path
) -> None:
    config = _config(server, fresh_database, tmp_path)
    filtered = _config(
        server, fresh_database, tmp_path, targets=[{"tables": ["*.t"], "filter": "id > 2"}]
    )
    server.execute(f"USE `{fresh_database}`")
    engine = "Aria TRANSACTIONAL=0" if server.flavor == "mariadb" else "InnoDB"
    server.execute_all(
        "CREATE TABLE t (a INT PRIMARY KEY)",
        f"CREATE TABLE m (a INT PRIMARY KEY) ENGINE = {engine}",
        "INSERT INTO t VALUES (1)",
        "ALTER TABLE t RENAME COLUMN a TO id",
        "BEGIN",
        "INSERT INTO t VALUES (2)",
        "INSERT INTO m SELECT 2",
        "SAVEPOINT s",
        "INSERT INTO t VALUES (3)",
        "ROLLBACK TO s",
        "COMMIT",
    )
    asked: Any = {"cursors": MemoryCursorStore(), "selection": _from(config)}
    kept, gone = (story(config, f"{fresh_database}.t", {"id": key}, **asked) for key in "23")
    assert [change.op for change in kept.changes] == ["ddl", "ddl", "insert"]
    assert [change.op for change in gone.changes] == ["ddl", "ddl"]
    assert [hole.why for hole in gone.holes] == ["the key's columns had other names"]
    with pytest.raises(SchemaError, match="no target shows"):
        [*undo(filtered, f"{fresh_database}.t", {}, kept.changes[2].transaction or "", **asked)]


def test_k1_changes_of_two_logs_at_one_place_are_two() -> None:
    """Another server's log has other transactions at the same journals and offsets."""

    def found(transaction: str | None, *known_by: str) -> Any:
        keys = (None, ("1",))
        return _Found("insert", 8, transaction, 0, list(known_by), keys=keys)

    joined = _joined(
        [found("a:1", "log")],
        iter([found("b:1", "t_changelog"), found("a:1", "t_changelog"), found(None, "t_history")]),
    )
    assert [(each.transaction, each.known_by) for each in joined] == [
        ("a:1", ["log", "t_changelog", "t_history"]),
        ("b:1", ["t_changelog"]),
    ]


def test_an_unknown_transaction_of_the_whole_table_holds_no_row(
    server: Server, fresh_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = _config(server, fresh_database, tmp_path)
    server.execute(f"USE `{fresh_database}`")
    server.execute_all("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)")
    rows: list[Any] = []
    monkeypatch.setattr(stories, "RowChange", lambda *row: rows.append(row))
    asked: Any = {"cursors": MemoryCursorStore(), "selection": _from(config)}
    with pytest.raises(PositionError, match="how to take"):
        [*undo(config, f"{fresh_database}.t", {}, "mistyped", **asked)]
    assert not rows
