"""What happens in the shop, statement by statement, and the counting of what the server says it
changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from decimal import Decimal
from typing import Any, Final, NamedTuple

from pymysql.connections import Connection
from pymysql.constants import CLIENT

from tests.servers import Server
from tools.shop_contents import (
    CREATE_INTERNAL,
    CREATE_TABLES,
    FIRST_ORDER_ID,
    LARGEST_ORDER_ID,
    OPENING,
    TABLES,
    Contents,
    Row,
)

SEED: Final = 20240226
CUSTOMERS: Final = 1200
PRODUCTS: Final = 600
ROUNDS: Final = 200
ORDERS_PER_ROUND: Final = 40
MOVEMENTS_PER_ROUND: Final = 60
SINGLE_ROW_UPDATES: Final = 8000
"""Statements of the one large transaction; each is a table map and a row event, so it holds twice as many events."""  # noqa: E501

MIDDLE_AFTER_ROUND: Final = 100
FLUSH_AFTER_ROUNDS: Final = (50, 120)
RESTART_AFTER_ROUND: Final = 170

_ORDER_COLUMNS = "id, customer_id, status, total, ordered_at, paid_at, late_by, remark"


class Recorder:
    """Runs the shop's statements and counts what the server says they changed."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.connection = self._connect()
        self.counts = {table: {"insert": 0, "update": 0, "delete": 0} for table in TABLES}
        self.shop_transactions = 0
        self.large_transaction: dict[str, Any] = {}
        self._open: list[tuple[str, str, int]] = []
        self._marked = 0

    def reconnect(self) -> None:
        """A new session, after a restart of the server."""
        self.connection = self._connect()

    def ddl(self, statement: str) -> None:
        with self.connection.cursor() as cursor:
            cursor.execute(statement)

    @contextmanager
    def transaction(self, *, commit: bool = True) -> Iterator[None]:
        self.connection.begin()
        self._open = []
        yield
        if not commit:
            self.connection.rollback()
            return
        self.connection.commit()
        self.shop_transactions += any(table in self.counts for table, _, _ in self._open)
        for table, op, rows in self._open:
            if table in self.counts:
                self.counts[table][op] += rows

    def insert(
        self, table: str, rows: list[Row], *, columns: str = "", schema: str = "shop"
    ) -> None:
        marks = "(" + ", ".join(["%s"] * len(rows[0])) + ")"
        names = f" ({columns})" if columns else ""
        values = ", ".join([marks] * len(rows))
        flat = [value for row in rows for value in row]
        self._change(table, "insert", f"INSERT INTO {schema}.{table}{names} VALUES {values}", flat)

    def update(self, table: str, rest: str, *args: object) -> None:
        self._change(table, "update", f"UPDATE shop.{table} {rest}", args)

    def delete(self, table: str, rest: str, *args: object) -> None:
        self._change(table, "delete", f"DELETE FROM shop.{table} {rest}", args)

    def update_batch(self, table: str, rests: list[str]) -> None:
        """Many UPDATE statements in one round trip."""
        changed = 0
        with self.connection.cursor() as cursor:
            changed += cursor.execute(";".join(f"UPDATE shop.{table} {rest}" for rest in rests))
            while cursor.nextset():
                changed += cursor.rowcount
        self._open.append((table, "update", changed))

    def mark(self) -> None:
        self.ddl("SAVEPOINT here")
        self._marked = len(self._open)

    def undo_to_mark(self) -> None:
        """Roll back to the savepoint; what came after it does not count."""
        self.ddl("ROLLBACK TO SAVEPOINT here")
        del self._open[self._marked :]

    def _change(self, table: str, op: str, statement: str, args: object) -> None:
        with self.connection.cursor() as cursor:
            rows = cursor.execute(statement, args or None)
        self._open.append((table, op, rows))

    def _connect(self) -> Connection[Any]:
        return self.server.root_connection(autocommit=True, client_flag=CLIENT.MULTI_STATEMENTS)


class Scene(NamedTuple):
    """What an episode works with: `first` is the id of the first order of this round."""

    recorder: Recorder
    contents: Contents
    first: int


def tell_the_story(recorder: Recorder, *, at_middle: Callable[[], None]) -> None:
    """Everything that happens in the shop, from CREATE DATABASE to the last commit. `at_middle` is
    called while nothing else happens."""
    contents = Contents(SEED)
    _open_shop(recorder, contents)
    for round_number in range(1, ROUNDS + 1):
        first = FIRST_ORDER_ID + round_number * ORDERS_PER_ROUND
        _new_orders(recorder, contents, round_number=round_number, first=first)
        _follow_up(recorder, contents, round_number=round_number, first=first)
        if round_number in _EPISODES:
            _EPISODES[round_number](Scene(recorder, contents, first))
        if round_number == MIDDLE_AFTER_ROUND:
            at_middle()
        if round_number in FLUSH_AFTER_ROUNDS:
            recorder.server.flush_journal()
        if round_number == RESTART_AFTER_ROUND:
            recorder.server.restart()
            recorder.reconnect()


def _open_shop(recorder: Recorder, contents: Contents) -> None:
    recorder.ddl("CREATE DATABASE shop CHARACTER SET utf8mb4")
    recorder.ddl("CREATE DATABASE internal CHARACTER SET utf8mb4")
    for statement in CREATE_TABLES.values():
        recorder.ddl(statement.strip())
    recorder.ddl(CREATE_INTERNAL)
    for first in range(1, PRODUCTS + 1, 200):
        with recorder.transaction():
            recorder.insert("products", [contents.product(n) for n in range(first, first + 200)])
    for first in range(1, CUSTOMERS + 1, 300):
        with recorder.transaction():
            for start in range(first, first + 300, 100):
                recorder.insert(
                    "customers", [contents.customer(n) for n in range(start, start + 100)]
                )


def _new_orders(recorder: Recorder, contents: Contents, *, round_number: int, first: int) -> None:
    """One transaction over three tables."""
    at = OPENING + timedelta(hours=3 * round_number)
    ids = range(first, first + ORDERS_PER_ROUND)
    orders = [
        contents.order(n, customer_id=contents.random.randrange(1, CUSTOMERS + 1), at=at)
        for n in ids
    ]
    items = [item for n in ids for item in contents.items(n, products=PRODUCTS)]
    start = (round_number - 1) * MOVEMENTS_PER_ROUND + 1
    movements = [
        contents.movement(n, products=PRODUCTS, day=at.date())
        for n in range(start, start + MOVEMENTS_PER_ROUND)
    ]
    with recorder.transaction():
        recorder.insert("orders", orders, columns=_ORDER_COLUMNS)
        recorder.insert("order_items", items)
        recorder.insert("stock_movements", movements)


def _follow_up(recorder: Recorder, contents: Contents, *, round_number: int, first: int) -> None:
    """What every round does to earlier rows: payments, shipping, returns, credit, prices, and jobs
    nobody captures."""
    r = contents.random
    earlier = first - ORDERS_PER_ROUND
    with recorder.transaction():
        recorder.update(
            "orders",
            "SET status = 'paid', paid_at = ordered_at + INTERVAL id MOD 977 * 1001 MICROSECOND"
            " WHERE id BETWEEN %s AND %s",
            earlier,
            earlier + ORDERS_PER_ROUND - 6,
        )
    if round_number % 3 == 0:
        with recorder.transaction():
            recorder.update(
                "orders",
                "SET status = 'shipped', late_by = IF(id MOD 7 = 0, NULL, late_by) WHERE id "
                "BETWEEN %s AND %s",
                earlier - ORDERS_PER_ROUND,
                earlier - 10,
            )
            returned = earlier - r.randrange(1, 30)
            recorder.delete(
                "order_items", "WHERE order_id BETWEEN %s AND %s", returned - 6, returned
            )
            recorder.delete("orders", "WHERE id BETWEEN %s AND %s", returned - 6, returned)
    if round_number % 10 == 0:
        start = r.randrange(1, CUSTOMERS - 30)
        with recorder.transaction():
            recorder.update(
                "customers",
                "SET credit = credit - 1.25, vip = id MOD 2 WHERE id BETWEEN %s AND %s AND id <> 7",
                start, start + 30,
            )  # fmt: skip
            if round_number % 40 == 0:
                change = (
                    "SET price = ROUND(price * 1.05, 2), changed_at = changed_at + "
                    "INTERVAL %s SECOND"
                )
                recorder.update(
                    "products",
                    f"{change} WHERE category = %s",
                    round_number,
                    r.choice(["tea", "coffee"]),
                )
        with recorder.transaction():
            recorder.insert(
                "jobs",
                [(round_number, f"nightly {round_number}")],
                columns="id, payload",
                schema="internal",
            )
    if round_number % 25 == 0:
        day = (OPENING + timedelta(hours=3 * round_number)).date() - timedelta(days=4)
        with recorder.transaction():
            recorder.delete("stock_movements", "WHERE day < %s AND id MOD 3 = 0", day)
            recorder.update(
                "order_items",
                "SET discount = 0.0500 WHERE order_id BETWEEN %s AND %s",
                earlier,
                first,
            )


def _keys_change(scene: Scene) -> None:
    """Primary keys that change: one, a pair that swaps through a temporary value, and a chain
    within one statement."""
    with scene.recorder.transaction():
        scene.recorder.update("products", "SET id = 100017 WHERE id = 17")
        scene.recorder.update("customers", "SET id = 4000000000 WHERE id = 5")
    with scene.recorder.transaction():
        scene.recorder.update("products", "SET id = -1 WHERE id = 21")
        scene.recorder.update("products", "SET id = 21 WHERE id = 22")
        scene.recorder.update("products", "SET id = 22 WHERE id = -1")
    with scene.recorder.transaction():
        # from the last line upward, so that each row takes the key that the row before it has just
        # left
        scene.recorder.update(
            "order_items", "SET line = line + 1 WHERE order_id = %s ORDER BY line DESC", scene.first
        )
        scene.recorder.update(
            "order_items", "SET order_id = order_id + 1000000 WHERE order_id = %s", scene.first + 1
        )


def _more_keys_change(scene: Scene) -> None:
    """A swap after the restart, between the first and the last key, and keys that move and are
    deleted."""
    with scene.recorder.transaction():
        scene.recorder.update("customers", "SET id = 0 WHERE id = 1")
        scene.recorder.update("customers", "SET id = 1 WHERE id = 2040")
        scene.recorder.update("customers", "SET id = 2040 WHERE id = 0")
        scene.recorder.update(
            "orders",
            "SET id = id + 500000 WHERE id BETWEEN %s AND %s",
            scene.first,
            scene.first + 5,
        )
        scene.recorder.delete("orders", "WHERE id = %s", scene.first + 500_000)


def _one_key_many_times(scene: Scene) -> None:
    """A key that is deleted and comes back, one that comes and goes, and a row changed over and
    over."""
    with scene.recorder.transaction():
        scene.recorder.delete("customers", "WHERE id = 30")
        scene.recorder.insert("customers", [scene.contents.customer(30)], columns=_CUSTOMER_COLUMNS)
        scene.recorder.insert(
            "customers", [scene.contents.customer(900_001)], columns=_CUSTOMER_COLUMNS
        )
        scene.recorder.update("customers", "SET notes = 'short stay' WHERE id = 900001")
        scene.recorder.delete("customers", "WHERE id = 900001")
    with scene.recorder.transaction():
        for step in range(12):
            scene.recorder.update(
                "products",
                "SET price = %s, labels = %s WHERE id = 3",
                Decimal(step + 1),
                f"[{step}]",
            )


_CUSTOMER_COLUMNS = (
    "id, email, name, country, birthday, registered_at, newsletter, vip, channels, profile, "
    "token, credit, notes"
)


def _rolled_back(scene: Scene) -> None:
    """A transaction that never was, and one of which a part never was."""
    with scene.recorder.transaction(commit=False):
        scene.recorder.delete(
            "orders", "WHERE id BETWEEN %s AND %s", scene.first - 2000, scene.first
        )
        scene.recorder.update("customers", "SET credit = 0")
    with scene.recorder.transaction():
        scene.recorder.update(
            "customers", "SET newsletter = 1 - newsletter WHERE id BETWEEN 100 AND 110"
        )
        scene.recorder.mark()
        scene.recorder.delete("customers", "WHERE id BETWEEN 100 AND 110")
        scene.recorder.undo_to_mark()
        scene.recorder.update("orders", "SET remark = NULL WHERE id = %s", scene.first)


def _coupons(scene: Scene) -> None:
    scene.recorder.ddl("ALTER TABLE shop.orders ADD COLUMN coupon VARCHAR(24) NULL")
    with scene.recorder.transaction():
        scene.recorder.update(
            "orders",
            "SET coupon = CONCAT('WELCOME-', id MOD 9) WHERE id BETWEEN %s AND %s",
            scene.first,
            scene.first + 25,
        )


def _loyalty(scene: Scene) -> None:
    """ADD COLUMN, NOT NULL with a constant default: it changes every old row, and no row event
    tells."""
    scene.recorder.ddl(
        "ALTER TABLE shop.customers ADD COLUMN loyalty_points INT NOT NULL DEFAULT 100"
    )
    with scene.recorder.transaction():
        scene.recorder.update(
            "customers", "SET loyalty_points = id * 3 WHERE id MOD 5 = 0 AND id < 4000000000"
        )
        scene.recorder.insert(
            "customers",
            [scene.contents.customer(n) for n in range(2001, 2041)],
            columns=_CUSTOMER_COLUMNS,
        )


def _index(scene: Scene) -> None:
    """A DDL of a captured table that changes no row and no column."""
    scene.recorder.ddl("CREATE INDEX by_customer ON shop.orders (customer_id, ordered_at)")


def _internal_changes(scene: Scene) -> None:
    """DDL of tables that nobody captures."""
    scene.recorder.ddl(
        "ALTER TABLE internal.jobs ADD COLUMN state SET('done','late') NULL, ADD INDEX (payload)"
    )
    scene.recorder.ddl("CREATE TABLE internal.scratch (a INT) AS SELECT id AS a FROM internal.jobs")
    scene.recorder.ddl("RENAME TABLE internal.scratch TO internal.scratch_old")
    scene.recorder.ddl("DROP TABLE internal.scratch_old")


def _stock_taking(scene: Scene) -> None:
    """The large transaction: thousands of statements of one row each; many rows more than once."""
    there = [n for n in range(1, 9001) if n % 3]  # every third has been deleted
    ids = scene.contents.random.choices(there, k=SINGLE_ROW_UPDATES)
    with scene.recorder.transaction():
        for start in range(0, len(ids), 500):
            scene.recorder.update_batch(
                "stock_movements",
                [f"SET delta = delta + 1 WHERE id = {n}" for n in ids[start : start + 500]],
            )
    scene.recorder.large_transaction = {
        "journal": scene.recorder.server.end_position()[0],
        "table": "stock_movements",
        "statements": SINGLE_ROW_UPDATES,
    }


def _imported_orders(scene: Scene) -> None:
    """Order numbers at the top of BIGINT UNSIGNED."""
    ids = range(LARGEST_ORDER_ID - 19, LARGEST_ORDER_ID + 1)
    orders = [scene.contents.order(n, customer_id=n % CUSTOMERS + 1, at=OPENING) for n in ids]
    with scene.recorder.transaction():
        scene.recorder.insert("orders", orders, columns=_ORDER_COLUMNS)
        scene.recorder.insert(
            "order_items",
            [item for n in ids for item in scene.contents.items(n, products=PRODUCTS)],
        )


_EPISODES: Final[dict[int, Callable[[Scene], None]]] = {
    30: _keys_change,
    45: _internal_changes,
    60: _coupons,
    80: _index,
    90: _one_key_many_times,
    95: _rolled_back,
    130: _imported_orders,
    140: _loyalty,
    150: _stock_taking,
    155: _rolled_back,
    185: _one_key_many_times,
    195: _more_keys_change,
}
