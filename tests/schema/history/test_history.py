"""The schema history itself: versions by place, what is kept, what a rerun sees, ALTER TABLE in the
server's order."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_pipeline.binlog.seq import pack_seq
from cdc_pipeline.binlog.table_schema import Column, Kind, TableSchema
from cdc_pipeline.errors import LakeStateError
from cdc_pipeline.lake.schema_history import SchemaHistoryFile
from cdc_pipeline.schema.ddl.ddl import parse_statement
from cdc_pipeline.schema.history.apply_ddl import LoggedStatement, apply
from cdc_pipeline.schema.history.history import DROPPED, Origin, SchemaHistory, Version
from tests.servers import Server


def version(offset: int, *names: str, epoch: int = 1, time_us: int = -1) -> Version:
    columns = tuple(Column(name, Kind.INT32, -1, 0, nullable=True) for name in names)
    return Version(
        pack_seq(epoch, 1, offset),
        Origin.DDL,
        TableSchema("d", "t", columns, (0,)),
        time_us=time_us,
    )


def names_at(
    history: SchemaHistory, offset: int, *, epoch: int = 1, table: str = "t"
) -> list[str] | None:
    found = history.at("d", table, pack_seq(epoch, 1, offset))
    return None if found is None or found.schema is None else list(found.schema.column_names)


@given(st.lists(st.integers(1, 50), unique=True), st.integers(0, 60))
def test_the_latest_version_up_to_a_place_holds_whatever_the_order_of_adding(
    offsets: list[int], asked: int
) -> None:
    history = SchemaHistory()
    for offset in offsets:
        history.add("d", "t", version(offset, f"c{offset}"))
    before = [offset for offset in offsets if offset <= asked]
    assert names_at(history, asked) == ([f"c{max(before)}"] if before else None)
    kept = history.compacted(pack_seq(1, 1, asked), keep_since_us=-1)
    assert SchemaHistory.from_json(kept.to_json()) == SchemaHistory(_versions=kept._versions)
    for later in range(asked, 61):
        assert names_at(kept, later) == names_at(history, later)
    whole = [known for known in kept.versions("d", "t") if known.schema is not None]
    assert len(whole) == len(offsets) - max(0, len(before) - 1)


def test_k2_what_lies_behind_the_cursor_is_made_again() -> None:
    history = SchemaHistory()
    history.add("d", "t", version(10, "a"))
    history.add("d", "t", version(30, "a", "b"))
    assert names_at(history.up_to(pack_seq(1, 1, 20)), 40) == ["a"]


def test_k7_versions_of_the_fallback_interval_stay() -> None:
    history = SchemaHistory()
    for offset in (10, 20, 30, 40):
        history.add("d", "t", version(offset, f"c{offset}", time_us=offset * 1000))
    kept = history.compacted(pack_seq(1, 1, 40), keep_since_us=25_000)
    whole = [known for known in kept.versions("d", "t") if known.schema is not None]
    assert [known.place for known in whole] == [pack_seq(1, 1, offset) for offset in (20, 30, 40)]


def test_k1_another_epoch_takes_over_only_where_it_goes_on_from_the_same_transaction() -> None:
    history = SchemaHistory()
    history.add("d", "t", version(900, "a"))
    history.add("d", "t", version(950, "a", "b"))
    assert names_at(history, 100, epoch=2) is None
    history.restate(pack_seq(1, 1, 960), pack_seq(2, 1, 100))
    assert names_at(history, 99, epoch=2) is None
    assert names_at(history, 100, epoch=2) == ["a", "b"]
    # A target reads again from earlier on: what it makes known there ends where the epoch goes on.
    history.restate(pack_seq(1, 1, 940), pack_seq(2, 1, 50))
    history.add("d", "t", version(60, "a", "c", epoch=2))
    assert names_at(history, 50, epoch=2) == ["a"]
    assert names_at(history, 99, epoch=2) == ["a", "c"]
    assert names_at(history, 100, epoch=2) == ["a", "b"]
    history.restate(pack_seq(1, 1, 940), pack_seq(2, 1, 100))
    assert names_at(history, 100, epoch=2) == ["a", "b"]


def test_a_dropped_table_is_forgotten_once_nobody_stands_before_it() -> None:
    history = SchemaHistory()
    history.add("d", "t", version(10, "a"))
    history.add("d", "t", Version(pack_seq(1, 1, 20), Origin.DDL, None, why=DROPPED))
    assert len(history.compacted(pack_seq(1, 1, 15), keep_since_us=-1).versions("d", "t")) == 2
    assert history.compacted(pack_seq(1, 1, 25), keep_since_us=-1).versions("d", "t") == ()


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "schema_history.json"
    file = SchemaHistoryFile(path)
    assert file.read() == SchemaHistory()
    history = SchemaHistory()
    history.add("d", "t", version(10, "a"))
    file.write(history)
    assert names_at(file.read(), 10) == ["a"]
    path.write_text(path.read_text().replace('"versions"', '"revisions"'))
    with pytest.raises(LakeStateError, match=r"cannot be read: .*schema_history"):
        file.read()
    file.forget()
    assert file.read() == SchemaHistory()


# What the servers answer is in `test_the_order_of_columns_is_the_servers`; here: what cannot be
# known is said.
UNCERTAIN = [
    "ALTER TABLE t ADD COLUMN a INT",
    "ALTER TABLE t DROP COLUMN nowhere",
    "ALTER TABLE t MODIFY a NOSUCHTYPE",
    "ALTER TABLE t ADD COLUMN z INT AFTER nowhere",
    "ALTER TABLE t RENAME COLUMN nowhere TO z",
    "ALTER TABLE t SOMETHING NEW",
]


@pytest.mark.parametrize("sql", UNCERTAIN)
def test_what_the_text_does_not_tell_is_unknown_from_there_on(sql: str) -> None:
    history = SchemaHistory()
    history.add("d", "t", version(10, "id", "a"))
    apply(
        history,
        LoggedStatement(parse_statement(sql, "d"), pack_seq(1, 1, 20)),
        lambda _database, _table: True,
    )
    assert names_at(history, 19) == ["id", "a"]
    found = history.at("d", "t", pack_seq(1, 1, 20))
    assert found is not None
    assert found.schema is None
    assert "cannot be read with certainty" in found.why


ORDERS = [
    "ALTER TABLE t ADD z INT AFTER id, ADD y INT AFTER z, ADD x INT FIRST",
    "ALTER TABLE t MODIFY a INT AFTER c, MODIFY b INT FIRST",
    "ALTER TABLE t DROP a, ADD a INT, ADD q INT AFTER a",
    "ALTER TABLE t CHANGE a aa INT AFTER b, CHANGE c cc INT FIRST",
    "ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a, MODIFY c INT FIRST",
    "ALTER TABLE t ADD (p INT, q INT), DROP b",
    "ALTER TABLE t CHANGE a b INT, CHANGE b a INT",
    "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (c, a), MODIFY c INT NOT NULL FIRST",
    "ALTER TABLE t DROP PRIMARY KEY, ADD n INT PRIMARY KEY FIRST",
    "ALTER TABLE t RENAME COLUMN id TO no, DROP c",
]


@pytest.mark.mysql
@pytest.mark.mariadb
def test_the_order_of_columns_is_the_servers(server: Server, fresh_database: str) -> None:
    server.execute(f"USE `{fresh_database}`")
    create = "CREATE TABLE t (id INT PRIMARY KEY, a INT NOT NULL, b INT, c INT NOT NULL)"
    is_mariadb = server.flavor == "mariadb"
    for sql in ORDERS:
        server.execute_all("DROP TABLE IF EXISTS t", create)
        server.execute(sql)
        history = SchemaHistory()
        for offset, said in ((1, create), (2, sql)):
            logged = LoggedStatement(
                parse_statement(said, fresh_database, is_mariadb=is_mariadb),
                pack_seq(1, 1, offset),
            )
            apply(history, logged, lambda _database, _table: True)
        found = history.at(fresh_database, "t", pack_seq(1, 1, 3))
        assert found is not None, sql
        assert found.schema is not None, (sql, found.why)
        columns = server.query(
            "SELECT column_name FROM information_schema.columns WHERE table_name = 't' AND "
            "table_schema = %s ORDER BY ordinal_position",
            (fresh_database,),
        )
        assert list(found.schema.column_names) == [name for (name,) in columns], sql
        keys = server.query(
            "SELECT column_name FROM information_schema.statistics WHERE index_name = 'PRIMARY' "
            "AND table_name = 't' AND table_schema = %s ORDER BY seq_in_index",
            (fresh_database,),
        )
        assert list(found.schema.key_names) == [name for (name,) in keys], sql


def test_k23_labels_that_their_charset_does_not_have_are_not_what_the_text_says() -> None:
    """The server writes question marks for them, and how many depends on its version (K23); nor
    are labels in a charset that is not known (F69), or two columns of one name (F70)."""
    cases = [
        ("CREATE TABLE t (id INT PRIMARY KEY, e ENUM('ü','a') CHARACTER SET ascii)", False),
        ("CREATE TABLE t (id INT PRIMARY KEY, e SET('ж') CHARACTER SET latin1)", False),
        ("CREATE TABLE t (id INT PRIMARY KEY, e ENUM('😀') CHARACTER SET utf8mb3)", False),
        ("CREATE TABLE t (id INT PRIMARY KEY, e ENUM('ü') CHARACTER SET utf9)", False),
        ("CREATE TABLE t (id INT PRIMARY KEY, k INT, K INT)", False),
        ("CREATE TABLE t (id INT PRIMARY KEY, e ENUM('ü','ÿ') CHARACTER SET latin1)", True),
        ("CREATE TABLE t (id INT PRIMARY KEY, e ENUM('漢') CHARACTER SET sjis)", True),
        ("CREATE TABLE t (id INT PRIMARY KEY, e ENUM('😀') CHARACTER SET utf16)", True),
    ]
    for sql, is_known in cases:
        history = SchemaHistory()
        apply(
            history,
            LoggedStatement(parse_statement(sql, "d"), pack_seq(1, 1, 5)),
            lambda _database, _table: True,
        )
        version = history.at("d", "t", pack_seq(1, 1, 9))
        assert version is not None
        assert (version.schema is not None) is is_known, sql
    convert = "ALTER TABLE t CONVERT TO CHARACTER SET ascii"
    apply(
        history,
        LoggedStatement(parse_statement(convert, "d"), pack_seq(1, 1, 15)),
        lambda _database, _table: True,
    )
    version = history.at("d", "t", pack_seq(1, 1, 19))
    assert version is not None
    assert version.schema is None
    assert "labels" in version.why
