"""Texts that must be found nowhere, each known by a name, in every form that a file could hold them
in."""

from __future__ import annotations

import base64
import random
from collections.abc import Iterator
from dataclasses import dataclass

# Where a row's value may stand: in the data and the log of its own table, and in nothing else.
ROW_VALUES = ("row_name", "row_refused")
NAMES = (
    "password",  # of the account, from the environment
    "wrong_password",
    "salt",
    "hashed",  # masked values
    "truncated",
    "fixed",
    "dropped",
    "excluded",
    "prepared",  # a masked value of a prepared XA transaction
    "masked_default",  # literals of statements
    "where",
    "table_comment",
    "connection",
    "partition",
    "server_password",
    "user_password",
    "grant_password",
    "statement_value",
    "broken_ddl",
    *ROW_VALUES,
)


@dataclass(frozen=True)
class Canaries:
    """Canaries of one seed: ``canaries["password"]``."""

    texts: dict[str, str]

    @classmethod
    def of(cls, seed: int) -> Canaries:
        chance = random.Random(seed)
        letters = "abcdefghijkmnpqrstuvwxyz23456789"
        return cls({name: "Cn" + "".join(chance.choices(letters, k=22)) for name in NAMES})

    def __getitem__(self, name: str) -> str:
        return self.texts[name]

    def forms(self) -> Iterator[tuple[str, bytes]]:
        for name, text in self.texts.items():
            # What is left of it without its first characters would give it away as well (a mask
            # keeps three).
            core = text[4:]
            raw = core.encode()
            yield name, raw
            yield name, core.encode("utf-16-le")
            yield name, raw.hex().encode()
            yield name, raw.hex().upper().encode()
            for shift in range(3):  # wherever it stands in what was encoded
                yield name, base64.b64encode(b"\0" * shift + raw)[4 if shift else 0 : -4]
