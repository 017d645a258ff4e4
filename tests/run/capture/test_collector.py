"""The cyclic collector runs rarely: nothing large waits for it, and it is left as it was found."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cdc_pipeline.binlog.chunk import Chunk, EventSlice
from cdc_pipeline.binlog.decoded import DecodedRows
from cdc_pipeline.collector import modules_kept
from cdc_pipeline.sink.modes.expand import StagedRows
from tests.support.memory_shop import memory_shop

LARGE = (Chunk, EventSlice, DecodedRows, StagedRows, pa.Table, pa.RecordBatch, np.ndarray)


@pytest.fixture
def garbage() -> Iterator[list[Any]]:
    """What only the collector would free, from here on until `gc.collect` in the test."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    yield gc.garbage
    gc.set_debug(0)
    gc.garbage.clear()
    gc.enable()


def test_no_chunk_no_rows_and_no_table_of_a_run_wait_for_the_collector(
    tmp_path: Path, garbage: list[Any]
) -> None:
    shop = memory_shop(tmp_path, include=["shop.*"])
    report = shop.run()
    assert report.outcome == "applied"
    del shop, report
    gc.collect()
    large = [
        type(at).__name__
        for found in garbage
        for at in (found, *gc.get_referents(found))
        if issubclass(type(at), LARGE) and getattr(at, "nbytes", 1 << 20) >= 1 << 12
    ]
    assert large == []


@pytest.mark.usefixtures("own_collector")
def test_a_run_leaves_the_collector_as_it_was() -> None:
    before = gc.get_threshold(), gc.get_freeze_count()
    with modules_kept():
        assert gc.get_freeze_count() > 0
        assert gc.get_threshold()[0] > before[0][0]
        with modules_kept():  # a load runs captures
            pass
        assert gc.get_freeze_count() > 0
    assert (gc.get_threshold(), gc.get_freeze_count()) == before
