"""A compiled kernel is kept only as long as all code that it was made from stays what it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc_pipeline.binlog.framing import framing_kernel
from cdc_pipeline.binlog.kernels import walk
from cdc_pipeline.binlog.kernels.json import jsonb
from cdc_pipeline.binlog.native import kernel_cache


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kernel file, a helper's file that it imports, and one that this imports in several
    lines."""
    folder = tmp_path / "binlog"
    (folder / "kernels").mkdir(parents=True)
    (folder / "kernels" / "caller.py").write_text("from cdc_pipeline.binlog.kernels import near\n")
    (folder / "kernels" / "near.py").write_text(
        "from cdc_pipeline.binlog import (\n    far,\n    other,\n)\nimport os\n"
    )
    (folder / "far.py").write_text("from cdc_pipeline.binlog.kernels.caller import x\n")
    (folder / "apart.py").write_text("")
    monkeypatch.setattr(kernel_cache, "_FOLDER", folder)
    return folder


def _stamp(folder: Path) -> str:
    kernel_cache.stamp.cache_clear()
    kernel_cache._read.cache_clear()
    return kernel_cache.stamp(folder / "kernels" / "caller.py")


@pytest.mark.parametrize("changed", ["kernels/caller.py", "kernels/near.py", "far.py"])
def test_a_change_of_any_file_that_is_imported_changes_the_stamp(
    package: Path, changed: str
) -> None:
    before = _stamp(package)
    assert _stamp(package) == before
    with (package / changed).open("a") as file:
        file.write("# changed\n")
    assert _stamp(package) != before


def test_other_files_do_not(package: Path) -> None:
    before = _stamp(package)
    (package / "apart.py").write_text("# changed\n")
    assert _stamp(package) == before


@pytest.mark.parametrize("kernel", [jsonb.gather_json, walk.walk_rows, framing_kernel.frame])
def test_all_kernels_are_kept_that_way(kernel: object) -> None:
    kernel_cache.stamp.cache_clear()
    locator = kernel._cache._numba_cache._impl.locator  # type: ignore[attr-defined]
    assert locator.get_source_stamp() == kernel_cache.stamp(Path(locator._py_file))
