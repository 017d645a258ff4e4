"""Run tasks on Spark's executors, such as one for each segment of a journal.

Rules:
- A task is a text, and so is its result; the caller passes the function to apply, which the
  executors import. This module knows nothing of what tasks do.
- Tasks are independent: each is a separate partition, and results come back in the order of the
  tasks.
- A task reports a fault in what it works on in its result. An exception here is a failure of the
  executor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from cdc_pipeline.errors import RuntimeSetupError
from cdc_pipeline.text.server_messages import said_by

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Work = Callable[[str], str]

_RESULT: Final = "id bigint, result string"


def run_tasks(session: SparkSession, tasks: Sequence[str], work: Work) -> list[str]:
    """The result of `work` for each task. Raises RuntimeSetupError: an executor failed."""
    if not tasks:
        return []
    # A range has exactly one row in each of its partitions.
    frame: Any = session.range(0, len(tasks), 1, len(tasks))
    try:
        found = frame.mapInArrow(
            partial(_batches, tasks=tuple(tasks), work=work), _RESULT
        ).toArrow()
    except Exception as error:
        raise RuntimeSetupError(
            "a task on Spark's executors failed",
            got=said_by(error),
            next_step="run again to continue, or without executors (batch.decode: driver; a "
            "backfill without --parallel); executors need this package, and the journals and the "
            "lake under the same paths",
        ) from None
    results = dict(
        zip(found.column("id").to_pylist(), found.column("result").to_pylist(), strict=True)
    )
    return [results[number] for number in range(len(tasks))]


def _batches(
    batches: Iterator[pa.RecordBatch], *, tasks: tuple[str, ...], work: Work
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        numbers = batch.column("id").to_pylist()
        results = [work(tasks[number]) for number in numbers]
        yield pa.record_batch(
            [pa.array(numbers, pa.int64()), pa.array(results, pa.string())], names=["id", "result"]
        )
