"""What staged rows do to a table, row by row in the order of `seq`: every mode as a few lines of
plain Python.

A row is a dictionary of the target's columns and of the mode's own. Each function returns the rows
afterwards. Nothing is reduced first, as the SQL of `sink/modes/` has to: one change after another
is the definition of what it must give.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from decimal import Context, Decimal
from typing import Any, Final

from cdc_pipeline.config.modes import Mode, is_keyless_mirror
from cdc_pipeline.errors import MergeError
from cdc_pipeline.lake.records import RecordedTarget
from cdc_pipeline.sink.modes.expand import ARRIVE, DELETE, INSERT, LEAVE, UPDATE
from cdc_pipeline.sink.modes.mode_columns import (
    ABSENT_COLUMN,
    BEFORE_ABSENT_COLUMN,
    BEFORE_COLUMN,
    DELETED_COLUMN,
    END_COLUMN,
    END_TS_COLUMN,
    OP_COLUMN,
    ORDINAL_COLUMN,
    RESCUED_COLUMN,
    ROW_NUMBER_COLUMN,
    SEQ_COLUMN,
    START_COLUMN,
    TRANSACTION_COLUMN,
    TS_COLUMN,
)
from tests.support.spark_expressions import NotInMemoryError, as_type, evaluated

Row = dict[str, Any]
Twin = Callable[[RecordedTarget, list[Row], list[Row]], list[Row]]
_GONE = (DELETE, LEAVE)
_OPS = {DELETE: "delete", INSERT: "insert", UPDATE: "update"}


def applied(target: RecordedTarget, rows: Iterable[Row], staged: list[Row]) -> list[Row]:
    twin = TWINS.get(target.spec.mode)
    if twin is None:
        raise NotInMemoryError(f"the mode {target.spec.mode}")
    return twin(target, list(rows), staged)


def comparable(rows: Iterable[Row]) -> list[str]:
    """Equal for tables of equal rows; a column that a row lacks is one without a value."""
    return sorted(
        repr(sorted((name, exact(value)) for name, value in row.items() if value is not None))
        for row in rows
    )


_DIGITS: Final = Context(prec=100)


def exact(value: Any) -> Any:
    """What two equal values of a column share: their type and bits."""
    if isinstance(value, Decimal):
        # More digits than a seq has: the default context would round it.
        return ("decimal", value.normalize(_DIGITS).as_tuple() if value else 0)
    if isinstance(value, datetime) and value.tzinfo is not None:
        return ("moment", value.astimezone(UTC).isoformat())
    if isinstance(value, list):
        return tuple(map(exact, value))
    if isinstance(value, dict):
        return tuple((name, exact(part)) for name, part in value.items())
    return (type(value).__name__, repr(value))


class _Mirror:
    """Rows by key; what left its key under a seq, for the arrival that follows."""

    def __init__(self, target: RecordedTarget, rows: Iterable[Row]) -> None:
        self.target = target
        self.names = [column.name for column in target.spec.columns]
        self.there: dict[Any, Row] = {}
        self.left: dict[Any, Row] = {}
        for row in rows:
            self.start(row)

    def start(self, row: Row) -> None:
        self.there[self.key_of(row)] = row

    def key_of(self, row: Row) -> Any:
        return tuple(exact(row[name]) for name in self.target.spec.key)

    def staged_key(self, staged: Row) -> Any:
        """There whatever the image has: that of a deletion is none."""
        return tuple(exact(staged[f"c{self.names.index(name)}"]) for name in self.target.spec.key)

    def values(self, staged: Row, old: Row | None) -> Row:
        """What the image lacks is as it was. A key is always staged; of a deletion
        perhaps alone.
        """
        old, key = old or {}, self.target.spec.key
        return {
            name: staged.get(f"c{at}")
            if name in key or staged.get(f"p{at}") is not False
            else old.get(name)
            for at, name in enumerate(self.names)
        }

    def before(self, staged: Row) -> Row | None:
        """The row that a staged one changes: under its own key, or under the key that it left."""
        if staged["_op"] == ARRIVE:
            return self.left.get(int(staged["_seq"]) - 1)
        return None if staged["_op"] == INSERT else self.there.get(self.staged_key(staged))

    def take(self, staged: Row) -> None:
        key = self.staged_key(staged)
        now = self.there.get(key)
        if now is not None and now[SEQ_COLUMN] >= staged["_seq"]:
            return
        if staged["_op"] == LEAVE and now is not None:
            self.left[int(staged["_seq"])] = now
        if staged["_op"] in _GONE:
            self.leave(key, staged)
        else:
            self.arrive(key, self.values(staged, self.before(staged)), staged)

    def told(self, staged: Row) -> Row:
        op = "insert" if staged["_op"] == INSERT else "update"
        return {OP_COLUMN: op, SEQ_COLUMN: staged["_seq"], TS_COLUMN: staged["_ts"]}

    def leave(self, key: Any, staged: Row) -> None:
        self.there.pop(key, None)

    def arrive(self, key: Any, values: Row, staged: Row) -> None:
        self.there[key] = {**values, **self.told(staged)}

    def rows(self) -> list[Row]:
        return list(self.there.values())


class _SoftDelete(_Mirror):
    """What is gone stays, marked, with its last values."""

    def leave(self, key: Any, staged: Row) -> None:
        values = self.values(staged, self.there.get(key))
        told = {**self.told(staged), OP_COLUMN: "delete", DELETED_COLUMN: True}
        self.there[key] = {**values, **told}

    def arrive(self, key: Any, values: Row, staged: Row) -> None:
        self.there[key] = {**values, **self.told(staged), DELETED_COLUMN: False}


class _History(_Mirror):
    """Current versions by key; those that ended aside."""

    def __init__(self, target: RecordedTarget, rows: Iterable[Row]) -> None:
        self.ended: list[Row] = []
        super().__init__(target, rows)
        named = [name for name in target.spec.track if name in self.names]
        self.rescued_of = set(named)
        self.tracked = named or [name for name in self.names if name not in target.spec.key]
        if named and RESCUED_COLUMN in self.names:
            self.tracked.append(RESCUED_COLUMN)

    def start(self, row: Row) -> None:
        if row[END_COLUMN] is None:
            super().start(row)
        else:
            self.ended.append(row)

    def image(self, row: Row) -> Any:
        return [exact(self.compared(name, row.get(name))) for name in self.tracked]

    def compared(self, name: str, value: Any) -> Any:
        if name != RESCUED_COLUMN or value is None:
            return value
        return {
            n: text
            for n, text in sorted(dict(value).items())
            if not self.rescued_of or n in self.rescued_of
        }

    def leave(self, key: Any, staged: Row) -> None:
        ending = self.there.pop(key, None)
        if ending is not None:
            self.ended.append({**ending, END_COLUMN: staged["_seq"], END_TS_COLUMN: staged["_ts"]})

    def arrive(self, key: Any, values: Row, staged: Row) -> None:
        now, told = self.there.get(key), self.told(staged)
        if now is not None and self.image(now) == self.image(values):
            self.there[key] = {**now, **values, **told}
            return
        self.leave(key, staged)
        self.there[key] = {
            **values,
            **told,
            START_COLUMN: staged["_seq"],
            END_COLUMN: None,
            END_TS_COLUMN: None,
        }

    def rows(self) -> list[Row]:
        return [*self.ended, *self.there.values()]


def _by_key(table_type: type[_Mirror]) -> Twin:
    def twin(target: RecordedTarget, rows: list[Row], staged: list[Row]) -> list[Row]:
        staged = sorted((_shaped(target, row) for row in staged), key=lambda row: row["_seq"])
        if is_keyless_mirror(target.spec.mode, target.spec.key):
            return _bag(target, rows, staged)
        table = table_type(target, rows)
        for row in staged:
            table.take(row)
        return table.rows()

    return twin


def _bag(target: RecordedTarget, rows: list[Row], staged: list[Row]) -> list[Row]:
    """Without a key what comes and goes of equal rows cancels out; of equals the newest goes."""
    names = [column.name for column in target.spec.columns]
    at = [i for i in range(len(names)) if any(f"c{i}" in row for row in staged)]
    comes: dict[Any, list[Row]] = defaultdict(list)
    goes: dict[Any, int] = defaultdict(int)
    for row in staged:
        same = tuple(exact(row.get(f"c{i}")) for i in at)
        if row["_op"] in _GONE:
            goes[same] += 1
        else:
            comes[same].append(row)
    for same, count in goes.items():
        less = count - len(comes[same])
        equal = (
            [row for row in rows if tuple(exact(row[names[i]]) for i in at) == same]
            if less > 0
            else []
        )
        if len(equal) < less and not target.partial:
            raise MergeError(
                "the log deletes a row that the table does not hold", table=target.table
            )
        equal.sort(key=lambda row: (row[SEQ_COLUMN], row[ROW_NUMBER_COLUMN]), reverse=True)
        gone = set(map(id, equal[: max(less, 0)]))
        rows = [row for row in rows if id(row) not in gone]
    for same, coming in comes.items():
        coming.sort(key=lambda row: row["_seq"], reverse=True)
        for row in coming[: max(len(coming) - goes[same], 0)]:
            values = {names[i]: row.get(f"c{i}") if i in at else None for i in range(len(names))}
            op = "insert" if row["_op"] == INSERT else "update"
            own = {
                OP_COLUMN: op,
                SEQ_COLUMN: row["_seq"],
                TS_COLUMN: row["_ts"],
                ROW_NUMBER_COLUMN: 0,
            }
            rows.append({**values, **own})
    return rows


def _changes(target: RecordedTarget, rows: list[Row], staged: list[Row]) -> list[Row]:
    if target.spec.shape is not None and (target.spec.shape.computed or target.spec.shape.filter):
        raise NotInMemoryError("a changelog with computed columns or a filter")
    names = [column.name for column in target.spec.columns]
    return rows + [
        {
            **{name: row.get(f"c{at}") for at, name in enumerate(names)},
            OP_COLUMN: _OPS[row["_op"]],
            SEQ_COLUMN: row["_seq"],
            TS_COLUMN: row["_ts"],
            TRANSACTION_COLUMN: row["_tx"],
            ORDINAL_COLUMN: row["_ordinal"],
            BEFORE_COLUMN: None
            if row["_op"] == INSERT
            else {name: row.get(f"b{at}") for at, name in enumerate(names)},
            ABSENT_COLUMN: row["_absent"],
            BEFORE_ABSENT_COLUMN: row["_before_absent"],
        }
        for row in staged
    ]


def _shaped(target: RecordedTarget, staged: Row) -> Row:
    """With computed columns; the DELETE of its key where it does not pass the filter."""
    shape = target.spec.shape
    if shape is None or not (shape.computed or shape.filter):
        return staged
    if staged["_op"] in _GONE and target.spec.mode != "soft_delete":
        return staged
    names = [column.name for column in target.spec.columns]
    values = {name: staged.get(f"c{at}") for at, name in enumerate(names)}
    made = {
        f"c{at}": as_type(evaluated(column.expression, values), target.spec.columns[at].delta_type)
        for column in shape.computed
        for at in [names.index(column.name)]
    }
    passes = not shape.filter or evaluated(shape.filter, values) is True
    return {**staged, **made, "_op": staged["_op"] if passes else DELETE}


TWINS: Final[dict[Mode, Twin]] = {
    "mirror": _by_key(_Mirror),
    "soft_delete": _by_key(_SoftDelete),
    "history": _by_key(_History),
    "changelog": _changes,
}
