"""What a cut names is on the disk before the cut is, and what a power cut tore is undone (K21).
Without a JVM."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cdc_pipeline.binlog.table_schema import Kind
from cdc_pipeline.config.pipeline_config import SinkConfig
from cdc_pipeline.errors import MergeError
from cdc_pipeline.lake import table_facts
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.sink.cursor_table import DeltaCursorStore
from cdc_pipeline.sink.delta.log import LOG_FOLDER, commit_file
from cdc_pipeline.sink.delta_sink import DeltaSink
from cdc_pipeline.sink.durable import power_cut
from cdc_pipeline.sink.durable.durability import Commits, make_durable, new_files
from cdc_pipeline.sink.durable.retention import over_maintenance
from tests.campaigns.disk import stand_in
from tests.campaigns.disk.stand_in import NoSpark, commit, live, write_rows
from tests.support.delta_reader import newest_rows, newest_version
from tests.support.kills import killed_at
from tests.support.sink_values import (
    applied,
    check_targets,
    column,
    cursor_at,
    delete,
    insert,
    record_batch,
    table_schema,
    update,
)

ORDERS = table_schema("shop.orders", [column("id", Kind.INT32), column("total", Kind.INT64)], "id")
PEOPLE = table_schema("shop.people", [column("id", Kind.INT32), column("total", Kind.INT64)], "id")
FIRST = (
    (ORDERS, [insert(id=i, total=i) for i in range(5)], 10),
    (PEOPLE, [insert(id=1, total=1)], 20),
)
SECOND = (
    (ORDERS, [update({"id": 1, "total": 1}, {"id": 1, "total": 9}), delete(id=2, total=2)], 30),
)
EXPECTED = [(0, 0), (1, 9), (3, 3), (4, 4)]

Tear = Callable[[Path], None]


class Disk:
    """Which files and folders the disk has as they are now, by what was waited for."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.refused: Callable[[Path], bool] = lambda _path: False
        self._taken: dict[tuple[int, int], tuple[int, int]] = {}
        self._fsync = os.fsync
        patch.setattr(os, "fsync", self._wait)

    def _wait(self, descriptor: int) -> None:
        found = os.fstat(descriptor)
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if self.refused(path):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        self._taken[found.st_dev, found.st_ino] = (found.st_size, found.st_mtime_ns)

    def lacks(self, *tops: Path) -> list[Path]:
        every = [path for top in tops for path in (top, *top.rglob("*"))]
        return [path for path in every if not self.has(path)]

    def has(self, path: Path) -> bool:
        found = path.stat()
        return self._taken.get((found.st_dev, found.st_ino)) == (found.st_size, found.st_mtime_ns)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@contextmanager
def _locked(lake: Path) -> Iterator[DeltaSink]:
    spark: Any = NoSpark()
    sink = DeltaSink(source="shop", config=SinkConfig(lake_path=lake), spark=spark)
    with sink.lock():
        yield sink


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    stand_in.install(monkeypatch)
    return tmp_path / "new" / "lake"


@pytest.fixture
def restart(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    starts = iter(range(1000))

    def again() -> None:
        name = f"start {next(starts)}"
        monkeypatch.setattr(power_cut, "boot_id", lambda: name)

    again()
    return again


def _rows(sink: DeltaSink, table: str = "shop.orders") -> list[tuple[Any, ...]]:
    return sorted(
        tuple(row.values()) for row in newest_rows(sink.paths.table(table), "id", "total")
    )


def _half_done(lake: Path) -> LakePaths:
    """Batch 1 is finished; batch 2 is committed to its table, and its cut is missing."""

    with _locked(lake) as sink:
        applied(sink, 1, *FIRST)
    with _locked(lake) as sink:
        record = record_batch(sink, 2, *SECOND)
        with killed_at("before_cut"):
            sink.finish(record)
    return sink.paths


def _finished(lake: Path) -> tuple[DeltaSink, Cut]:
    with _locked(lake) as sink:
        record = sink.pending_record()
        assert record is not None
        return sink, sink.finish(record, recovered=True)


# -- before the cut --------------------------------------------------------------------------------


def test_k21_the_disk_has_all_that_a_cut_names_before_it_has_the_cut(
    lake: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Log files, data files, checkpoints, their checksum files, each folder up to the lake's own
    name; and the staged files before the record."""
    put, looked = table_facts.put_if_absent, []

    def look(path: Path, text: str) -> bool:
        lacking = disk.lacks(
            *([lake / "shop"] if path.parent == paths.cuts else paths.staging_root.iterdir())
        )
        looked.append(path.parent.name)
        assert lacking == []
        return put(path, text)

    paths = LakePaths(lake, "shop")
    monkeypatch.setattr(table_facts, "put_if_absent", look)
    monkeypatch.setattr("cdc_pipeline.sink.staging.staging.put_if_absent", look)
    with _locked(lake) as sink:
        applied(sink, 1, *FIRST)
        for number in range(2, 6):  # the log gets a checkpoint on the way
            applied(sink, number, (ORDERS, [insert(id=10 + number, total=1)], 100 * number))
    assert (paths.table("shop.orders") / LOG_FOLDER / "_last_checkpoint").exists()
    assert looked == ["batches", "tables", "cuts", *(["batches", "cuts"] * 4)]
    assert not disk.lacks(lake / "shop", paths.cuts, paths.batches)
    folders = (paths.state, paths.state.parent, lake, lake.parent, lake.parent.parent)
    assert all(disk.has(folder) for folder in folders)


def test_k21_a_file_that_the_disk_refuses_is_not_named_and_is_made_again(
    lake: Path, disk: Disk, restart: Callable[[], None]
) -> None:
    """After a failed wait the memory says that all is well: the commit itself is made again."""
    restart()
    with _locked(lake) as sink:
        applied(sink, 1, *FIRST)
        record = record_batch(sink, 2, *SECOND)
        disk.refused = lambda path: path.name.startswith("part-")
        with pytest.raises(MergeError, match="did not reach the disk") as caught:
            sink.finish(record)
        assert caught.value.table == "shop.orders"
        before = live(sink.paths.table("shop.orders"))
    disk.refused = lambda _path: False
    sink, cut = _finished(lake)
    assert (_rows(sink), cut.batch_number) == (EXPECTED, 2)
    assert live(sink.paths.table("shop.orders")) != before


def test_k21_a_target_whose_disk_goes_on_failing_stands_still(lake: Path, disk: Disk) -> None:
    with _locked(lake) as sink:
        applied(sink, 1, *FIRST)
        record = record_batch(sink, 2, *SECOND)
        disk.refused = lambda path: path.name.startswith("part-") and path.parent.name == "orders"
        cut = sink.finish(record, recovered=True)
    held = cut.cursor.targets["shop.orders"].suspended
    assert held is not None
    assert "disk" in held.what
    assert cut.tables["shop.orders"].table_version == 1


def test_k21_a_cut_takes_over_a_maintenance_that_the_disk_has(lake: Path, disk: Disk) -> None:
    with _locked(lake) as sink:
        cut = applied(sink, 1, *FIRST)
    table = sink.paths.table("shop.orders")
    add = write_rows(table, newest_rows(table), None)
    old = [{"remove": {"path": path, "dataChange": False}} for path in live(table)]
    version = commit(table, [*old, {"add": add}], operation="OPTIMIZE")
    disk.refused = lambda path: path.name == add["path"]
    assert over_maintenance(sink.paths, cut) == cut
    disk.refused = lambda _path: False
    assert over_maintenance(sink.paths, cut).tables["shop.orders"].table_version == version
    assert not disk.lacks(lake / "shop")


def test_k21_new_files_are_those_that_the_commits_brought_and_left(tmp_path: Path) -> None:
    """One whose deletion vector alone is new is not waited for again; one that is gone neither."""
    table = tmp_path / "t"
    data = {"path": "day=2024-01-01%20x/part-1.parquet", "size": 7, "partitionValues": {}}
    vector = {
        "storageType": "u",
        "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
        "offset": 1,
        "sizeInBytes": 40,
    }
    marked = {**data, "deletionVector": vector}
    other = {"path": "part-2.parquet", "size": 9}
    commit(table, [{"add": data}, {"add": other}], operation="WRITE")
    commit(table, [{"remove": {"path": data["path"]}}, {"add": marked}], operation="DELETE")
    commit(table, [{"remove": {"path": other["path"]}}], operation="DELETE")
    log, name = table / LOG_FOLDER, "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"

    def found(after: int) -> dict[Path, int]:
        return {
            file.path.relative_to(table): file.bytes_min
            for file in new_files(Commits(table, after, 2))
        }

    def logs(*versions: int) -> dict[Path, int]:
        return {commit_file(table, version).relative_to(table): 1 for version in versions}

    with_vector = {Path("ab", name): 49}
    assert log.is_dir()
    assert found(-1) == {**logs(0, 1, 2), **with_vector, Path("day=2024-01-01 x/part-1.parquet"): 7}
    assert found(0) == {**logs(1, 2), **with_vector}
    assert found(1) == logs(2)


def test_k21_a_missing_or_short_file_is_not_named(tmp_path: Path) -> None:
    table = tmp_path / "t"
    add = write_rows_of(table)
    commit(table, [{"add": add}], operation="WRITE")
    named = {"t": Commits(table, -1, 0)}
    assert make_durable(named, lake=tmp_path) == {}
    os.truncate(table / add["path"], add["size"] - 1)
    assert "truncated" in str(make_durable(named, lake=tmp_path)["t"])
    (table / add["path"]).unlink()
    assert "No such file" in str(make_durable(named, lake=tmp_path)["t"])


# -- after a power cut -----------------------------------------------------------------------------


def _empty_log(table: Path) -> None:
    os.truncate(commit_file(table, newest_version(table)), 0)


def _half_a_log(table: Path) -> None:
    file = commit_file(table, newest_version(table))
    # whole lines, but for the last
    os.truncate(file, len(file.read_bytes().rsplit(b"\n", 2)[0]) + 1)


def _no_log(table: Path) -> None:
    commit_file(table, newest_version(table)).unlink()


def _zeros(table: Path) -> None:
    """A log that looks whole, and blocks that were never written."""
    file = table / live(table)[0]
    file.write_bytes(bytes(file.stat().st_size))


def _no_data(table: Path) -> None:
    (table / live(table)[0]).unlink()


def _torn_checkpoint(table: Path) -> None:
    stand_in.checkpoint(table)
    for file in (table / LOG_FOLDER).glob("*.checkpoint.parquet"):
        os.truncate(file, 100)


TEARS = (_empty_log, _half_a_log, _no_log, _zeros, _no_data, _torn_checkpoint)


@pytest.mark.parametrize("tear", TEARS)
def test_k21_a_batch_that_a_power_cut_tore_is_applied_again(
    lake: Path, restart: Callable[[], None], tear: Tear
) -> None:
    paths = _half_done(lake)
    tear(paths.table("shop.orders"))
    restart()
    sink, cut = _finished(lake)
    assert (_rows(sink), _rows(sink, "shop.people")) == (EXPECTED, [(1, 1)])
    assert cut.cursor.suspended == {}
    with _locked(lake) as sink:
        check_targets(sink, cut)
        applied(sink, 3, (ORDERS, [insert(id=50, total=50)], 50))
        assert _rows(sink) == [*EXPECTED, (50, 50)]


@pytest.mark.parametrize("tear", [_empty_log, _zeros, _no_log])
def test_k21_a_table_that_a_power_cut_tore_as_it_was_made_is_made_again(
    lake: Path, restart: Callable[[], None], tear: Tear
) -> None:
    with _locked(lake) as sink:
        record = record_batch(sink, 1, *FIRST)
        with killed_at("before_cut"):
            sink.finish(record)
    table = sink.paths.table("shop.orders")
    if tear is _no_log:
        for file in (table / LOG_FOLDER).iterdir():
            file.unlink()
        (table / LOG_FOLDER).rmdir()
    else:
        tear(table)
    restart()
    sink, cut = _finished(lake)
    assert (_rows(sink), cut.cursor.suspended) == ([(i, i) for i in range(5)], {})


def test_k21_without_a_restart_nothing_is_undone(lake: Path, restart: Callable[[], None]) -> None:
    """A process that dies loses nothing that it has written: nothing is committed again (K2)."""
    paths = _half_done(lake)
    before = {name: newest_version(paths.table(name)) for name in ("shop.orders", "shop.people")}
    sink, _ = _finished(lake)
    assert {name: newest_version(sink.paths.table(name)) for name in before} == before


def test_k21_a_torn_maintenance_is_undone_and_a_whole_one_stays(
    lake: Path, restart: Callable[[], None]
) -> None:
    with _locked(lake) as sink:
        applied(sink, 1, *FIRST)
    table = sink.paths.table("shop.orders")

    def optimize() -> str:
        add = write_rows(table, newest_rows(table), None)
        old = [{"remove": {"path": path, "dataChange": False}} for path in live(table)]
        commit(table, [*old, {"add": add}], operation="OPTIMIZE")
        return str(add["path"])

    optimize()
    whole = newest_version(table)
    restart()
    with _locked(lake):
        assert newest_version(table) == whole
    os.truncate(table / optimize(), 10)
    restart()
    with _locked(lake) as sink:
        assert newest_version(table) == whole
        applied(sink, 2, *SECOND)
        assert _rows(sink) == EXPECTED


def test_k21_what_a_vacuum_relies_on_is_not_undone(lake: Path, restart: Callable[[], None]) -> None:
    """A file of the version before is gone: a vacuum has waited for the disk."""
    paths = _half_done(lake)
    table = paths.table("shop.orders")
    gone = json.loads(
        next(line for line in commit_file(table, 2).read_text().splitlines() if '"remove"' in line)
    )
    (table / gone["remove"]["path"]).unlink()
    restart()
    sink, _ = _finished(lake)
    assert (_rows(sink), newest_version(table)) == (EXPECTED, 2)


def test_k21_commits_of_others_are_not_undone(lake: Path, restart: Callable[[], None]) -> None:
    with _locked(lake) as sink:
        applied(sink, 1, *FIRST)
    table = sink.paths.table("shop.orders")
    os.truncate(table / write_foreign(table), 10)
    restart()
    with _locked(lake):
        assert newest_version(table) == 2


@pytest.mark.parametrize("tear", [_empty_log, _no_log, _no_data])
def test_k21_the_table_of_cursors_survives(
    lake: Path, disk: Disk, restart: Callable[[], None], tear: Tear
) -> None:
    """One that was written is on the disk; a torn one gives way to one before it, or to none."""
    paths = LakePaths(lake, "shop")
    store = DeltaCursorStore(paths.cursors, source="shop")
    with _locked(lake):
        for number in (0, 1, 2):
            store.write(cursor_at(number), {})
    assert not disk.lacks(paths.cursors)
    tear(paths.cursors)
    restart()
    with _locked(lake):
        found = DeltaCursorStore(paths.cursors, source="shop").read()
    batch = None if tear is _no_data else 1  # that takes the first file, which all need
    assert (None if found is None else found.batch_number) == batch


def write_foreign(table: Path) -> str:
    add = write_rows_of(table)
    commit(table, [{"add": add}], operation="WRITE")
    return str(add["path"])


def write_rows_of(table: Path) -> dict[str, Any]:
    table.mkdir(exist_ok=True)
    return write_rows(table, [{"id": 1}], None)
