"""Tables with keys of several types, and what no log shows: changes at the server out of the log,
and changes of the lake's files from outside.

A row has a number `n`, from which its key is made, and a value `v`. A table without a key has `v`
alone; of a masked one the lake has `n` for a key.
"""

from __future__ import annotations

import datetime as dt
import json
import random
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from cdc_pipeline.operations.verify.external_writes import text_of
from cdc_pipeline.sink.delta.log import commit_file
from tests.support.comparison import present
from tests.support.delta_reader import DeltaTable, marked_rows, newest_version, read_delta

_EPOCH: Final = dt.datetime(2001, 2, 3, 4, 5, 6, 789)  # noqa: DTZ001 - a DATETIME has none
# By kind: the type, and the value of a number.
KEYS: Final[dict[str, tuple[str, Callable[[int], Any]]]] = {
    "few": ("SMALLINT", lambda n: n % 3 - 1),  # never alone
    "int": ("INT", lambda n: 7 * n - 500),
    "big": ("BIGINT UNSIGNED", lambda n: 2**64 - 1 - 7 * n),
    "decimal": ("DECIMAL(9,2)", lambda n: Decimal(n) - Decimal("105.25")),
    "text": (
        "VARCHAR(9) CHARACTER SET utf8mb4",
        lambda n: f"{'öBaйZ'[n % 5]}{n}{('', '!', 'é x')[n % 3]}",
    ),
    "bin": (
        "VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
        lambda n: f"{'aAäÄ🙂'[n % 5]}{n // 5}",
    ),
    "latin": ("CHAR(6) CHARACTER SET latin1", lambda n: f"{'xÿé'[n % 3]}{n}"),
    "bytes": ("BINARY(3)", lambda n: bytes([n * 53 % 256, 0, n % 251]) if n < 250 else _wide(n)),
    "varbytes": ("VARBINARY(4)", lambda n: n.to_bytes(2, "little").rstrip(b"\0") + b"k"),
    "date": ("DATE", lambda n: _EPOCH.date() - dt.timedelta(days=3 * n)),
    "datetime": ("DATETIME(6)", lambda n: _EPOCH + dt.timedelta(seconds=n, microseconds=n % 7)),
    "double": ("DOUBLE", lambda n: n / 4),
}
WHOLE: Final = ("double",)  # no range leads through them


def _wide(n: int) -> bytes:
    return bytes([n % 256, 1 + n // 256, 7])


@dataclass
class Table:
    """`numbers`: of the server's rows; of a table without a key, its values."""

    database: str
    name: str
    keys: list[str]
    mode: str
    numbers: list[int] = field(default_factory=list)
    next: int = 0
    ever: set[str] = field(default_factory=set)  # whatever was different at the end of a run

    @property
    def full_name(self) -> str:
        return f"{self.database}.{self.name}"

    @property
    def is_whole(self) -> bool:
        has_key = self.keys and self.mode not in ("changelog", "masked")
        return not has_key or not {*WHOLE}.isdisjoint(self.keys)

    @property
    def rule(self) -> dict[str, Any]:
        rule: dict[str, Any] = {"tables": [self.full_name], "name": self.full_name}
        if not self.keys:
            return {**rule, "keyless": "row_hash"}
        if self.mode == "masked":
            return {**rule, "key": ["n"], "masks": dict.fromkeys(self.key(0), "drop")}
        return {**rule, "mode": self.mode}

    @property
    def columns(self) -> list[str]:
        """What is compared, the lake's key first."""
        if not self.keys:
            return ["v"]
        return ["n", "v"] if self.mode == "masked" else [*self.key(0), "n", "v"]

    def create(self) -> str:
        if not self.keys:
            return f"CREATE TABLE {self.name} (v INT)"
        columns = "".join(f"k{at} {KEYS[key][0]}, " for at, key in enumerate(self.keys))
        listed = ", ".join(f"k{at}" for at in range(len(self.keys)))
        return f"CREATE TABLE {self.name} ({columns}n INT, v INT, PRIMARY KEY ({listed}))"

    def key(self, n: int) -> dict[str, Any]:
        return {f"k{at}": KEYS[key][1](n) for at, key in enumerate(self.keys)}

    # -- at the server -----------------------------------------------------------------------------

    def insert(self, count: int) -> Iterator[str]:
        for first in range(0, count, 500):
            rows = [self._new_row() for _ in range(min(500, count - first))]
            yield f"INSERT INTO {self.name} VALUES {', '.join(rows)}"

    def _new_row(self) -> str:
        n = self.next
        self.next += 1
        self.numbers.append(n if self.keys else n % 40)
        if not self.keys:
            return f"({n % 40})"
        return f"({', '.join(map(_literal, self.key(n).values()))}, {n}, {n * 31 % 997})"

    def change(self, chance: random.Random) -> str:
        """One row more, one less, another value, or another key."""
        kind = chance.choice(("insert", "delete", "value", "value", "key"))
        if kind == "insert" or len(self.numbers) < 2:
            return next(self.insert(1))
        n = chance.choice(self.numbers)
        where = f"WHERE {'n' if self.keys else 'v'} = {n}"
        if kind == "delete" or not self.keys:
            self.numbers.remove(n)
            return f"DELETE FROM {self.name} {where} LIMIT 1"
        if kind == "value":
            return f"UPDATE {self.name} SET v = v + {chance.randint(1, 9)} {where}"
        self.numbers.remove(n)
        self.numbers.append(self.next)
        assigned = self.key(self.next) | {"n": self.next}
        self.next += 1
        values = ", ".join(f"{name} = {_literal(value)}" for name, value in assigned.items())
        return f"UPDATE {self.name} SET {values} {where}"

    # -- in the lake -------------------------------------------------------------------------------

    def read(self, folder: Path) -> DeltaTable:
        return read_delta(folder, newest_version(folder))

    def change_lake(self, folder: Path, chance: random.Random, *, is_foreign: bool) -> bool:
        """A row of a file is changed, left out, or there under another key, too: in place, or by
        another program's commit. Whether there was a file for it."""
        there, version = self.read(folder), newest_version(folder)
        for add in chance.sample(there.files, len(there.files)):
            file, marked = folder / unquote(add["path"]), marked_rows(folder, add)
            rows = pq.ParquetFile(file).read()
            live = [
                at for at in range(len(rows)) if at not in marked and _is_present(there, rows, at)
            ]
            if not live:
                continue
            at = chance.choice(live)
            # A vector counts rows, and a checkpoint keeps the statistics of a file.
            is_free = not marked and not any(folder.glob("_delta_log/*.checkpoint*"))
            kind = chance.choice(("value", "less", "more")) if is_free else "value"
            changed = self._changed(there, rows, at, kind)
            if is_foreign:
                _commit(folder, version + 1, add, changed)
            else:
                pq.write_table(changed, file)
                _forget_checksum(file)
                _mend_statistics(folder, version, add["path"], len(changed))
            return True
        return False

    def _changed(self, there: DeltaTable, rows: pa.Table, at: int, kind: str) -> pa.Table:
        row = rows.slice(at, 1).to_pylist()[0]
        if kind == "less":
            return pa.concat_tables([rows.slice(0, at), rows.slice(at + 1)])
        if kind == "value":
            row[there.physical["v"]] = -1 - (row[there.physical["v"]] or 0)
            new = pa.Table.from_pylist([row], schema=rows.schema)
            return pa.concat_tables([rows.slice(0, at), new, rows.slice(at + 1)])
        n = self.next
        self.next += 1
        key = {name: value for name, value in self.key(n).items() if name in there.columns}
        row |= {there.physical[name]: value for name, value in (key | {"n": n}).items()}
        return pa.concat_tables([rows, pa.Table.from_pylist([row], schema=rows.schema)])

    # -- what differs ------------------------------------------------------------------------------

    def differing(self, folder: Path, at_server: list[tuple[Any, ...]]) -> set[str]:
        """In the words of the proof; by another reader's eyes."""
        if self.mode == "changelog":
            return set()
        rows = present(self.read(folder).rows, self.mode)
        if not self.keys:
            lake, server = Counter(row["v"] for row in rows), Counter(v for (v,) in at_server)
            extra, missing = lake - server, server - lake
            return {f"extra: v={v}" for v in extra} | {f"missing: v={v}" for v in missing}
        names = self.columns
        others = names[names.index("v") :] if self.mode == "masked" else ["n", "v"]
        keys = len(names) - len(others)
        ours = {_part(row, names[:keys]): _part(row, others) for row in rows}
        theirs = {row[:keys]: row[keys:] for row in at_server}
        found = set()
        for key in ours.keys() | theirs.keys():
            one, other = ours.get(key), theirs.get(key)
            if one == other:
                continue
            kind = "missing" if one is None else "extra" if other is None else "different"
            pairs = zip(names, key, strict=False)
            shown = ", ".join(f"{name}={text_of(value)}" for name, value in pairs)
            columns = ""
            if one is not None and other is not None:
                pieces = zip(others, one, other, strict=True)
                columns = f" ({', '.join(name for name, a, b in pieces if a != b)})"
            found.add(f"{kind}: {shown}{columns}")
        return found


def _part(row: dict[str, Any], names: list[str]) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)


def _is_present(there: DeltaTable, rows: pa.Table, at: int) -> bool:
    for name, is_live in (("_cdc_deleted", lambda v: not v), ("__END_AT", lambda v: v is None)):
        physical = there.physical.get(name)
        if physical in rows.column_names and not is_live(rows.column(physical)[at].as_py()):
            return False
    return True


def _literal(value: Any) -> str:
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    return f"'{value}'" if isinstance(value, str | dt.date) else str(value)


def _forget_checksum(file: Path) -> None:
    """Hadoop keeps one beside each file that it wrote."""
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


def _mend_statistics(folder: Path, version: int, path: str, rows: int) -> None:
    """Of a file that is another one now: its size, by which Spark divides it, and its rows."""
    for number in range(version + 1):
        file = commit_file(folder, number)
        actions = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
        for action in actions:
            if action.get("add", {}).get("path") == path:
                action["add"]["stats"] = json.dumps({"numRecords": rows})
                action["add"]["size"] = (folder / unquote(path)).stat().st_size
        file.write_text("".join(f"{json.dumps(action)}\n" for action in actions), "utf-8")
        _forget_checksum(file)


def _commit(folder: Path, version: int, add: dict[str, Any], rows: pa.Table) -> None:
    """As another program's; rows that the file's vector marks are marked in the new one."""
    name = f"part-00000-{uuid.uuid4()}-c000.snappy.parquet"
    pq.write_table(rows, folder / name)
    removed = {key: add[key] for key in ("path", "deletionVector") if key in add}
    actions = [
        {"commitInfo": {"timestamp": 1, "operation": "WRITE"}},
        {"remove": {**removed, "deletionTimestamp": 1, "dataChange": True}},
        {
            "add": {
                **add,
                "path": name,
                "size": (folder / name).stat().st_size,
                "stats": json.dumps({"numRecords": len(rows)}),
            }
        },
    ]
    text = "".join(f"{json.dumps(action)}\n" for action in actions)
    commit_file(folder, version).write_text(text, "utf-8")
