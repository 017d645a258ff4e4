"""What is in the shop: its tables, and seeded values for them. The same seed gives the same rows,
always."""

from __future__ import annotations

import json
import random
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

Row = tuple[Any, ...]

CREATE_TABLES: Final[dict[str, str]] = {
    "customers": """
CREATE TABLE shop.customers (
  id INT UNSIGNED NOT NULL PRIMARY KEY,
  email VARCHAR(120) NOT NULL,
  name VARCHAR(80) NOT NULL,
  country CHAR(2) NOT NULL,
  birthday DATE NULL,
  registered_at DATETIME(3) NOT NULL,
  newsletter TINYINT(1) NOT NULL,
  vip BIT(1) NOT NULL,
  channels SET('email','sms','post','phone') NOT NULL,
  profile JSON NULL,
  token BINARY(16) NOT NULL,
  credit DECIMAL(12,2) NOT NULL,
  notes TEXT NULL,
  UNIQUE KEY by_email (email))""",
    "products": """
CREATE TABLE shop.products (
  id INT NOT NULL PRIMARY KEY,
  sku CHAR(12) NOT NULL,
  name VARCHAR(100) NOT NULL,
  category ENUM('tea','coffee','café accessory','書籍','gift 🎁') NOT NULL,
  price DECIMAL(10,2) NOT NULL,
  weight_kg FLOAT NULL,
  rating DOUBLE NULL,
  labels JSON NOT NULL,
  thumbnail VARBINARY(64) NULL,
  available BIT(1) NOT NULL,
  changed_at TIMESTAMP(6) NOT NULL)""",
    "orders": """
CREATE TABLE shop.orders (
  id BIGINT UNSIGNED NOT NULL PRIMARY KEY,
  customer_id INT UNSIGNED NOT NULL,
  status ENUM('new','paid','shipped','returned') NOT NULL,
  total DECIMAL(14,4) NOT NULL,
  ordered_at DATETIME(3) NOT NULL,
  paid_at TIMESTAMP(6) NULL,
  late_by TIME NULL,
  remark VARCHAR(200) NULL)""",
    "order_items": """
CREATE TABLE shop.order_items (
  order_id BIGINT UNSIGNED NOT NULL,
  line SMALLINT UNSIGNED NOT NULL,
  product_id INT NOT NULL,
  quantity TINYINT UNSIGNED NOT NULL,
  unit_price DECIMAL(10,2) NOT NULL,
  discount DECIMAL(5,4) NULL,
  PRIMARY KEY (order_id, line))""",
    "stock_movements": """
CREATE TABLE shop.stock_movements (
  id BIGINT NOT NULL PRIMARY KEY,
  product_id INT NOT NULL,
  delta SMALLINT NOT NULL,
  day DATE NOT NULL,
  at TIME(3) NULL)""",
}
TABLES: Final = tuple(CREATE_TABLES)

CREATE_INTERNAL: Final = (
    "CREATE TABLE internal.jobs (id INT NOT NULL PRIMARY KEY, payload VARCHAR(60) NOT NULL)"
)

FIRST_ORDER_ID: Final = 5_000_000_000
LARGEST_ORDER_ID: Final = 2**64 - 1
OPENING: Final = datetime(2024, 2, 26, 6, 0)  # noqa: DTZ001 - a wall clock, as DATETIME is

_FIRST = [
    "Ada",
    "Björn",
    "Chloé",
    "Дмитрий",
    "Eun-ji",
    "Fatima",
    "Giulia",
    "花子",
    "Iñigo",
    "Jürgen",
    "Zoë",
    "Łukasz",
]
_LAST = [
    "O'Neil",
    "Nguyễn",
    "Smith",
    "Müller",
    "García",
    "山田",
    "Åkesson",
    "Papadopoulos",
    "de la Cruz",
    "Иванова",
]
_EMOJI = ["🙂", "🫖", "👩‍🚀", "🇫🇷", "☕️", "🀄"]
_GOODS = [
    "Assam",
    "Sencha",
    "Lapsang",
    "Espresso",
    "Filter",
    "Kettle",
    "Mug",
    "茶碗",
    "Guide",
    "Box",
]
_REMARKS = [
    "ring twice",
    "à côté de la porte",
    'no bag; "thanks"',
    "左のドア",
    "leave it with 👵",
    "50% \\ off?",
    "",
]
_ODD_DOUBLES = [
    0.1,
    -0.0,
    1e-300,
    1.7976931348623157e308,
    5e-324,
    123456789.123456789,
    2.0**53,
    -2.5,
]
_ODD_FLOATS = [0.1, 3.4028234663852886e38, 1.401298464324817e-45, 16777216.0, -0.75]
_ODD_BIRTHDAYS = [
    "1000-01-01",
    "1582-10-15",
    "1899-12-31",
    "1970-01-01",
    "2000-02-29",
    "9999-12-31",
]


class Contents:
    """Values for the shop's rows, drawn from one seeded generator in the order of the calls."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def customer(self, number: int) -> Row:
        r = self.random
        first, last = r.choice(_FIRST), r.choice(_LAST)
        emoji = " " + r.choice(_EMOJI) if r.random() < 0.1 else ""
        return (
            number,
            f"c{number}@{r.choice(['example.org', 'example.com', 'example.net'])}",
            f"{first} {last}{emoji}",
            r.choice(["DE", "FR", "JP", "UA", "US", ""]),
            self._birthday(number),
            _text(OPENING - timedelta(milliseconds=r.randrange(10**11)), digits=3),
            r.randrange(2),
            int(r.random() < 0.05),
            ",".join(c for c in ("email", "sms", "post", "phone") if r.random() < 0.4),
            None if r.random() < 0.6 else json.dumps(self._profile(number), ensure_ascii=False),
            # every 50th ends with zero bytes, which the log does not store
            r.randbytes(16) if number % 50 else r.randbytes(11) + bytes(5),
            Decimal("9999999999.99")
            if number == 7
            else Decimal(r.randrange(-50_000, 200_000)) / 100,
            None if r.random() < 0.9 else r.choice(_REMARKS) * r.randrange(1, 4),
        )

    def product(self, number: int) -> Row:
        r = self.random
        odd = number <= 40
        return (
            number,
            f"SKU-{number:08d}",
            f"{r.choice(_GOODS)} № {number}",
            r.choice(["tea", "coffee", "café accessory", "書籍", "gift 🎁"]),
            Decimal(r.randrange(1, 30_000)) / 100,
            None
            if r.random() < 0.2
            else (_ODD_FLOATS[number % 5] if odd else round(r.uniform(0.05, 9), 3)),
            None if r.random() < 0.2 else (_ODD_DOUBLES[number % 8] if odd else r.uniform(1, 5)),
            json.dumps(self._labels(), ensure_ascii=False),
            None if r.random() < 0.3 else r.randbytes(r.randrange(0, 20)),
            int(r.random() < 0.9),
            _text(OPENING + timedelta(microseconds=r.randrange(10**10)), digits=6),
        )

    def order(self, number: int, *, customer_id: int, at: datetime) -> Row:
        r = self.random
        late_s = r.randrange(-3600, 400_000)
        return (
            number,
            customer_id,
            "new",
            Decimal(r.randrange(10**4, 10**7)) / 10**4,
            _text(at + timedelta(milliseconds=r.randrange(60_000)), digits=3),
            None,
            None if r.random() < 0.5 else _time_text(late_s * 1000, digits=0),
            None if r.random() < 0.8 else r.choice(_REMARKS),
        )

    def items(self, order_id: int, *, products: int) -> list[Row]:
        r = self.random
        return [
            (
                order_id,
                line,
                r.randrange(1, products + 1),
                r.randrange(1, 12),
                Decimal(r.randrange(1, 30_000)) / 100,
                None if r.random() < 0.7 else Decimal(r.randrange(0, 5000)) / 10**4,
            )
            for line in range(1, r.choice([1, 2, 2, 3, 4]) + 1)
        ]

    def movement(self, number: int, *, products: int, day: date) -> Row:
        r = self.random
        at = None if r.random() < 0.1 else _time_text(r.randrange(86_400_000), digits=3)
        return (number, r.randrange(1, products + 1), r.randrange(-40, 60), day.isoformat(), at)

    def _birthday(self, number: int) -> str | None:
        if number <= len(_ODD_BIRTHDAYS):
            return _ODD_BIRTHDAYS[number - 1]
        if self.random.random() < 0.3:
            return None
        return (date(1940, 1, 1) + timedelta(days=self.random.randrange(25_000))).isoformat()

    def _profile(self, number: int) -> object:
        r = self.random
        special: dict[int, object] = {
            0: None,
            1: True,
            2: [],
            3: 'plain "text" \n ☕️',
            4: 18446744073709551615,
            5: -1.5e-7,
        }
        if number % 40 in special:
            return special[number % 40]
        return {
            "lang": r.choice(["de", "fr", "ja"]),
            "visits": r.choice([0, -1, 40_000, 3_000_000_000, r.randrange(100)]),
            "score": r.choice([0.5, 3.0, 1e20, 0.1]),
            "näher": {
                "tags": r.sample(["a", "b", "ç", "🫖"], k=r.randrange(3)),
                "opt": r.choice([True, False, None]),
            },
        }

    def _labels(self) -> list[object]:
        return self.random.sample(
            ["organic", "fair", "neu", "vegan", 2024, 0.5, None, {"eco": True}], k=2
        )


def _text(at: datetime, *, digits: int) -> str:
    return at.strftime("%Y-%m-%d %H:%M:%S.%f")[: 20 + digits]


def _time_text(milliseconds: int, *, digits: int) -> str:
    sign, rest = ("-", -milliseconds) if milliseconds < 0 else ("", milliseconds)
    seconds, fraction = divmod(rest, 1000)
    whole = f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{whole}.{fraction:03d}" if digits else whole
