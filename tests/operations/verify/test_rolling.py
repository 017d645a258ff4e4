"""The rolling proof: what was changed out of the log's sight is found within the runs that it
names, by reads within its budget, whatever is written, killed or refused in between."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig, VerifyConfig
from cdc_pipeline.config.target_config import TargetRule
from cdc_pipeline.errors import (
    LakeStateError,
    SchemaError,
    SourceError,
    TargetSuspendedError,
)
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.proofs import (
    ProofReport,
    Proofs,
    TablePass,
    TableProof,
    proof_file,
    runs_of_a_pass,
)
from cdc_pipeline.lake.run_notes import NoteFile
from cdc_pipeline.operations.snapshot.main import MainLake
from cdc_pipeline.operations.verify import rolling
from cdc_pipeline.operations.verify.captures import verify_lock
from cdc_pipeline.operations.verify.proved_run import capture_and_prove
from cdc_pipeline.operations.verify.read import NotByRangeError, VerifyOptions
from cdc_pipeline.operations.verify.report import Step
from cdc_pipeline.operations.verify.rolling import prove
from cdc_pipeline.operations.verify.table import RoundsResult
from cdc_pipeline.operations.verify.verify import verify
from cdc_pipeline.operations.verify.view import NotFollowedError
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.position.position import Position
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.run.observer import RunObserver
from cdc_pipeline.sink.read import rows as read_rows
from cdc_pipeline.sink.read.spilled import StoredRows
from cdc_pipeline.sink.verify.compare import DIFFERENCES
from tests.servers import Server
from tests.support.captures import here, live
from tests.support.xa_session import XaSession

BUDGET = 200
# By table: its columns, and rows as SQL values, some more than a run compares.
TABLES: dict[str, tuple[str, list[str]]] = {
    "numbers": (
        "id BIGINT UNSIGNED PRIMARY KEY, v INT",
        [f"({2**64 - 1 - 7 * at}, {at})" for at in range(260)],
    ),
    "words": (
        "id VARCHAR(9) CHARACTER SET utf8mb4 PRIMARY KEY, v INT",
        [
            f"('{letter}{at}{mark}', {at})"
            for letter in ("\u00f6", "B", "a", "\u0439", "Z")
            for mark in ("", "!", "\u00e9x")
            for at in range(16)
        ],
    ),
    "pairs": (
        "a VARCHAR(5) CHARACTER SET latin1, b DECIMAL(9,2), v INT, PRIMARY KEY (a, b)",
        [f"('x{at % 3}', {at - 105}.25, {at})" for at in range(211)],
    ),
    "codes": (
        "id BINARY(3) PRIMARY KEY, v INT",
        [f"(x'{(at * 53) % 256:02x}00{at % 256:02x}', {at})" for at in range(205)],
    ),
    "bag": ("v INT", ["(1)"] * 3 + [f"({at})" for at in range(40)]),
}  # fmt: skip


# Ranges are the same on each server, but for how keys are compared.
ONE_SERVER = pytest.mark.parametrize("server", ["mysql"], indirect=True)


class Rolling:
    """One source with its lake, whose runs compare `BUDGET` rows each."""

    def __init__(self, server: Server, database: str, config: PipelineConfig) -> None:
        self.server, self.database, self.config = server, database, config
        self.cursors = MemoryCursorStore()
        self.paths = LakePaths(config.sink.lake_path, config.name)

    def run(self) -> ProofReport:
        report = capture_and_prove(self.config, cursors=self.cursors)
        assert report.proof is not None
        assert not report.proof.failure, report.proof.failure
        return report.proof

    def name(self, table: str) -> str:
        return f"{self.database}.{table}"

    def only_whole(self, table: str) -> None:
        """No range leads through it: its key is masked."""
        rule = {"tables": [f"*.{table}"], "masks": {"id": {"hash": {"salt": "a long enough salt"}}}}
        targets = (*self.config.targets, TargetRule.model_validate(rule))
        self.config = self.config.model_copy(update={"targets": targets})

    @property
    def proofs(self) -> Proofs:
        return proof_file(self.paths).read()

    def pass_runs(self, rows: dict[str, int]) -> int:
        assert self.config.verify is not None
        runs = runs_of_a_pass(self.config.verify.each_run, self.proofs, rows)
        assert runs is not None
        return runs

    def unlogged(self, *statements: str) -> None:
        connection = self.server.root_connection(database=self.database, autocommit=True)
        with connection.cursor() as run:
            run.execute("SET SESSION sql_log_bin = 0")
            for statement in statements:
                run.execute(statement)
        connection.close()

    def keys(self) -> dict[str, list[str]]:
        """What is known to differ."""
        return {
            name.partition(".")[2]: sorted(proof.differing.keys)
            for name, proof in self.proofs.tables.items()
            if proof.differing is not None
        }


@pytest.fixture
def start(
    server: Server, fresh_database: str, make_config: Callable[..., PipelineConfig]
) -> Callable[..., Rolling]:
    def make(*tables: str, each_run: dict[str, Any] | None = None, **settings: Any) -> Rolling:
        place = here(server)
        server.execute(f"USE `{fresh_database}`")
        for name in tables:
            columns, rows = TABLES[name]
            server.execute(f"CREATE TABLE {name} ({columns})")
            server.execute(f"INSERT INTO {name} VALUES {', '.join(rows)}")
        section = {"each_run": each_run or {"rows": BUDGET}, **settings}
        config = make_config(
            live(server), include=[f"{fresh_database}.*"], start=place, verify=section,
            targets=[{"tables": ["*.bag"], "keyless": "row_hash"}],
        )  # fmt: skip
        return Rolling(server, fresh_database, config)

    return make


@pytest.mark.spark
@pytest.mark.whole
def test_k17_what_the_log_never_showed_is_found_within_the_runs_of_a_pass(
    start: Callable[..., Rolling],
) -> None:
    lake = start(*TABLES)
    first = lake.run()
    assert first.rows == 100 + len(TABLES["bag"][1])  # whose few rows count as a hundred
    lake.unlogged(
        "DELETE FROM numbers WHERE v IN (0, 131, 259)", "UPDATE numbers SET v = -1 WHERE v = 7",
        "INSERT INTO numbers VALUES (3, 3)", "DELETE FROM words WHERE id IN ('B3!', '\u00f67')",
        "INSERT INTO words VALUES ('ab', 1), ('\u00f6B', 2)",
        "DELETE FROM pairs WHERE v IN (1, 99)", "UPDATE pairs SET v = NULL WHERE v = 210",
        "DELETE FROM codes WHERE v = 100",
        "INSERT INTO codes VALUES (x'ffffff', 1)", "DELETE FROM bag WHERE v = 1 LIMIT 1",
    )  # fmt: skip
    runs = lake.pass_runs({name: len(rows) for name, (_, rows) in TABLES.items()})
    # What lies behind the pass that is under way is found by the next one.
    reports = [lake.run() for _ in range(2 * runs)]
    assert all(report.rows <= BUDGET for report in reports)
    top = 2**64 - 1
    assert lake.keys() == {
        "numbers": sorted([
            f"extra: id={top}", f"extra: id={top - 7 * 131}", f"extra: id={top - 7 * 259}",
            "missing: id=3", f"different: id={top - 49} (v)",
        ]),
        "words": ["extra: id=B3!", "extra: id=\u00f67", "missing: id=ab", "missing: id=\u00f6B"],
        "pairs": [
            "different: a=x0, b=105.25 (v)", "extra: a=x0, b=-6.25", "extra: a=x1, b=-104.25"
        ],
        "codes": [f"extra: id=0x{(100 * 53) % 256:02X}0064", "missing: id=0xFFFFFF"],
        "bag": ["extra: v=1"],
    }  # fmt: skip
    assert all(proof.last is not None for proof in lake.proofs.tables.values())
    warnings = reports[-1].warnings
    assert len(warnings) == len(TABLES)
    assert "--repair` repairs it" in warnings[0]

    repaired = verify(lake.config, cursors=lake.cursors, options=VerifyOptions(repair=True))
    assert repaired.status == "equal"
    assert lake.keys() == {}
    assert not lake.run().warnings


@ONE_SERVER
def test_a_budget_is_held_and_a_small_table_is_one_comparison(
    start: Callable[..., Rolling], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    add = StoredRows.add

    def counted(stored: StoredRows, table: pa.Table) -> None:
        if "_op" in table.column_names:
            read.append(len(table))
        add(stored, table)

    monkeypatch.setattr(StoredRows, "add", counted)
    lake = start("numbers", "codes", each_run={"rows": 240})
    assert lake.run().rows == 205  # all of `codes`, and too few are left for another range
    assert sum(read) == 205
    assert lake.proofs.tables[lake.name("codes")].last is not None
    read.clear()
    assert lake.run().rows == 240  # of the server's
    assert sum(read) == 240
    read.clear()
    report = lake.run()
    assert report.rows == 20 + 140  # the last range counts as a hundred
    assert sum(read) == 160
    assert lake.proofs.tables[lake.name("numbers")].walk == "lake"
    assert [lake.run().rows for _ in range(2)] == [120 + 120, 85 + 140]
    assert lake.proofs.tables[lake.name("numbers")].last is not None


@ONE_SERVER
def test_seconds_are_looked_at_between_ranges_which_grow_if_they_are_quick(
    start: Callable[..., Rolling], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the test's clock: a row takes a millisecond."""
    now_s = 0.0
    sizes: list[int] = []
    compared = rolling._Run._settled

    def settled(run: Any, name: str, request: Any, before: Any) -> Any:
        nonlocal now_s
        result = compared(run, name, request, before)
        sizes.append(request.next.rows)
        now_s += result[0].rows_source / 1000
        return result

    monkeypatch.setattr(rolling, "_FIRST_ROWS", 20)
    monkeypatch.setattr(rolling._Run, "_settled", settled)
    lake = start("numbers", each_run={"seconds": 0.2})
    capture(lake.config, cursors=lake.cursors)
    report = prove(lake.config, cursors=lake.cursors, clock_s=lambda: now_s)
    assert sizes == [20, 40, 40, 40, 40]  # one as long as the longest would not fit
    assert report.rows == 180
    assert report.seconds == now_s <= 0.2
    # A range counts as a hundred rows at least, and five of them took 0.18 s.
    assert lake.proofs.rows_per_run == 555


@ONE_SERVER
def test_k17_a_run_that_compares_every_row_of_a_small_lake_tells_its_pace(
    start: Callable[..., Rolling],
) -> None:
    lake = start("codes", each_run={"seconds": 600})
    lake.run()
    assert lake.pass_runs({"codes": 205}) == 1


@pytest.mark.whole
def test_k17_writes_in_between_and_kills_make_no_difference_and_hide_none(
    start: Callable[..., Rolling], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run is killed behind a comparison whose progress is not written: the range is repeated."""
    lake, chosen = start("numbers", "words"), random.Random(33)
    lake.run()
    lake.unlogged("DELETE FROM numbers WHERE v = 131", "DELETE FROM words WHERE id = 'Z5!'")
    runs = 2 * lake.pass_runs({"numbers": 300, "words": 300})
    connection = lake.server.root_connection(database=lake.database, autocommit=True)
    written = NoteFile.write
    with connection.cursor() as write:
        for number in range(runs):
            write.execute("INSERT INTO numbers VALUES (%s, %s)", (number, 1000 + number))
            write.execute("DELETE FROM numbers WHERE v = %s", (1000 + number // 2,))
            write.execute("UPDATE words SET v = v + 1000 WHERE id LIKE %s", (f"%{number % 10}!",))
            if chosen.random() < 0.3:
                with monkeypatch.context() as patch:
                    patch.setattr(NoteFile, "write", _killed)
                    with pytest.raises(_Killed):
                        capture_and_prove(lake.config, cursors=lake.cursors)
            before = lake.proofs
            lake.run()
            assert before != lake.proofs
    connection.close()
    assert NoteFile.write is written
    top = 2**64 - 1
    assert lake.keys() == {"numbers": [f"extra: id={top - 7 * 131}"], "words": ["extra: id=Z5!"]}


class _Killed(BaseException):
    pass


def _killed(*_: object) -> None:
    raise _Killed


@ONE_SERVER
def test_what_fails_here_is_told_and_counted_and_fails_no_run(
    start: Callable[..., Rolling], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = start("codes", failed_runs_max=2)
    with monkeypatch.context() as patch:

        def busy(*_: object, **__: object) -> None:
            raise SourceError("the server is too busy")

        patch.setattr(rolling.TableComparison, "begin", busy)
        reports = [capture_and_prove(lake.config, cursors=lake.cursors).proof for _ in range(2)]
    assert all(report and "too busy" in report.failure for report in reports)
    assert [len(report.warnings) for report in reports if report] == [0, 1]
    assert lake.proofs.failed_runs == 2
    with verify_lock(lake.paths):
        held = capture_and_prove(lake.config, cursors=lake.cursors).proof
    assert held is not None
    assert "under way" in held.failure
    assert "too busy" in held.warnings[0]  # which counts, as another's lock does not
    lake.run()
    assert lake.proofs.failed_runs == 0


@ONE_SERVER
def test_a_state_that_cannot_be_read_behind_the_proof_is_told_and_fails_no_run(
    start: Callable[..., Rolling], monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(_main: MainLake) -> None:
        raise OSError("the disk is away")

    lake = start("codes")
    monkeypatch.setattr(rolling, "prove", lambda *_, **__: ProofReport())
    monkeypatch.setattr(MainLake, "state", away)
    report = capture_and_prove(lake.config, cursors=lake.cursors)
    assert report.proof is not None
    assert report.proof.failure == "OSError"
    (warning,) = report.proof.warnings
    assert "cannot be read: OSError" in warning
    assert report.cursor == lake.cursors.read()
    # K35: what the proof itself has suspended fails it.
    monkeypatch.setattr(rolling, "prove", lambda *_, **__: ProofReport(suspended=("db.codes",)))
    with pytest.raises(TargetSuspendedError, match=r"db\.codes"):
        capture_and_prove(lake.config, cursors=lake.cursors)


@ONE_SERVER
def test_k4_k17_a_difference_suspends_if_that_is_set_until_it_is_repaired(
    start: Callable[..., Rolling],
) -> None:
    lake = start("codes", "numbers", on_difference="suspend", each_run={"rows": 10_000})
    lake.run()
    lake.unlogged("UPDATE codes SET v = NULL WHERE v = 3")
    with pytest.raises(TargetSuspendedError, match="codes") as suspended:
        capture_and_prove(lake.config, cursors=lake.cursors)
    assert "cdc-pipeline snapshot" in str(suspended.value)
    lake.server.execute(f"UPDATE `{lake.database}`.codes SET v = 77 WHERE v = 4")
    with pytest.raises(TargetSuspendedError):
        capture_and_prove(lake.config, cursors=lake.cursors)
    proof = lake.proofs.tables[lake.name("codes")]
    assert proof.reason.startswith("suspended")
    assert lake.proofs.tables[lake.name("numbers")].last is not None
    options = VerifyOptions(repair=True, tables=(lake.name("codes"),))
    repaired = verify(lake.config, cursors=lake.cursors, options=options)
    assert repaired.tables[lake.name("codes")].repaired == {"updated": 1}
    report = lake.run()
    assert not report.warnings
    assert not lake.keys()


@ONE_SERVER
def test_a_pass_that_is_given_up_goes_on_from_its_place_with_what_it_found(
    start: Callable[..., Rolling], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = start("numbers")
    capture(lake.config, cursors=lake.cursors)
    lake.unlogged(f"UPDATE numbers SET v = -1 WHERE id = {2**64 - 1 - 7 * 259}")
    lake.run()
    before = lake.proofs.tables[lake.name("numbers")]
    assert before.current is not None
    assert before.current.counts == {"different": 1}
    with monkeypatch.context() as patch:

        def masked(*_: object, **__: object) -> None:
            raise NotByRangeError("its key is masked")

        patch.setattr(rolling.TableComparison, "begin", masked)
        lake.run()
    given_up = lake.proofs.tables[lake.name("numbers")]
    assert (given_up.after, given_up.current) == (before.after, before.current)
    assert given_up.unproved == "its key is masked"
    for _ in range(3):
        lake.run()
    ended = lake.proofs.tables[lake.name("numbers")].last
    assert ended is not None
    assert (ended.place, ended.counts) == (before.current.place, before.current.counts)


def test_k17_a_pass_that_leaves_keys_open_proves_and_disproves_nothing(
    start: Callable[..., Rolling], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = start("codes", each_run={"rows": 10_000})
    lake.run()
    lake.unlogged("DELETE FROM codes WHERE v = 100")
    lake.run()
    first = lake.proofs.tables[lake.name("codes")]
    assert first.differing is not None
    compared = rolling._Run._settled

    def settled(*given: Any) -> Any:
        result = compared(*given)
        result[0].different.clear()
        result[0].unsettled = SimpleNamespace(keys=3)
        return result

    with monkeypatch.context() as patch:
        patch.setattr(rolling._Run, "_settled", settled)
        lake.run()
    proof = lake.proofs.tables[lake.name("codes")]
    assert proof.last == first.last
    assert proof.proved is None
    assert proof.unproved == "3 keys changed whenever they were read"
    assert proof.unproved in proof.summary
    lake.unlogged(f"INSERT INTO codes VALUES {TABLES['codes'][1][100]}")
    lake.run()
    proof = lake.proofs.tables[lake.name("codes")]
    assert not proof.unproved
    assert proof.proved is not None


@ONE_SERVER
def test_k4_a_table_that_a_capture_of_the_proof_suspends_fails_the_run(
    start: Callable[..., Rolling], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = start("codes", "numbers")
    lake.run()

    def suspending(config: PipelineConfig, **_: object) -> ProofReport:
        main = MainLake(config, lake.cursors, RunObserver())
        main._suspend({lake.name("codes")}, SchemaError("its columns changed"))
        return ProofReport()

    monkeypatch.setattr(rolling, "prove", suspending)
    with pytest.raises(TargetSuspendedError, match="its columns changed"):
        capture_and_prove(lake.config, cursors=lake.cursors)


def test_k4_k8_none_is_suspended_while_a_prepared_transaction_is_open(
    start: Callable[..., Rolling],
) -> None:
    """The table's place would be before that one, and what it has since then come twice."""
    lake = start("codes", on_difference="suspend", each_run={"rows": 10_000})
    lake.run()
    lake.unlogged("UPDATE codes SET v = NULL WHERE v = 3")
    transaction = XaSession(lake.server, lake.database, "'one'")
    transaction.run("UPDATE codes SET v = 77 WHERE id = x'd40004'").prepare()
    lake.server.execute(f"UPDATE `{lake.database}`.codes SET v = 78 WHERE id = x'090005'")
    assert lake.run().warnings
    transaction.commit()
    # Each table that is known to differ is, though this run compares another range.
    with pytest.raises(TargetSuspendedError, match="codes"):
        capture_and_prove(lake.config, cursors=lake.cursors)
    cursor = lake.cursors.read()
    assert cursor is not None
    (suspended,) = cursor.suspended.values()
    assert not suspended.needs_snapshot
    repaired = verify(lake.config, cursors=lake.cursors, options=VerifyOptions(repair=True))
    assert repaired.status == "equal"
    assert not lake.run().warnings


@ONE_SERVER
def test_progress_is_the_holders_of_the_lock_and_a_damaged_file_stays(
    start: Callable[..., Rolling],
) -> None:
    lake = start("codes")
    lake.run()
    before = lake.proofs
    with verify_lock(lake.paths):
        report = prove(lake.config, cursors=lake.cursors)
    assert "under way" in report.failure
    assert (report.failed_runs, report.warnings) == (0, ())
    assert lake.proofs == before
    file = lake.paths.state / "proofs.json"
    file.write_text("{")
    (warning,) = prove(lake.config, cursors=lake.cursors).warnings
    assert "not kept" in warning
    steps: list[Step] = []
    with pytest.raises(LakeStateError, match=r"proofs\.json"):
        verify(lake.config, cursors=lake.cursors, on_step=steps.append)
    assert not steps  # before anything is compared
    assert file.read_text() == "{"


@ONE_SERVER
@pytest.mark.spark
def test_tables_that_cannot_be_proved_by_ranges_say_why(
    start: Callable[..., Rolling],
) -> None:
    lake = start("codes", each_run={"rows": 100})
    lake.config = lake.config.model_copy(
        update={"targets": (TargetRule(tables=("*.codes",), mode="changelog"),)}
    )
    report = lake.run()
    (proof,) = report.tables.values()
    assert "more rows than a run compares" in proof.given_up
    assert "not proved" in proof.summary


@ONE_SERVER
def test_a_table_that_is_only_whole_waits_for_a_run_with_room_for_it(
    start: Callable[..., Rolling], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rolling, "_FIRST_ROWS", 20)
    monkeypatch.setattr(rolling, "_RANGE_ROWS_MAX", 150)
    lake = start("codes", "numbers", each_run={"rows": 220})
    lake.only_whole("codes")
    capture(lake.config, cursors=lake.cursors)
    for _ in range(8):
        lake.run()
        assert not any(proof.given_up for proof in lake.proofs.tables.values())
    (name,) = {*lake.proofs.tables} - {lake.name("numbers")}
    proof = lake.proofs.tables[name]
    assert proof.proved is not None
    assert proof.proved.rows == len(TABLES["codes"][1])
    other = lake.proofs.tables[lake.name("numbers")]
    assert other.proved is not None
    first = proof.done_at_us
    for _ in range(6):
        lake.run()
    assert lake.proofs.tables[name].done_at_us > first


@ONE_SERVER
@pytest.mark.spark
@pytest.mark.parametrize("seconds", [0.1, pytest.param(100, marks=pytest.mark.whole)])
def test_k17_a_table_that_is_only_whole_is_proved_once_though_only_seconds_bound_a_run(
    start: Callable[..., Rolling], monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """The pace is unknown before a run has compared many rows; and by the pace that this told, it
    is proved again, or is too large. By the test's clock: a row takes a millisecond.
    """
    now_s = 0.0
    compared = rolling._Run._settled

    def settled(*given: Any) -> Any:
        nonlocal now_s
        result = compared(*given)
        now_s += result[0].rows_source / 1000
        return result

    monkeypatch.setattr(rolling, "_RANGE_ROWS_MAX", 150)
    monkeypatch.setattr(rolling, "_FIRST_ROWS", 20)
    monkeypatch.setattr(rolling._Run, "_settled", settled)
    lake = start("bag", "codes", each_run={"seconds": seconds})
    lake.only_whole("codes")
    capture(lake.config, cursors=lake.cursors)
    paces, proved = [], []
    for _ in range(3):
        report = prove(lake.config, cursors=lake.cursors, clock_s=lambda: now_s)
        assert not report.failure
        (name,) = {*lake.proofs.tables} - {lake.name("bag")}
        proof = lake.proofs.tables[name]
        paces.append(lake.proofs.rows_per_run)
        proved.append(0 if proof.last is None else proof.last.rows)
    assert proved == [0, 205, 205]
    assert paces[0] == 0  # too few rows tell nothing
    if seconds < 1:
        assert paces[1] in (99, 100)  # binary fractions
        assert "more rows than a run compares" in proof.given_up
    else:
        assert paces[1] > 100_000
        assert not proof.given_up


def test_k17_tiny_ranges_do_not_tell_how_much_is_compared_at_once() -> None:
    run: Any = SimpleNamespace(
        _budget=SimpleNamespace(seconds=2.0), _rows_at_once=0, proofs=Proofs()
    )
    rolling._Run._note_range(run, 10, 0.02)
    assert (run._rows_at_once, run.proofs.rows_at_once) == (0, Proofs().rows_at_once)
    rolling._Run._note_range(run, 10, 2.5)  # all that a run's seconds were enough for
    assert run.proofs.rows_at_once == 8
    rolling._Run._note_range(run, rolling._RANGE_ROWS_MAX, 1.0)
    assert run.proofs.rows_at_once == 2 * rolling._RANGE_ROWS_MAX


@ONE_SERVER
@pytest.mark.spark
@pytest.mark.whole
def test_k17_a_table_that_is_only_whole_is_not_too_large_because_others_are_tiny(
    start: Callable[..., Rolling], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the test's clock: a range takes as long, however few rows it has."""
    now_s = 0.0
    compared = rolling._Run._settled

    def settled(*given: Any) -> Any:
        nonlocal now_s
        now_s += 0.02
        return compared(*given)

    monkeypatch.setattr(rolling, "_RANGE_ROWS_MAX", 150)
    monkeypatch.setattr(rolling._Run, "_settled", settled)
    lake = start("bag", "codes", each_run={"seconds": 0.03})
    changelog = TargetRule(tables=("*.codes",), mode="changelog")
    lake.config = lake.config.model_copy(update={"targets": (*lake.config.targets, changelog)})
    capture(lake.config, cursors=lake.cursors)
    paces = []
    for _ in range(4):
        report = prove(lake.config, cursors=lake.cursors, clock_s=lambda: now_s)
        assert not report.failure
        assert not any(proof.given_up for proof in lake.proofs.tables.values())
        paces.append(lake.proofs.rows_per_run)
    assert all(proof.proved is not None for proof in lake.proofs.tables.values())
    assert paces[0] < len(TABLES["codes"][1]) <= lake.proofs.rows_at_once


@ONE_SERVER
def test_what_only_spark_reads_is_told(
    start: Callable[..., Rolling], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = start("codes", each_run={"rows": 100_000})
    capture(lake.config, cursors=lake.cursors)
    with monkeypatch.context() as patch:
        patch.setattr(read_rows, "_unknown_protocol", lambda _: "the features sparks")
        prove(lake.config, cursors=lake.cursors)
    proof = lake.proofs.tables[lake.name("codes")]
    assert "the features sparks, which only Spark reads here" in proof.unproved
    lake.run()
    assert lake.proofs.tables[lake.name("codes")].proved is not None


def test_a_table_that_leaves_the_cut_meanwhile_stops_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refusing(*_: object) -> None:
        raise NotFollowedError("it is no longer followed")

    cut = SimpleNamespace(tables={})
    nothing: Any = SimpleNamespace(write=lambda _: None)
    monkeypatch.setattr(rolling, "proof_file", lambda _: nothing)
    run = _run(each_run={"seconds": 1})
    run.proofs = Proofs(tables={"t": TableProof(identity="", known_since_us=1)})
    run._range = refusing
    run._captures = SimpleNamespace(source_state=lambda: SimpleNamespace(cut=cut))
    run._context = SimpleNamespace(sink=SimpleNamespace(paths=None))
    for _ in range(2):
        assert not run._try_range("t")
    assert run.proofs.tables["t"].given_up == "it is no longer followed"


def test_a_key_that_orders_otherwise_since_then_begins_its_pass_again(
    start: Callable[..., Rolling],
) -> None:
    lake = start("words")
    lake.run()
    assert lake.proofs.tables[lake.name("words")].after is not None
    lake.server.execute(
        f"ALTER TABLE `{lake.database}`.words MODIFY id VARCHAR(9) CHARACTER SET utf8mb4 "
        "COLLATE utf8mb4_bin"
    )
    lake.run()
    proof = lake.proofs.tables[lake.name("words")]
    assert proof.current is not None
    assert proof.current.rows == BUDGET
    assert "utf8mb4_bin" in str(proof.after)
    for _ in range(4):
        lake.run()
    assert not lake.keys()


# -- what a run counts ---------------------------------------------------------------------------


def _run(**settings: Any) -> Any:
    each_run = settings.pop("each_run", {"rows": BUDGET})
    verify = VerifyConfig.model_validate({"each_run": each_run, **settings})
    main: Any = SimpleNamespace(locked=lambda _work: pytest.fail("nothing to suspend"))
    return rolling._Run(verify, main, lambda: 0.0)


PLACE = Position("binlog.000001", 4)


@pytest.mark.parametrize(
    ("kinds", "rows", "rows_read", "counts", "spent"),
    [
        (DIFFERENCES, 7, 7, {"stale": 2}, 7),  # told by the source's walk
        (("extra",), 7, 7, {}, 7),  # and not once more by the lake's
        (DIFFERENCES, 7, 19, {"stale": 2}, 19),  # keys that were read again cost as much
    ],
)
def test_k17_stale_rows_are_counted_once_and_suspend_no_table(
    kinds: Any, rows: int, rows_read: int, counts: dict[str, int], spent: int
) -> None:
    """No repair mends them: the source's rows are those that the policies keep out."""
    run = _run(on_difference="suspend")
    reading = SimpleNamespace(rows_read=rows_read)
    settled, comparison = RoundsResult(stale=2), SimpleNamespace(reading=reading)
    ended = run._add(
        TablePass(place=PLACE, began_at_us=1), settled, comparison, rows=rows, kinds=kinds
    )
    assert (ended.counts, ended.rows, run._spent) == (counts, rows, spent)
    run.proofs = Proofs(tables={"t": TableProof(identity="", known_since_us=1, last=ended)})
    run.suspend()
    assert run._suspended == ()


def test_k17_f144_what_a_whole_pass_found_is_told_until_a_later_one_is_whole() -> None:
    """Though the pass under way has found something else, too."""
    last, current = (
        TablePass(place=PLACE, began_at_us=1, rows=9, counts=counts, keys=keys)
        for counts, keys in (
            ({"different": 1, "extra": 2}, ("different: id=1 (v)", "extra: id=7", "extra: id=8")),
            ({"different": 1, "missing": 1}, ("different: id=1 (v)", "missing: id=3")),
        )
    )
    proof = TableProof(identity="", known_since_us=1, last=last, current=current)
    assert proof.differing is not None
    assert proof.differing.counts == {"different": 1, "extra": 2, "missing": 1}
    assert proof.differing.keys == (*last.keys, "missing: id=3")
    nothing = current.model_copy(update={"counts": {}, "keys": ()})
    for one, other, found in ((last, nothing, last), (nothing, current, current)):
        assert proof.model_copy(update={"last": one, "current": other}).differing == found


@pytest.mark.parametrize(
    ("key", "types", "is_kept"),
    [("ab", "int", True), ("ba", "int", False), ("a", "int", False), ("ab", "bigint", False)],
)
def test_k17_a_pass_begins_again_if_the_key_is_another(
    monkeypatch: pytest.MonkeyPatch, key: str, types: str, is_kept: bool
) -> None:
    """Also with the same columns in another order, which the places of the walks have."""

    def state(key: str, types: str) -> Any:
        columns = [SimpleNamespace(name=name, delta_type=types) for name in "ab"]
        spec = SimpleNamespace(columns=columns, key=tuple(key), sources_of=lambda _: {"t": ()})
        targets = {"t": SimpleNamespace(app_id="x")}
        cut = SimpleNamespace(
            tables={"t": SimpleNamespace(spec=spec)}, cursor=SimpleNamespace(targets=targets)
        )
        return SimpleNamespace(cut=cut)

    monkeypatch.setattr(rolling, "why_not", lambda *_: "")
    run, config = _run(), cast("PipelineConfig", None)
    run._begin_tables(config, state("ab", "int"))
    begun = run.proofs.tables["t"].model_copy(update={"lake_after": "there"})
    run.proofs = Proofs(tables={"t": begun})
    run._begin_tables(config, state(key, types))
    assert (run.proofs.tables["t"].lake_after == "there") is is_kept


@pytest.mark.parametrize(
    ("each_run", "rows_at_once", "spent", "now_s", "expected"),
    [
        ({"rows": 500}, 0, 200, 0, (500, 300)),
        ({"seconds": 10}, 0, 0, 9, (500_000, 500_000)),  # nothing is known of its pace yet
        ({"seconds": 10}, 0, 1, 5, (500_000, 10_000)),
        ({"seconds": 10}, 50, 0, 0, (20_000, 20_000)),
        ({"seconds": 10}, 50_000, 0, 0, (50_000, 50_000)),
        ({"seconds": 10}, 50_000, 1, 9, (50_000, 5_000)),
        ({"seconds": 10, "rows": 30_000}, 50_000, 10_000, 1, (30_000, 20_000)),
    ],
)
def test_a_whole_read_is_bounded_by_rows_and_by_seconds(
    each_run: dict[str, int], rows_at_once: int, spent: int, now_s: int, expected: tuple[int, int]
) -> None:
    run = _run(each_run=each_run)
    run.proofs, run._spent = Proofs(rows_at_once=rows_at_once), spent
    run._clock_s = lambda: float(now_s)
    assert run._whole_rows() == expected


@ONE_SERVER
def test_k4_a_table_whose_comparison_fails_waits_for_its_next_turn(
    start: Callable[..., Rolling], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass under way would else come first in each run, and no other table be compared."""
    lake = start("codes", "numbers", each_run={"rows": 100})
    lake.run()
    assert lake.proofs.tables[lake.name("codes")].current is not None
    begin = rolling.TableComparison.begin

    def failing(comparison: Any, *given: Any) -> int:
        if comparison._name == lake.name("codes"):
            raise RuntimeError
        return begin(comparison, *given)

    monkeypatch.setattr(rolling.TableComparison, "begin", failing)
    reports = [capture_and_prove(lake.config, cursors=lake.cursors).proof for _ in range(2)]
    assert [report.failure for report in reports if report] == [
        f"{lake.name('codes')}: RuntimeError",
        "",
    ]
    failed, other = (lake.proofs.tables[lake.name(name)] for name in ("codes", "numbers"))
    assert failed.unproved == "RuntimeError"
    assert failed.current is not None
    assert other.current is not None


def test_k26_no_value_of_a_masked_key_is_kept(start: Callable[..., Rolling]) -> None:
    """The table has no key of the lake that leads back: it is compared whole, or not at all."""
    lake = start("numbers", each_run={"rows": 100})
    lake.config = lake.config.model_copy(
        update={"targets": (TargetRule(tables=("*.numbers",), key=("v",), masks={"id": "drop"}),)}
    )
    lake.run()
    (proof,) = lake.proofs.tables.values()
    assert "masked" in proof.given_up
    assert str(2**64 - 1)[:9] not in (lake.paths.state / "proofs.json").read_text()
