"""Tables that count their commits and hold no rows: the state of a lake grows as in real runs, and
a run costs milliseconds.

Records, cuts, staged files and everything else of the sink are the product's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cdc_pipeline.config.pipeline_config import SinkConfig
from cdc_pipeline.errors import CdcError, LakeStateError
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.records import BatchRecord, Cut
from cdc_pipeline.sink.delta.commit import MERGE_STEP, transaction_version
from cdc_pipeline.sink.lake_sink import Sink
from cdc_pipeline.sink.protocol import Applied, OnMerged, TableVersion
from tests.support.memory_sink import At, MemoryLake, MemoryTables

Commit = Callable[[BatchRecord, str, At], None]


@dataclass
class History:
    """The tables of a lake, as their last cut has them. `commit`: makes a table's new version, if
    anything is to be made; `versions`: the newest version of each table.
    """

    commit: Commit
    versions: dict[str, At]


class CountedTables(MemoryTables):
    """Every table's newest version; see `protocol.Tables`."""

    def __init__(self, paths: LakePaths, history: History) -> None:
        super().__init__(paths, MemoryLake(), has_catalog=False)
        self._history = history

    def check(self, cut: Cut, table: str, pending: BatchRecord | None) -> None:
        """Every table is as the cut says."""

    def failing(
        self,
        cut: Cut,  # noqa: ARG002  (the protocol's)
        pending: BatchRecord | None,  # noqa: ARG002
        *,
        is_locked: bool = False,  # noqa: ARG002
    ) -> dict[str, LakeStateError]:
        return {}

    def apply(
        self,
        record: BatchRecord,
        previous: Cut | None,  # noqa: ARG002
        *,
        without: Mapping[str, CdcError],  # noqa: ARG002  (the protocol's)
        check_lock: Callable[[], None],  # noqa: ARG002
        on_merged: OnMerged = lambda _tables, _of: None,
    ) -> Applied:
        versions, there = self._history.versions, dict[str, TableVersion]()
        for target in record.targets:
            known = versions.get(target.table, At(-1, -1))
            made = At(known.version + 1, transaction_version(record.batch_number, MERGE_STEP))
            self._history.commit(record, target.table, made)
            versions[target.table] = there[target.table] = made
            on_merged(len(there), len(record.targets))
        return Applied(there)


def counted_sink(
    history: History, *, source: str, config: SinkConfig, kind: type[CountedTables] = CountedTables
) -> Sink:
    paths = LakePaths(config.lake_path.absolute(), source)
    return Sink(paths, tables=kind(paths, history), cut_retention=config.cut_retention)
