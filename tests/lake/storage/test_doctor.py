"""The doctor's checks of a lake, on one in an object store."""

from __future__ import annotations

from pathlib import Path

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.storage.lock import lock_holder, writer_lock
from cdc_pipeline.operations.doctor import Diagnosis, examine
from cdc_pipeline.position.cursor import MemoryCursorStore
from tests.support.object_store import Store


def _examined(store: Store, lake: str, folder: Path, **changes: object) -> Diagnosis:
    sink = {"lake_path": lake, "storage": store.settings(**changes)}
    source = {"kind": "archive", "directory": folder}
    config = PipelineConfig.model_validate({"name": "shop", "source": source, "sink": sink})
    return examine(config, cursors=MemoryCursorStore(source="shop"), areas=["lake", "state"])


def _severities(found: Diagnosis, check: str) -> set[str]:
    return {one.severity for one in found.findings if one.check == check}


def test_a_lake_in_a_bucket_is_tried_and_left_as_it_was(store: Store, tmp_path: Path) -> None:
    lake = store.lake()
    found = _examined(store, lake, tmp_path)
    for check in ("lake", "usable", "lock"):
        assert _severities(found, check) == {"ok"}, found
    # Its endpoint is plain HTTP, with credentials.
    assert "warning" in _severities(found, "store")
    paths = LakePaths(store.sink_config(lake).lake_path, "shop")
    assert not paths.state.exists()
    with writer_lock(paths.lock):
        assert "held by process" in lock_holder(paths.lock)
        assert _severities(_examined(store, lake, tmp_path), "lock") == {"note"}
    assert lock_holder(paths.lock) == ""


def test_a_bucket_that_is_not_there_leaves_the_rest_to_examine(
    store: Store, tmp_path: Path
) -> None:
    found = _examined(store, "s3a://no-such-bucket/lake", tmp_path)
    assert _severities(found, "lake") == {"error"}
    assert any(
        "needs the lake" in one.what or "need the lake" in one.what for one in found.findings
    )
    assert found.exit_code == 2
