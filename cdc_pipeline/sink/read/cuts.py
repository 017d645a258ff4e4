"""Find cuts for readers: list them, resolve a GTID set, a time or a number to one, and check what
of it is readable.

Rules:
- A cut is readable as soon as its file exists: the file is written after the commits of all its
  tables.
- As of a GTID set: the first cut whose set contains it. As of a time: the last cut before the first
  one whose source time is later.
- A cut, or its bookmark, is refused where the cut of that number was published at another time: the
  lake was made again.
- Finding one reads few of many cuts: `lake.cut_order`.
- A suspended table is at another place than the cut (K4): it is refused with that place, unless the
  reader allows it.
- What cannot be read is reported before Spark reads: a table that was created again, a version
  whose log or files are gone.

Nothing here needs a JVM.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from pydantic import BaseModel, ConfigDict

from cdc_pipeline.clock import LOOKS_LIKE_TIME, microseconds_of, time_of
from cdc_pipeline.config.storage_config import check_lake_path
from cdc_pipeline.errors import (
    CutNotFoundError,
    LakeStateError,
    PositionError,
    TableNotInCutError,
)
from cdc_pipeline.lake import state
from cdc_pipeline.lake.cut_order import CutReader, first_cut, sections
from cdc_pipeline.lake.paths import STATE_FOLDER, LakePaths, list_numbers
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.lake.storage.storage import opened, storage_of
from cdc_pipeline.lake.suspensions import way_out
from cdc_pipeline.sink.delta.table_log import SOURCE_PROPERTY, read_table_log

if TYPE_CHECKING:
    from cdc_pipeline.position.gtid.sets import GtidSet
    from cdc_pipeline.sink.delta.replay import TableState

_READERS: Final = 16  # cuts are small files: on an object store each costs a round trip
_CUTS_CACHED: Final = 64  # of one search: more than a binary search reads
_BOOKMARK: Final = re.compile(r"(\d+)@(\d+)")  # number, time of publication in us


class CutSummary(BaseModel):
    """One cut in a list. `source_time` is the commit time of its last transaction at the source;
    `tables` are Delta versions, suspended tables too, which `suspended` names with their place;
    `row_changes` are its own batch's.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    number: int
    kind: str
    published_at: datetime
    source_time: datetime | None
    journal: str
    offset: int
    gtid_set: str
    epoch: int
    tables: dict[str, int]
    row_changes: int
    suspended: dict[str, str]

    @classmethod
    def from_cut(cls, cut: Cut) -> CutSummary:
        return cls(
            number=cut.batch_number,
            kind=cut.kind,
            published_at=time_of(cut.published_at_us),
            source_time=None if cut.source_time_us < 0 else time_of(cut.source_time_us),
            journal=cut.cursor.journal,
            offset=cut.cursor.offset,
            gtid_set=cut.cursor.gtid_set,
            epoch=cut.cursor.epoch,
            tables={name: table.table_version for name, table in cut.tables.items()},
            row_changes=sum(table.row_changes for table in cut.tables.values()),
            suspended={
                name: str(suspended.position)
                for name, suspended in sorted(cut.cursor.suspended.items())
            },
        )


# What a reader may request: a cut or its number, a moment with its zone, a GTID set, or one of
# these as text; a bookmark.
AsOf: TypeAlias = "Cut | CutSummary | int | datetime | GtidSet | str | None"


def bookmark_of(cut: Cut) -> str:
    """Text that finds this cut alone."""
    return f"{cut.batch_number}@{cut.published_at_us}"


def paths_of(lake: str | Path, source: str) -> LakePaths:
    """A folder, or an address in an object store. CutNotFoundError: the text cannot be a lake."""
    try:
        check_lake_path(str(lake))
        return LakePaths(opened(lake), source)
    except ValueError as error:
        raise CutNotFoundError(
            str(error), got=lake, next_step="name the lake's folder or URL"
        ) from None


def source_of(lake: str | Path, table: str) -> str:
    """By the table's properties. Raises TableNotInCutError: no table, or not the pipeline's."""
    paths = paths_of(lake, "_")
    there = read_table_log(paths.table(table))
    if there is not None and SOURCE_PROPERTY in there.properties:
        return there.properties[SOURCE_PROPERTY]
    if there is not None:
        raise TableNotInCutError(
            f"{paths.table(table)} is not a table of this program",
            table=table,
            expected=f"a table with the property {SOURCE_PROPERTY}",
            next_step="name a table that `cdc-pipeline run` has written",
        )
    sources = sources_of(lake)
    tables = chain.from_iterable(find_cut(paths_of(lake, one)).tables for one in sources)
    lists = " or ".join(f"`cdc-pipeline cuts show {one}`" for one in sources)
    raise TableNotInCutError(
        f"{lake} has no table {table}",
        table=table,
        expected=_one_of(sorted(tables)) if sources else "a lake with a cut",
        next_step=f"name a table of the lake as schema.table; {lists} lists them"
        if sources
        else "name the folder or URL of sink.lake_path as it is seen from the working folder",
    )


def _one_of(tables: list[str]) -> str:
    return f"one of {', '.join(tables[:20]) or 'none: the cut is empty'}"


def sources_of(lake: str | Path) -> list[str]:
    """Those that have cuts, sorted."""
    root = paths_of(lake, "_").lake / STATE_FOLDER
    all_paths = (paths_of(lake, name) for name in storage_of(root).names(root))
    return sorted(paths.source for paths in all_paths if list_numbers(paths.cuts))


def list_cuts(lake: str | Path, source: str, *, limit: int | None = None) -> list[CutSummary]:
    """Oldest first; only the newest `limit` are read. Raises CutNotFoundError, LakeStateError."""
    paths = paths_of(lake, source)
    numbers = list_numbers(paths.cuts)
    if not numbers:
        raise _no_cuts(paths)
    wanted = numbers if limit is None else numbers[-limit:]

    def read(number: int) -> Cut | None:
        try:
            return state.read_cut(paths, number)
        except LakeStateError:
            if number in list_numbers(paths.cuts):
                raise
            return None  # its retention has ended meanwhile

    with ThreadPoolExecutor(_READERS, "cuts") as threads:
        return [CutSummary.from_cut(cut) for cut in threads.map(read, wanted) if cut is not None]


def count_cuts(lake: str | Path, source: str) -> int:
    return len(list_numbers(paths_of(lake, source).cuts))


# -- which cut -------------------------------------------------------------------------------------


def parse_as_of(text: str) -> int | datetime | str:
    """A cut's number, a time with its zone, or the text of a GTID set. Raises CutNotFoundError."""
    text = text.strip()
    if text.isdecimal():
        return int(text)
    if not LOOKS_LIKE_TIME.fullmatch(text):
        return text
    try:
        return _with_zone(datetime.fromisoformat(text))
    except ValueError:
        raise _bad_as_of(text) from None


def find_cut(paths: LakePaths, as_of: AsOf = None) -> Cut:
    """The newest for None. CutNotFoundError: none is that old or that new; LakeStateError."""
    if isinstance(as_of, str):
        as_of = parse_as_of(as_of)
    while True:
        numbers = list_numbers(paths.cuts)
        if not numbers:
            raise _no_cuts(paths)
        try:
            return _find(paths, numbers, as_of)
        except LakeStateError:
            if numbers == list_numbers(paths.cuts):
                raise  # damaged, and not removed meanwhile


def _find(paths: LakePaths, numbers: Sequence[int], as_of: AsOf) -> Cut:
    if as_of is None:
        return state.read_cut(paths, numbers[-1])
    published_at: datetime | None = None
    if isinstance(as_of, Cut):
        as_of = bookmark_of(as_of)
    if isinstance(as_of, CutSummary):
        published_at, as_of = as_of.published_at, as_of.number
    elif isinstance(as_of, str) and (bookmark := _BOOKMARK.fullmatch(as_of)):
        as_of, published_at = int(bookmark[1]), time_of(int(bookmark[2]))
    if isinstance(as_of, bool):
        raise _bad_as_of(as_of)
    if isinstance(as_of, int):
        if as_of not in numbers:
            raise _not_found(
                paths,
                f"there is no cut {as_of}",
                f"{numbers[0]} to {numbers[-1]}",
                as_of < numbers[0],
            )
        return _published_at(state.read_cut(paths, as_of), published_at)
    if isinstance(as_of, datetime):
        return _at_time(paths, numbers, _with_zone(as_of))
    # Imported late: GTID sets need numpy, and most commands that read cuts compare none.
    from cdc_pipeline.position.gtid.sets import GtidSet

    if isinstance(as_of, str | GtidSet):
        return _at_gtid_set(paths, numbers, str(as_of))
    raise _bad_as_of(as_of)


def _published_at(cut: Cut, wanted: datetime | None) -> Cut:
    published_at = time_of(cut.published_at_us)
    if wanted not in (None, published_at):
        raise CutNotFoundError(
            f"cut {cut.batch_number} is another one than was asked for: the lake was made again",
            expected=f"published at {wanted}",
            got=f"published at {published_at}",
            next_step="read the tables whole as of the newest cut, and go on from there",
        )
    return cut


def _at_time(paths: LakePaths, numbers: Sequence[int], moment: datetime) -> Cut:
    wanted_us = microseconds_of(moment)
    read = _reader(paths)
    later = first_cut(numbers, read, lambda cut: cut.latest_source_time_us > wanted_us)
    # A cut without a time follows the one before it.
    if any(cut.latest_source_time_us >= 0 for _, _, cut in sections(numbers[:later], read)):
        return read(numbers[later - 1])
    if later == len(numbers):
        raise _not_found(
            paths, "the cuts have no times of the source", "a cut's number or a GTID set", False
        )
    raise _not_found(
        paths,
        f"no cut is as old as {moment.isoformat()}",
        f"{time_of(read(numbers[later]).latest_source_time_us)} or later",
        True,
    )


def _at_gtid_set(paths: LakePaths, numbers: Sequence[int], text: str) -> Cut:
    from cdc_pipeline.position.gtid.sets import parse_gtid_set

    read = _reader(paths)
    asked: GtidSet | None = None

    def holds(cut: Cut) -> bool:
        nonlocal asked
        if not cut.cursor.gtid_set:
            return False
        if asked is None:
            try:
                asked = parse_gtid_set(text, cut.cursor.flavor)
            except PositionError as error:
                raise _bad_as_of(f"{text}: {error.what}") from None
            if not asked:
                raise _bad_as_of(text)
        return parse_gtid_set(cut.cursor.gtid_set, cut.cursor.flavor).contains(asked)

    matching_cut = first_cut(numbers, read, holds)
    if matching_cut < len(numbers):
        return read(numbers[matching_cut])
    newest = read(numbers[-1])
    if asked is None:
        raise _not_found(
            paths,
            "the cuts have no GTIDs, because the source does not use them",
            "a cut or a time",
            False,
        )
    raise _not_found(
        paths,
        f"no cut contains {text} yet",
        f"transactions of {newest.cursor.gtid_set} (cut {newest.batch_number})",
        False,
    )


def _reader(paths: LakePaths) -> CutReader:
    return lru_cache(maxsize=_CUTS_CACHED)(partial(state.read_cut, paths))


def _with_zone(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise CutNotFoundError(
            "a time needs a zone",
            expected="a time such as 2026-01-31T08:00:00+00:00",
            got=moment.isoformat(),
            next_step="add the zone: +00:00 for UTC",
        )
    return moment


def _no_cuts(paths: LakePaths) -> CutNotFoundError:
    there = sources_of(paths.lake)
    return CutNotFoundError(
        f"the lake {paths.lake} has no cut of source {paths.source}",
        expected=f"one of the sources {', '.join(there)}"
        if there
        else "a source that was captured once",
        next_step="name another source or lake, or capture the source first",
    )


def _not_found(paths: LakePaths, what: str, expected: str, is_too_old: bool) -> CutNotFoundError:
    return CutNotFoundError(
        what,
        expected=expected,
        next_step=(
            "older cuts are removed after sink.cut_retention; a materialized copy "
            "keeps one for longer"
        )
        if is_too_old
        else (
            f"`cdc-pipeline cuts list {paths.source}` lists the existing cuts; a run "
            "captures what is newer"
        ),
    )


def _bad_as_of(got: object) -> CutNotFoundError:
    return CutNotFoundError(
        "as_of cannot be understood",
        expected="a cut's number, a time with a zone such as "
        "2026-01-31T08:00:00+00:00, or a GTID set",
        got=got,
        next_step="give one of these, or omit as_of to read the newest cut",
    )


# -- a table of a cut ------------------------------------------------------------------------------


def version_in(cut: Cut, table: str, *, allow_suspended: bool = False) -> int:
    """Raises TableNotInCutError: the cut has no such table, or it is suspended and not allowed."""
    suspension = cut.cursor.suspended.get(table)
    if suspension is not None and not allow_suspended:
        raise TableNotInCutError(
            f"the table is suspended in cut {cut.batch_number}: the table is at "
            f"{suspension.position}, the cut at {cut.cursor.position}",
            table=table,
            got=f"{suspension.error}: {suspension.cause}",
            next_step="read it at its own position with allow_suspended=True; or repair it: "
            f"{way_out(table, suspension, source=cut.cursor.source)}",
        )
    there = cut.tables.get(table)
    if there is None:
        raise TableNotInCutError(
            f"cut {cut.batch_number} does not have this table",
            table=table,
            expected=_one_of(list(cut.tables)),
            next_step="name a table of the lake as schema.table; one that was captured later "
            "is in later cuts",
        )
    return there.table_version


def check_readable(paths: LakePaths, cut: Cut, table: str) -> TableState:
    """It still exists, with all its files. TableNotInCutError: the table is gone or was created
    again, or log or files were removed; LakeStateError.
    """
    from cdc_pipeline.sink.delta.replay import files_of, table_state  # loads pyarrow

    path, version = paths.table(table), cut.tables[table].table_version
    there = read_table_log(path)
    target = cut.cursor.targets[table]
    if there is None or (
        there.app_id != target.app_id and not _was_at(path, version, target.app_id)
    ):
        raise TableNotInCutError(
            f"the table that cut {cut.batch_number} names is gone"
            + ("" if there is None else ": it was recreated"),
            table=table,
            expected=f"application id {target.app_id} in {path}",
            got="no table" if there is None else f"application id {there.app_id}",
            next_step="read a later cut, or restore the table from a backup of the lake",
        )
    state = table_state(path, version)
    if state is None:
        raise _removed(table, cut, "the table's log does not go back to it")
    there_now: dict[Path, set[str]] = {}  # each folder is listed once
    for file in (file for name in sorted(state.names) for file in files_of(path, name)):
        if file.parent not in there_now:
            there_now[file.parent] = set(storage_of(path).names(file.parent))
        if file.name not in there_now[file.parent]:
            raise _removed(table, cut, f"its file {file.name} is gone")
    return state


def is_readable(paths: LakePaths, cut: Cut, table: str) -> bool:
    try:
        return table in cut.tables and bool(check_readable(paths, cut, table))
    except (TableNotInCutError, LakeStateError):
        return False


def _was_at(path: Path, version: int, app_id: str) -> bool:
    """By the application id: a snapshot gives the table another one, and keeps the history."""
    try:
        there = read_table_log(path, version=version)
    except LakeStateError:  # the log does not reach back
        return False
    return there is not None and there.app_id == app_id


def _removed(table: str, cut: Cut, why: str) -> TableNotInCutError:
    return TableNotInCutError(
        f"the version of cut {cut.batch_number} was removed: {why}",
        table=table,
        expected=f"Delta version {cut.tables[table].table_version} with its log and files",
        next_step="read a later cut; to keep cuts for longer, raise sink.cut_retention, or "
        "materialize them",
    )
