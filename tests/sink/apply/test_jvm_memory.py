"""What a merge has made in the JVM is freed there while the run goes on."""

from __future__ import annotations

import pytest

from cdc_pipeline.binlog.table_schema import Kind
from cdc_pipeline.collector import modules_kept
from cdc_pipeline.sink.apply import merge
from cdc_pipeline.sink.delta_sink import DeltaSink
from tests.support.sink_values import applied, column, insert, table_schema

pytestmark = pytest.mark.spark

ORDERS = table_schema("shop.orders", [column("id", Kind.INT32), column("total", Kind.INT64)], "id")
BATCHES = 8


def test_k25_f60_merges_of_a_long_run_do_not_fill_the_jvm(
    sink: DeltaSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Python has named in the JVM stays there, with its plans, until Python frees its own
    objects; they are in cycles, and in a run the collector comes rarely."""
    from py4j.finalizer import ThreadSafeFinalizer

    monkeypatch.setattr(merge, "_without_spark", lambda *_, **__: None)
    named = []
    with modules_kept():
        for number in range(1, BATCHES + 1):
            applied(sink, number, (ORDERS, [insert(id=number, total=0)], 10 * number))
            named.append(len(ThreadSafeFinalizer.finalizers))
    assert named[-1] <= named[1] + 5, named
