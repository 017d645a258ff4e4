"""A long operation's own files in an object store."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.lake.long_operations import (
    Operation,
    OperationFolder,
    Progress,
    begin,
    claim,
    new_operation_id,
    operation_ids,
)
from cdc_pipeline.position.cursor import CursorState
from tests.support.object_store import Store


def test_k18_k25_a_finished_gap_is_remembered_where_no_other_reads_it(store: Store) -> None:
    config = PipelineConfig.model_validate(
        {
            "name": "bank",
            "source": {"kind": "live", "host": "nowhere", "user": "u", "password": "p"},
            "sink": store.sink_config(),
        }
    )
    cursor = CursorState(
        source="bank",
        flavor="mysql",
        server_id=1,
        journal="binlog.000004",
        offset=4,
        batch_number=1,
    )
    asked = Operation(
        operation_id=new_operation_id(),
        kind="gap",
        source="bank",
        sources=("shop.a",),
        cursor=cursor,
    )

    def claimed(
        matches: Callable[[Operation], bool] = asked.is_same,
    ) -> list[tuple[OperationFolder, Operation]]:
        with ExitStack() as stack:
            return claim(config, "gap", stack, matches=matches)

    with ExitStack() as stack:
        folder = begin(config, asked, stack)
        folder.write_progress(0, Progress(batch_number=7))
        assert operation_ids(config) == [asked.operation_id]
    ((_, resumed),) = claimed()
    assert resumed == asked
    folder.change(asked.model_copy(update={"is_over": True}))  # killed before it has removed it
    assert claimed(lambda other: not other.is_over) == []  # as the command asks
    assert operation_ids(config) == []
    for _ in range(2):
        ((_, over),) = claimed()
        assert over.is_over
        assert (operation_ids(config), folder.read_progress()) == ([], Progress())
    folder.forget()
    assert claimed() == []
