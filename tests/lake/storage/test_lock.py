"""K16: one writer per source, across processes."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cdc_pipeline.errors import LockError, RuntimeSetupError
from cdc_pipeline.lake.storage import lock
from cdc_pipeline.lake.storage.lock import writer_lock

_HOLDER = """
import sys
from pathlib import Path
from cdc_pipeline.lake.storage.lock import writer_lock
with writer_lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_lake_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with (
        pytest.raises(RuntimeSetupError, match="cannot be written") as caught,
        writer_lock(tmp_path / "file" / "lock"),
    ):
        pass
    assert caught.value.setting == "sink.lake_path"


def test_k16_the_lock_ends_with_its_process(tmp_path: Path) -> None:
    path = tmp_path / "state" / "writer.lock"
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with (
            pytest.raises(LockError, match=f"process {holder.pid} on ") as caught,
            writer_lock(path),
        ):
            pass
        assert caught.value.retryable
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
    with writer_lock(path), pytest.raises(LockError), writer_lock(path):
        pass
    with writer_lock(path):
        pass


def test_who_waits_gets_the_lock_soon_after_it_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(lock.time, "monotonic", lambda: sum(pauses))
    monkeypatch.setattr(lock.time, "sleep", pauses.append)

    def taken() -> None:
        raise LockError("taken")

    told: list[str] = []
    with pytest.raises(LockError):
        lock.wait_for_lock(taken, wait_s=60, on_waiting=told.append)
    assert told == ["taken"]
    assert max(pauses) <= 2
    assert sum(pauses) == pytest.approx(60)
