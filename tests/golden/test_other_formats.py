"""What another version wrote is refused, by each file that says what it is, and nothing is written:
no program must misread it (the page on upgrades promises that)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cdc_pipeline.errors import CdcError
from cdc_pipeline.lake.long_operations import Operation, OperationFolder, Progress
from cdc_pipeline.lake.state import _cut
from cdc_pipeline.lake.table_facts import _read as _read_facts
from cdc_pipeline.operations.status import status
from cdc_pipeline.sink.cursor_table import DeltaCursorStore
from tests.support.memory_shop import MemoryShop, memory_shop

CUT = "00000000000000000001.json"
RECORD = "00000000000000000002.json"


@pytest.fixture
def shop(tmp_path: Path) -> MemoryShop:
    """A run in one batch, and a second one that was killed between the merges of its batch."""
    shop = memory_shop(tmp_path, include=["*.*"])
    shop.cursors = DeltaCursorStore(tmp_path / "cursors", source="shop")  # type: ignore[assignment]
    shop.run(5)
    shop.stop_at("between_merges")
    unrecorded = shop.paths.state / "staging" / "00000000000000000003" / "000001.parquet"
    unrecorded.parent.mkdir()
    unrecorded.write_bytes(b"of a batch that was killed before its record")
    return shop


def _change(file: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Of a commit, the line that describes the table."""
    lines = file.read_text().splitlines() if "_delta_log" in file.parts else [file.read_text()]
    changed = next((at for at, line in enumerate(lines) if "metaData" in line), 0)
    document = json.loads(lines[changed])
    change(document)
    lines[changed] = json.dumps(document)
    file.write_text("\n".join(lines))


def _content(folder: Path) -> dict[str, str]:
    """What each file holds, but for locks, which hold who took them."""
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.suffix != ".lock"
    }


def _is_refused(shop: MemoryShop, tmp_path: Path, act: Callable[[], object]) -> None:
    before = _content(tmp_path)
    with pytest.raises(CdcError) as refused:
        act()
    assert "the version of the program that wrote" in str(refused.value.next_step)
    assert not refused.value.retryable
    assert _content(tmp_path) == before, "something was written"


FILES: dict[str, tuple[str, Callable[[dict[str, Any]], object]]] = {
    "older cut": (f"lake/_cdc/shop/cuts/{CUT}", lambda cut: cut.update(version=cut["version"] - 1)),
    "newer cut": (f"lake/_cdc/shop/cuts/{CUT}", lambda cut: cut.update(version=cut["version"] + 1)),
    "field of a cut": (f"lake/_cdc/shop/cuts/{CUT}", lambda cut: cut.update(of_next_year=1)),
    "older record": (
        f"lake/_cdc/shop/batches/{RECORD}",
        lambda record: record.update(version=record["version"] - 1),
    ),
    "newer record": (
        f"lake/_cdc/shop/batches/{RECORD}",
        lambda record: record.update(version=record["version"] + 1),
    ),
    "field of a record": (
        f"lake/_cdc/shop/batches/{RECORD}",
        lambda record: record["targets"][0].update(of_next_year=1),
    ),
    "schema history": (
        "lake/_cdc/shop/schema_history.json",
        lambda history: history.update(format=99),
    ),
    "table of cursors": (
        f"cursors/_delta_log/{0:020d}.json",
        lambda commit: commit["metaData"].update(description="cdc_pipeline cursors, form 99"),
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_k3_a_run_refuses_what_another_version_wrote(
    name: str, shop: MemoryShop, tmp_path: Path
) -> None:
    file, change = FILES[name]
    _change(tmp_path / file, change)
    _is_refused(shop, tmp_path, shop.run)


@pytest.mark.parametrize(
    "name", ["older cut", "newer cut", "field of a cut", "older record", "table of cursors"]
)
def test_k3_a_status_refuses_what_another_version_wrote(
    name: str, shop: MemoryShop, tmp_path: Path
) -> None:
    file, change = FILES[name]
    _change(tmp_path / file, change)
    _is_refused(shop, tmp_path, lambda: status(shop.config, cursors=shop.cursors))


def test_k3_the_facts_of_tables_of_another_version_are_refused(
    shop: MemoryShop, tmp_path: Path
) -> None:
    (facts,) = (tmp_path / "lake/_cdc/shop/tables").iterdir()
    entries = json.loads(facts.read_text())
    facts.write_text(json.dumps([entries[0] | {"of_next_year": 1}, *entries[1:]]))
    _read_facts.cache_clear()  # as in a new process
    _cut.cache_clear()
    _is_refused(shop, tmp_path, shop.run)


def test_k3_a_snapshot_of_another_version_is_refused(shop: MemoryShop, tmp_path: Path) -> None:
    folder = OperationFolder(shop.config, "20261123T000000-01234567")
    state = Operation(
        operation_id=folder.operation_id,
        source="shop",
        sources=("shop.a",),
        targets=("shop.a",),
        cursor=shop.last_cut().cursor,
        time_us=0,
        started_at_us=0,
    )
    folder.create(state)
    folder.write_progress(0, Progress())
    assert folder.read() == state
    for file, read in (
        (folder.lake.parent / f"{folder.operation_id}.json", folder.read),
        (next(folder.lake.rglob("progress/*")), folder.read_progress),
    ):
        _change(file, lambda document: document.update(version=2))
        _is_refused(shop, tmp_path, read)


def test_k3_an_unchanged_state_goes_on(shop: MemoryShop) -> None:
    """The state that the tests above change is sound."""
    assert shop.run().outcome == "applied"
