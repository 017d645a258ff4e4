"""Planning over the archive: CPU-seconds of each way to start, in one process."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from benchmarks.backlog.journals import Archive, name_of
from benchmarks.report import Figure
from cdc_pipeline.clock import time_of
from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.position.cursor import CursorState, MemoryCursorStore
from cdc_pipeline.run.plan.planning import plan

CPU_S_MAX = 2.0


def figures(archive: Archive, small: Archive, folder: Path) -> list[Figure]:
    found = []
    for name, (start, cursor, bound) in ways(archive).items():
        _planned(ways(small)[name], small, folder)
        begun_s = time.process_time()
        journal = _planned((start, cursor, bound), archive, folder)
        cpu_s = time.process_time() - begun_s
        expected = EXPECTED.get(name, archive.journal)
        if journal != expected:
            raise SystemExit(f"{name}: the plan starts in {journal}, not in {expected}")
        found.append(Figure(f"plan, {name}", cpu_s, "CPU-s", CPU_S_MAX))
    return found


EXPECTED = {"earliest": name_of(1)}

Way = tuple[Any, CursorState | None, Any]


def ways(archive: Archive) -> dict[str, Way]:
    """Return start, cursor and bound of each way, all at one place if there is a choice."""
    cursor = CursorState(
        source="bench",
        batch_number=0,
        flavor="mysql",
        server_id=7,
        address=str(archive.folder),
        journal=archive.journal,
        offset=archive.offset,
        gtid_set=archive.gtid_set,
        journal_created_s=archive.created_s,
        timestamp_s=archive.time_us // 1_000_000,
    )
    moment = time_of(archive.time_us).isoformat()
    last = {"journal": name_of(archive.journals), "offset": 4}
    return {
        "earliest": ("earliest", None, "end_of_log"),
        "a journal and an offset": (
            {"journal": archive.journal, "offset": archive.offset},
            None,
            "end_of_log",
        ),
        "a GTID set": ({"gtid_set": archive.gtid_set}, None, "end_of_log"),
        "a time": ({"time": moment}, None, "end_of_log"),
        "a time in a journal": (
            {"journal": archive.journal, "time": moment},
            None,
            "end_of_log",
        ),
        "the cursor": ("earliest", cursor, "end_of_log"),
        "the cursor, a bound in the last journal": ("earliest", cursor, last),
        "a cursor of another server, by GTID set": (
            "earliest",
            cursor.model_copy(update={"server_id": 8, "address": "db1:3306"}),
            "end_of_log",
        ),
    }


def _planned(way: Way, archive: Archive, folder: Path) -> str:
    start, cursor, bound = way
    config = PipelineConfig.model_validate(
        {
            "name": "bench",
            "source": {"kind": "archive", "directory": archive.folder},
            "tables": {"include": ["shop.*"]},
            "start": start,
            "bound": bound,
            "sink": {"lake_path": folder / "lake"},
        }
    )
    return plan(config, cursors=MemoryCursorStore(cursor)).start.journal
