"""Small values that a source's runs leave to later ones in its state folder: failed dumps in a row
(``dump_errors.json``, SPEC P5), and the start that the first run was given (``start.json``, K31).

Rules:
- A file is replaced as a whole; a run that finds none has nothing to remember.
- Only the holder of the source's lock writes. A run without a cursor writes the start: a later
  change of `start` has no effect, which is said.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import TypeAdapter

from cdc_pipeline.config.pipeline_config import GtidConfig, PositionConfig, Start, TimeConfig
from cdc_pipeline.lake.paths import LakePaths, read_if_there, replace_file
from cdc_pipeline.position.dump_errors import DumpErrors

_Value = TypeVar("_Value")


class NoteFile(Generic[_Value]):
    """A value in a file; `absent` if there is none. `loss`: what removing a damaged file means."""

    def __init__(self, path: Path, kind: TypeAdapter[_Value], *, absent: _Value, loss: str) -> None:
        self._path, self._kind, self._absent, self._loss = path, kind, absent, loss
        self._last: _Value | None = None

    def read(self) -> _Value:
        """Raises LakeStateError: the file is damaged."""
        self._last = read_if_there(
            self._path,
            self._kind.validate_json,
            absent=self._absent,
            next_step=f"remove the file: {self._loss}",
        )
        return self._last

    def write(self, value: _Value) -> None:
        """Nothing is written if it is what was read last. Only for the holder of the lock."""
        if value != (self.read() if self._last is None else self._last):
            replace_file(self._path, self._kind.dump_json(value))
            self._last = value


def dump_error_file(paths: LakePaths) -> NoteFile[DumpErrors]:
    return NoteFile(
        paths.dump_errors,
        TypeAdapter(DumpErrors),
        absent=DumpErrors(),
        loss="counting starts from zero",
    )


def first_start_file(paths: LakePaths) -> NoteFile[Start | None]:
    """None if no start is kept."""
    return NoteFile(
        paths.first_start,
        TypeAdapter(Start | None),
        absent=None,
        loss="it only tells whether `start` was changed",
    )


def changed_start(kept: Start | None, start: Start, *, pipeline_name: str) -> tuple[str, ...]:
    """The warning that the configured start is not the first run's; () if it is, or if that is not
    known.
    """
    if kept is None or kept == start:
        return ()
    moves = ""
    if not (isinstance(start, TimeConfig) and start.journal):  # which no command can say
        command = f"cdc-pipeline cursor set {pipeline_name} --from {shlex.quote(_begin(start))}"
        moves = f"`{command}` moves it there (forwards skips changes), or "
    return (
        "start was changed after the first run, without effect: each run begins at the cursor; "
        f"{moves}set `start` back as it was",
    )


def _begin(start: Start) -> str:
    """As `cursor set` takes it."""
    if isinstance(start, str):
        return start
    if isinstance(start, PositionConfig):
        return f"{start.journal}:{start.offset}"
    return start.gtid_set if isinstance(start, GtidConfig) else start.time.isoformat()
