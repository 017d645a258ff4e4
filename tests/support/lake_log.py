"""What a lake's own logs say of its batches, read from a folder; a commit of another program."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.lake.state import read_cut
from cdc_pipeline.sink.delta.plain_commit import put_commit, removed
from cdc_pipeline.sink.delta.replay import readable_state


def cuts_of(lake: Path, source: str) -> list[Cut]:
    paths = LakePaths(lake, source)
    return [read_cut(paths, int(file.stem)) for file in sorted(paths.cuts.glob("*.json"))]


def assert_each_batch_once(lake: Path, source: str) -> None:
    """No transaction version twice in a table's log; the cuts are numbered without a gap."""
    cuts = cuts_of(lake, source)
    assert [cut.batch_number for cut in cuts] == list(range(1, len(cuts) + 1))
    for log in lake.glob("*/*/_delta_log"):
        versions = Counter(
            (action["txn"]["appId"], action["txn"]["version"])
            for commit in sorted(log.glob("*.json"))
            for action in map(json.loads, commit.read_text(encoding="utf-8").splitlines())
            if "txn" in action
        )
        assert set(versions.values()) == {1}, log


def empty(table: Path) -> None:
    """As another program's DELETE of all rows commits it."""
    state = readable_state(table)
    gone = [removed(add) for add in state.adds.values()]
    put_commit(table, state.version + 1, gone, "DELETE", {}, note="")
