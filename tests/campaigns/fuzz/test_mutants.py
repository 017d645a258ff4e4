"""A sample of the fuzzer, the crashers that it found, and the fuzzer itself: what it looks for, it
finds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cdc_pipeline.binlog.rows import rows as rows_module
from tests.campaigns.fuzz import journal as wire
from tests.campaigns.fuzz import judge
from tests.campaigns.fuzz.mutations import Mutant, mutant

CRASHERS = sorted(Path(__file__).with_name("crashers").glob("*.json"))
SAMPLE = 240
FIRST = 1_000_000  # numbers that `make campaign NAME=fuzz` does not reach by itself


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fuzz")
    for name in wire.seed_names():
        judge.load_seed(name, path)
    return path


@pytest.mark.parametrize("name", wire.seed_names())
def test_seeds_come_apart_and_together(name: str) -> None:
    events = wire.split(wire.seed(name))
    assert wire.joined(events, checksums=True, lengths=True, positions=True) == wire.seed(name)
    assert wire.wrong_checksum(wire.seed(name)) is None
    for event in events:
        crc_bytes = wire.CRC_BYTES if wire.has_checksums(events) else 0
        content = wire.packed_content(event, crc_bytes)
        if content is not None:
            again = wire.with_content(event, content, crc_bytes)
            assert wire.packed_content(again, crc_bytes) == content


@pytest.mark.parametrize("name", wire.seed_names())
def test_seeds_have_no_finding(name: str, folder: Path) -> None:
    verdict = judge.judge(Mutant(name, [], []), folder)
    assert verdict.outcome != "finding", verdict.detail


@pytest.mark.parametrize("part", range(4))
def test_a_sample_of_mutants_ends_in_errors_or_rows(part: int, folder: Path) -> None:
    outcomes = set()
    for number in range(FIRST + part, FIRST + SAMPLE, 4):
        verdict = judge.judge(mutant(number), folder)
        assert verdict.outcome != "finding", (
            f"mutant {number}, {mutant(number).as_dict()}: {verdict.detail}"
        )
        outcomes.add(verdict.outcome)
    assert {"rows", "DamagedJournalError"} < outcomes


@pytest.mark.parametrize("case", CRASHERS, ids=[case.stem for case in CRASHERS])
def test_crashers_end_in_errors_or_rows(case: Path, folder: Path) -> None:
    described = json.loads(case.read_text(encoding="utf-8"))
    verdict = judge.judge(
        Mutant(described["seed"], described["steps"], described["repair"]), folder
    )
    assert verdict.outcome != "finding", verdict.detail


def test_the_same_number_gives_the_same_mutant() -> None:
    first, again = mutant(4711), mutant(4711)
    assert first == again
    assert first.journal() == again.journal() != wire.seed(first.seed)
    kept = json.loads(json.dumps(first.as_dict()))
    assert Mutant(kept["seed"], kept["steps"], kept["repair"]).journal() == first.journal()


# -- what the judge must find ----------------------------------------------------------------------


def finding(
    folder: Path,
    *steps: list[object],
    repair: tuple[str, ...] = ("lengths", "positions", "checksums"),
) -> str:
    verdict = judge.judge(Mutant("mysql-numbers", list(steps), list(repair)), folder)
    assert verdict.outcome == "finding"
    return verdict.detail


def test_a_foreign_exception_is_a_finding(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("wire")

    monkeypatch.setattr(rows_module, "width_rules", broken)
    assert "KeyError" in finding(folder)


def test_an_error_without_its_place_is_a_finding(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nowhere(_: object) -> None:
        raise judge.CdcError("something is wrong")

    monkeypatch.setattr(judge, "changes", nowhere)
    assert "without journal" in finding(folder)


def test_a_wrong_checksum_that_goes_through_is_a_finding(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge, "READERS", ())
    monkeypatch.setattr(judge, "changes", lambda _: iter(()))
    assert "checksum of event 9" in finding(folder, ["flip", 9, 30, 0], repair=())


def test_a_row_that_changes_before_the_damage_is_a_finding(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = judge.changes
    monkeypatch.setattr(
        judge, "changes", lambda files: (line.replace("-128", "-127") for line in real(files))
    )
    assert "differ" in finding(folder)


def test_lines_that_are_no_json_are_a_finding(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = judge.changes
    monkeypatch.setattr(
        judge, "changes", lambda files: (line.replace("-128", "NaN") for line in real(files))
    )
    assert "NaN" in finding(folder)
