"""Describe the files of a Delta table from its log, to decide whether compaction or a vacuum would
pay. Needs no JVM."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cdc_pipeline.sink.delta.log import open_delta, unreadable_log
from cdc_pipeline.sink.delta.row_count import row_count


@dataclass(frozen=True, slots=True)
class TableShape:
    """The newest version of a table, by its active files. `rows` include deleted ones, -1 if a
    file has no statistics; `deleted_rows` are those that deletion vectors mark, 0 if not known.
    """

    version: int
    files: int
    small_files: int
    size_bytes: int
    rows: int
    deleted_rows: int

    @property
    def deleted_share(self) -> float:
        return self.deleted_rows / self.rows if self.rows > 0 else 0.0


def table_shape(path: Path, *, small_file_bytes: int) -> TableShape:
    """Raises LakeStateError: its log cannot be read."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from deltalake.exceptions import DeltaError

    try:
        table = open_delta(path)
        files = pa.table(table.get_add_actions(flatten=True))
    except (DeltaError, OSError, ValueError) as error:
        raise unreadable_log(path, error) from None
    sizes, counts = files["size_bytes"], files["num_records"]
    rows = -1 if counts.null_count else int(pc.sum(counts, min_count=0).as_py())
    living = None if rows < 0 else row_count(path, version=table.version())
    return TableShape(
        version=table.version(),
        files=len(files),
        small_files=int(pc.sum(pc.less(sizes, small_file_bytes), min_count=0).as_py()),
        size_bytes=int(pc.sum(sizes, min_count=0).as_py()),
        rows=rows,
        deleted_rows=0 if living is None else rows - living,
    )
