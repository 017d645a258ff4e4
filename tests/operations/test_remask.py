"""Masks that come later: the rows that are there get them, and no file keeps old values unnamed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from cdc_pipeline.config.target_config import TargetRule
from cdc_pipeline.errors import (
    CatalogError,
    CdcError,
    ConfigError,
    LakeStateError,
    LockError,
    RowsDifferError,
    SnapshotError,
    TargetSuspendedError,
)
from cdc_pipeline.fault_points import listening
from cdc_pipeline.lake.long_operations import operation_ids
from cdc_pipeline.lake.remasks import RemaskCertificate
from cdc_pipeline.lake.suspensions import MASKS_CHANGED, suspension
from cdc_pipeline.operations.erase.remask import RemaskRequest, check, preview, remask
from cdc_pipeline.operations.reset import reset
from cdc_pipeline.operations.snapshot.snapshot import take_snapshot
from cdc_pipeline.operations.verify.read import VerifyOptions
from cdc_pipeline.operations.verify.reread import repair
from cdc_pipeline.operations.verify.verify import verify
from cdc_pipeline.position.cursor import CursorState
from cdc_pipeline.run.admin_batch import admin_batch
from cdc_pipeline.run.wiring import build_sink
from cdc_pipeline.sink.delta_sink import DeltaSink
from tests.operations.test_erase import BEGIN, SECRET, Killed, Lake
from tests.servers import Server

pytestmark = pytest.mark.spark
MASKS = {
    "code": {"hash": {"salt": "a" * 32}},
    "name": {"truncate": 3},
    "n": {"fixed": 7},
    "d": "drop",
}


class Masked(Lake):
    """A table in targets of some modes, whose masks change; and another one."""

    is_named = True
    more: Mapping[str, Any] = {}

    def __init__(self, server: Server, database: str, at: Path, *modes: str) -> None:
        self.table = f"{database}.person"
        super().__init__(server, database, at, modes)
        self.mask()
        self.sql(
            "SET sql_mode = ''",
            "CREATE TABLE other (id INT PRIMARY KEY)",
            "CREATE TABLE person (code VARCHAR(80) PRIMARY KEY, name VARCHAR(100), n INT, d DATE)",
            f"INSERT INTO person VALUES ('{SECRET}1', '{SECRET}', 1, NULL), "
            f"('ann', NULL, 2, NULL), ('{SECRET}3', 'x', 1, '0000-00-00')",
        )
        self.run()
        self.sql("UPDATE person SET n = 3 WHERE code LIKE 'Z%1'", "DELETE FROM person WHERE n = 2")
        self.run()

    def mask(self, **masks: Any) -> None:
        rules = [
            TargetRule.model_validate(
                {
                    "tables": [self.table],
                    "masks": masks,
                    "mode": mode,
                    "name": f"{self.database}.{mode}" if self.is_named else self.table,
                    **self.more,
                }
            )
            for mode in self.modes
        ]
        self.config = self.config.model_copy(update={"targets": tuple(rules)})

    def remask(self, **asked: Any) -> RemaskCertificate:
        request = RemaskRequest(table=self.table, who="me", **asked)
        return remask(self.config, request, cursors=self.cursors)

    def check(self) -> RemaskCertificate:
        return check(self.config, cursors=self.cursors, table=self.table)[-1]

    def lengths(self, target: str, *columns: str) -> list[tuple[Any, ...]]:
        """That of a code in the place of the code."""
        rows = self.rows(target, "code", *columns)
        return sorted((len(code), *rest) for code, *rest in rows)

    def values(self) -> list[str]:
        """Files that hold the values but for the bounds in logs."""
        return [file for file in self.holding(BEGIN, "0000-00-00") if "_delta_log" not in file]


def test_k14_new_masks_reach_the_rows_that_are_there_and_a_certificate_names_what_is_left(
    mysql_server: Server, mysql_database: str, tmp_path: Path, spark: Any
) -> None:
    lake = Masked(mysql_server, mysql_database, tmp_path / "lake", "mirror")
    asked = RemaskRequest(table=lake.table)
    for does in (lake.remask, lambda: preview(lake.config, asked, cursors=lake.cursors)):
        with pytest.raises(ConfigError, match="have the masks of the configuration"):
            does()
    lake.mask(**MASKS)
    with pytest.raises(ConfigError, match="masks changed") as refused:
        lake.run()
    assert f"`cdc-pipeline remask crm --table {lake.table}`" in str(refused.value.next_step)
    told = preview(lake.config, asked, cursors=lake.cursors)
    assert {name: one.past for name, one in told.targets.items()} == {f"{lake.database}.mirror": ""}
    first = lake.remask()
    assert {one.what for one in first.held} == {"files", "log"}
    assert [file for file in lake.values() if "/mirror/" in file]
    assert not [file for file in lake.values() if "/mirror/" not in file]
    again = lake.check()
    assert [one.until_us for one in again.held] == [one.until_us for one in first.held]
    lake.sql("INSERT INTO person VALUES ('new', 'Newton', 9, NULL)", "INSERT INTO other VALUES (1)")
    lake.run()
    rows = lake.lengths("mirror", "name", "n")
    assert rows == [(64, "New", 7), (64, "Zyx", 7), (64, "x", 7)]

    # Another salt, and at once: every old file is gone.
    lake.mask(**MASKS | {"code": {"hash": {"salt": "b" * 32}}})
    before = lake.rows("mirror", "code")
    done = lake.remask(at_once=True)
    assert {one.what for one in done.held} == {"log"}
    assert not lake.values()
    assert not set(before) & set(lake.rows("mirror", "code"))
    assert lake.check().files_read == done.files_read > 0


POINTS = (
    "remask_recorded", "remask_suspended", "snapshot_begun", "snapshot_swapping",
    "after_record", "before_cut", "remask_swapped", "old_values_cleaned",
)  # fmt: skip


class Plain(Masked):
    """A target of its table's own name, of which a cut names no sources."""

    is_named = False
    more = MappingProxyType({"partition_by": ["name"]})


def test_k14_a_target_of_its_tables_own_name_is_searched_and_its_quarantine_cleaned(
    mysql_server: Server, mysql_database: str, tmp_path: Path, spark: Any
) -> None:
    lake = Plain(mysql_server, mysql_database, tmp_path / "lake", "mirror")
    lake.mask(code={"hash": {"salt": "a" * 32}}, name={"truncate": 3})
    done = lake.remask(at_once=True)
    assert (done.quarantine, done.files_read) == (1, 1)
    assert {one.what for one in done.held} == {"log"}
    assert not [file for file in lake.holding(BEGIN) if "_delta_log" not in file]
    assert not [at for at in (lake.at / lake.database).rglob("name=*") if BEGIN in at.name]
    # What no mask made is named.
    path = lake.at / lake.database / "person"
    spark.sql(f"UPDATE delta.`{path}` SET name = 'longer' WHERE name = 'Zyx'")
    found = [one.why for one in lake.check().held if one.what == "table"]
    assert [why.split(" rows")[0] for why in found] == ["1"]


def at(point: str, act: Callable[[], object]) -> Any:
    """Once."""
    left = [act]

    def reached(name: str) -> None:
        if name == point and left:
            left.pop()()

    return listening(reached)


def die() -> None:
    raise Killed


def test_k14_what_older_files_hold_is_removed_later_and_by_any_name_of_the_table(
    mysql_server: Server,
    mysql_database: str,
    tmp_path: Path,
    spark: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lake = Masked(mysql_server, mysql_database, tmp_path / "lake", "mirror")
    source, target = lake.table, f"{lake.database}.mirror"
    lake.mask(**MASKS)
    with pytest.raises(LakeStateError, match="not in place"):
        lake.check()
    with pytest.raises(ConfigError, match="no snapshot can be taken"):
        check(lake.config, cursors=lake.cursors, table=f"{lake.database}.persons")
    told = preview(lake.config, RemaskRequest(table=source), cursors=lake.cursors)
    assert told.targets[target].after["code"] == "hash"
    lake.table = target
    with at("remask_swapped", die), pytest.raises(Killed):
        lake.remask()
    lake.table = source
    with pytest.raises(LakeStateError, match="not in place"):
        lake.check()
    with at("remask_swapped", lake.remask):  # another process is faster
        done = lake.remask()
    assert done.masks[target]["code"] == "hash"
    assert (done.table, lake.values() != []) == (source, True)
    with pytest.raises(ConfigError, match="have the masks"):
        lake.remask()
    unread = CatalogError("the catalog does not answer")
    with monkeypatch.context() as patch:
        patch.setattr(DeltaSink, "cleanup", lambda sink, _: setattr(sink, "unpublished", unread))
        with pytest.raises(CatalogError):
            lake.remask(at_once=True)
    assert lake.values()
    assert {one.what for one in lake.remask(at_once=True).held} == {"log"}
    assert not lake.values()


def test_k14_f157_tables_and_quarantine_of_an_earlier_name_are_named_and_cleaned(
    mysql_server: Server, mysql_database: str, tmp_path: Path, spark: Any
) -> None:
    lake = Masked(mysql_server, mysql_database, tmp_path / "lake", "mirror")
    row = f"('k', 'q{SECRET}', 1, '0000-00-00')"
    lake.config = lake.config.model_copy(update={"targets": ()})
    lake.sql(
        "SET sql_mode = ''",
        "CREATE TABLE pers (code VARCHAR(90) PRIMARY KEY, nick VARCHAR(90), n INT, d DATE)",
        f"INSERT INTO pers VALUES ('x', 'x{SECRET}', 1, NULL), {row}",
    )
    lake.run()
    lake.sql("ALTER TABLE pers RENAME COLUMN nick TO name", "RENAME TABLE pers TO clients")
    lake.run()
    lake.table = f"{lake.database}.clients"
    rule = {"tables": [lake.table], "masks": {"name": {"truncate": 3}}}
    rules = (TargetRule.model_validate(rule),)
    lake.config = lake.config.model_copy(update={"targets": rules})
    done = lake.remask(at_once=True)
    assert (done.quarantine, list(done.masks)) == (1, [lake.table])
    where = f"{lake.database}/pers"
    assert {(one.what, one.where) for one in done.held if one.what != "log"} == {("table", where)}
    assert lake.check().held == done.held
    # What the certificate says can be done.
    left = lake.config.tables.model_copy(update={"exclude": (f"{lake.database}.pers",)})
    lake.config = lake.config.model_copy(update={"tables": left})
    lake.run()
    assert lake.check().held == done.held
    shutil.rmtree(lake.at / where)
    lake.sql(f"INSERT INTO clients VALUES ('new', '{SECRET}', 1, NULL)")
    lake.run()
    assert lake.rows("clients", "name") == [("Zyx",), ("xZy",)]
    assert {one.what for one in lake.check().held} == {"log"}
    report = verify(lake.config, cursors=lake.cursors, options=VerifyOptions())
    assert {one.status for one in report.tables.values()} == {"equal"}
    assert not [file for file in lake.holding(f"q{BEGIN}") if "_delta_log" not in file]


class Narrow(Masked):
    """Its second target has no names."""

    def mask(self, **masks: Any) -> None:
        super().mask(**masks)
        first, second = self.config.targets
        left = {name: mask for name, mask in second.masks.items() if name != "name"}
        columns = second.columns.model_copy(update={"exclude": ("name",)})
        second = second.model_copy(update={"masks": left, "columns": columns})
        self.config = self.config.model_copy(update={"targets": (first, second)})


def test_k14_a_target_whose_masks_change_while_others_wait_is_in_the_certificate(
    mysql_server: Server, mysql_database: str, tmp_path: Path, spark: Any
) -> None:
    lake = Narrow(mysql_server, mysql_database, tmp_path / "lake", "mirror", "soft_delete")
    lake.mask(name={"truncate": 3})
    with at("remask_recorded", die), pytest.raises(Killed):
        lake.remask()
    lake.mask(name={"truncate": 3}, code={"hash": {"salt": "a" * 32}})
    done = lake.remask(without_past=True, at_once=True)
    assert set(done.masks) == {f"{lake.database}.{mode}" for mode in lake.modes}
    assert not [file for file in lake.values() if "quarantine" not in file]
    assert len(check(lake.config, cursors=lake.cursors, table=lake.table)) == 1


@pytest.mark.parametrize(
    ("modes", "points"),
    [
        pytest.param(("mirror", "history"), POINTS[1::2], marks=pytest.mark.whole),
        pytest.param(("soft_delete", "changelog"), POINTS[::2], marks=pytest.mark.nightly),
    ],
    ids=["whole", "nightly"],
)
def test_k14_what_only_the_lake_has_is_given_up_by_a_persons_word_alone(
    mysql_server: Server,
    mysql_database: str,
    tmp_path: Path,
    spark: Any,
    modes: tuple[str, ...],
    points: tuple[str, ...],
) -> None:
    lake = Masked(mysql_server, mysql_database, tmp_path / "lake", *modes)
    lake.mask(**MASKS)
    with pytest.raises(ConfigError, match="would lose what only the lake has") as refused:
        lake.remask()
    assert "--rebuild" in str(refused.value.next_step)
    for point in points:

        def die(reached: str, point: str = point) -> None:
            if reached == point:
                raise Killed

        with listening(die), pytest.raises(Killed):
            lake.remask(without_past=True, at_once=True)
        with pytest.raises(LakeStateError, match=r"not in place|unfinished"):
            lake.check()
    done = lake.remask(without_past=True, at_once=True)
    assert {one.what for one in done.held} == {"log"}
    assert not lake.values()
    lake.run()
    for mode in modes:
        rows = lake.lengths(mode, "name", "n")
        assert rows == [(64, "Zyx", 7), (64, "x", 7)], mode


@pytest.mark.whole
def test_k14_a_rebuild_masks_the_past_and_a_plain_snapshot_never_loses_it(
    mysql_server: Server, mysql_database: str, tmp_path: Path, spark: Any
) -> None:
    modes = ("soft_delete", "history", "changelog")
    lake = Masked(mysql_server, mysql_database, tmp_path / "lake", *modes)
    lake.mask(**MASKS)

    def die(reached: str) -> None:
        if reached == "remask_suspended":
            raise Killed

    with listening(die), pytest.raises(Killed):
        lake.remask(from_log=True)
    with pytest.raises(SnapshotError, match="would lose its past"):
        take_snapshot(lake.config, cursors=lake.cursors)
    done = lake.remask(from_log=True, at_once=True)
    assert {one.what for one in done.held} == {"log"}
    assert not lake.values()
    # A date that is dropped keeps no row in quarantine; a change that is masked begins no version.
    counts = {}
    for mode in modes:
        lengths = [length for (length,) in lake.lengths(mode)]
        assert set(lengths) == {64}, mode
        counts[mode] = len(lengths)
    assert counts == {"soft_delete": 3, "history": 3, "changelog": 5}


def _dying(at: str) -> AbstractContextManager[None]:
    def die(reached: str) -> None:
        if reached == at:
            raise Killed

    return listening(die)


def _cursor(lake: Lake) -> CursorState:
    cursor = lake.cursors.read()
    assert cursor is not None
    return cursor


HASHED = {"code": {"hash": {"salt": "a" * 32}}}


def test_k4_a_history_that_waits_for_its_masks_leaves_the_snapshots_of_others_alone(
    mysql_server: Server, mysql_database: str, tmp_path: Path, spark: Any
) -> None:
    lake = Masked(mysql_server, mysql_database, tmp_path / "lake", "history")
    other = f"{lake.database}.other"
    lake.sql("INSERT INTO other VALUES (1)")
    lake.run()
    lake.mask(**HASHED)
    with _dying("remask_suspended"), pytest.raises(Killed):
        lake.remask(from_log=True)
    reset(lake.config, cursors=lake.cursors, tables=(other,), who="me")
    with pytest.raises(SnapshotError, match="would lose its past") as refused:
        take_snapshot(lake.config, cursors=lake.cursors)
    assert f"remask crm --table {lake.table}" in str(refused.value.next_step)
    assert not _cursor(lake).targets[other].partial
    assert not operation_ids(lake.config)


def test_k4_k14_a_mask_of_a_pattern_changes_the_tables_that_have_the_column_and_one_goes_first(
    mysql_server: Server, mysql_database: str, tmp_path: Path, spark: Any
) -> None:
    lake = Lake(mysql_server, mysql_database, tmp_path / "lake")
    lake.sql(
        "CREATE TABLE a (id INT PRIMARY KEY, email VARCHAR(50))",
        "CREATE TABLE b (id INT PRIMARY KEY, email VARCHAR(50))",
        "CREATE TABLE c (id INT PRIMARY KEY, n INT)",
        "INSERT INTO a VALUES (1, 'aaaaaaa')",
        "INSERT INTO c VALUES (1, 1)",
    )
    lake.run()
    rule = {"tables": [f"{lake.database}.*"], "masks": {"email": {"truncate": 2}}}
    lake.config = lake.config.model_copy(update={"targets": (TargetRule.model_validate(rule),)})
    request = RemaskRequest(table=f"{lake.database}.a", who="me")
    remask(lake.config, request, cursors=lake.cursors)
    held = _cursor(lake).suspended
    assert list(held) == [f"{lake.database}.b"]
    assert f"remask crm --table {lake.database}.b" in held[f"{lake.database}.b"].next_step
    lake.sql("ALTER TABLE c ADD email VARCHAR(50)", "INSERT INTO c VALUES (2, 2, 'ccccccc')")
    for _ in range(2):  # the masks of c are those of its rows
        with pytest.raises(TargetSuspendedError, match="1 table is suspended"):
            lake.run()
    assert lake.rows("a", "email") == [("aa",)]
    assert lake.rows("c", "email") == [("cc",), (None,)]


def _suspend(lake: Masked, name: str, error: CdcError, *, needs_snapshot: bool = False) -> None:
    with admin_batch(build_sink(lake.config), cursors=lake.cursors, doing="test") as batch:
        held = suspension(
            error,
            batch_number=batch.number,
            at=batch.cursor.position,
            epoch=batch.cursor.epoch,
            needs_snapshot=needs_snapshot,
        )
        batch.suspend({name: held})


def test_k14_a_target_whose_rows_differ_stays_so_when_masks_come_and_go(
    mysql_server: Server, mysql_database: str, tmp_path: Path, spark: Any
) -> None:
    lake = Masked(mysql_server, mysql_database, tmp_path / "lake", "mirror")
    name = f"{lake.database}.mirror"
    _suspend(lake, name, RowsDifferError("rows differ", table=name))
    lake.mask(**HASHED)
    with _dying("remask_suspended"), pytest.raises(Killed):
        lake.remask()
    for masks in (HASHED, {}):
        lake.mask(**masks)
        with pytest.raises(TargetSuspendedError):
            lake.run()
        held = _cursor(lake).suspended[name]
        assert (held.error, held.what, held.changed_rule) == (
            "RowsDifferError",
            "rows differ",
            MASKS_CHANGED if masks else "",
        )
    lake.mask(**HASHED)
    lake.remask()
    assert not _cursor(lake).suspended


def test_k14_other_causes_of_a_suspension_are_told_beside_the_masks(
    mysql_server: Server, mysql_database: str, tmp_path: Path, spark: Any
) -> None:
    """And masks that reach the rows by a plain snapshot are still searched for."""
    lake = Masked(mysql_server, mysql_database, tmp_path / "lake", "mirror")
    name = f"{lake.database}.mirror"
    _suspend(lake, name, LakeStateError("it is damaged", table=name), needs_snapshot=True)
    lake.mask(**HASHED)
    for _ in range(2):
        with pytest.raises(TargetSuspendedError):
            lake.run()
        held = _cursor(lake).suspended[name]
        assert held.cause == f"it is damaged; {MASKS_CHANGED}"
        assert f"remask crm --table {lake.table}" in held.next_step
    take_snapshot(lake.config, cursors=lake.cursors, tables=[lake.table])
    with pytest.raises(LakeStateError, match="not in place"):
        lake.check()
    assert {one.what for one in lake.remask().held} == {"files", "log"}


def test_k14_what_gets_no_new_rows_is_refused_before_anything_is_suspended(
    mysql_server: Server, mysql_database: str, tmp_path: Path, spark: Any
) -> None:
    lake = Masked(mysql_server, mysql_database, tmp_path / "lake", "mirror")
    lake.sql("DROP TABLE person")
    lake.mask(**HASHED)
    for _ in range(2):
        with pytest.raises(ConfigError, match="no snapshot can bring new rows"):
            lake.remask()
        assert not _cursor(lake).suspended
        lake.mask()
        lake.run()
        lake.mask(**HASHED)
        lake.run()  # the target of a dropped table gets no row
    lake.sql(
        "CREATE TABLE person (code VARCHAR(80) PRIMARY KEY, name VARCHAR(100))",
        "INSERT INTO person VALUES ('new', 'x')",
    )
    lake.run()
    assert lake.lengths("mirror", "name") == [(64, "x")]
    lake.run()


def test_k14_a_target_that_follows_a_renamed_table_keeps_its_masks(
    mysql_server: Server, mysql_database: str, tmp_path: Path, spark: Any
) -> None:
    lake = Masked(mysql_server, mysql_database, tmp_path / "lake", "mirror")
    changes = lake.config.schema_changes.model_copy(update={"rename_table": "follow"})
    lake.config = lake.config.model_copy(update={"schema_changes": changes})
    lake.sql("RENAME TABLE person TO people")
    lake.run()
    lake.mask(**HASHED)
    with pytest.raises(ConfigError, match="masks changed") as refused:
        lake.run()
    assert "follows a renamed table" in str(refused.value.next_step)
    assert not _cursor(lake).suspended


@pytest.mark.nightly
def test_k14_a_rebuild_that_was_killed_begins_again_with_masks_that_changed_once_more(
    mysql_server: Server, mysql_database: str, tmp_path: Path, spark: Any
) -> None:
    lake = Masked(mysql_server, mysql_database, tmp_path / "lake", "history", "changelog")
    lake.mask(**HASHED)
    with _dying("snapshot_caught_up"), pytest.raises(Killed):
        lake.remask(from_log=True)
    lake.mask(code={"hash": {"salt": "b" * 32}})
    lake.remask(from_log=True)
    assert not _cursor(lake).suspended
    assert not operation_ids(lake.config)


@pytest.mark.whole
def test_k14_rows_that_are_read_again_have_the_masks_of_now(
    mysql_server: Server, mysql_database: str, tmp_path: Path, spark: Any
) -> None:
    """Another process changes the masks between two ranges, and what was begun is not gone on
    with.
    """
    lake = Masked(mysql_server, mysql_database, tmp_path / "lake", "mirror")
    chunks = lake.config.snapshot.model_copy(update={"chunk_rows": 1})
    lake.config = before = lake.config.model_copy(update={"snapshot": chunks})
    lake.mask(**HASHED)
    reread = partial(repair, cursors=lake.cursors, table=lake.table, where="1 = 1")

    def mask() -> None:
        with pytest.raises(LockError, match="under way"):
            lake.remask()

    with at("snapshot_chunks", mask), pytest.raises(ConfigError, match="masks changed"):
        reread(before)
    assert operation_ids(lake.config)
    lake.remask()
    assert not operation_ids(lake.config)
    assert reread(lake.config).rows_written == 2
    assert {length for (length,) in lake.lengths("mirror")} == {64}
