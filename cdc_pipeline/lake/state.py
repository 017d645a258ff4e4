"""Read and check the state of a source in the lake, without a JVM (K2, K3).

Rules:
- The last cut is the state; the record one above it is a batch to finish. A record further ahead
  contradicts that.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from cdc_pipeline.errors import LakeStateError
from cdc_pipeline.lake.paths import LakePaths, list_numbers, read_json
from cdc_pipeline.lake.records import BatchRecord, Cut
from cdc_pipeline.lake.table_facts import with_facts

_Document = TypeVar("_Document", Cut, BatchRecord)


def read_cut(paths: LakePaths, number: int) -> Cut:
    """Return cut `number`.

    Raises:
        LakeStateError: it does not exist or cannot be understood.
    """
    return with_facts(paths, _read(Cut, paths.cut(number), paths.source, number))


def read_record(paths: LakePaths, number: int) -> BatchRecord:
    """Return the record of batch `number`.

    Raises:
        LakeStateError: it does not exist or cannot be understood.
    """
    return _read(BatchRecord, paths.batch(number), paths.source, number)


def last_cut(paths: LakePaths) -> Cut | None:
    """Return the cut with the highest number; None in a new lake."""
    numbers = list_numbers(paths.cuts)
    return read_cut(paths, numbers[-1]) if numbers else None


def pending_record(paths: LakePaths) -> BatchRecord | None:
    """Return the record after the last cut: its batch was not finished.

    Raises:
        LakeStateError: there is a record further ahead.
    """
    cuts, batches = list_numbers(paths.cuts), list_numbers(paths.batches)
    number = cuts[-1] if cuts else 0
    ahead = [batch for batch in batches if batch > number + 1]
    if ahead:
        raise LakeStateError(
            f"a batch was recorded, but the batches before it have no cut: {paths.batch(ahead[0])}",
            expected=f"no record above batch {number + 1}: the last cut is {number}",
            got=f"records of batches {', '.join(map(str, ahead[:5]))}",
            next_step=f"restore the missing files of {paths.cuts} from a backup of the lake",
        )
    return read_record(paths, number + 1) if number + 1 in batches else None


def _read(kind: type[_Document], path: Path, source: str, number: int) -> _Document:
    text = read_json(path)
    try:
        document = kind.model_validate_json(text)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:3]
        )
        raise LakeStateError(
            f"a file of the lake's own records cannot be read: {path}",
            expected="a format that this version of the program knows",
            got=problems,
            next_step="use the version of the program that wrote it, or restore the file from a "
            "backup of the lake",
        ) from None
    if (document.source, document.batch_number) != (source, number):
        raise LakeStateError(
            f"the contents of a file of the lake's own records contradict its name: {path}",
            expected=f"source {source}, batch {number}",
            got=f"source {document.source}, batch {document.batch_number}",
            next_step="restore the file from a backup of the lake",
        )
    return document


def dump(document: BaseModel) -> str:
    """Return the JSON text of a record; cuts are written by `table_facts.put_cut`."""
    return document.model_dump_json(indent=1)
