"""The start that a source's first run was given, in ``_cdc/<source>/start.json``: a later change of
`start` has no effect, which is said (K31).

Rules:
- A run without a cursor writes it, under the source's lock.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from cdc_pipeline.config.pipeline_config import Start
from cdc_pipeline.errors import LakeStateError
from cdc_pipeline.lake.paths import read_json, replace_file

_START: TypeAdapter[Start] = TypeAdapter(Start)


class FirstStartFile:
    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> Start | None:
        """The start; None if none is kept. Raises LakeStateError: the file is damaged."""
        if not self._path.exists():
            return None
        try:
            return _START.validate_json(read_json(self._path))
        except ValidationError as error:
            raise LakeStateError(
                f"the file with the first run's start cannot be read: {self._path}",
                got=str(error.errors()[0]["msg"]),
                next_step="remove the file: it only tells whether `start` was changed",
            ) from None

    def write(self, start: Start) -> None:
        if start != self.read():
            replace_file(self._path, _START.dump_json(start))


def changed_start(kept: Start | None, start: Start, *, pipeline_name: str) -> tuple[str, ...]:
    """The warning that the configured start is not the first run's; () if it is, or if that is not
    known.
    """
    if kept is None or kept == start:
        return ()
    return (
        "start was changed after the first run, without effect: each run begins at the cursor, "
        f"and `cdc-pipeline cursor set {pipeline_name}` moves it",
    )
