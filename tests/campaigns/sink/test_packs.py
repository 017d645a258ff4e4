"""A sample of the campaign: a few seeds on each server, every cut against the server's
SELECT."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cdc_pipeline.sink.read.read import table_frame
from tests.campaigns.sink.column_types import plain
from tests.campaigns.sink.comparing import rows_of
from tests.campaigns.sink.group import Group, Way
from tests.campaigns.sink.spark_settings import SPARK
from tests.campaigns.sink.verify import Lake
from tests.campaigns.sink.workload import Size
from tests.servers import Server

pytestmark = [pytest.mark.spark, pytest.mark.whole]

# Few merges: each costs seconds.
SIZE = Size(tables_max=1, steps=1, transactions_max=4, changes_max=1)
WAYS = {
    "mysql": Way(
        stepwise=False, archive=False, merge_rows=5_000_000, runs=1, crashes=True, engines=("auto",)
    ),
    "mariadb": Way(
        stepwise=False, archive=True, merge_rows=100, runs=1, crashes=False, engines=("spark",)
    ),
}
# Each costs CPU-seconds of the suite: another DDL in each, and the last of MySQL's in all modes.
SEEDS = {"mysql": [9010, 9015, 9047, 9053, 9597], "mariadb": [9104, 9107, 9118, 9126, 9171]}
DDL = {
    "mysql": {"gh_ost", "create_select", "widen", "pt_osc", "truncate"},
    "mariadb": {"gh_ost", "drop_column", "swap_columns", "rename_column", "drop_database"},
}
MODES = {"mysql": {"mirror", "soft_delete", "history", "changelog"}, "mariadb": {"mirror"}}


def test_k13_every_cut_is_what_the_server_had(server: Server, tmp_path: Path, spark: Any) -> None:
    """K2, K10, K11, K13: whatever the workload, its DDL, the crash in between, and the way in which
    it is captured."""
    group = Group(server, SEEDS[server.flavor], tmp_path, SPARK, size=SIZE, way=WAYS[server.flavor])
    try:
        verdict = group.play()
        assert not verdict.findings, "\n".join(map(str, verdict.findings))
        assert verdict.modes.keys() == MODES[server.flavor]
        assert {kind for pack in group.packs for kind in pack.changes} == DDL[server.flavor]
        assert {f"compared: {mode}" for mode in MODES[server.flavor]} <= verdict.changes.keys()
        (engine,) = WAYS[server.flavor].engines
        _assert_spark_agrees(group.lake(engine), spark)
    finally:
        group.drop()


def _assert_spark_agrees(lake: Lake, spark: Any) -> None:
    cut = lake.cuts()[-1]
    name, version = max(
        ((name, table.table_version) for name, table in cut.tables.items()),
        key=lambda pair: pair[1],
    )
    there = lake.table(name, version)
    rows = table_frame(spark, lake.paths.table(name), version=version).toArrow().to_pylist()
    got = sorted((tuple(plain(value) for value in row.values()) for row in rows), key=repr)
    assert got == rows_of(there, there.columns)
