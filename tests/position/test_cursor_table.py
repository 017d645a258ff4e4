"""What only a Delta table can suffer: damage, newer forms, concurrent writers, SIGKILL
(SPEC P2, K3)."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from deltalake import DeltaTable

from cdc_pipeline.errors import CursorError
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.sink.cursor_table import REWRITE_EVERY, DeltaCursorStore
from tests.support.cursor_stores import state

ROOT = Path(__file__).resolve().parents[2]


def _store(place: Path, source: str = "shop") -> DeltaCursorStore:
    return DeltaCursorStore(place, source=source)


# -- damage ----------------------------------------------------------------------------------------


def _log_of(place: Path) -> Path:
    return place / "_delta_log" / f"{0:020d}.json"


def test_k3_a_damaged_table_is_an_error_and_not_no_cursor(tmp_path: Path) -> None:
    _store(tmp_path).write(state(1), {})
    for file in tmp_path.glob("*.parquet"):
        file.unlink()
    with pytest.raises(CursorError, match="damaged") as caught:
        _store(tmp_path).read()
    assert caught.value.next_step
    _log_of(tmp_path).write_text('{"not": "a')
    with pytest.raises(CursorError, match="damaged"):
        _store(tmp_path).read()


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("cursors, form 1", "cursors, form 2", "another version"),
        ('"name":"shop"', '"name":"crm"', "another source"),
    ],
)
def test_k3_a_table_of_a_newer_version_or_another_source_is_refused(
    tmp_path: Path, old: str, new: str, why: str
) -> None:
    _store(tmp_path).write(state(1), {})
    text = _log_of(tmp_path).read_text()
    assert old in text
    _log_of(tmp_path).write_text(text.replace(old, new))
    with pytest.raises(CursorError, match=why):
        _store(tmp_path).read()


@pytest.mark.parametrize("number", [3, 99])
def test_k3_a_cursor_of_another_format_inside_is_refused(number: int, tmp_path: Path) -> None:
    _store(tmp_path).write(state(1).model_copy(update={"version": number}), {})
    with pytest.raises(CursorError, match="another format") as caught:
        _store(tmp_path).read()
    assert (caught.value.expected, caught.value.got) == ("format 5", f"format {number}")
    assert "take their snapshots again" in str(caught.value.next_step)


def test_k3_another_sources_place_is_refused(tmp_path: Path) -> None:
    _store(tmp_path, "crm").write(state(1, source="crm"), {})
    with pytest.raises(CursorError, match="another source"):
        _store(tmp_path).read()


# -- the table -------------------------------------------------------------------------------------


@pytest.mark.whole
def test_p2_the_table_is_plain_and_stays_small(tmp_path: Path) -> None:
    """No reader features, and the rows of 2 rewrites in few files."""
    path = LakePaths(tmp_path, "shop").cursors
    store = DeltaCursorStore(path, source="shop", entries_kept=20)
    for batch in range(1, 2 * REWRITE_EVERY + 2):
        store.write(state(batch), {})
    table = DeltaTable(str(path))
    assert table.protocol().min_reader_version == 1
    assert len(table.file_uris()) == 2  # the rewritten rows, and one more write
    assert [entry.cursor.batch_number for entry in store.history(1000)] == list(
        range(129, 129 - 21, -1)
    )
    assert table.to_pyarrow_table(columns=["batch_number", "journal", "offset"]).num_rows == 21


# -- concurrent writers ----------------------------------------------------------------------------


@pytest.mark.whole
def test_k3_of_concurrent_writers_one_wins_each_number(tmp_path: Path) -> None:
    _store(tmp_path).write(state(1), {})

    def work(writer: int) -> list[int]:
        won = []
        store = _store(tmp_path)
        while (found := store.read()) is not None and found.batch_number < 25:
            following = state(
                found.batch_number + 1, offset=2000 + 10 * found.batch_number + writer
            )
            try:
                store.write(following, {"writer": writer})
            except CursorError:
                continue
            won.append(following.batch_number)
        return won

    with ThreadPoolExecutor(4) as threads:
        won = [number for part in threads.map(work, range(4)) for number in part]
    assert sorted(won) == list(range(2, 26))
    history = _store(tmp_path).history(100)
    assert [entry.cursor.batch_number for entry in history] == list(range(25, 0, -1))


# -- SIGKILL ---------------------------------------------------------------------------------------


def _child(place: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.position.crash_child", str(place)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )


def _check_after_kill(place: Path, *, least: int, most: int) -> None:
    """The store is whole after a kill, ends with one of the cursors around it, and takes the next
    one."""
    store = _store(place)
    found = store.read()
    assert found is not None
    assert least <= found.batch_number <= most
    history = [entry.cursor.batch_number for entry in store.history(10_000)]
    assert history[0] == found.batch_number
    assert len(set(history)) == len(history)
    store.write(state(found.batch_number + 1), {})
    assert _store(place).read() == state(found.batch_number + 1)


@pytest.mark.whole
def test_p10_killed_anywhere_the_older_or_the_newer_cursor_is_there(
    tmp_path: Path,
) -> None:
    chance = random.Random(5)
    for round_number in range(6):
        place = tmp_path / str(round_number)
        with _child(place) as child:
            assert child.stdout is not None
            last = 0
            for _ in range(chance.randrange(1, 70)):
                last = int(child.stdout.readline())
            child.kill()  # SIGKILL: anywhere in the writes that follow
            told = [int(line) for line in child.stdout.read().split("\n")[:-1]]
            assert child.wait() == -signal.SIGKILL
        last = told[-1] if told else last
        _check_after_kill(place, least=last, most=last + 1)
