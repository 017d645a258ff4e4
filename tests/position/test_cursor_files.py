"""What only a file or a Delta table can suffer: damage, newer forms, concurrent writers, SIGKILL
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
from cdc_pipeline.position.cursor import CursorState, CursorStore
from cdc_pipeline.position.cursor_file import FileCursorStore
from cdc_pipeline.sink.cursor_table import REWRITE_EVERY, DeltaCursorStore
from tests.support.cursor_stores import opener_of, state

ROOT = Path(__file__).resolve().parents[2]
both = pytest.mark.parametrize("kind", ["file", "delta"])


def _store(kind: str, place: Path) -> CursorStore:
    return opener_of(kind, place, None)()


def _cursor(place: Path) -> Path:
    return place / "cursor.json"


# -- damage ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut_bytes", [0, 1, 40, 400, -1, -2])
def test_k3_a_torn_file_is_an_error_and_not_no_cursor(tmp_path: Path, cut_bytes: int) -> None:
    _store("file", tmp_path).write(state(1), {})
    whole = _cursor(tmp_path).read_bytes().rstrip()
    _cursor(tmp_path).write_bytes(whole[:cut_bytes])
    store = _store("file", tmp_path)
    for act in (store.read, lambda: store.write(state(2), {}), lambda: store.history(3)):
        with pytest.raises(CursorError, match="truncated or damaged") as caught:
            act()
        assert caught.value.next_step
    assert _cursor(tmp_path).read_bytes() == whole[:cut_bytes]


def test_k3_a_changed_byte_is_found_by_the_checksum(tmp_path: Path) -> None:
    _store("file", tmp_path).write(state(1), {})
    text = _cursor(tmp_path).read_text()
    _cursor(tmp_path).write_text(text.replace('"offset": 1001', '"offset": 1091'))
    with pytest.raises(CursorError, match="damaged") as caught:
        _store("file", tmp_path).read()
    assert "checksum" in str(caught.value)


def _log_of(place: Path) -> Path:
    return place / "_delta_log" / f"{0:020d}.json"


def test_k3_a_damaged_table_is_an_error_and_not_no_cursor(tmp_path: Path) -> None:
    _store("delta", tmp_path).write(state(1), {})
    for file in tmp_path.glob("*.parquet"):
        file.unlink()
    with pytest.raises(CursorError, match="damaged") as caught:
        _store("delta", tmp_path).read()
    assert caught.value.next_step
    _log_of(tmp_path).write_text('{"not": "a')
    with pytest.raises(CursorError, match="damaged"):
        _store("delta", tmp_path).read()


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
    _store("delta", tmp_path).write(state(1), {})
    text = _log_of(tmp_path).read_text()
    assert old in text
    _log_of(tmp_path).write_text(text.replace(old, new))
    with pytest.raises(CursorError, match=why):
        _store("delta", tmp_path).read()


@both
@pytest.mark.parametrize("number", [3, 99])
def test_k3_a_cursor_of_another_format_inside_is_refused(
    kind: str, number: int, tmp_path: Path
) -> None:
    _store(kind, tmp_path).write(state(1).model_copy(update={"version": number}), {})
    with pytest.raises(CursorError, match="another format") as caught:
        _store(kind, tmp_path).read()
    assert (caught.value.expected, caught.value.got) == ("format 5", f"format {number}")
    assert "take their snapshots again" in str(caught.value.next_step)


@both
def test_k3_another_sources_place_is_refused(kind: str, tmp_path: Path) -> None:
    opener_of(kind, tmp_path, None)("crm").write(state(1, source="crm"), {})
    with pytest.raises(CursorError, match="another source"):
        _store(kind, tmp_path).read()


# -- the file's history ----------------------------------------------------------------------------


def test_p2_a_torn_history_is_mended_by_the_next_write(tmp_path: Path) -> None:
    store = FileCursorStore(tmp_path, source="shop")
    for batch in (1, 2):
        store.write(state(batch), {})
    whole = store.history_file.read_bytes()
    store.history_file.write_bytes(whole[:-30])
    assert [entry.cursor.batch_number for entry in store.history(9)] == [2, 1]
    store.write(state(3), {})
    assert [entry.cursor.batch_number for entry in store.history(9)] == [3, 2, 1]
    assert store.history_file.read_bytes().startswith(whole)


def test_p2_the_history_is_bounded_and_keeps_the_newest(tmp_path: Path) -> None:
    store = FileCursorStore(tmp_path, source="shop", history_bytes_max=20_000)
    for batch in range(1, 101):
        store.write(state(batch), {"note": "x" * 200})
        assert store.history_file.stat().st_size <= 20_000
    kept = [entry.cursor.batch_number for entry in store.history(1000)]
    assert kept == list(range(100, 100 - len(kept), -1))
    assert len(kept) > 5


def test_p2_a_cursor_that_names_an_odd_table_is_one_line_of_the_history(tmp_path: Path) -> None:
    """U+2028 in a table's name ends no line: each cursor was written twice."""
    store = FileCursorStore(tmp_path, source="shop")
    for batch in (1, 2, 3):
        store.write(state(batch), {"table": "shop.a\u2028b\x85c"})
    assert [entry.cursor.batch_number for entry in store.history(9)] == [3, 2, 1]


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
@both
def test_k3_of_concurrent_writers_one_wins_each_number(kind: str, tmp_path: Path) -> None:
    open_store = opener_of(kind, tmp_path, None)
    open_store().write(state(1), {})

    def work(writer: int) -> list[int]:
        won = []
        store = open_store()
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
    history = open_store().history(100)
    assert [entry.cursor.batch_number for entry in history] == list(range(25, 0, -1))


# -- SIGKILL ---------------------------------------------------------------------------------------


def _child(kind: str, place: Path, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.position.crash_child", kind, str(place), *more],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )


def _after_kill(kind: str, place: Path, *, least: int, most: int) -> CursorState:
    """The store is whole after a kill, ends with one of the cursors around it, and takes the next
    one."""
    store = _store(kind, place)
    found = store.read()
    assert found is not None
    assert least <= found.batch_number <= most
    history = [entry.cursor.batch_number for entry in store.history(10_000)]
    assert history[0] == found.batch_number
    assert len(set(history)) == len(history)
    store.write(state(found.batch_number + 1), {})
    assert _store(kind, place).read() == state(found.batch_number + 1)
    return found


@both
@pytest.mark.whole
def test_p10_killed_anywhere_the_older_or_the_newer_cursor_is_there(
    kind: str, tmp_path: Path
) -> None:
    chance = random.Random(5)
    for round_number in range(6):
        place = tmp_path / str(round_number)
        with _child(kind, place) as child:
            assert child.stdout is not None
            last = 0
            for _ in range(chance.randrange(1, 70)):
                last = int(child.stdout.readline())
            child.kill()  # SIGKILL: anywhere in the writes that follow
            told = [int(line) for line in child.stdout.read().split("\n")[:-1]]
            assert child.wait() == -signal.SIGKILL
        last = told[-1] if told else last
        _after_kill(kind, place, least=last, most=last + 1)


@pytest.mark.parametrize(
    ("step", "expected"),
    [("locked", 2), ("temporary_written", 2), ("replaced", 3), ("appended", 3)],
)
def test_p10_killed_at_each_step_of_the_file(tmp_path: Path, step: str, expected: int) -> None:
    """The third write dies at `step`: the older cursor before the file is replaced, the newer one
    from then on."""
    with _child("file", tmp_path, step) as child:
        assert child.wait() == -signal.SIGKILL
    found = _after_kill("file", tmp_path, least=expected, most=expected)
    numbers = [entry.cursor.batch_number for entry in _store("file", tmp_path).history(9)]
    assert numbers == list(range(found.batch_number + 1, 0, -1))
