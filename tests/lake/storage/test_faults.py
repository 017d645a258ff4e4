"""K16: requests that a store refuses for nothing, answers late, or whose answer is lost."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from obstore import exceptions as said

from cdc_pipeline.errors import LakeDiskError, LakeUnreachableError, LockError
from cdc_pipeline.lake.paths import LakePaths, put_if_absent, remove_tree, replace_file
from cdc_pipeline.lake.storage import object_storage
from cdc_pipeline.lake.storage.lock import writer_lock
from cdc_pipeline.lake.storage.object_path import ObjectPath, is_object
from cdc_pipeline.lake.storage.storage import storage_of
from cdc_pipeline.sink.delta.table_log import read_table_log
from tests.campaigns.objects.faulty_store import Fault, FaultyStore, Kind
from tests.lake.writers import wait_until_lost
from tests.support.object_store import Store
from tests.support.waits import DEADLINE_S

FIRST_RENEWAL = 3  # its request: one takes the lease, two try the store's conditions


@contextmanager
def _through(store: Store, fault: Fault, **settings: object) -> Iterator[tuple[Path, Path]]:
    """The lock of a lake through a store with a fault, and without."""
    lake = store.lake()
    with FaultyStore(store.endpoint, fault, late_s=60) as faulty:
        config = Store(faulty.endpoint, store.bucket, store.log).sink_config(lake, **settings)
        direct = store.sink_config(lake, **settings)
        yield (
            LakePaths(config.lake_path, "shop").lock,
            LakePaths(direct.lake_path, "shop").lock,
        )
        assert faulty.happened.is_set()


def _object(path: Path) -> ObjectPath:
    assert is_object(path)
    return path


@pytest.mark.parametrize("kind", ["409", "412", "412_after", "500_after", "close_after"])
def test_k16_a_put_that_is_refused_for_nothing_or_lost_is_written(store: Store, kind: Kind) -> None:
    """S3 answers 409 while another write of the object goes on, such as the first try of this
    put."""
    with _through(store, Fault(kind, 0)) as (path, direct):
        new = _object(path.with_name("00000000000000000001.json"))
        assert new.store.put_if_absent(new.key, b"record")
        assert direct.with_name(new.name).read_bytes() == b"record"
        assert not new.store.put_if_absent(new.key, b"other")
    with _through(store, Fault(kind, 1)) as (path, direct):
        replaced = _object(path.with_name("schema_history.json"))
        replaced.store.replace_seen(replaced.key, b"one")
        assert direct.with_name(replaced.name).read_bytes() == b"one"
        replaced.store.replace_seen(replaced.key, b"two")
        assert direct.with_name(replaced.name).read_bytes() == b"two"


def test_k16_a_store_that_always_refuses_is_told(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    import obstore

    def refuses(*_: object, **__: object) -> None:
        raise said.AlreadyExistsError("409")

    path = _object(LakePaths(store.sink_config(retry_s=0.3).lake_path, "shop").batch(1))
    monkeypatch.setattr(obstore, "put", refuses)
    with pytest.raises(LakeUnreachableError, match="as if it existed") as caught:
        path.store.put_if_absent(path.key, b"record")
    assert caught.value.retryable


def test_k22_a_stream_without_an_answer_is_the_stores_failure(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not the disk's."""
    monkeypatch.setattr(object_storage, "ANSWER_S", 0.5)
    with _through(store, Fault("stall", 0), retry_s=0.2) as (path, _):
        stream = path.with_name("staged.parquet").open("xb")
        stream.write(b"rows")
        with pytest.raises(LakeUnreachableError) as caught:
            stream.close()
    assert not isinstance(caught.value, LakeDiskError)
    assert "staged.parquet" in str(caught.value)


@pytest.mark.parametrize("kind", ["412_after", "409", "500_after"])
def test_k16_a_lease_whose_put_lost_its_answer_is_ones_own(store: Store, kind: Kind) -> None:
    with _through(store, Fault(kind, 0)) as (path, direct), writer_lock(path) as check:
        check()
        with pytest.raises(LockError):
            writer_lock(direct).__enter__()


@pytest.mark.parametrize("kind", ["412_after", "409", "stall", "close_after"])
def test_k16_a_renewal_that_fails_is_tried_again_before_the_lease_is_lost(
    store: Store, skipped_waits: None, kind: Kind
) -> None:
    """A renewal without an answer leaves time for another; one whose answer is lost is no other
    writer's."""
    lost = threading.Event()
    with (
        _through(store, Fault(kind, FIRST_RENEWAL), lease_s=12) as (path, direct),
        writer_lock(path, on_lost=lost.set) as check,
    ):
        end_s = time.monotonic() + DEADLINE_S
        while json.loads(direct.read_bytes())["renewals"] < 2:
            assert time.monotonic() < end_s
            assert not lost.wait(0.02)
        check()
        assert not lost.is_set()
    assert json.loads(direct.read_bytes())["released"]


def test_k16_what_fails_once_the_lease_is_lost_is_its_loss(
    store: Store, skipped_waits: None
) -> None:
    """What a stopped writer then reads is the next one's, and no damage of the lake."""
    path = LakePaths(store.sink_config(lease_s=60).lake_path, "shop").lock

    def fail_once_lost() -> None:
        with writer_lock(path) as check:
            path.write_text(json.dumps({"host": "thief", "lease_s": 3}))
            wait_until_lost(check)
            raise ValueError("a record without its cut")

    with pytest.raises(LockError, match="has lost the lease") as caught:
        fail_once_lost()
    assert isinstance(caught.value.__cause__, ValueError)


def test_k25_a_log_in_a_store_without_answers_is_given_up_while_other_threads_run(
    store: Store,
) -> None:
    """The library's question whether a table is there waits for 180 s, and stops every thread: the
    store that answers here is one of this process, and so is what renews a lease."""
    table = "table/_delta_log/00000000000000000000.json"
    with _through(store, Fault("away", 1), retry_s=1) as (path, direct):
        (direct.parents[2] / table).write_bytes(b"{}")
        at = path.parents[2] / "table"
        with pytest.raises(LakeUnreachableError) as caught:
            read_table_log(at)
    assert caught.value.retryable
    assert "\x1b" not in str(caught.value.got)


def test_k16_the_lease_is_looked_at_before_each_change_below_the_lake(
    store: Store, skipped_waits: None
) -> None:
    """Between a listing and its deletions, too; what other sources own is not concerned."""
    sink = store.sink_config(lease_s=60)
    paths = LakePaths(sink.lake_path, "shop")
    other = LakePaths(sink.lake_path, "other").schema_history
    part = paths.table("shop.t") / "part.parquet"

    def change_once_lost() -> None:
        with writer_lock(paths.lock) as check:
            paths.lock.write_text(json.dumps({"host": "thief", "lease_s": 3}))
            wait_until_lost(check)
            replace_file(other, b"of another source")
            for change in (
                lambda: remove_tree(part.parent),
                lambda: part.unlink(),
                lambda: put_if_absent(paths.cut(1), "{}"),
                lambda: replace_file(paths.schema_history, b"{}"),
                lambda: part.rename(part.with_name("moved.parquet")),
                lambda: storage_of(part).share(part, part.with_name("copied.parquet")),
            ):
                with pytest.raises(LockError):
                    change()
            check()

    part.write_bytes(b"rows")
    with pytest.raises(LockError):
        change_once_lost()
    assert [at.name for at in part.parent.iterdir()] == ["part.parquet"]
    assert not paths.cut(1).exists()
    assert other.read_bytes() == b"of another source"
