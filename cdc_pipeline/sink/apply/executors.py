"""Run tasks on Spark's executors, if they can work for this process.

A cluster's workers have their own Pythons and disks. One small task finds beforehand what would
fail there: another version of this package, or a folder of their own under the lake's path.

Rules:
- A task is a text, and so is its result; the caller passes the function to apply, which the
  executors import. This module knows nothing of what tasks do.
- Tasks are independent: each is a separate partition, and results come back in the order of the
  tasks.
- A task reports a fault in what it works on in its result. An exception here is a failure of the
  executor.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from cdc_pipeline import version
from cdc_pipeline.errors import CdcError, RuntimeSetupError
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.storage.storage import storage_of
from cdc_pipeline.text.server_messages import said_by

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


RunTasks = Callable[[Sequence[str], Callable[[str], str]], list[str]]

_TASKS: Final = 8  # more than one machine may answer


def executor_refusal(session: SparkSession, paths: LakePaths) -> str:
    with _token(paths) as token:
        try:
            answers = run_tasks(session, [""] * _TASKS, partial(_answer, token=token))
        except RuntimeSetupError as error:
            return f"Spark's executors cannot run this package: {error.got}"
    seen = {tuple(answer.split("\n")) for answer in answers}
    other = sorted({theirs for theirs, _ in seen} - {version.__version__})
    if other:
        return (
            f"Spark's executors have cdc_pipeline {', '.join(other)}, the driver has "
            f"{version.__version__}"
        )
    if any(text != token.name for _, text in seen):
        return f"Spark's executors do not see the driver's files in the lake, {paths.lake}"
    return ""


@contextmanager
def _token(paths: LakePaths) -> Iterator[Path]:
    token = paths.staging_root / f"token-{uuid.uuid4().hex}" / "token"
    storage = storage_of(token)
    storage.make_folder(token.parent)
    storage.put_if_absent(token, token.name.encode())
    try:
        yield token
    finally:
        with suppress(OSError):  # the next start removes it
            storage.remove_tree(token.parent)


def _answer(_task: str, *, token: Path) -> str:
    """The package's version, and what the lake has, after importing what decoding needs."""
    from cdc_pipeline.binlog.rows import rows  # noqa: F401  (with all that it needs)

    try:
        text = token.read_bytes().decode()
    except (OSError, CdcError):
        text = ""
    return f"{version.__version__}\n{text}"


Work = Callable[[str], str]

_RESULT: Final = "id bigint, result string"


def run_tasks(session: SparkSession, tasks: Sequence[str], work: Work) -> list[str]:
    """The result of `work` for each task. Raises RuntimeSetupError: an executor failed."""
    if not tasks:
        return []
    # A range has exactly one row in each of its partitions.
    frame: Any = session.range(0, len(tasks), 1, len(tasks))
    try:
        answers = frame.mapInArrow(
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
        zip(answers.column("id").to_pylist(), answers.column("result").to_pylist(), strict=True)
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
