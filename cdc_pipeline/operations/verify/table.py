"""Compare one source table with one Delta table until every key is settled (K17).

Rules:
- The first round reads all rows in ranges. Later rounds check the keys that changed meanwhile, each
  round in one view at an exact place if the server provides one.
- A difference counts only if its key did not change between the cuts that bracket the view. For
  *different* and *extra* the seq of the lake's own row proves that, because a change would make it
  later; *missing* needs every change between the cuts to be known.
- A key that never settles is unsettled, never equal.
- After a DDL in between, the round starts again.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import pyarrow as pa

from cdc_pipeline.config.modes import MODES
from cdc_pipeline.errors import CdcError
from cdc_pipeline.lake.records import BatchRecord
from cdc_pipeline.operations.verify.captures import SourceState
from cdc_pipeline.operations.verify.external_writes import displayed
from cdc_pipeline.operations.verify.read import (
    Reading,
    ReadRequest,
    TableReading,
    VerifyContext,
)
from cdc_pipeline.operations.verify.repair import Repaired, apply_repair, repairable
from cdc_pipeline.operations.verify.report import Difference, Step
from cdc_pipeline.operations.verify.view import Exact, ViewLostError
from cdc_pipeline.sink.delta.failures import is_of_one_table
from cdc_pipeline.sink.read.spilled import StoredRows
from cdc_pipeline.sink.verify.compare import (
    DIFFERENCES,
    ComparisonResult,
    Kind,
    compare,
    keys_found,
    read_differences,
)
from cdc_pipeline.targets.targets import Targets

ROUNDS_MAX: Final = 6
_KEYS_MAX: Final = 20_000  # with more keys than these, the whole table is read again
_DISTURBED_MAX: Final = 5
_REPAIRS_MAX: Final = 5
_ON_SOURCE: Final = ("missing", "different", "duplicate", "ambiguous")


@dataclass(frozen=True)
class KeySlice:
    """Keys that a round has settled, or could not; `kinds`: those of the folder that count."""

    reading: Reading
    found: ComparisonResult
    kinds: tuple[Kind, ...]

    @property
    def keys(self) -> int:
        return sum(self.found.counts.get(kind, 0) for kind in self.kinds)

    def displayed(self, context: VerifyContext, already: int) -> tuple[Difference, ...]:
        return displayed(context, self.found, self.kinds, already)


@dataclass
class RoundsResult:
    """`different`: keys that are proved to differ, by round; `unsettled`: keys of the last round
    for which nothing is proved; `stale`: rows of the lake, older images of unreadable ones.
    """

    rows_source: int = 0
    rows_lake: int = 0
    rows_equal: int = 0
    ranges: int = 0
    parts: int = 0
    parts_differing: int = 0
    unreadable: int = 0
    stale: int = 0
    rounds: int = 0
    different: list[KeySlice] = field(default_factory=list)
    unsettled: KeySlice | None = None
    last: tuple[Reading, ComparisonResult] | None = None

    @property
    def counts(self) -> dict[str, int]:
        counts: Counter[str] = Counter()
        for piece in self.different:
            counts.update({kind: piece.found.counts.get(kind, 0) for kind in piece.kinds})
        return {kind: counts[kind] for kind in DIFFERENCES if counts[kind]}


class TableComparison:
    def __init__(
        self,
        context: VerifyContext,
        name: str,
        source_table: str,
        *,
        first: ReadRequest | None = None,
    ) -> None:
        self.repaired: Final = Repaired()
        self._first = first
        self._context = context
        self._name = name
        self._source_table = source_table
        self.reading: Final = TableReading(context, name, source_table)
        self._failure: CdcError | None = None

    def begin(self, before: SourceState, targets: Targets) -> int:
        """Read the rows of the first round behind a capture; return their size in bytes."""
        spec = before.cut.tables[self._name].spec
        key = spec.sources_of(self._name)[self._source_table].key
        self._mode, self._by_key = (
            spec.mode,
            bool(spec.key or (not MODES[spec.mode].has_key and key)),
        )
        try:
            self.reading.begin(self._first_request("no"), before, targets)
            self._failure = None
        except CdcError as error:
            if not is_of_one_table(error):
                raise
            self._failure = error
        return 0 if self._failure else self.reading.rows.size_bytes

    def keep(self, record: BatchRecord) -> None:
        if self._failure is None:
            self.reading.keep(record)

    def verify(self, after: SourceState) -> RoundsResult:
        """Compare all rows, and repair if requested. ViewLostError: every attempt met a DDL."""
        first = settled = self._settle(after)
        is_repairable = self._by_key or not settled.unreadable
        if not (self._context.options.repair and settled.different and is_repairable):
            return settled
        for piece in settled.different:
            self.repaired.keys += piece.displayed(self._context, len(self.repaired.keys))
        for _ in range(_REPAIRS_MAX):
            if repairable(self._mode, [kind for kind in DIFFERENCES if settled.counts.get(kind)]):
                break
            for piece in settled.different if self._by_key else settled.different[-1:]:
                self._repair(piece)
            settled = self._settle()
            if not settled.different:
                break
        settled.rounds += first.rounds
        return settled

    def _repair(self, piece: KeySlice) -> None:
        """What is proved of these keys, if the source has not moved on; else read them again."""
        reading, found = piece.reading, piece.found
        for _ in range(_REPAIRS_MAX):
            if not any(found.counts.get(kind) for kind in reading.proved):
                break
            self._context.on_step(Step(self._name, "repairing", found.differences))
            apply = partial(apply_repair, self._context, reading, found)
            done = self._context.captures.locked(apply)
            if done is not None:
                self.repaired.batches.append(done[0])
                self.repaired.counts.update(done[1])
                break
            request = self._request_for(piece) if self._by_key else ReadRequest(exact="always")
            reading, found = self._round(request, piece if self._by_key else None)

    def _settle(self, after: SourceState | None = None) -> RoundsResult:
        """Compare all rows; without a key at an exact place."""
        settled = RoundsResult()
        reading = None if after is None else self._begun(after)
        request = self._first_request("no" if self._by_key else "always")
        pending: KeySlice | None = None
        while settled.rounds < ROUNDS_MAX:
            settled.rounds += 1
            if pending is not None:
                request = self._request_for(pending)
            reading, found = self._round(request, pending, reading)
            if settled.last is None:
                settled.rows_source, settled.rows_lake = found.rows_source, found.rows_lake
                settled.ranges, settled.unreadable = reading.ranges, reading.unreadable
                settled.parts, settled.parts_differing = found.buckets, found.buckets_differing
                settled.stale = found.stale
            settled.rows_equal += found.rows_source - sum(
                found.counts.get(kind, 0) for kind in _ON_SOURCE
            )
            settled.last = reading, found
            if any(found.counts.get(kind) for kind in reading.proved):
                settled.different.append(KeySlice(reading, found, reading.proved))
            pending = KeySlice(reading, found, reading.open)
            if not pending.keys:
                pending = None
                break
            if reading.unproved:  # another round would show no more
                break
            reading = None
        settled.unsettled = pending
        return settled

    def _begun(self, after: SourceState) -> Reading | None:
        try:
            if self._failure is not None:
                raise self._failure
            exact = self.reading.view.is_exact(after)
            return self.reading.finish(after, exact=exact) if exact or self._by_key else None
        except ViewLostError:
            return None

    def _round(
        self, request: ReadRequest, wanted: KeySlice | None, reading: Reading | None = None
    ) -> tuple[Reading, ComparisonResult]:
        """Read once and compare; raises ViewLostError if every attempt met a DDL."""
        for attempt in range(_DISTURBED_MAX):
            try:
                reading = reading or self.reading.read(request, is_fresh=attempt > 0)
                break
            except ViewLostError:
                if attempt + 1 == _DISTURBED_MAX:
                    raise
        assert reading is not None
        self._context.on_step(Step(self._name, "comparing", reading.rows.rows))
        spill, keys = self._context.spill, reading.keys
        if wanted is not None:
            keys = {**keys, "wanted": keys_found(spill, wanted.found, wanted.kinds)}
        elif request.keys is not None:
            keys = {**keys, "wanted": StoredRows(spill)}
            keys["wanted"].add(pa.table([*request.keys.values()], names=reading.sides.keys))
        comparison = compare(
            self._context.start,
            reading.sides,
            reading.rows,
            spill=spill,
            keys=keys,
        )
        return reading, comparison

    def _first_request(self, exact: Exact) -> ReadRequest:
        """Only rows that a key tells apart can be a sample."""
        if self._first is not None:
            return replace(self._first, exact=exact)
        return ReadRequest(exact=exact, share=self._context.options.share if self._by_key else 1.0)

    def _request_for(self, piece: KeySlice) -> ReadRequest:
        """By the keys' values, if that is worth it."""
        sides = piece.found.sides
        if not sides.key or piece.keys > _KEYS_MAX:
            return ReadRequest(exact="if possible")
        shard = sides.shard[0] if sides.shard is not None else ""
        places = [at for at in sides.key_positions if sides.target.spec.columns[at].name != shard]
        values = read_differences(piece.found, piece.kinds, limit=_KEYS_MAX, columns=places)
        columns = {sides.target.spec.columns[at]: values.column(f"c{at}") for at in places}
        return ReadRequest(exact="if possible", keys=columns)
