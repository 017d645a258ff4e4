"""What the lake holds at the end, beside the server's SELECT, without the product's own reading.

Of a changelog the counters are compared: each number that a counter has had must be in it once, and
in order; so must a history have a version for each. (Of all other changelogs `verify` compares the
last images.)
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from cdc_pipeline.lake.paths import LakePaths, list_numbers
from cdc_pipeline.lake.state import read_cut
from cdc_pipeline.text.table_names import split_table_name
from tests.campaigns.sink.comparing import difference
from tests.campaigns.sink.oracle import Oracle
from tests.campaigns.soak.workload import COUNTER_DATABASE
from tests.servers import Server
from tests.support.comparison import present
from tests.support.delta_reader import DeltaTable, read_delta


def compare(server: Server, lake: Path, source: str) -> tuple[int, list[str]]:
    """Compare every target of the last cut. Returns how many were compared, and what differs."""
    paths = LakePaths(lake.absolute(), source)
    cut = read_cut(paths, list_numbers(paths.cuts)[-1])
    oracle, findings, compared = Oracle(), [], 0
    place = server.end_position()
    with server.root_connection() as connection, connection.cursor() as cursor:
        for name, state in sorted(cut.cursor.targets.items()):
            (table,) = state.source_names
            if state.suspended is not None:
                findings.append(f"{name} is suspended: {state.suspended.what}")
                continue
            if name not in cut.tables:
                findings.append(f"{name} has no table in the last cut")
                continue
            schema, own_name = split_table_name(table)
            oracle.note(cursor, schema, own_name, place)
            expected = oracle.states[f"{schema}.{own_name}"][-1]
            if expected.columns is None:
                continue  # an interim table of an online change
            version, mode = cut.tables[name].table_version, cut.tables[name].spec.mode
            there = read_delta(paths.table(name), version)
            compared += 1
            what = ""
            if table.startswith(COUNTER_DATABASE):
                final = dict(server.query(f"SELECT id, n FROM {table}"))
                what = _counted(there, mode, final)
            if mode != "changelog":
                what = what or difference(replace(there, rows=present(there.rows, mode)), expected)
            if what:
                findings.append(f"{name} ({mode}): {what}")
    return compared, findings


def _counted(there: DeltaTable, mode: str, final: dict[int, int]) -> str:
    """What is missing or twice of the numbers of each counter, where all of them are kept."""
    order = {"changelog": "_cdc_seq", "history": "__START_AT"}.get(mode)
    if order is None:
        return ""
    numbers: dict[int, list[int]] = defaultdict(list)
    for row in sorted(there.rows, key=lambda row: int(row[order])):
        numbers[row["id"]].append(row["n"])
    for counter, last in final.items():
        if numbers[counter] != list(range(last + 1)):
            kept = numbers[counter]
            missing = sorted(set(range(last + 1)) - set(kept))
            return (
                f"counter {counter} has had 0 to {last}; {len(kept)} kept, missing "
                f"{missing[:5]}, too many {len(kept) - len(set(kept))}"
            )
    return ""
