"""Apply net inserts as plain appends, if no row of the target can have their keys (K12: only an
exact target proves that).

Rules:
- A batch of inserts alone, into an *exact* target (`position.cursor.TargetState`): a row that the
  source inserted did not exist there, so it does not exist here either.
- The rows of a snapshot are such inserts if its plan calls the target exact: each key is read once.
- Any batch of whole images into a table that only its own CREATE has committed to: it has no rows.
- What executors write is what this process would: the same functions over the same staged files,
  whose checksums were just compared. A task returns the ``add`` actions of its files; this process
  commits them, so a task that is tried again leaves nothing but files that no log names.
- Inserts whose keys no other row of the batch has are written file by file, so that several tasks
  share them; rows that must be reduced first are the work of one task.
- What a snapshot has staged as data files (`staging.DATA_FILES`) is adopted: the files get a second
  name in the table's folder (in an object store a copy by the store itself), and the commit names
  them with the statistics that they tell. Only if all rows of the batch are in such files, and each
  is in the layout in which the rows would be written now; else they become staged rows again. The
  name is that of the batch, so that a batch that is tried again reuses it.
- Small work stays here: a Spark job costs as much as some megabytes of staged rows.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from cdc_pipeline.errors import RuntimeSetupError
from cdc_pipeline.lake.records import BatchRecord, RecordedTarget, StagedFile
from cdc_pipeline.lake.storage.storage import storage_of
from cdc_pipeline.sink.apply.executors import RunTasks
from cdc_pipeline.sink.delta.data_file import add_action, told_statistics
from cdc_pipeline.sink.delta.plain_commit import PlainCommit
from cdc_pipeline.sink.delta.table_log import TableLog
from cdc_pipeline.sink.modes.mirror_rows import (
    MirrorFiles,
    last_rows,
    may_reduce_in_memory,
    mirror_files,
    staged_pieces,
)
from cdc_pipeline.sink.modes.reduce import Layout
from cdc_pipeline.sink.staging.staging import DATA_FILES

_CREATED_VERSION: Final = 0  # of a table that only its CREATE has committed to


def may_append(record: BatchRecord, target: RecordedTarget, there: TableLog) -> bool:
    if not target.all_present or target.partial_key_updates:
        return False
    if there.version == _CREATED_VERSION and there.transaction_version < 0:
        return True
    return record.kind in ("batch", "snapshot") and target.keys_come_once


def add_appended(
    commit: PlainCommit, target: RecordedTarget, *, lake: Path, codec: str, run: RunTasks | None
) -> bool:
    """False, with nothing written, if Spark must do it. Raises as `write_data_files`."""
    files = mirror_files(commit, target, codec=codec)
    if files is None or not (target.keys_come_once or may_reduce_in_memory(target)):
        return False
    commit.add_files(_written(files, lake=lake, run=run))
    return True


def add_adopted(commit: PlainCommit, target: RecordedTarget, *, lake: Path, codec: str) -> bool:
    """Make the staged data files of a plain table its own. False, with nothing done, if its files
    are to be other ones. Raises OSError, SinkError.
    """
    files = mirror_files(commit, target, codec=codec)
    if files is None:
        return False
    adds = [_adopted(file, files, lake=lake) for file in target.files]
    found = [add for add in adds if add is not None]
    if len(found) < len(adds):
        return False
    storage = storage_of(commit.path)
    for file, add in zip(target.files, found, strict=True):
        storage.share(lake / file.path, commit.path / add["path"])
    storage.make_durable(commit.path)
    commit.add_files(found)
    return True


def _adopted(file: StagedFile, files: MirrorFiles, *, lake: Path) -> dict[str, Any] | None:
    if not file.path.endswith(DATA_FILES):
        return None
    statistics = told_statistics(lake / file.path, files.layout)
    if statistics is None:
        return None
    unique = uuid.uuid5(uuid.NAMESPACE_OID, f"{files.target.app_id}/{file.path}/{file.sha256}")
    return add_action(files.layout.file_name(unique), file.size_bytes, statistics)


_TASK_BYTES: Final = 64 << 20  # of staged rows
_EXECUTORS_BYTES_MIN: Final = 4 << 20


def _written(files: MirrorFiles, *, lake: Path, run: RunTasks | None) -> list[dict[str, Any]]:
    staged = files.target.files
    if run is not None and sum(file.size_bytes for file in staged) >= _EXECUTORS_BYTES_MIN:
        groups = _groups(staged) if files.target.keys_come_once else [list(staged)]
        tasks = [json.dumps([file.path for file in group]) for group in groups]
        # If they fail, the work succeeds here, or fails with an error that says why.
        with suppress(RuntimeSetupError):
            answers = run(tasks, partial(_write, files=files, lake=lake))
            return [add for text in answers for add in json.loads(text)]
    return _written_here(files, [lake / file.path for file in staged])


def _written_here(files: MirrorFiles, paths: list[Path]) -> list[dict[str, Any]]:
    if files.target.keys_come_once:
        return files.write(staged_pieces(paths))
    return files.write([last_rows(paths, Layout(files.target))])


def _groups(files: Sequence[StagedFile]) -> list[list[StagedFile]]:
    groups: list[list[StagedFile]] = []
    size_bytes = 0
    for file in files:
        if not groups or size_bytes + file.size_bytes > _TASK_BYTES:
            groups.append([])
            size_bytes = 0
        groups[-1].append(file)
        size_bytes += file.size_bytes
    return groups


def _write(task: str, *, files: MirrorFiles, lake: Path) -> str:
    return json.dumps(_written_here(files, [lake / name for name in json.loads(task)]))
