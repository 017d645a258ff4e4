"""K16 in an object store: one writer at a time, by a lease that expires."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc_pipeline.errors import LockError, RuntimeSetupError
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.storage import lease as leases
from cdc_pipeline.lake.storage.lock import writer_lock
from cdc_pipeline.lake.storage.object_path import ObjectPath
from cdc_pipeline.processes import is_gone, process_mark
from tests.support.object_store import ROOT, Store
from tests.support.object_store_server import READ_KEY
from tests.support.waits import DEADLINE_S, wait_until

_HOLDER = """
import sys
from cdc_pipeline.config.pipeline_config import SinkConfig
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.storage.lock import writer_lock
config = SinkConfig.model_validate_json(sys.stdin.readline())
with writer_lock(LakePaths(config.lake_path, "shop").lock):
    print("held", flush=True)
    sys.stdin.read()
"""


def _lock_path(store: Store, lake: str, **settings: object) -> Path:
    return LakePaths(store.sink_config(lake, **settings).lake_path, "shop").lock


def test_k16_of_many_takers_one_holds_and_then_gives_back(store: Store) -> None:
    path = _lock_path(store, store.lake())
    start, done = threading.Barrier(5), threading.Barrier(5)
    held: list[int] = []

    def take(number: int) -> None:
        start.wait()
        with ExitStack() as stack:
            try:
                stack.enter_context(writer_lock(path))
                held.append(number)
            except LockError:
                pass
            done.wait()

    threads = [threading.Thread(target=take, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(held) == 1
    with writer_lock(path) as check:
        check()


def test_k16_the_holder_is_named_and_its_expiry(store: Store) -> None:
    path = _lock_path(store, store.lake(), lease_s=30)
    with writer_lock(path):
        note = json.loads(path.read_bytes())
        with pytest.raises(LockError) as caught:
            writer_lock(path).__enter__()
        told = f"held by process {note['pid']} on {note['host']} since {note['since']}; "
        assert str(caught.value.got).startswith(told + "if it is dead, the lease expires in ")
        assert not list(path.parent.glob("writer.probe*"))


def test_k16_a_killed_holder_of_this_machine_does_not_keep_anybody_waiting(store: Store) -> None:
    lake = store.lake()
    config = json.dumps(
        {
            "lake_path": lake,
            "storage": {
                **store.settings(lease_s=3000).model_dump(mode="json", exclude_none=True),
                "access_key_id": "tests-access-key",
                "secret_access_key": "tests-secret-0123456789",
            },
        }
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    path = _lock_path(store, lake, lease_s=3000)
    try:
        assert holder.stdin is not None
        assert holder.stdout is not None
        holder.stdin.write(config + "\n")
        holder.stdin.flush()
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(LockError, match=f"process {holder.pid} on "):
            writer_lock(path).__enter__()
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
    with writer_lock(path) as check:
        check()


def test_k16_a_dead_holder_of_another_machine_expires(
    store: Store, monkeypatch: pytest.MonkeyPatch, skipped_waits: None
) -> None:
    path = _lock_path(store, store.lake(), lease_s=60)
    note = {
        "pid": 1,
        "host": "far",
        "since": "then",
        "lease_s": 60,
        "process": "other-boot pid:[1] 1 1",
    }
    path.write_text(json.dumps(note))
    with pytest.raises(LockError, match="process 1 on far since then"):
        writer_lock(path).__enter__()
    _with_a_clock_that_jumps(monkeypatch, timedelta(seconds=22))
    with writer_lock(path) as check:
        check()


def _with_a_clock_that_jumps(monkeypatch: pytest.MonkeyPatch, by: timedelta) -> None:
    """From now on the store dates a probe, and nothing before it, by a clock that was set."""
    kept = leases.ObjectStorage.modified_at

    def modified_at(self: Any, key: str) -> Any:
        at = kept(self, key)
        return at + by if at is not None and "writer.probe" in key else at

    monkeypatch.setattr(leases.ObjectStorage, "modified_at", modified_at)


def test_k16_a_lease_that_a_slow_store_gave_late_is_renewed_before_it_is_used(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An outage when it is taken is waited for as long as any other."""
    path = _lock_path(store, store.lake(), lease_s=12)
    slow_s, opened_s = [0.0], []
    now_s, create, init = leases._now_s, leases.ObjectStorage.create, leases.ObjectStorage.__init__

    def slow(self: Any, key: str, content: bytes) -> Any:
        slow_s[0] += 9
        return create(self, key, content)

    def opens(self: Any, *at: Any, **how: Any) -> None:
        opened_s.append(how.get("retry_s"))
        init(self, *at, **how)

    monkeypatch.setattr(leases, "_now_s", lambda: now_s() + slow_s[0])
    monkeypatch.setattr(leases.ObjectStorage, "create", slow)
    monkeypatch.setattr(leases.ObjectStorage, "__init__", opens)
    with writer_lock(path) as check:
        check()
    assert [one for one in opened_s if one] == [path.storage.retry_s, 2]


@pytest.mark.parametrize("days", [-400, 400])
def test_k16_a_stores_clock_that_is_set_takes_no_lease_from_a_writer_that_lives(
    store: Store, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    path = _lock_path(store, store.lake(), lease_s=60)
    with writer_lock(path) as check:
        holder = cast(Any, check).__self__

        class RenewedMeanwhile(threading.Event):
            def wait(self, timeout: float | None = None) -> bool:
                holder._renew()
                return False

        in_taker = SimpleNamespace(Event=RenewedMeanwhile, Thread=threading.Thread)
        monkeypatch.setattr(leases, "threading", in_taker)
        _with_a_clock_that_jumps(monkeypatch, timedelta(days=days))
        with pytest.raises(LockError, match="another run is writing"):
            writer_lock(path).__enter__()
        check()


@pytest.mark.parametrize("days", [-400, 400])
def test_k16_a_stores_clock_that_is_set_keeps_no_lease_for_a_dead_writer(
    store: Store, monkeypatch: pytest.MonkeyPatch, skipped_waits: None, days: int
) -> None:
    path = _lock_path(store, store.lake(), lease_s=60)
    path.write_text(json.dumps({"pid": 1, "host": "far", "since": "then", "lease_s": 60}))
    _with_a_clock_that_jumps(monkeypatch, timedelta(days=days))
    with writer_lock(path) as check:
        check()


def test_k16_a_lease_is_renewed_and_a_stolen_one_stops_its_holder(
    store: Store, skipped_waits: None
) -> None:
    path: Any = _lock_path(store, store.lake(), lease_s=60)
    told = threading.Event()
    with writer_lock(path, on_lost=told.set) as check:
        wait_until(lambda: json.loads(path.read_bytes())["renewals"] >= 1)
        check()
        assert not told.is_set()
        path.write_text(json.dumps({"pid": 2, "host": "thief", "since": "now", "lease_s": 3}))

        def lost() -> bool:
            try:
                check()
            except LockError:
                return True
            return False

        wait_until(lost)
        with pytest.raises(LockError, match="has lost the lease") as caught:
            check()
        assert told.wait(DEADLINE_S), "what runs is stopped"
    assert "thief" in str(caught.value.got)
    assert json.loads(path.read_bytes())["host"] == "thief", "a lost lease is not given back"


def test_k16_a_lease_that_cannot_be_renewed_is_lost_before_others_may_take_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _lock_path(store, store.lake(), lease_s=60)
    now_s = [leases._now_s()]
    monkeypatch.setattr(leases, "_now_s", lambda: now_s[0])  # a machine that sleeps
    with writer_lock(path) as check:
        now_s[0] += 39
        check()
        now_s[0] += 2
        with pytest.raises(LockError, match="has lost the lease") as caught:
            check()
    assert caught.value.retryable


def test_a_store_without_conditions_is_refused(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _lock_path(store, store.lake())
    kept = leases.ObjectStorage.create

    def careless(self: Any, key: str, content: bytes) -> Any:
        made = kept(self, key, content)
        return made or {"e_tag": '"1"'}

    monkeypatch.setattr(leases.ObjectStorage, "create", careless)
    with (
        pytest.raises(RuntimeSetupError, match="ignores the conditions") as caught,
        writer_lock(path),
    ):
        pass
    assert caught.value.setting == "sink.storage.endpoint"


def test_a_lake_that_cannot_be_written_is_named(store: Store) -> None:
    path = _lock_path(store, store.lake(), access_key_id=READ_KEY)
    assert isinstance(path, ObjectPath)
    with pytest.raises(RuntimeSetupError, match="refuses access") as caught, writer_lock(path):
        pass
    assert caught.value.setting == "sink.storage"


def test_the_mark_of_a_process_is_its_own() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    mark = process_mark(child.pid)
    assert not is_gone(mark)
    child.communicate(b"\n")
    assert is_gone(mark)
    boot, *rest = mark.split()
    assert not is_gone(" ".join([boot[::-1], *rest])), "another machine's process may live"
    assert not is_gone("")
