"""Schema history as a small file of the lake, ``_cdc/<source>/schema_history.json``.

Rules:
- It is replaced as a whole, before the record or cursor that needs its new content: it may be ahead
  of the cursor, never behind. Content behind the cursor is ignored when it is read, and created
  again.
- Only the holder of the source's lock writes it.
- A cursor that a person sets may pass over DDL: then the file is removed first, and the next run
  reads the catalog again.
"""

from __future__ import annotations

from pathlib import Path

from cdc_pipeline.lake.paths import damaged, read_if_there, replace_file
from cdc_pipeline.lake.storage.storage import storage_of
from cdc_pipeline.schema.history.history import SchemaHistory


class SchemaHistoryFile:
    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> SchemaHistory:
        """The history as it was written; an empty one if there is none. Raises LakeStateError: the
        file is damaged.
        """
        next_step = (
            "use the version of the program that wrote it, or remove the file: the columns of "
            "tables below full row metadata are then read from the catalog again"
        )
        try:
            return read_if_there(
                self._path, SchemaHistory.from_json, absent=SchemaHistory(), next_step=next_step
            )
        except OSError as error:
            raise damaged(self._path, error, next_step=next_step) from None

    def write(self, history: SchemaHistory) -> None:
        replace_file(self._path, history.to_json().encode())

    def forget(self) -> None:
        if self._path.exists():
            storage_of(self._path).remove(self._path)
