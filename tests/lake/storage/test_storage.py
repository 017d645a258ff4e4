"""Paths and files of a lake in an object store: as on a disk, where both have it; errors that name
the setting."""

from __future__ import annotations

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cdc_pipeline.errors import CdcError, LakeStateError, LakeUnreachableError, RuntimeSetupError
from cdc_pipeline.lake.paths import (
    LakePaths,
    list_numbers,
    numbered,
    put_if_absent,
    read_json,
    remove_tree,
    replace_file,
)
from cdc_pipeline.lake.records import StagedFile
from cdc_pipeline.lake.staged_file import StagedFileWriter, verify
from cdc_pipeline.lake.storage.object_path import is_object
from cdc_pipeline.lake.storage.object_storage import ObjectStorage
from cdc_pipeline.lake.storage.storage import storage_of
from cdc_pipeline.lake.storage.storage_settings import delta_options
from cdc_pipeline.position.cursor import CursorState
from cdc_pipeline.sink.apply.key_lookup import rows_with_keys
from cdc_pipeline.sink.cursor_table import DeltaCursorStore
from cdc_pipeline.sink.delta.data_file import data_layout, write_data_files
from cdc_pipeline.sink.delta.log import commit_file
from cdc_pipeline.sink.delta.replay import row_count
from cdc_pipeline.sink.delta.table_log import read_table_log
from cdc_pipeline.sink.delta_sink import DeltaSink
from tests.lake.writers import texts_that_won
from tests.support.object_store import Store
from tests.support.object_store_server import READ_KEY, SECRET


def test_k16_of_many_writers_one_puts_its_object(lake: Path) -> None:
    path = numbered(lake / "cuts", 7)
    won = texts_that_won(path)
    assert won == [read_json(path)]
    assert put_if_absent(path, won[0]), (
        "an answer that was lost: the same content counts as written"
    )
    assert not put_if_absent(path, '"other"')
    assert list_numbers(path.parent) == [7]
    assert list_numbers(lake / "absent") == []


def test_a_path_behaves_as_on_a_disk(lake: Path, tmp_path: Path) -> None:
    for root in (lake, tmp_path):
        file = root / "a" / "b" / "one.json"
        assert not file.exists()
        assert not (root / "a").is_dir()
        with pytest.raises(FileNotFoundError):
            file.read_text()
        with pytest.raises(FileNotFoundError):
            file.unlink()
        file.unlink(missing_ok=True)
        replace_file(file, b"1")
        replace_file(root / "a" / "two", b"22")
        assert (file.exists(), (root / "a").is_dir(), file.is_dir(), file.stat().st_size) == (
            True,
            True,
            False,
            1,
        )
        assert sorted(path.name for path in (root / "a").iterdir()) == ["b", "two"]
        assert [path.name for path in (root / "a").glob("t*")] == ["two"]
        assert (file.name, file.suffix, file.stem, file.parent.name) == (
            "one.json",
            ".json",
            "one",
            "b",
        )
        assert file.relative_to(root).as_posix() == "a/b/one.json"
        assert str(file) == f"{root}/a/b/one.json"
        storage_of(file).share(file, root / "shared" / "one")
        storage_of(file).share(file, root / "shared" / "one")
        assert (root / "shared" / "one").read_bytes() == file.read_bytes()
        with pytest.raises(FileNotFoundError):
            storage_of(file).share(root / "absent", root / "shared" / "two")
        assert remove_tree(root / "shared") == 1
        storage_of(file).move(file, root / "a" / "three")
        assert storage_of(root).digest(root / "a" / "three") == (
            1,
            hashlib.sha256(b"1").hexdigest(),
        )
        with pytest.raises(FileExistsError):
            storage_of(root).finish(storage_of(root).create(root / "a" / "three"))
        assert remove_tree(root / "a") == 2
        assert remove_tree(root / "a") == 0
        assert not (root / "a").exists()
    with pytest.raises(TypeError):
        open(lake / "never a local file")  # noqa: SIM115


def test_objects_that_stand_for_folders_are_no_files(lake: Path, store: Store) -> None:
    """Consoles make them, and Hadoop does: a new table may be made in such a folder."""
    for folder in (lake, lake / "shop", lake / "shop" / "orders"):
        store.make_folder(folder)
    assert [at.name for at in lake.iterdir()] == ["shop"]
    assert list((lake / "shop" / "orders").iterdir()) == []
    assert read_table_log(lake / "shop" / "orders") is None
    replace_file(lake / "shop" / "orders" / "one", b"1")
    assert [at.name for at in (lake / "shop" / "orders").iterdir()] == ["one"]
    assert not (lake / "shop" / "orders").is_file()
    assert remove_tree(lake / "shop") == 3
    assert len(store.all_keys(lake)) == 3, (
        "only Hadoop can remove them: test_snapshot_verify_backfill"
    )


def test_an_object_that_was_not_finished_is_not_there(lake: Path) -> None:
    stream = storage_of(lake).create(lake / "half")
    stream.write(b"x" * 100)
    del stream
    assert not (lake / "half").exists()


def test_k2_a_staged_file_is_verified_where_it_lies(lake: Path) -> None:
    schema = pa.schema([("c0", pa.int64())])
    path = lake / "_cdc" / "shop" / "staging" / "1" / storage_of(lake).unique("000001.parquet")
    writer = StagedFileWriter(path, schema, key_columns=["c0"])
    writer.write(pa.table({"c0": list(range(1000))}, schema=schema))
    file = writer.close(lake=lake)
    assert verify(file, lake=lake, table="a.b") == path
    assert pq.read_metadata(storage_of(path).arrow_source(path)).num_rows == 1000
    damaged = StagedFile(path=file.path, size_bytes=file.size_bytes, rows=1000, sha256="0" * 64)
    with pytest.raises(CdcError, match="missing or damaged"):
        verify(damaged, lake=lake, table="a.b")
    path.unlink()
    with pytest.raises(CdcError, match="missing or damaged"):
        verify(file, lake=lake, table="a.b")


def test_a_delta_log_and_a_cursor_table_are_read_and_written_without_a_jvm(lake: Path) -> None:
    from deltalake import write_deltalake

    assert read_table_log(lake / "a" / "b") is None
    assert is_object(lake)
    write_deltalake(
        str(lake / "a" / "b"), pa.table({"id": [1, 2, 3]}), storage_options=delta_options(lake)
    )
    log = read_table_log(lake / "a" / "b")
    assert log is not None
    assert (log.version, log.columns, row_count(lake / "a" / "b")) == (0, {"id": "bigint"}, 3)
    paths = LakePaths(lake, "shop")
    store = DeltaCursorStore(paths.cursors, source="shop")
    assert store.read() is None
    cursor = CursorState(
        source="shop", batch_number=1, flavor="mysql", server_id=1, journal="b.000001", offset=4
    )
    store.write(cursor, {})
    assert DeltaCursorStore(paths.cursors, source="shop").read() == cursor


def test_data_files_are_written_and_their_keys_found_where_they_lie(lake: Path) -> None:
    path = lake / "shop" / "orders"
    kinds = {"id": pa.int64(), "_cdc_seq": pa.decimal128(38, 0)}
    for number in (0, 1):
        piece = pa.table({"id": range(10 * number, 10 * number + 10), "_cdc_seq": [number] * 10})
        (add,) = write_data_files(path, [piece], data_layout(kinds, properties={}))
        assert (path / add["path"]).stat().st_size == add["size"]
        assert put_if_absent(commit_file(path, number), json.dumps({"add": add}))
    keys = pa.table({"id": pa.array([3, 12, 99], pa.int64())})
    found = rows_with_keys(path, 1, keys, seq_column="_cdc_seq", lowest_seq=5)
    assert found is not None
    assert sorted(rows.tolist() for _, rows in found) == [[2], [3]]
    wrong = pa.table({"id": ["x"], "_cdc_seq": [1]})
    with pytest.raises(pa.ArrowInvalid):
        write_data_files(path, [wrong], data_layout(kinds, properties={}))
    assert len(list(path.glob("*.parquet"))) == 2


def test_a_store_that_fails_is_not_taken_for_a_damaged_table(store: Store, lake: Path) -> None:
    """A damaged table would be suspended until it is repaired (K4)."""
    from deltalake import write_deltalake

    assert is_object(lake)
    table = lake / "a" / "b"
    write_deltalake(str(table), pa.table({"id": [1]}), storage_options=delta_options(lake))
    refused = LakePaths(store.sink_config(str(lake), access_key_id="nobody").lake_path, "shop").lake
    with pytest.raises(RuntimeSetupError, match="refuses access") as caught:
        read_table_log(refused / "a" / "b")
    assert SECRET not in str(caught.value)
    (table / "_delta_log" / f"{0:020d}.json").write_text("{")
    with pytest.raises(LakeStateError, match="cannot be read"):
        read_table_log(table)


@pytest.mark.parametrize(
    ("lake", "settings", "kind", "setting", "said"),
    [
        (
            "s3a://lakes/x",
            {"access_key_id": "nobody"},
            RuntimeSetupError,
            "sink.storage.access_key_id",
            "refuses access",
        ),
        ("s3a://nowhere/x", {}, RuntimeSetupError, "sink.lake_path", "bucket does not exist"),
        (
            "s3a://lakes/x",
            {"endpoint": "http://127.0.0.1:9", "retry_s": 0.3},
            LakeUnreachableError,
            "sink.storage.endpoint",
            "does not answer",
        ),
    ],
)
def test_what_stops_a_plan_and_a_start_is_named(
    store: Store,
    lake: str,
    settings: dict[str, object],
    kind: type[CdcError],
    setting: str,
    said: str,
) -> None:
    sink = DeltaSink(source="shop", config=store.sink_config(lake, **settings))
    for step in (sink.last_cut, sink.lock().__enter__):
        with pytest.raises(kind, match=said) as caught:
            step()
        assert caught.value.setting == setting
        assert SECRET not in str(caught.value)
        assert caught.value.next_step


def test_a_lake_that_can_only_be_read_is_planned_and_not_started(store: Store) -> None:
    sink = DeltaSink(source="shop", config=store.sink_config(access_key_id=READ_KEY))
    assert sink.last_cut() is None
    with pytest.raises(RuntimeSetupError, match="refuses access") as caught:
        sink.lock().__enter__()
    assert "write" in str(caught.value.expected)


class _Hangs(BaseHTTPRequestHandler):
    """Ends the first connections without an answer, as a store does that is starting; then there is
    no such object."""

    left = 12

    def do_HEAD(self) -> None:
        type(self).left -= 1
        if self.left < 0:
            self.send_response(404)
            self.end_headers()

    def log_message(self, format: str, *arguments: Any) -> None:
        """Its tests say what went wrong."""


@pytest.mark.whole
def test_requests_are_tried_again_until_their_time_is_over_and_not_a_number_of_times(
    store: Store,
) -> None:
    with HTTPServer(("127.0.0.1", 0), _Hangs) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        settings = store.settings(endpoint=f"http://127.0.0.1:{server.server_port}", retry_s=600)
        assert ObjectStorage("s3a", "lakes", settings).size("an/object") is None
        assert _Hangs.left == -1
        server.shutdown()
