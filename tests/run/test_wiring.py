"""The stages that a configuration asks for: which store, and where its files are (K14, K16)."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import LockError, StoreError
from cdc_pipeline.fault_points import listening
from cdc_pipeline.run.wiring import build_store, get_size
from cdc_pipeline.store.ring import RingStore
from cdc_pipeline.store.segments.mixed import FileEventStore, MixedEventStore
from tests.store.contract_suite import Feed


def config(
    folder: Path,
    *,
    name: str = "shop",
    lake: str = "lake",
    source: dict[str, Any] | None = None,
    **store: Any,
) -> PipelineConfig:
    return PipelineConfig.model_validate(
        {
            "name": name,
            "source": source or {"kind": "archive", "directory": folder},
            "store": store,
            "sink": {"lake_path": folder / lake},
        }
    )


@pytest.fixture(autouse=True)
def _own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))


def folders(path: Path) -> list[Path]:
    return sorted(path.glob("temporary/*/*"))


def test_s15_mixed_is_the_default_and_each_kind_can_be_asked_for(tmp_path: Path) -> None:
    assert isinstance(build_store(config(tmp_path)), MixedEventStore)
    assert isinstance(build_store(config(tmp_path, kind="file")), FileEventStore)
    assert type(build_store(config(tmp_path, kind="memory"))) is RingStore


def test_k14_the_spill_is_local_private_and_gone_at_the_end(tmp_path: Path) -> None:
    told: list[str] = []
    store = build_store(config(tmp_path, ring_events=2, memory_unit_bytes=1))
    store.start()
    with listening(told.append):
        assert store.put([Feed().transaction(9)])
    (folder,) = folders(tmp_path)
    assert folder.parent.name == f"cdc_pipeline-{os.getuid()}"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert list(folder.glob("segment-*"))
    assert told == ["spill"]
    store.stop()
    assert not list(folder.glob("segment-*"))


def test_k14_nothing_is_written_before_memory_is_used_up(tmp_path: Path) -> None:
    store, feed = build_store(config(tmp_path)), Feed()
    store.start()
    for _ in range(50):
        store.put([feed.transactions(100, 100)])
    (folder,) = folders(tmp_path)
    assert not list(folder.glob("segment-*"))
    store.stop()


def test_s15_an_archive_waits_for_memory_and_is_not_written_again(tmp_path: Path) -> None:
    """A server's log goes to files when memory is used up; an archive lies in files already."""
    server = {"kind": "live", "host": "db", "user": "cdc", "password": "secret"}
    archived, live = (
        build_store(
            config(tmp_path, ring_events=64, memory_unit_bytes=64, source=source, name=name)
        )
        for source, name in ((None, "archived"), (server, "live"))
    )
    found = {}
    for name, store, feed in (("archived", archived, Feed()), ("live", live, Feed())):
        store.start()
        found[name] = [store.try_put([feed.transactions(5, 4)]) for _ in range(8)]
    assert all(found["live"])
    assert list(tmp_path.glob("temporary/*/live-*/segment-*"))
    assert found["archived"][0]
    assert not found["archived"][-1]
    assert not list(tmp_path.glob("temporary/*/archived-*/segment-*"))
    # what was got and staged makes room
    archived.release(archived.try_get(1 << 20).last_sequence)
    assert archived.try_put([Feed().transactions(5, 4)])
    # a list larger than all of the memory cannot wait for it
    archived.release(archived.try_get(1 << 20).last_sequence)
    assert archived.try_put([Feed().transactions(60, 4)])
    assert list(tmp_path.glob("temporary/*/archived-*/segment-*"))
    archived.stop()
    live.stop()


def test_k16_two_processes_of_one_pipeline_never_share_a_spill(tmp_path: Path) -> None:
    """The lake's lock keeps them apart before; where it does not, the folder's own lock does."""
    store = build_store(config(tmp_path))
    store.start()
    program = (
        "import sys, tempfile\n"
        "from pathlib import Path\n"
        "from cdc_pipeline.run.wiring import build_store\n"
        "from tests.run.test_wiring import config\n"
        "folder = Path(sys.argv[1])\n"
        "tempfile.tempdir = str(folder / 'temporary')\n"
        "build_store(config(folder)).start()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    assert "another store uses this directory" in done.stderr
    with pytest.raises(LockError):
        build_store(config(tmp_path)).start()
    store.stop()


@pytest.mark.parametrize("directory", [None, "spill"])
def test_k14_pipelines_and_lakes_have_spills_of_their_own(
    tmp_path: Path, directory: str | None
) -> None:
    options = {} if directory is None else {"directory": tmp_path / "temporary" / directory}
    stores = [
        build_store(config(tmp_path, **options)),
        build_store(config(tmp_path, name="crm", **options)),
        build_store(config(tmp_path, lake="other", **options)),
    ]
    for store in stores:
        store.start()
    assert len(folders(tmp_path)) == 3
    for store in stores:
        store.stop()


def test_k14_a_spill_folder_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = build_store(config(tmp_path))
    store.start()
    store.stop()
    other_user = os.geteuid() + 1
    monkeypatch.setattr("os.geteuid", lambda: other_user)
    with pytest.raises(StoreError, match="another user"):
        store.start()


@pytest.mark.parametrize("mode", ["itemsize", "memsize"])
@pytest.mark.parametrize("ring_events", [2, 1024, 65536])
def test_k9_a_get_never_asks_for_more_than_a_quarter_of_the_ring(
    tmp_path: Path, ring_events: int, mode: str
) -> None:
    size = get_size(config(tmp_path, ring_events=ring_events, batch_mode=mode))
    assert 1 <= size <= max(1, ring_events // 4)
