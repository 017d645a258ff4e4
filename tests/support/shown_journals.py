"""What `cdc-pipeline binlog` shows of journals, without its command line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from cdc_pipeline.operations.inspect.inputs import read_all
from cdc_pipeline.operations.inspect.inspect import Inspection
from cdc_pipeline.operations.inspect.selection import OPERATIONS, STATEMENT, Selection
from cdc_pipeline.operations.inspect.summary import JournalSummary


def inspect(paths: Sequence[Path], selection: Selection | None = None) -> JournalSummary:
    """Count what the journals hold, by event type and table."""
    inspection = Inspection(selection)
    return inspection.summary(read_all(paths, inspection.selection))


def changes(paths: Sequence[Path], *, table_patterns: Sequence[str] = ()) -> Iterator[str]:
    """Every change as a line of JSON, of tables that match shell patterns (by default all).
    Raises CdcError with journal and offset; what came before was yielded.
    """
    selection = Selection(
        tables=tuple(table_patterns), operations=frozenset(OPERATIONS) - {STATEMENT}
    )
    inspection = Inspection(selection)
    for block in inspection.lines(read_all(paths, selection)):
        yield from block.decode().split("\n")[:-1]
