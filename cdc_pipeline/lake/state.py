"""Read and check the state of a source in the lake, without a JVM (K2, K3).

Rules:
- The last cut is the state; the record one above it is a batch to finish. A record further ahead
  contradicts that.
- There may be thousands of cuts: whoever holds the source's lock lists them once (`Numbers`), for
  nobody else adds one meanwhile, and it knows what it adds itself. Maintenance may remove old cuts
  beside it; only removing them again reads the list that far. While a batch is open that it has
  begun, records are listed each time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Final, TypeVar

from pydantic import BaseModel

from cdc_pipeline.errors import LakeStateError
from cdc_pipeline.lake.paths import (
    LakePaths,
    list_numbers,
    list_numbers_and_remains,
    parsed,
    read_document,
    read_json,
)
from cdc_pipeline.lake.records import BatchRecord, Cut
from cdc_pipeline.lake.table_facts import with_facts

_Document = TypeVar("_Document", Cut, BatchRecord)
_CUTS_CACHED: Final = 4


def read_cut(paths: LakePaths, number: int) -> Cut:
    """Raises LakeStateError: it does not exist or cannot be understood."""
    return _cut(paths, number, read_json(paths.cut(number)))


def read_record(paths: LakePaths, number: int) -> BatchRecord:
    """Raises LakeStateError: it does not exist or cannot be understood."""
    path = paths.batch(number)
    record = read_document(path, BatchRecord.model_validate_json)
    return _checked(record, path, paths.source, number)


@dataclass(frozen=True, slots=True)
class Numbers:
    """Of a source's cuts and records, ascending, as they were listed and changed since. `remains`:
    what interrupted writes of both left; `read`: the newest cut, if so.
    """

    cuts: list[int]
    batches: list[int]
    remains: list[Path]
    read: dict[int, Cut] = field(default_factory=dict)

    @classmethod
    def listed(cls, paths: LakePaths) -> Numbers:
        cuts, left_of_cuts = list_numbers_and_remains(paths.cuts)
        batches, left_of_batches = list_numbers_and_remains(paths.batches)
        return cls(cuts, batches, [*left_of_cuts, *left_of_batches])

    @property
    def last_cut(self) -> int:
        """The number of the newest cut; 0 in a new lake."""
        return self.cuts[-1] if self.cuts else 0

    def finished(self, number: int, cut: Cut | None) -> None:
        for numbers in (self.cuts, self.batches):
            if not numbers or numbers[-1] < number:
                numbers.append(number)
        self.read.clear()
        if cut is not None:
            self.read[number] = cut


def last_cut(paths: LakePaths, numbers: Numbers | None = None) -> Cut | None:
    """None in a new lake. `numbers`: what the holder of the lock knows; listed by default."""
    numbers = Numbers(list_numbers(paths.cuts), [], []) if numbers is None else numbers
    number = numbers.last_cut
    if number and number not in numbers.read:
        numbers.read.clear()
        numbers.read[number] = read_cut(paths, number)
    return numbers.read.get(number)


def pending_record(paths: LakePaths, numbers: Numbers | None = None) -> BatchRecord | None:
    """The record after the last cut. `numbers` as in `last_cut`. Raises LakeStateError: there is
    one further ahead.
    """
    numbers = Numbers.listed(paths) if numbers is None else numbers
    number, batches = numbers.last_cut, numbers.batches
    ahead = [batch for batch in batches if batch > number + 1]
    if ahead:
        raise LakeStateError(
            f"a batch was recorded, but the batches before it have no cut: {paths.batch(ahead[0])}",
            expected=f"no record above batch {number + 1}: the last cut is {number}",
            got=f"records of batches {', '.join(map(str, ahead[:5]))}",
            next_step=f"restore the missing files of {paths.cuts} from a backup of the lake",
        )
    return read_record(paths, number + 1) if number + 1 in batches else None


@lru_cache(maxsize=_CUTS_CACHED)
def _cut(paths: LakePaths, number: int, text: str) -> Cut:
    """A run reads its last cut several times, and each reading costs something for every table."""
    path = paths.cut(number)
    cut = parsed(text, path, Cut.model_validate_json)
    return with_facts(paths, _checked(cut, path, paths.source, number))


def _checked(document: _Document, path: Path, source: str, number: int) -> _Document:
    if (document.source, document.batch_number) != (source, number):
        raise LakeStateError(
            f"the contents of a file of the lake's own records contradict its name: {path}",
            expected=f"source {source}, batch {number}",
            got=f"source {document.source}, batch {document.batch_number}",
            next_step="restore the file from a backup of the lake",
        )
    return document


def dump(document: BaseModel) -> str:
    """The JSON text of a record; cuts are written by `table_facts.put_cut`."""
    return document.model_dump_json(indent=1)
