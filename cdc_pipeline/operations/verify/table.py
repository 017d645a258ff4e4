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
from dataclasses import dataclass, field
from typing import Final

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.operations.verify.captures import SourceState
from cdc_pipeline.operations.verify.read import Reading, ReadRequest, TableReading
from cdc_pipeline.operations.verify.view import ViewLostError
from cdc_pipeline.sink.delta_sink import DeltaSink
from cdc_pipeline.sink.verify.compare import (
    DIFFERENCES,
    ComparisonResult,
    Kind,
    Wanted,
    compare,
    read_differences,
)
from cdc_pipeline.sink.verify.scratch import Scratch
from cdc_pipeline.sink.verify.sides import ComparisonSql

ROUNDS_MAX: Final = 6
_KEYS_MAX: Final = 20_000  # with more keys than these, the whole table is read again
_DISTURBED_MAX: Final = 5
_ON_SOURCE: Final = ("missing", "different", "duplicate", "ambiguous")


@dataclass(frozen=True)
class KeySlice:
    """Keys that a round has settled, or could not; `kinds`: those of the folder that count."""

    reading: Reading
    found: ComparisonResult
    kinds: tuple[Kind, ...]

    @property
    def sides(self) -> ComparisonSql:
        return self.reading.sides

    @property
    def keys(self) -> int:
        return sum(self.found.counts.get(kind, 0) for kind in self.kinds)

    @property
    def wanted(self) -> Wanted:
        assert self.found.folder is not None
        return Wanted(self.found.folder, self.kinds)


@dataclass
class RoundsResult:
    """Combined result of all rounds.

    Attributes:
        different: keys that are proved to differ, by round.
        unsettled: keys of the last round for which nothing is proved.
        stale: rows of the lake that are older images of unreadable ones.
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

    @property
    def source_state(self) -> SourceState | None:
        return None if self.last is None else self.last[0].after


class TableComparison:
    """`scratch` keeps the findings."""

    def __init__(
        self, config: PipelineConfig, reading: TableReading, *, sink: DeltaSink, scratch: Scratch
    ) -> None:
        self._config = config
        self._reading = reading
        self._sink = sink
        self._scratch = scratch

    def settle(
        self, request: ReadRequest, *, by_key: bool, wanted: KeySlice | None = None
    ) -> RoundsResult:
        """Compare all rows, or the keys of a piece; without `by_key` at an exact place.

        Raises ViewLostError if every attempt met a DDL.
        """
        settled = RoundsResult()
        if not by_key:
            request, wanted = ReadRequest(exact="always"), None
        pending = wanted
        while settled.rounds < ROUNDS_MAX:
            settled.rounds += 1
            if pending is not None:
                request = self.request_for(pending)
            reading, found = self.round(request, pending)
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
        settled.unsettled = pending
        return settled

    def round(
        self, request: ReadRequest, wanted: KeySlice | None
    ) -> tuple[Reading, ComparisonResult]:
        """Read once and compare; raises ViewLostError if every attempt met a DDL."""
        for attempt in range(_DISTURBED_MAX):
            try:
                reading = self._reading.read(request, is_fresh=attempt > 0)
                break
            except ViewLostError:
                if attempt + 1 == _DISTURBED_MAX:
                    raise
        comparison = compare(
            self._sink.spark.session(),
            reading.sides,
            source_files=self._scratch.files("source"),
            source_rows=reading.rows,
            source_bytes=self._scratch.size_bytes("source"),
            folder=self._scratch.new_folder(),
            changed=reading.changed,
            unread=self._scratch.files("unread"),
            wanted=None if wanted is None else wanted.wanted,
            sampled=request.share < 1,
            fixed=self._config.sink.spark.settings,
        )
        return reading, comparison

    def request_for(self, piece: KeySlice) -> ReadRequest:
        """By the keys' values, if that is worth it."""
        sides = piece.sides
        if not sides.key or piece.keys > _KEYS_MAX:
            return ReadRequest(exact="if possible")
        shard = sides.shard[0] if sides.shard is not None else ""
        places = [at for at in sides.key_positions if sides.target.spec.columns[at].name != shard]
        values = read_differences(sides, piece.found, piece.kinds, limit=_KEYS_MAX, columns=places)
        columns = {sides.target.spec.columns[at]: values.column(f"c{at}") for at in places}
        return ReadRequest(exact="if possible", keys=columns)
