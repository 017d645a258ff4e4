"""What merges have made in the JVM is freed there while a run, or a process of many runs, goes
on."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext

import pytest

from cdc_pipeline import collector
from cdc_pipeline.binlog.table_schema import Kind
from cdc_pipeline.collector import modules_kept
from cdc_pipeline.sink.delta_sink import DeltaSink
from tests.support.sink_values import applied, column, insert, table_schema

pytestmark = pytest.mark.spark

ORDERS = table_schema("shop.orders", [column("id", Kind.INT32), column("total", Kind.INT64)], "id")
_THIRD = 3  # batches; in as many a collection comes
BATCHES = 3 * _THIRD


@pytest.fixture
def rare_collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The collector never comes by itself: in a test as short as these it would hide what grows."""
    monkeypatch.setattr(collector, "_SESSIONS", _THIRD)
    gc.disable()
    yield
    gc.enable()


@pytest.mark.whole
@pytest.mark.parametrize("engine", ["spark"])
@pytest.mark.usefixtures("own_collector", "rare_collector")
@pytest.mark.parametrize("runs", ["one run", "a run for each batch"])
def test_k25_f60_merges_do_not_fill_the_jvm(runs: str, engine: str, sink: DeltaSink) -> None:
    """What Python has named in the JVM stays there, with its plans, until Python frees its own
    objects; these are in cycles, and of those that exist when a run begins the collector finds
    none in it."""
    from py4j.finalizer import ThreadSafeFinalizer

    def a_run(*, of: str) -> AbstractContextManager[None]:
        return modules_kept() if runs == of else nullcontext()

    named = []
    with a_run(of="one run"):
        for number in range(1, BATCHES + 1):
            with a_run(of="a run for each batch"):
                applied(sink, number, (ORDERS, [insert(id=number, total=0)], 10 * number))
            named.append(len(ThreadSafeFinalizer.finalizers))
    # Where in its period the collector was at first is chance, and so is an object that stays.
    earlier, later = max(named[_THIRD : 2 * _THIRD]), max(named[2 * _THIRD :])
    assert later < earlier + _THIRD, named
