"""Ranges of keys: each row exactly once, in the server's own order, for keys of every type."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest

from cdc_pipeline.binlog.table_schema import Kind, TableSchema
from cdc_pipeline.errors import ConfigError, SchemaError
from cdc_pipeline.source.rows import key_ranges
from cdc_pipeline.source.rows.key_ranges import plan_ranges
from cdc_pipeline.source.rows.table_reader import ALL_ROWS, KeyRange, TableReader
from tests.campaigns.edges.evidence import Journal
from tests.servers import Server
from tests.source.rows.helpers import catalog_schema, selected, table_reader

KEYS = {
    "int": ("i INT, PRIMARY KEY (i)", "(-5), (-2147483648), (0), (3), (7), (2147483647)"),
    "latin1 and bigint unsigned": (
        "v VARCHAR(20) CHARACTER SET latin1, i BIGINT UNSIGNED, PRIMARY KEY (v, i)",
        r"('', 0), ('', 18446744073709551615), ('a', 1), ('A', 2), ('ä', 1), ('b ', 1), ('b', "
        r"2), ('''\\', 1)",
    ),
    "float and double": (
        "f FLOAT, d DOUBLE, PRIMARY KEY (f, d)",
        "(0.1, 0.1), (0.1, 0.3), (-3.4028234e38, 1), (1e-45, 5e-324), (16777217, 1e308), (0.3, "
        "0.1), (123456.789, 1), (16777216, 2), (-0.1, -0.1), (0, 0)",
    ),
    "enum and set": (
        "e ENUM('z','b','a'), s SET('x','y'), PRIMARY KEY (e, s)",
        "(1, 0), ('a', 'y'), ('z', 'x,y'), ('b', 'x'), ('b', ''), (0, 'x')",
    ),
    "moments": (
        "d DATE, t TIME(6), z DATETIME(2), PRIMARY KEY (d, t, z)",
        "('0000-00-00', '-838:59:59', '0000-00-00'), ('2024-02-00', '838:59:59', '2024-00-00 "
        "10:11:12.13'), ('2023-02-31', '-00:00:00.000001', '9999-12-31 23:59:59.99'), "
        "('2024-01-01', '00:00:00', '2024-01-01')",
    ),
    "timestamp, year and bit": (
        "m TIMESTAMP(3), y YEAR, b BIT(9), PRIMARY KEY (m, y, b)",
        "('2001-01-01 00:00:00.123', 0, b'1'), ('0000-00-00', 1901, b'0'), ('2038-01-19 "
        "03:14:07.999', 2155, b'111111111'), ('2001-01-01 00:00:00.123', 0, b'0'), ('2001-01-01 "
        "00:00:00.124', 0, b'0')",
    ),
    "decimal": (
        "d DECIMAL(65,30), PRIMARY KEY (d)",
        f"({'9' * 35}.{'9' * 30}), (-{'9' * 35}.{'9' * 30}), (0), (-0.{'0' * 29}1), (0.1)",
    ),
    "a text's first characters": (
        "x TEXT, PRIMARY KEY (x(3))",
        "(''), ('abcZ'), ('ABD'), ('a'), ('b'), ('%s')",
    ),
    "bytes": ("x VARBINARY(20), PRIMARY KEY (x)", "(x''), (x'00'), (x'ff00'), (x'0000'), (x'61')"),
    "padded bytes": (
        "x BINARY(3), PRIMARY KEY (x)",
        "(x''), (x'01'), (x'ff00'), (x'000001'), (x'61')",
    ),
    "collations": (
        "x VARCHAR(20) COLLATE utf8mb4_unicode_ci, u CHAR(3) CHARACTER SET utf16, "
        "PRIMARY KEY (x, u)",
        "('', ''), ('ß', 'ä'), ('ssa', 'ä'), ('😀', 'a'), ('Z', 'b'), ('z', 'c'), ('z', ' d')",
    ),
    "case": (
        "x VARCHAR(20) COLLATE utf8mb4_bin, PRIMARY KEY (x)",
        "('a'), ('A'), ('b'), ('B'), ('ä'), ('')",
    ),
    "no padding": (
        "x VARCHAR(9) COLLATE {nopad}, PRIMARY KEY (x)",
        "('a'), ('a '), ('a  '), (''), (' '), ('b')",
    ),
    "names": (
        "`a``b` INT, `select` VARCHAR(9), PRIMARY KEY (`select`, `a``b`)",
        "(1, 'x'), (2, 'x'), (0, 'y')",
    ),
}
NOPAD = {"mysql": "utf8mb4_0900_as_cs", "mariadb": "utf8mb4_nopad_bin"}


def keys_of(reader: TableReader, schema: TableSchema, bounds: KeyRange) -> list[tuple[object, ...]]:
    names = schema.key_names
    batches = list(reader.select(schema, bounds=bounds))
    return [
        (
            tuple(row[name] for name in names),
            *sorted((v.column, v.text) for v in batch.invalid if v.row == number),
        )
        for batch in batches
        for number, row in enumerate(batch.rows.to_pylist())
    ]


def test_each_row_is_in_exactly_one_range(server: Server, fresh_database: str) -> None:
    """Ranges of one, two and three rows; the bounds have been through JSON."""
    with (
        closing(server.root_connection(database=fresh_database)) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'")
        for number, (columns, values) in enumerate(KEYS.values()):
            columns = (
                columns.format(nopad=NOPAD[server.flavor]) if "{nopad}" in columns else columns
            )
            cursor.execute(f"CREATE TABLE t{number} ({columns}) CHARACTER SET utf8mb4")
            cursor.execute(f"INSERT INTO t{number} VALUES {values}")
    journal = Journal(server, fresh_database)
    with table_reader(server) as reader:
        for number, (name, (_, values)) in enumerate(KEYS.items()):
            schema = journal.rows(f"t{number}").schema
            rows = len(journal.rows(f"t{number}"))
            assert rows >= 3, values
            whole = keys_of(reader, schema, ALL_ROWS)
            assert len(whole) == rows
            for size in (1, 2, 3):
                ranges = list(plan_ranges(reader, schema, size))
                parts = [keys_of(reader, schema, one) for one in ranges]
                assert [key for part in parts for key in part] == whole, name
                assert [len(part) for part in parts[:-1]] == [size] * (len(parts) - 1), name
                assert len(parts[-1]) < size
                assert (ranges[0].after, ranges[-1].upto) == (None, None)


def test_uuids_and_addresses(mariadb_server: Server, mariadb_database: str) -> None:
    mariadb_server.execute_all(
        f"USE `{mariadb_database}`",
        "CREATE TABLE t (u UUID, i INET6, f INET4, PRIMARY KEY (u, i, f))",
        "INSERT INTO t VALUES ('ffffffff-0000-1000-8000-000000000001', '::1', '0.0.0.0'), "
        "('00000000-ffff-4fff-8fff-ffffffffffff', '::', '9.0.0.1'), "
        "('00000000-ffff-4fff-8fff-ffffffffffff', 'ffff::', '10.0.0.0'), "
        "('00000000-ffff-4fff-8fff-ffffffffffff', '::', '10.0.0.0'), "
        "('10000000-0000-1000-8000-000000000001', '::ffff:1.2.3.4', '255.255.255.255')",
    )
    told = Journal(mariadb_server, mariadb_database).rows("t").schema
    kinds = zip(told.columns, (Kind.UUID, Kind.INET6, Kind.INET4), strict=True)
    schema = replace(told, columns=tuple(replace(column, kind=kind) for column, kind in kinds))
    with table_reader(mariadb_server) as reader:
        whole = keys_of(reader, schema, ALL_ROWS)
        parts = [keys_of(reader, schema, one) for one in plan_ranges(reader, schema, 2)]
    assert [key for part in parts for key in part] == whole
    assert [len(part) for part in parts] == [2, 2, 1]


def test_a_plan_goes_on_from_any_bound(server: Server, fresh_database: str) -> None:
    server.execute_all(
        f"USE `{fresh_database}`",
        "CREATE TABLE t (a INT, b VARCHAR(9), c INT, PRIMARY KEY (b, a))",
        "INSERT INTO t VALUES " + ", ".join(f"({n % 7}, 'k{n // 7}', {n})" for n in range(100)),
    )  # fmt: skip
    schema = catalog_schema(server, fresh_database, "t")
    with table_reader(server) as reader:
        ranges = list(plan_ranges(reader, schema, 30))
        assert len(ranges) == 4
        for number, one in enumerate(ranges[:-1]):
            assert list(plan_ranges(reader, schema, 30, after=one.upto)) == ranges[number + 1 :]
        # Rows that come meanwhile are in the range that their key is in, and the plan is still
        # right.
        plan = plan_ranges(reader, schema, 30)
        first = next(plan)
        server.execute("INSERT INTO t VALUES (-1, '', 1000), (99, 'zz', 1001)")
        counts = [selected(reader, schema, one)[0].num_rows for one in (first, *plan)]
        assert counts == [31, 30, 30, 11]
        odd = list(plan_ranges(reader, schema, 20, where="c % 2 = 1 -- odd"))
        assert len(odd) == 3
        assert (
            sum(selected(reader, schema, one, where="c % 2 = 1 -- odd")[0].num_rows for one in odd)
            == 51
        )
        with pytest.raises(ConfigError) as caught:
            list(reader.select(schema, bounds=odd[0], where="nonsense = 1"))
        assert caught.value.setting == "where"


def test_a_bound_that_is_not_beyond_the_one_before_it_stops_the_plan(
    mysql_server: Server, mysql_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it would be with a FLOAT of which only six digits were told."""
    mysql_server.execute_all(
        f"USE `{mysql_database}`",
        "CREATE TABLE t (f FLOAT PRIMARY KEY)",
        "INSERT INTO t VALUES (16777215), (16777214)",
    )
    schema = catalog_schema(mysql_server, mysql_database, "t")
    monkeypatch.setattr(key_ranges, "_expression", lambda column: f"`{column.name}`")
    with (
        table_reader(mysql_server) as reader,
        pytest.raises(SchemaError, match="the same bound again") as caught,
    ):
        list(plan_ranges(reader, schema, 1))
    assert caught.value.table == f"{mysql_database}.t"


def test_k31_f187_which_key_is_usable(server: Server, fresh_database: str) -> None:
    server.execute_all(
        f"USE `{fresh_database}`",
        "CREATE TABLE a (i INT PRIMARY KEY, u INT NOT NULL UNIQUE)",
        "CREATE TABLE b (i INT, u INT NULL UNIQUE, v INT NOT NULL, w INT NOT NULL, UNIQUE (v, "
        "w), UNIQUE (i, v))",
        "CREATE TABLE c (i INT, UNIQUE (i))",
        "CREATE TABLE d (i INT NOT NULL, w CHAR(9) NOT NULL, UNIQUE (i, w), UNIQUE long_one (w))",
        # no keys of the log: a hash, and a virtual column
        "CREATE TABLE e (t TEXT NOT NULL, UNIQUE (t))"
        if server.flavor == "mariadb"
        else "CREATE TABLE e (i INT, t INT AS (i * 2) NOT NULL, UNIQUE (t))",
        "INSERT INTO c VALUES (NULL), (NULL), (1)",
        "INSERT INTO d VALUES (1, 'x'), (1, 'y'), (2, 'a')",
    )
    with table_reader(server) as reader:
        found = {name: catalog_schema(server, fresh_database, name).key_names for name in "abcde"}
        # of `d`, too, the one that the log names: the server's first
        assert found == {"a": ("i",), "b": ("v", "w"), "c": (), "d": ("i", "w"), "e": ()}
        keyless = catalog_schema(server, fresh_database, "c")
        assert list(plan_ranges(reader, keyless, 1)) == [ALL_ROWS]
        assert selected(reader, keyless, ALL_ROWS)[0].num_rows == 3
        by_unique = catalog_schema(server, fresh_database, "d")
        ranges = list(plan_ranges(reader, by_unique, 2))
        rows = [selected(reader, by_unique, one)[0].to_pylist() for one in ranges]
        assert [[row["w"] for row in part] for part in rows] == [["x", "y"], ["a"]]


def test_the_index_is_used(server: Server, fresh_database: str) -> None:
    """A range of a composite key reads its own rows, not the table."""
    server.execute_all(
        f"USE `{fresh_database}`", "CREATE TABLE t (a INT, b CHAR(9), c INT, PRIMARY KEY (a, b))",
        "INSERT INTO t VALUES " + ", ".join((f"({n // 50}, 'k{n % 50:02d}', "
            f"{n})") for n in range(2000)),
        "ANALYZE TABLE t",
    )  # fmt: skip
    schema = catalog_schema(server, fresh_database, "t")
    with table_reader(server) as reader:
        ranges = list(plan_ranges(reader, schema, 100))
        assert len(ranges) == 21
        for one in (ranges[0], ranges[10], ranges[20]):
            before = handler_reads(reader)
            rows = selected(reader, schema, one)[0].num_rows
            assert handler_reads(reader) - before <= 2 * rows + 10


def handler_reads(reader: TableReader) -> int:
    return sum(
        int(value) for _, value in reader.query("SHOW SESSION STATUS LIKE 'Handler_read%'")[1]
    )
