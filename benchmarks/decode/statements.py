"""The statements of the three workloads. What they write differs between two recordings only in
random digits."""

from __future__ import annotations

from pymysql.cursors import Cursor

BULK_ROWS = 2_000_000
OLTP_TRANSACTIONS = 200_000
OLTP_CHANGES = OLTP_TRANSACTIONS * 5 // 2
WIDE_ROWS = 150_000

_BULK_STATEMENT_ROWS = 1_000
_WIDE_STATEMENT_ROWS = 500


def _prepare_numbers(cursor: Cursor, count: int) -> None:
    cursor.execute(f"SET cte_max_recursion_depth = {count}")
    cursor.execute("CREATE TABLE numbers (n INT NOT NULL PRIMARY KEY)")
    cursor.execute(
        "INSERT INTO numbers WITH RECURSIVE counted AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM "
        f"counted WHERE n < {count}) SELECT n FROM counted"
    )


# -- bulk ------------------------------------------------------------------------------------------


def prepare_bulk(cursor: Cursor) -> None:
    _prepare_numbers(cursor, _BULK_STATEMENT_ROWS)
    cursor.execute(
        "CREATE TABLE bulk (id INT NOT NULL PRIMARY KEY, k INT NOT NULL, c CHAR(120) NOT NULL, pad "
        "CHAR(60) NOT NULL)"
    )


def write_bulk(cursor: Cursor) -> None:
    c, pad = _digit_groups(10), _digit_groups(5)
    for first in range(0, BULK_ROWS, _BULK_STATEMENT_ROWS):
        cursor.execute(
            f"INSERT INTO bulk SELECT {first} + n, FLOOR(RAND() * 1000000), {c}, {pad} FROM numbers"
        )


def _digit_groups(count: int) -> str:
    """Groups of eleven digits; 10 of them fill 119 characters of CHAR(120), 5 fill 59 of
    CHAR(60)."""
    groups = ", ".join(["LPAD(FLOOR(RAND() * 99999999999), 11, '0')"] * count)
    return f"CONCAT_WS('-', {groups})"


# -- oltp ------------------------------------------------------------------------------------------

OLTP_TABLES = ("customers", "orders", "items", "payments", "parcels")

_OLTP_COLUMNS = (
    "id BIGINT NOT NULL PRIMARY KEY, name VARCHAR(80) NOT NULL, amount DECIMAL(12,2), made "
    "DATETIME(6) NOT NULL, seen TIMESTAMP NULL, flag TINYINT NOT NULL, state "
    "ENUM('new','paid','sent','gone') NOT NULL, doc JSON, ratio DOUBLE, day DATE, note TEXT, "
    "code VARCHAR(20)"
)
_OLTP_ROW = (
    "row_id, CONCAT('customer ', row_id * 7919), row_id * 0.37, '2024-01-01' + INTERVAL row_id * "
    "1234567 MICROSECOND, FROM_UNIXTIME(1700000000 + row_id), row_id % 100, 1 + row_id % 4, "
    "JSON_OBJECT('number', row_id, 'tags', JSON_ARRAY('red', 'blue', row_id % 7), 'price', row_id "
    "/ 8, 'weight', row_id * 0.5e0, 'buyer', JSON_OBJECT('level', row_id % 5, 'active', TRUE, "
    "'left', NULL)), row_id / 7e0, '2000-01-01' + INTERVAL row_id % 9000 DAY, REPEAT('a note ', "
    "row_id % 7), IF(row_id % 5, CONCAT('code ', row_id), NULL)"
)
_OLTP_UPDATE = (
    "amount = amount + 1.25, seen = seen + INTERVAL 1 DAY, flag = (flag + 1) % 100, state = 1 + "
    "flag % 4, doc = JSON_SET(doc, '$.revision', flag), note = LEFT(CONCAT(note, '!'), 100)"
)


def prepare_oltp(cursor: Cursor) -> None:
    """Five tables and the procedure that writes to them.

    Changes go to the tables in turn. In each ten of one table's changes the first four insert, four
    update and two delete, so that in its ten number b the rows from 2b + 1 to 4b are there before,
    and each change changes one row.
    """
    branches = []
    for number, table in enumerate(OLTP_TABLES):
        cursor.execute(f"CREATE TABLE {table} ({_OLTP_COLUMNS})")
        branches.append(f"WHEN {number} THEN {_oltp_change(table)}")
    cursor.execute(
        f"""
        CREATE PROCEDURE write_oltp()
        BEGIN
            DECLARE tx INT DEFAULT 0;
            DECLARE left_in_tx, ten, step INT;
            DECLARE change_number INT DEFAULT 0;
            DECLARE row_id BIGINT;
            WHILE tx < {OLTP_TRANSACTIONS} DO
                START TRANSACTION;
                SET left_in_tx = 2 + tx % 2;
                WHILE left_in_tx > 0 DO
                    SET step = change_number DIV {len(OLTP_TABLES)} % 10;
                    SET ten = change_number DIV {len(OLTP_TABLES) * 10};
                    CASE change_number % {len(OLTP_TABLES)} {" ".join(branches)} END CASE;
                    SET change_number = change_number + 1;
                    SET left_in_tx = left_in_tx - 1;
                END WHILE;
                COMMIT;
                SET tx = tx + 1;
            END WHILE;
        END
        """
    )


def _oltp_change(table: str) -> str:
    return f"""
        IF step < 4 THEN
            SET row_id = 4 * ten + step + 1;
            INSERT INTO {table} VALUES ({_OLTP_ROW});
        ELSEIF step < 8 THEN
            SET row_id = 2 * ten + 1 + FLOOR(RAND() * (2 * ten + 4));
            UPDATE {table} SET {_OLTP_UPDATE} WHERE id = row_id;
        ELSE
            SET row_id = 2 * ten + step - 7;
            DELETE FROM {table} WHERE id = row_id;
        END IF;
    """


def write_oltp(cursor: Cursor) -> None:
    cursor.execute("CALL write_oltp()")


# -- wide ------------------------------------------------------------------------------------------

_WIDE_KINDS = (
    # name, type, expression of the row's number
    ("tiny", "TINYINT", "id % 200 - 100"),
    ("small", "SMALLINT UNSIGNED", "id % 65536"),
    ("medium", "MEDIUMINT", "id % 8000000 - 4000000"),
    ("whole", "INT", "id * 13 - 1000000"),
    ("big", "BIGINT", "id * -7919 * 1000003"),
    ("single", "FLOAT", "id / 3e0"),
    ("real8", "DOUBLE", "SQRT(id)"),
    ("exact", "DECIMAL(18,4)", "id * 12345.6789"),
    ("day", "DATE", "'1990-01-01' + INTERVAL id % 12000 DAY"),
    ("span", "TIME(3)", "SEC_TO_TIME(id * 1.001 % 300000 - 150000)"),
    ("wall", "DATETIME(6)", "'2020-01-01' + INTERVAL id * 7654321 MICROSECOND"),
    ("instant", "TIMESTAMP(3)", "FROM_UNIXTIME(1600000000 + id * 1.001)"),
    ("vintage", "YEAR", "1950 + id % 100"),
    ("state", "ENUM('new','paid','sent','gone','lost')", "1 + id % 5"),
    ("marks", "SET('a','b','c','d','e','f')", "id % 64"),
    ("fixed", "CHAR(16)", "CONCAT('fixed ', id % 1000)"),
    ("named", "VARCHAR(60)", "CONCAT('name of ', id, REPEAT('x', id % 20))"),
    ("raw", "VARBINARY(24)", "UNHEX(LEFT(SHA2(id, 256), 36))"),
    ("note", "TEXT", "REPEAT('wide ', id % 14)"),
)
_WIDE_COPIES = 3


def _wide_columns() -> list[tuple[str, str, str]]:
    """Name, type and expression of the 60 columns; of each kind the third column is NULL in each
    fourth row."""
    columns = [("id", "BIGINT UNSIGNED NOT NULL PRIMARY KEY", "id")]
    for copy in range(1, _WIDE_COPIES + 1):
        for name, kind, value in _WIDE_KINDS:
            expression = f"IF(id % 4, {value}, NULL)" if copy == _WIDE_COPIES else value
            columns.append((f"{name}{copy}", f"{kind} NULL", expression))
    columns.append(
        (
            "doc1",
            "JSON",
            "JSON_OBJECT('id', id, 'half', id * 0.5e0, 'tags', JSON_ARRAY('x', id % 9))",
        )
    )
    columns.append(("doc2", "JSON", "IF(id % 2, JSON_ARRAY(id, 'two', NULL, TRUE), NULL)"))
    return columns


def prepare_wide(cursor: Cursor) -> None:
    _prepare_numbers(cursor, _WIDE_STATEMENT_ROWS)
    cursor.execute(
        f"CREATE TABLE wide ({', '.join(f'{name} {kind}' for name, kind, _ in _wide_columns())})"
    )


def write_wide(cursor: Cursor) -> None:
    row = ", ".join(expression for _, _, expression in _wide_columns())
    for first in range(0, WIDE_ROWS, _WIDE_STATEMENT_ROWS):
        cursor.execute(
            f"INSERT INTO wide SELECT {row} FROM (SELECT {first} + n AS id FROM "
            "numbers) AS numbered"
        )
        cursor.execute(
            "UPDATE wide SET tiny1 = tiny1 + 1, whole2 = whole2 + 1, exact1 = exact1 + 1.5,"
            " named2 = CONCAT('!', named2), wall1 = wall1 + INTERVAL 1 DAY,"
            " doc1 = JSON_SET(doc1, '$.changed', TRUE), note3 = 'changed'"
            f" WHERE id > {first} AND id <= {first + _WIDE_STATEMENT_ROWS}"
        )
