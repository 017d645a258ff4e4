"""What the sink keeps of a source, in an object store, without Spark: parked rows, staged pieces,
fencing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from cdc_pipeline.binlog.decoded import DecodedRows
from cdc_pipeline.binlog.seq_columns import event_ordinals
from cdc_pipeline.config.sink_config import PublishConfig
from cdc_pipeline.errors import LakeStateError, LockError
from cdc_pipeline.fault_points import listening
from cdc_pipeline.lake.paths import LakePaths, list_numbers, replace_file
from cdc_pipeline.lake.prepared import XaParking, remove_unreferenced
from cdc_pipeline.lake.staged_file import verify
from cdc_pipeline.lake.storage.object_path import is_object
from cdc_pipeline.lake.storage.object_storage import ObjectStorage
from cdc_pipeline.lake.storage.storage import storage_of
from cdc_pipeline.sink.delta_sink import DeltaSink
from cdc_pipeline.sink.spark.session import SparkProvider
from tests.lake.test_prepared import T, park, rows_of
from tests.lake.writers import wait_until_lost
from tests.sink.maintain.test_publish import Catalog
from tests.support.kills import AtPoint
from tests.support.object_store import Store
from tests.support.sink_values import (
    applied,
    cursor_at,
    decoded,
    head_of,
    insert,
    record_batch,
    target_of,
)


def _ordinals(parked: XaParking) -> list[int]:
    return [number for rows in parked.rows("x") for number in event_ordinals(rows.seq).tolist()]


@pytest.mark.parametrize("memory_bytes_max", [1 << 30, 0])
def test_k8_parked_rows_come_back_and_go_with_their_cut(lake: Path, memory_bytes_max: int) -> None:
    paths = LakePaths(lake, "shop")

    def parking(*open_xa: object) -> XaParking:
        return XaParking(
            paths, epoch=1, open_xa=open_xa, check_lock=lambda: None,
            memory_bytes_max=memory_bytes_max  # type: ignore[arg-type]
        )  # fmt: skip

    first = parking()
    first.begin(journal="binlog.000007", offset=50, gtid="")
    first.add(rows_of(T, 10, ordinal=2))
    first.undo(np.array([[4, 8]]))
    first.add(rows_of(T, 2, ordinal=31))
    first.park("x", prepared_at_us=1)
    park(first, "y", 90, rows_of(T))
    open_xa = first.durable()
    assert _ordinals(first) == [2, 3, 8, 9, 10, 11, 31, 32]
    again = parking(*open_xa)
    assert again.schemas("x") == (T,)
    assert _ordinals(again) == [2, 3, 8, 9, 10, 11, 31, 32]
    again.end("x")
    again.published()
    left = [
        path for xa in open_xa for path in (lake / file.path for file in xa.files) if path.exists()
    ]
    assert [path.parent.name for path in left] == ["1-binlog~2e000007-90"]
    cursor = cursor_at(1).model_copy(update={"open_xa": open_xa})
    assert remove_unreferenced(paths, [cursor]) == 0
    assert remove_unreferenced(paths, [None]) == 1
    assert not paths.xa.is_dir()


def _pieces(count: int, first_place: int) -> DecodedRows:
    return decoded(
        T, [insert(id=place, s="v", e="b") for place in range(count)], first_place=first_place
    )


def test_k2_k16_of_two_writers_one_records_and_the_other_damages_nothing(store: Store) -> None:
    """The first has lost its lease unseen: it stages, and finds at the record that the batch is
    another's."""
    config = store.sink_config(lease_s=3600)
    late, quick = DeltaSink(source="shop", config=config), DeltaSink(source="shop", config=config)
    with late.lock():
        batch = late.begin(1)
        plan = target_of(T)
        batch.create(plan)
        batch.add(_pieces(3, 1), plan)
        late._lock_check = lambda: None  # it does not look
        (late.paths.lock).unlink()
        # Within one process both writers have one name: the second process's is given.
        storage = storage_of(quick.paths.lake)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(type(storage), "unique", lambda _self, name: f"other-{name}")
            with quick.lock():
                record = record_batch(quick, 1, (T, [insert(id=9, s="w", e="b")], 1))
        with pytest.raises(LakeStateError, match="another writer has recorded"):
            batch.record(head_of(1))
    (target,) = record.targets
    for file in target.files:
        assert (
            pq.read_table(
                storage.arrow_source(verify(file, lake=quick.paths.lake, table="t"))
            ).num_rows
            == 1
        )
    with quick.lock():
        assert quick.pending_record() == record
        assert quick.discard_unrecorded() == 0
        assert list_numbers(quick.paths.batches) == [1]


def test_k16_a_lost_lease_stops_the_writer_before_its_record(
    store: Store, skipped_waits: None
) -> None:
    sink = DeltaSink(source="shop", config=store.sink_config(lease_s=60))
    with sink.lock():
        batch = sink.begin(1)
        plan = target_of(T)
        batch.create(plan)
        batch.add(_pieces(3, 1), plan)
        sink.paths.lock.write_text('{"host": "thief", "lease_s": 3600}')  # fresh for long
        assert sink._lock_check is not None
        wait_until_lost(sink._lock_check)
        with pytest.raises(LockError, match="has lost the lease"):
            batch.record(head_of(1))
        assert list_numbers(sink.paths.batches) == []
        with pytest.raises(LockError, match="has lost the lease"):
            sink.begin(1)
    with pytest.raises(LockError) as caught:
        sink.lock().__enter__()
    assert "thief" in str(caught.value.got)
    sink.paths.lock.write_text('{"released": true}')
    with sink.lock():
        assert sink.discard_unrecorded() == 0, "nothing was staged without the lease"


@pytest.mark.parametrize("kind", ["catalog", "duckdb"])
def test_k16_f170_who_has_lost_the_lease_shows_readers_no_older_cut(
    store: Store,
    skipped_waits: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    """Readers by SQL are shown cuts in a catalog, or by a file on a disk, which no condition of the
    store's protects: a run that was paused while it published would take the newer cut back."""
    told, file = list[str](), tmp_path / "live.sql"

    class Watched(Catalog):
        def sql(self, statement: str) -> Catalog:
            told.append(statement)
            return super().sql(statement)

    catalog = Watched()
    monkeypatch.setattr("cdc_pipeline.sink.maintain.publish.new_session", lambda given: given)
    monkeypatch.setattr(SparkProvider, "session", lambda _: catalog)
    there = {"catalog": True} if kind == "catalog" else {"duckdb": str(file)}
    asked = PublishConfig.model_validate({"database": "live", **there})
    config = store.sink_config(lease_s=60).model_copy(update={"publish": asked})
    sink = DeltaSink(source="shop", config=config)
    done = list[int]()

    def lose_the_lease() -> None:
        sink.paths.lock.write_text('{"host": "thief", "lease_s": 3600}')
        assert sink._lock_check is not None
        wait_until_lost(sink._lock_check)
        done.append(len(told))
        if kind == "duckdb":
            file.write_text("of the next holder")

    def publish_late() -> None:
        with sink.lock():
            cut = applied(sink, 1, (T, [insert(id=1, s="v", e="b")], 1))
            with listening(AtPoint("before_published", lose_the_lease)):
                sink.cleanup(cut)

    with pytest.raises(LockError, match="has lost the lease"):
        publish_late()
    assert done == [len(told)], "nothing more is told to the catalog"
    assert kind == "catalog" or file.read_text() == "of the next holder"


def test_k16_a_paused_writer_sets_no_file_back(lake: Path) -> None:
    """What is replaced under its name is replaced only as this process has read it, or not at all
    (F20)."""
    path = LakePaths(lake, "shop").schema_history
    assert is_object(path)
    other = ObjectStorage(path.scheme, path.authority, path.storage)
    assert not path.exists()
    other.replace_seen(path.key, b"of another run")
    with pytest.raises(LockError, match="another process has written"):
        replace_file(path, b"late")
    assert path.read_bytes() == b"of another run"
    replace_file(path, b"mine")
    replace_file(path, b"mine again")
    other.forget_seen(path.parent.key)
    other.replace_seen(path.key, b"of another run")
    with pytest.raises(LockError, match="another process has written"):
        replace_file(path, b"late")
    # an answer that was lost: the same content counts as written
    replace_file(path, b"of another run")
    assert other.read(path.key) == b"of another run"
    storage_of(path).remove(path)
    replace_file(path, b"new")
    assert other.read(path.key) == b"new"


def test_k16_who_has_lost_the_lock_removes_nothing_of_its_new_holder(
    store: Store, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a listing shows may be the new holder's: the lock is looked at after it (F20)."""
    sink = DeltaSink(
        source="shop", config=store.sink_config().model_copy(update={"lake_path": lake})
    )
    with sink.lock():
        record = record_batch(sink, 1, (T, [insert(id=1, s="v", e="b")], 10))
        staged = lake / record.targets[0].files[0].path
        sink.paths.batch(1).unlink()  # this process has read the records before it was paused
        parked = sink.paths.xa / "1-a-4" / "file"
        replace_file(parked, b"parked")

        lost: list[str] = []
        listed, named = ObjectStorage.sizes, ObjectStorage.names

        def look() -> None:
            if lost:
                raise LockError("the lease is lost")

        def sizes(storage: ObjectStorage, folder: str) -> dict[str, int]:
            lost.append(folder)  # while the store answers
            return listed(storage, folder)

        def names(storage: ObjectStorage, folder: str) -> list[str]:
            if folder.endswith(parked.parent.name):
                lost.append(folder)
            return named(storage, folder)

        monkeypatch.setattr(sink, "_check_locked", look)
        monkeypatch.setattr(ObjectStorage, "sizes", sizes)
        monkeypatch.setattr(ObjectStorage, "names", names)
        with pytest.raises(LockError):
            sink.discard_unrecorded()
        lost.clear()
        with pytest.raises(LockError):
            sink.discard_parked()
        assert (staged.exists(), parked.exists()) == (True, True)
        monkeypatch.undo()
        assert (sink.discard_unrecorded(), sink.discard_parked()) == (1, 1)
        assert (staged.exists(), parked.exists()) == (False, False)
