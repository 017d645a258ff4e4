"""Write the data files of a plain mirror from its staged rows, here or on executors.

Rules:
- What executors write is what this process would: the same functions over the same staged files,
  whose checksums were just compared. A task returns the ``add`` actions of its files; this process
  commits them, so a task that is tried again leaves nothing but files that no log names.
- Inserts whose keys no other row of the batch has are written file by file, so that several tasks
  share them; rows that must be reduced first are the work of one task.
- Small work stays here: a Spark job costs as much as some megabytes of staged rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from cdc_pipeline.errors import RuntimeSetupError
from cdc_pipeline.lake.records import RecordedTarget, StagedFile
from cdc_pipeline.sink.apply.executors import RunTasks
from cdc_pipeline.sink.apply.mirror_rows import last_rows, mirror_rows, read_staged, staged_pieces
from cdc_pipeline.sink.delta.data_file import write_data_files
from cdc_pipeline.sink.modes.mode_columns import SEQ_COLUMN
from cdc_pipeline.sink.modes.reduce import Layout

_TASK_BYTES: Final = 64 << 20  # of staged rows
_EXECUTORS_BYTES_MIN: Final = 4 << 20


@dataclass(frozen=True)
class MirrorFiles:
    """How the staged rows of a target become data files; `is_reduced`: no key occurs twice."""

    target: RecordedTarget
    path: Path
    types: dict[str, pa.DataType]
    properties: dict[str, str]
    codec: str
    is_reduced: bool

    def write(self, *, lake: Path, run: RunTasks | None) -> list[dict[str, Any]]:
        """The ``add`` actions of the target's staged rows; `run` computes tasks on executors.
        Raises pa.ArrowInvalid, OSError, SinkError: see `write_data_files`.
        """
        staged = self.target.files
        if run is None or sum(file.size_bytes for file in staged) < _EXECUTORS_BYTES_MIN:
            return self.write_here([lake / file.path for file in staged])
        groups = _groups(staged) if self.is_reduced else [list(staged)]
        tasks = [json.dumps([file.path for file in group]) for group in groups]
        try:
            found = run(tasks, partial(_write, how=self, lake=lake))
        except RuntimeSetupError:
            # Here the work succeeds, or fails with an error that says why.
            return self.write_here([lake / file.path for file in staged])
        return [add for text in found for add in json.loads(text)]

    def write_here(self, files: list[Path]) -> list[dict[str, Any]]:
        pieces: Iterable[pa.Table] = staged_pieces(files)
        if not self.is_reduced:
            pieces = [last_rows(read_staged(files), Layout(self.target))]
        # The next lookup needs bounds of these, in wide tables too.
        bounded = (*self.target.spec.key, SEQ_COLUMN)
        return write_data_files(
            self.path,
            (mirror_rows(piece, self.target) for piece in pieces),
            self.types,
            properties=self.properties,
            bounded=bounded,
            codec=self.codec,
        )


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


def _write(task: str, *, how: MirrorFiles, lake: Path) -> str:
    return json.dumps(how.write_here([lake / name for name in json.loads(task)]))
