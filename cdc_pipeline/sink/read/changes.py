"""The changes of a lake's tables between two cuts.

Rules:
- All tables are compared at the same two transactions: a table that is suspended in either cut is
  refused, as a reader refuses it.
- A table that only the newer cut has is new: its rows are inserts. One that only the older cut has
  is named, not compared. One that is a changelog in one of the two alone is refused.
- A table that was suspended before it was created has no rows: where suspended ones are allowed, it
  is new after the older cut, and named in the newer one.
- Everything is checked before a row is read: both versions with all their files, columns, keys.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from cdc_pipeline.config.modes import MODES
from cdc_pipeline.errors import (
    ConfigError,
    CutNotFoundError,
    LakeDiskError,
    SinkError,
    SparkNeededError,
    TableNotInCutError,
)
from cdc_pipeline.lake.paths import LakePaths, list_numbers
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.lake.state import read_cut
from cdc_pipeline.sink.read.cuts import AsOf, bookmark_of, check_readable, find_cut, version_in

if TYPE_CHECKING:
    from cdc_pipeline.sink.read.read import SparkSession
    from cdc_pipeline.sink.read.table_changes import TableChanges, TableVersion


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of tables after one cut, up to another.

    Attributes:
        source: whose cuts these are.
        from_cut: number of the cut that they begin after; None: every row is an insert.
        to_cut: number of the cut that they end with: where the next changes begin.
        bookmark: text of `to_cut`; as the next `from_cut` it is refused if that number is another
            cut's, in a lake that was made again.
        dropped: tables that only the older cut has, if all tables were asked for.
        not_created: tables that were suspended before they were created, likewise.
    """

    source: str
    from_cut: int | None
    to_cut: int
    bookmark: str
    dropped: tuple[str, ...]
    not_created: tuple[str, ...]
    _tables: Mapping[str, TableChanges]

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables, changed or not."""
        return tuple(self._tables)

    def renamed(self, table: str) -> dict[str, str]:
        """Return a table's columns whose names changed: older name -> newer name."""
        return dict(self._tables[table].renamed)

    def read(self, table: str, *, spark: SparkSession | None = None) -> Any:
        """Return a table's changes as Arrow's reader, or as a frame, whose rows the driver holds.

        `operation` is `delete`, `update` or `insert`; `key`, `before` and `after` are structs with
        the newer cut's columns. Without a key there is `count`, of equal rows, and no update. A
        changelog has every change in its order, also `truncate`, with `seq`, `transaction`,
        `committed_at`, and the columns that its images lack.
        """
        rows = self._tables[table].read()
        return rows if spark is None else spark.createDataFrame(rows.read_all())


def changes_between(
    paths: LakePaths,
    tables: Sequence[str] | None,
    from_cut: AsOf,
    to_cut: AsOf,
    *,
    net: bool,
    allow_suspended: bool,
) -> Changes:
    new = find_cut(paths, to_cut)
    old = None if from_cut is None else find_cut(paths, from_cut)
    if old is not None and old.batch_number > new.batch_number:
        raise CutNotFoundError(
            "changes go from an older cut to a newer one",
            expected=f"a cut up to {new.batch_number} as from_cut",
            got=old.batch_number,
            next_step="exchange from_cut and to_cut",
        )
    dropped, not_created = set[str](), set[str]()
    if tables is None:
        older = {} if old is None else old.tables
        dropped = older.keys() - new.tables.keys()
        listed = {*new.tables, *new.cursor.suspended}
        if allow_suspended:
            not_created = listed - new.tables.keys() - dropped
            listed &= new.tables.keys()
        tables = sorted(
            name
            for name in listed
            if _is_net(new, name) == net
            or (old is not None and name in older and _is_net(old, name) == net)
        )
    else:
        for table in tables:
            _check_kind(new, table, net=net)
    compared = {
        table: _compared(paths, old, new, table, allow_suspended=allow_suspended)
        for table in tables
    }
    number = None if old is None else old.batch_number
    return Changes(
        paths.source,
        number,
        new.batch_number,
        bookmark_of(new),
        tuple(sorted(dropped)),
        tuple(sorted(not_created)),
        compared,
    )


def _is_net(cut: Cut, table: str) -> bool:
    return table not in cut.tables or not MODES[cut.tables[table].spec.mode].rows_are_changes


def _check_kind(cut: Cut, table: str, *, net: bool) -> None:
    if _is_net(cut, table) != net:
        raise ConfigError(
            "a changelog has no net changes, because its rows are changes"
            if net
            else "only a changelog has every change",
            table=table,
            setting="net",
            got=net,
            next_step=f"give net={not net}, or name another table",
        )


def _compared(
    paths: LakePaths, old: Cut | None, new: Cut, table: str, *, allow_suspended: bool
) -> TableChanges:
    from cdc_pipeline.sink.read.table_changes import table_changes  # loads pyarrow

    version_in(new, table, allow_suspended=allow_suspended)
    older = None
    suspended_in_old = () if old is None or allow_suspended else old.cursor.suspended
    if old is not None and (table in old.tables or table in suspended_in_old):
        version_in(old, table, allow_suspended=allow_suspended)
    newer = _version(paths, new, table)
    if old is not None and table in old.tables:
        try:
            older = _version(paths, old, table)
        except TableNotInCutError as error:
            error.next_step = _way_on(paths, old, new, table)
            raise
    try:
        was_erased = partial(_was_erased, paths, older, newer, table)
        return table_changes(table, paths.table(table), older, newer, was_erased=was_erased)
    except SparkNeededError as error:
        error.table, error.next_step = table, "read it whole, as of each cut, with spark="
        raise


def _was_erased(paths: LakePaths, old: TableVersion | None, new: TableVersion, table: str) -> bool:
    from cdc_pipeline.lake.erasures import erasures_of  # loads pyarrow

    erasures = erasures_of(paths)
    done = (erasures.certificate_of(one.erasure_id) for one in erasures.read())
    versions = (-1 if one is None else one.versions.get(table, -1) for one in done)
    before = -1 if old is None else old.state.version
    return any(before < version <= new.state.version for version in versions)


def _version(paths: LakePaths, cut: Cut, table: str) -> TableVersion:
    from cdc_pipeline.sink.read.table_changes import TableVersion

    state = check_readable(paths, cut, table)
    return TableVersion(cut.cursor.targets[table].app_id, cut.tables[table].spec, state)


def _way_on(paths: LakePaths, old: Cut, new: Cut, table: str) -> str:
    """The older cut's version is not readable: the newer the cut, the more is there of it."""

    def is_readable(number: int) -> bool:
        try:
            cut = read_cut(paths, number)
            version_in(cut, table)
            check_readable(paths, cut, table)
        except LakeDiskError:
            raise
        except SinkError:
            return False
        return True

    numbers = [
        number
        for number in list_numbers(paths.cuts)
        if old.batch_number < number < new.batch_number
    ]
    oldest = [*numbers, new.batch_number][bisect_left(numbers, True, key=is_readable)]
    return (
        f"the oldest cut that its changes can begin after is {oldest}: read the table whole as of "
        f"cut {new.batch_number}, and take its changes from there on"
    )
