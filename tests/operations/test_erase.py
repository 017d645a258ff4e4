"""Rows that are erased: gone from every file, in all modes, and no reading brings them back."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cdc_pipeline
from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import ConfigError, CutsNotComparableError, LakeStateError
from cdc_pipeline.fault_points import listening
from cdc_pipeline.lake.erasures import Certificate
from cdc_pipeline.lake.long_operations import Operation, OperationFolder, begin
from cdc_pipeline.operations.backfill.backfill import backfill
from cdc_pipeline.operations.backfill.rebuild import rebuild
from cdc_pipeline.operations.erase import search
from cdc_pipeline.operations.erase.erase import EraseRequest, check, erase, preview
from cdc_pipeline.operations.verify.read import VerifyOptions
from cdc_pipeline.operations.verify.verify import verify
from cdc_pipeline.position.cursor import CursorState, MemoryCursorStore
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.run.capture.segments import survey
from cdc_pipeline.run.capture.segments.division import Parallel
from tests.servers import Server
from tests.support.captures import SPARK, here, live
from tests.support.delta_reader import chosen_rows
from tests.support.kills import killed_at

pytestmark = pytest.mark.spark
SECRET = "Zyxwvut-" * 6  # longer than the bounds that Delta keeps of a text
BEGIN = SECRET[:20]
MODES = ("mirror", "soft_delete", "history", "changelog")


class Lake:
    """A table of persons in a target of each of the modes."""

    def __init__(
        self, server: Server, database: str, at: Path, modes: tuple[str, ...] = (), **more: Any
    ) -> None:
        self.server, self.database, self.at, self.modes = server, database, at, modes
        self.cursors = MemoryCursorStore()
        rules = [
            {"tables": [f"{database}.person"], "mode": mode, "name": f"{database}.{mode}"}
            for mode in modes
        ]
        self.config = PipelineConfig.model_validate(
            {
                "name": "crm",
                "source": live(server),
                "tables": {"include": [f"{database}.*"]},
                "sink": {
                    "lake_path": at,
                    "spark": SPARK,
                    "on_bad_row": "quarantine",
                    "zero_dates": "quarantine",
                },
                "targets": rules,
                "start": here(server),
                **more,
            }
        )

    def sql(self, *statements: str) -> None:
        self.server.execute_all(f"USE `{self.database}`", *statements)

    def run(self) -> Any:
        return capture(self.config, cursors=self.cursors)

    def erase(self, **asked: Any) -> Certificate:
        request = EraseRequest(table=f"{self.database}.person", who="me", **asked)
        return erase(self.config, request, cursors=self.cursors)

    def rows(self, target: str, *columns: str) -> list[tuple[Any, ...]]:
        return chosen_rows(self.at / self.database / target, columns)

    def records(self) -> list[dict[str, Any]]:
        folder = self.at / "_cdc" / "crm" / "erasures"
        return [
            json.loads(file.read_text())
            for file in sorted(folder.iterdir())
            if "certificate" not in file.name
        ]

    def holding(self, *texts: str) -> list[str]:
        """Every file of the lake that holds one of the texts: raw, or in Parquet's values."""
        found = []
        for file in sorted(self.at.rglob("*")):
            if not file.is_file():
                continue
            content = file.read_bytes()
            if ".parquet" in file.name and not file.name.endswith(".crc"):
                content += json.dumps(pq.read_table(file).to_pylist(), default=str).encode()
            if any(text.encode() in content for text in texts):
                found.append(file.relative_to(self.at).as_posix())
        return found


@pytest.fixture
def lake(
    mysql_server: Server,
    mysql_database: str,
    tmp_path: Path,
    spark: Any,
    request: pytest.FixtureRequest,
) -> Lake:
    lake = Lake(mysql_server, mysql_database, tmp_path / "lake", request.param)
    lake.sql(
        "SET sql_mode = ''",
        "CREATE TABLE person (code VARCHAR(80) PRIMARY KEY, name VARCHAR(100), n INT, d DATE)",
        f"INSERT INTO person VALUES ('{SECRET}1', '{SECRET}', 1, NULL), ('ann', 'Ann', 1, NULL), "
        f"('bob', 'Bob', 1, NULL), ('{SECRET}3', 'x', 1, '0000-00-00')",
    )
    lake.run()
    lake.sql(
        "UPDATE person SET n = 2 WHERE n = 1 AND d IS NULL",
        f"UPDATE person SET code = '{SECRET}2' WHERE code = 'bob'",
        f"UPDATE person SET code = 'eve', name = 'Eve' WHERE code = '{SECRET}2'",
        f"DELETE FROM person WHERE code IN ('{SECRET}1', '{SECRET}3')",
    )
    lake.run()
    return lake


def _noting(open_rows: Any, read: list[Path], folder: Path, *args: Any, **more: Any) -> Any:
    read.append(folder)
    return open_rows(folder, *args, **more)


KEYS = tuple({"code": f"{SECRET}{number}"} for number in (1, 2, 3))


def in_modes(*modes: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("lake", [pytest.param(modes, id="lake")], indirect=True)


@pytest.mark.parametrize(
    "lake",
    [
        pytest.param(("mirror", "changelog"), id="two modes"),
        pytest.param(MODES, id="every mode", marks=pytest.mark.whole),
    ],
    indirect=True,
)
def test_k14_erased_rows_are_in_no_file_in_any_mode_and_verify_finds_no_difference(
    lake: Lake, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert lake.holding(BEGIN)
    others = {mode: lake.rows(mode, "code", "name", "n") for mode in lake.modes}
    asked = EraseRequest(table=f"{lake.database}.person", keys=KEYS)
    told = preview(lake.config, asked, cursors=lake.cursors)
    assert (told.keys, told.at_source) == (3, 0)
    stray = lake.at / lake.database / "mirror" / ".left.parquet.tmp"
    pq.write_table(pa.table({"code": [f"{SECRET}1"]}), stray)
    certificate = lake.erase(keys=KEYS)
    assert certificate.removed == told.rows
    assert certificate.quarantine == 1
    told_of = cdc_pipeline.changes(lake.at, None, 2, net=False)
    with pytest.raises(CutsNotComparableError, match="rows of it were erased"):
        told_of.read(f"{lake.database}.changelog").read_all()
    assert {one.what for one in certificate.held} == {"files", "log"}
    for one in certificate.held:  # no vacuum removes hidden files
        assert (one.until_us < 0) == ("hidden" in one.why)
    assert any("hidden" in one.why for one in certificate.held)
    with monkeypatch.context() as patch:
        read: list[Path] = []
        looked_at = partial(_noting, search.open_rows, read)
        patch.setattr(search, "open_rows", looked_at)
        assert {one.what for one in lake.erase(keys=KEYS, at_once=True).held} == {"log"}
        assert len(read) == len(lake.modes), "each newest version is read once"
    assert not [file for file in lake.holding(BEGIN) if "_delta_log" not in file]
    for mode in lake.modes:
        expected = [row for row in others[mode] if SECRET not in row[0]]
        assert set(expected) <= set(lake.rows(mode, "code", "name", "n")), mode
    left = lake.rows("changelog", "_cdc_op", "code", "_cdc_before")
    assert [(op, code, before and before["code"]) for op, code, before in left] == [
        ("delete", "bob", "bob"), ("insert", "ann", None), ("insert", "bob", None),
        ("insert", "eve", None), ("update", "ann", "ann"), ("update", "bob", "bob"),
    ]  # fmt: skip
    report = verify(lake.config, cursors=lake.cursors, options=VerifyOptions())
    assert {one.status for one in report.tables.values()} == {"equal"}


POINTS = (
    "erasure_recorded", "before_record", "after_record", "between_merges", "before_cut",
    "before_cursor", "erasure_removed", "old_values_cleaned",
)  # fmt: skip


class Killed(Exception):
    pass


@pytest.mark.parametrize(
    "points",
    [
        pytest.param(POINTS[::2], marks=pytest.mark.whole),
        pytest.param(POINTS[1::2], marks=pytest.mark.nightly),
    ],
    ids=["whole", "nightly"],
)
@in_modes("mirror", "changelog")
def test_k14_killed_anywhere_the_same_command_ends_it_and_its_bound_stays(
    lake: Lake, spark: Any, points: tuple[str, ...]
) -> None:
    keys = [f"{SECRET}kill{number}" for number in range(len(points))]
    lake.sql(*(f"INSERT INTO person VALUES ('{key}', 'x', 1, NULL)" for key in keys))
    lake.sql(f"DELETE FROM person WHERE code LIKE '{SECRET}kill%'")
    lake.run()
    for point, key in zip(points, keys, strict=True):

        def die(reached: str, point: str = point) -> None:
            if reached == point:
                raise Killed

        with listening(die), pytest.raises(Killed):
            lake.erase(where={"code": key})
        begun = lake.records()[-1]
        if point == "erasure_recorded":
            lake.sql(f"INSERT INTO person VALUES ('{key}', 'new', 9, NULL)")
        lake.run()  # which ends a recorded batch
        certificate = lake.erase(where={"code": key}, is_known=True)
        assert certificate.removed[f"{lake.database}.changelog"] == 2, point
        assert certificate.erasure_id == begun["erasure_id"], point
        assert lake.records()[-1]["names"] == begun["names"], point
    is_new = ("new", 9) in lake.rows("mirror", "name", "n")
    assert is_new == ("erasure_recorded" in points)
    found = check(lake.config, cursors=lake.cursors, table=f"{lake.database}.person")
    assert [one.keys for one in found] == [1] * len(points)
    assert not [held for one in found for held in one.held if held.what == "table"]


@pytest.mark.whole
@in_modes("mirror", "history")
def test_k14_what_the_cursor_has_not_reached_is_left_out_too_and_what_is_there_is_refused(
    lake: Lake, spark: Any
) -> None:
    lake.sql(f"INSERT INTO person VALUES ('{SECRET}4', 'late', 4, NULL)")
    key = {"code": f"{SECRET}4"}
    with pytest.raises(LakeStateError, match="still has rows"):
        lake.erase(where=key)
    assert not (lake.at / "_cdc" / "crm" / "erasures").exists()
    lake.sql(f"DELETE FROM person WHERE code = '{SECRET}4'")
    lake.erase(where=key)
    assert lake.run().interval.rows_erased == 2
    for mode in lake.modes:
        assert "late" not in {name for (name,) in lake.rows(mode, "name")}
    with pytest.raises(ConfigError, match="finds no row"):
        lake.erase(where={"nothing": "1"})
    lake.sql("UPDATE person SET n = 8 WHERE code = 'ann'")
    with pytest.raises(LakeStateError, match="up to the cursor alone"):
        lake.erase(where={"name": SECRET})
    lake.run()
    # Other columns find keys in every image of every mode; quotes are data.
    with pytest.raises(ConfigError, match="has these values"):
        lake.erase(where={"name": "x' OR '1' = '1"})
    _refused_beside_a_rebuild(lake, where={"name": SECRET})
    assert lake.erase(where={"name": SECRET}, at_once=True).removed[f"{lake.database}.mirror"] == 0
    assert f"{SECRET}1" not in {code for (code,) in lake.rows("history", "code")}
    again = check(lake.config, cursors=lake.cursors, table=f"{lake.database}.person")
    assert [one.keys for one in again] == [1, 1]


def _refused_beside_a_rebuild(lake: Lake, where: dict[str, str]) -> None:
    """F256: one that began before the erasure was written down knows nothing of it."""
    cursor = lake.cursors.read()
    assert isinstance(cursor, CursorState)
    state = Operation(
        operation_id="rebuild-1",
        kind="rebuild",
        source=lake.config.name,
        sources=(f"{lake.database}.person",),
        cursor=cursor,
    )

    def begin_beside(reached: str) -> None:
        if reached == "erasure_recorded":
            begin(lake.config, state, stack)

    with ExitStack() as stack, listening(begin_beside):
        with pytest.raises(LakeStateError, match=" is not finished"):
            lake.erase(where=where)
        assert f"{SECRET}1" in {code for (code,) in lake.rows("history", "code")}
    OperationFolder(lake.config, state.operation_id).remove()


@pytest.mark.whole
def test_k14_no_reading_of_old_journals_brings_the_rows_back_under_any_name(
    mariadb_server: Server, mariadb_database: str, tmp_path: Path, spark: Any
) -> None:
    database = mariadb_database
    lake = Lake(mariadb_server, database, tmp_path / "lake")
    begin = lake.config.start
    lake.sql(
        "CREATE TABLE human (a INT, code VARCHAR(80), name VARCHAR(100), PRIMARY KEY (a, code))",
        f"INSERT INTO human VALUES (1, '{SECRET}', 'old'), (1, 'ann', 'Ann'), (2, '{SECRET}', 'x')",
    )
    lake.run()
    lake.sql(
        "RENAME TABLE human TO person",
        "ALTER TABLE person CHANGE code mail VARCHAR(80)",
        f"DELETE FROM person WHERE a = 1 AND mail = '{SECRET}'",
        # Another table takes the old name, and a row of it the key.
        "CREATE TABLE human (a INT, code VARCHAR(80), name VARCHAR(100), PRIMARY KEY (a, code))",
        f"INSERT INTO human VALUES (1, '{SECRET}', 'other')",
    )
    lake.run()
    certificate = lake.erase(where={"a": "1", "mail": SECRET}, at_once=True)
    assert set(lake.records()[0]["names"]) == {f"{database}.person", f"{database}.human"}
    assert certificate.removed == {f"{database}.human": 0, f"{database}.person": 0}
    assert {one.what for one in certificate.held} == {"log"}
    kept = [(1, "ann", "Ann"), (2, SECRET, "x")]
    assert lake.rows("person", "a", "mail", "name") == kept
    assert lake.rows("human", "a", "code", "name") == [(1, SECRET, "other")]

    names = [f"{database}.human", f"{database}.person"]
    side = tmp_path / "side"
    report = backfill(lake.config, tables=names, into=side, start=begin)
    assert report.capture is not None
    assert report.capture.interval.rows_erased == 2
    lake.at = side
    assert lake.rows("person", "a", "mail", "name") == kept
    assert lake.rows("human", "a", "code", "name") == [(1, SECRET, "other")]


@pytest.mark.whole
def test_k14_a_key_whose_columns_have_other_names_in_the_target_is_found_by_those_of_the_source(
    mysql_server: Server, mysql_database: str, tmp_path: Path, spark: Any
) -> None:
    """Without column mapping: a renamed column is a new one, and its own name is not free."""
    database, modes = mysql_database, ("mirror", "changelog")
    lake = Lake(mysql_server, database, tmp_path / "lake", modes)
    sink = lake.config.sink.model_copy(update={"reader_features": ()})
    lake.config, begin = lake.config.model_copy(update={"sink": sink}), lake.config.start
    lake.sql(
        "SET sql_mode = ''",
        "CREATE TABLE person (firm INT, code VARCHAR(80), name VARCHAR(100), d DATE, "
        "PRIMARY KEY (code, firm))",
        f"INSERT INTO person VALUES (7, '{SECRET}', 'old', NULL), (7, 'ann', 'Ann', NULL), "
        f"(2, '{SECRET}', 'other', NULL), (8, '{SECRET}', 'bad', '0000-00-00')",
        "ALTER TABLE person RENAME COLUMN code TO mail, RENAME COLUMN firm TO company",
    )
    lake.run()
    lake.sql(
        "ALTER TABLE person RENAME COLUMN mail TO code",
        f"UPDATE person SET name = 'newer' WHERE company = 7 AND code = '{SECRET}'",
        f"UPDATE person SET company = 9 WHERE company = 7 AND code = '{SECRET}'",
        "DELETE FROM person WHERE company IN (8, 9)",
    )
    lake.run()
    columns = ("company", "code__v2", "name")
    others = [(2, SECRET, "other"), (7, "ann", "Ann")]
    assert lake.rows("mirror", *columns) == others
    done = lake.erase(where={"name": "newer"}, at_once=True)  # of both keys that it had
    assert (done.keys, done.removed[f"{database}.changelog"]) == (2, 4)
    done = lake.erase(where={"company": "8", "code": SECRET}, at_once=True)
    assert done.quarantine == 1
    assert {one.what for one in done.held} == {"log"}
    for mode in modes:
        assert lake.rows(mode, *columns) == others, mode
    found = check(lake.config, cursors=lake.cursors, table=f"{database}.person")
    assert {held.what for one in found for held in one.held} == {"log"}
    lake.at = tmp_path / "side"
    report = backfill(lake.config, tables=[f"{database}.person"], into=lake.at, start=begin)
    assert report.capture is not None
    assert report.capture.interval.rows_erased == 6
    assert lake.rows("changelog", *columns) == others


@pytest.mark.parametrize(
    "is_swapped_before",
    [
        pytest.param(True, marks=pytest.mark.whole, id="before"),
        pytest.param(False, marks=pytest.mark.nightly, id="after"),
    ],
)
def test_k14_f163_a_key_whose_columns_swap_names_stays_that_of_its_row(
    mysql_server: Server,
    mysql_database: str,
    tmp_path: Path,
    spark: Any,
    is_swapped_before: bool,
) -> None:
    """Before or after the erasure; the order of key and columns may stay as it looks."""
    lake = Lake(mysql_server, mysql_database, tmp_path / "lake", ("mirror", "history"))
    begin = lake.config.start
    swap = (
        "ALTER TABLE person CHANGE a b INT, CHANGE b a INT FIRST, "
        "DROP PRIMARY KEY, ADD PRIMARY KEY (a, b)"
    )
    lake.sql(
        "CREATE TABLE person (a INT, b INT, name VARCHAR(100), PRIMARY KEY (a, b))",
        f"INSERT INTO person VALUES (1, 2, '{SECRET}'), (2, 1, 'other'), (3, 4, 'more')",
    )
    lake.run()
    if is_swapped_before:
        lake.sql(swap)
        lake.run()
    key = {"a": "2", "b": "1"} if is_swapped_before else {"a": "1", "b": "2"}
    lake.sql("DELETE FROM person WHERE a = {a} AND b = {b}".format(**key))
    lake.run()
    lake.erase(where=key, at_once=True)
    if not is_swapped_before:
        lake.sql(swap)
        lake.run()
    lake.sql("UPDATE person SET name = 'more yet' WHERE name = 'more'")
    lake.run()
    left = [(1, 2, "other"), (4, 3, "more yet")]
    assert lake.rows("mirror", "a", "b", "name") == left
    found = check(lake.config, cursors=lake.cursors, table=f"{lake.database}.person")
    assert {held.what for one in found for held in one.held} == {"log"}
    lake.at = tmp_path / "side"
    report = backfill(lake.config, tables=[f"{lake.database}.person"], into=lake.at, start=begin)
    assert report.capture is not None
    assert report.capture.interval.rows_erased == 2
    assert lake.rows("mirror", "a", "b", "name") == left
    assert not lake.holding(BEGIN)


@pytest.mark.whole
def test_k14_segments_of_executors_leave_no_staged_file_and_leave_erased_keys_out(
    mysql_server: Server,
    mysql_database: str,
    tmp_path: Path,
    spark: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    archive, database = tmp_path / "archive", mysql_database
    mysql_server.flush_journal()
    lake = Lake(
        mysql_server, database, tmp_path / "lake", ("mirror", "changelog"),
        batch={"decode": "executors"},
    )  # fmt: skip
    source = {"kind": "archive", "directory": archive}
    lake.config = PipelineConfig.model_validate(lake.config.model_dump() | {"source": source})
    monkeypatch.setattr(survey, "SEGMENT_BYTES", 1)
    apart = Parallel(stretch_bytes_min=0)
    monkeypatch.setattr("cdc_pipeline.run.capture.capture.division", lambda *_, **__: apart)
    lake.sql(
        "CREATE TABLE person (code VARCHAR(80) PRIMARY KEY, name VARCHAR(100))",
        "INSERT INTO person VALUES ('ann', 'Ann')",
    )
    mysql_server.copy_journals(archive)
    lake.run()
    lake.sql(
        f"INSERT INTO person VALUES ('{SECRET}', 'x')",
        "INSERT INTO person VALUES ('bob', 'Bob')",
        f"UPDATE person SET name = 'y' WHERE code = '{SECRET}'",
        f"DELETE FROM person WHERE code = '{SECRET}'",
    )
    mysql_server.flush_journal()
    mysql_server.copy_journals(archive)
    with killed_at("before_record"):
        lake.run()
    assert [file for file in lake.holding(BEGIN) if "/part-" in file]
    key = {"code": SECRET}
    with pytest.raises(LakeStateError, match="cannot be asked"):
        lake.erase(where=key)
    done = lake.erase(where=key, at_once=True, is_known=True)
    assert not lake.holding(BEGIN)
    assert {one.what for one in done.held} == {"log"}
    report = lake.run()
    assert report.parallel is not None
    assert report.parallel.tasks > 1
    assert report.interval.rows_erased == 3
    assert not lake.holding(BEGIN)
    for mode in lake.modes:
        assert lake.rows(mode, "code") == [("ann",), ("bob",)], mode


@pytest.mark.nightly
@in_modes("soft_delete", "history")
def test_k14_a_rebuild_has_what_came_after_the_erasure_and_nothing_of_before(
    lake: Lake, spark: Any
) -> None:
    lake.erase(keys=KEYS, at_once=True)
    lake.sql(f"INSERT INTO person VALUES ('{SECRET}1', 'new', 7, NULL)")
    lake.run()
    before = {mode: lake.rows(mode, "code", "name", "n") for mode in lake.modes}
    rebuild(
        lake.config,
        tables=[f"{lake.database}.person"],
        cursors=lake.cursors,
        start=lake.config.start,
    )
    for mode in lake.modes:
        assert lake.rows(mode, "code", "name", "n") == before[mode], mode
        assert (f"{SECRET}1", "new", 7) in before[mode], mode


@pytest.mark.whole
def test_k14_journals_of_another_numbering_bring_nothing_back_and_lack_nothing(
    start_server: Callable[..., Server], tmp_path: Path, spark: Any
) -> None:
    """A reset begins the numbers of journals again, and a separate lake its epochs."""
    server = start_server("mysql")
    server.execute("CREATE DATABASE crm")
    lake = Lake(server, "crm", tmp_path / "lake")
    lake.sql("CREATE TABLE person (code VARCHAR(80) PRIMARY KEY, name VARCHAR(100))")
    for _ in range(7):
        server.flush_journal()
    lake.sql(f"INSERT INTO person VALUES ('{SECRET}', 'old'), ('ann', 'Ann')")
    server.copy_journals(tmp_path / "first")
    reset = "RESET BINARY LOGS AND GTIDS"
    lake.sql(reset, f"DELETE FROM person WHERE code = '{SECRET}'")
    lake = Lake(server, "crm", tmp_path / "lake")
    lake.sql("INSERT INTO person VALUES ('bob', 'Bob')")
    for _ in range(2):
        server.flush_journal()
    lake.run()
    lake.erase(where={"code": SECRET})
    assert "binlog.000002" < lake.records()[0]["position"]["journal"] < "binlog.000006"
    lake.sql(f"INSERT INTO person VALUES ('{SECRET}', 'came later')")
    server.copy_journals(tmp_path / "second")
    lake.sql(
        reset,
        "DROP TABLE person",
        "CREATE TABLE person (code VARCHAR(80) PRIMARY KEY, name VARCHAR(100))",
        f"INSERT INTO person VALUES ('{SECRET}', 'is new')",
    )

    def filled(name: str, archive: Path | None) -> list[tuple[Any, ...]]:
        lake.at = tmp_path / name
        backfill(lake.config, tables=["crm.person"], into=lake.at, archive=archive)
        return lake.rows("person", "code", "name")

    assert filled("of first", tmp_path / "first") == [("ann", "Ann")]
    assert not lake.holding(BEGIN)
    assert (SECRET, "came later") in filled("of second", tmp_path / "second")
    assert filled("of third", None) == [(SECRET, "is new")]
