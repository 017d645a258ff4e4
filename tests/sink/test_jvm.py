"""The JVM beside the process: its space for compiled code, and what happens when it dies."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark import SparkContext

from cdc_pipeline.config import SparkConfig
from cdc_pipeline.sink.spark import CODE_CACHE_MB, SparkProvider
from tests.sink.in_a_child import run_in_a_child


def _die_and_go_on() -> None:
    provider = SparkProvider(SparkConfig(master="local[1]", driver_memory="512m"))
    session: Any = provider.session()
    beans = session._jvm.java.lang.management.ManagementFactory.getMemoryPoolMXBeans()
    code = sum(pool.getUsage().getMax() for pool in beans if "Code" in pool.getName())
    assert code >= CODE_CACHE_MB << 20, f"{code} bytes for compiled code: Spark's classes fill the default of 48 MiB"
    context: Any = SparkContext
    process = context._gateway.proc
    process.kill()
    process.wait()
    assert provider.session().sql("SELECT 1").collect()[0][0] == 1
    assert SparkProvider(SparkConfig()).session().range(3).count() == 3
    context._gateway.proc.kill()
    context._gateway.proc.wait()
    provider.stop()
    assert not provider.started


@pytest.mark.spark
def test_a_jvm_that_died_is_replaced_and_its_code_cache_is_large() -> None:
    run_in_a_child(_die_and_go_on)
