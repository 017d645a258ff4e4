"""What a user does with a lake in an object store after a load was killed, in a process of its own:
``tests.lake.storage.snapshot_child CONFIG CURSORS DATABASE INTO``, started by `run_child`.

The load is gone on with; a row is changed by hand; the tables are verified, repaired and verified
again; compacted; copied at their last cut; and one of them is replayed into a side lake at INTO.
Prints what came of it as JSON.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cdc_pipeline.config.pipeline_config import MaintenanceConfig, PipelineConfig
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.operations.backfill.backfill import backfill
from cdc_pipeline.operations.snapshot.snapshot import take_snapshot
from cdc_pipeline.operations.verify.read import VerifyOptions
from cdc_pipeline.operations.verify.verify import verify
from cdc_pipeline.sink.cursor_table import DeltaCursorStore
from cdc_pipeline.sink.maintain.maintenance import maintain
from cdc_pipeline.sink.maintain.materialize import materialize
from cdc_pipeline.sink.read.cuts import find_cut, paths_of
from cdc_pipeline.sink.spark.session import SparkProvider
from cdc_pipeline.sink.spark.sql import table_at
from tests.support.comparison import lake_rows

COLUMNS = {"a": ["id", "v", "n"], "e": ["id", "v"]}


def main(config_file: str, cursor_folder: str, database: str, into: str) -> int:
    config = PipelineConfig.model_validate_json(Path(config_file).read_text(encoding="utf-8"))
    cursors = DeltaCursorStore(Path(cursor_folder), source=config.name)
    provider = SparkProvider.from_config(config.sink)
    paths = LakePaths(config.sink.lake_path, config.name)
    told: dict[str, Any] = {}

    def rows(lake: Path, name: str, columns: list[str]) -> str:
        return repr(lake_rows(provider.session(), lake, database, name, columns))

    report = take_snapshot(config, cursors=cursors)
    told["load"] = (report.outcome, report.rows)
    told["left"] = sorted(at.name for at in (paths.state / "operations").iterdir())

    by_hand = table_at(paths.table(f"{database}.a"))
    provider.session().sql(f"UPDATE {by_hand} SET v = 'by hand' WHERE id = 900").collect()
    asked = VerifyOptions(tables=(f"{database}.a",), repair=True)
    mended = verify(config, cursors=cursors, options=asked)
    a = mended.tables[f"{database}.a"]
    told["verified"] = (
        mended.status,
        [(one.kind, one.key, one.columns) for one in a.repaired_keys],
    )
    told["foreign"] = None if a.foreign is None else a.foreign.counts
    told["scratch"] = [at.name for at in (paths.state / "verify").iterdir()]

    kept = maintain(paths, config.sink, MaintenanceConfig(small_files=2), spark=provider)
    told["maintained"] = (kept.failed, [table.table for table in kept.tables if table.optimized])
    copy = materialize(provider.session(), paths, find_cut(paths), f"{into}-copy")
    told["rows"] = {name: rows(paths.lake, name, columns) for name, columns in COLUMNS.items()}
    told["copy"] = {name: rows(copy.lake, name, columns) for name, columns in COLUMNS.items()}
    versions = lake_rows(
        provider.session(), paths.lake, database, "h_history", ["id", "v", "__START_AT", "__END_AT"]
    )
    told["h"] = repr([row[:2] for row in versions if row[3] is None])
    told["twice"] = len(versions) - len({(key, start) for key, _, start, _ in versions})

    filled = backfill(config, tables=[f"{database}.e"], into=into, start=config.start)
    again = backfill(config, tables=[f"{database}.e"], into=into, start=config.start)
    told["backfill"] = (filled.outcome, filled.partial, again.outcome)
    told["into"] = rows(
        paths_of(config.sink.lake_path, "x").lake.parent / into.rpartition("/")[2],
        "e",
        COLUMNS["e"],
    )
    print(json.dumps(told))
    return 0
