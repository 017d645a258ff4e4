"""Failed dumps, kept in a small file of the lake, ``_cdc/<source>/dump_errors.json`` (SPEC P5).

Rules:
- The file is replaced as a whole; a run that finds none has nothing to remember.
- Only the holder of the source's lock writes it.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from cdc_pipeline.errors import LakeStateError
from cdc_pipeline.lake.paths import read_json, replace_file
from cdc_pipeline.position.dump_errors import DumpErrors


class DumpErrorFile:
    """`position.dump_errors.DumpErrorStore` in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> DumpErrors:
        """The state that the last run left. Raises LakeStateError: the file is damaged."""
        if not self._path.exists():
            return DumpErrors()
        try:
            return DumpErrors.model_validate_json(read_json(self._path))
        except ValidationError as error:
            raise LakeStateError(
                f"the file that counts failed dumps cannot be read: {self._path}",
                got=str(error.errors()[0]["msg"]),
                next_step="remove the file; counting starts from zero",
            ) from None

    def write(self, errors: DumpErrors) -> None:
        """Replace the state; nothing is written if it is unchanged."""
        if errors == self.read():
            return
        replace_file(self._path, errors.model_dump_json(indent=1).encode())
