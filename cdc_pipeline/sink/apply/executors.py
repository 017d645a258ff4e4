"""Whether Spark's executors can work for this process.

A cluster's workers have their own Pythons and disks. One small task finds beforehand what would
fail there: another version of this package, or a folder of their own under the lake's path.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cdc_pipeline import version
from cdc_pipeline.errors import CdcError, RuntimeSetupError
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.storage.storage import storage_of
from cdc_pipeline.sink.spark.journal_tasks import run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RunTasks = Callable[[Sequence[str], Callable[[str], str]], list[str]]

_TASKS: Final = 8  # more than one machine may answer


def lack_of_executors(session: SparkSession, paths: LakePaths) -> str:
    with _token(paths) as token:
        try:
            answers = run_tasks(session, [""] * _TASKS, partial(_answer, token=token))
        except RuntimeSetupError as error:
            return f"Spark's executors cannot run this package: {error.got}"
    found = {tuple(answer.split("\n")) for answer in answers}
    other = sorted({theirs for theirs, _ in found} - {version.__version__})
    if other:
        return (
            f"Spark's executors have cdc_pipeline {', '.join(other)}, the driver has "
            f"{version.__version__}"
        )
    if any(text != token.name for _, text in found):
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
    """The package's version on an executor, and what it reads in the lake, after importing what
    decoding needs there.
    """
    from cdc_pipeline.binlog.rows import rows  # noqa: F401  (with all that it needs)

    try:
        text = storage_of(token).read(token).decode()
    except (OSError, CdcError):
        text = ""
    return f"{version.__version__}\n{text}"
