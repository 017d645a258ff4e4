"""Compare source rows with a version of a Delta table: counts and checksums first, then key by key
if they differ (K17).

Rules:
- This process reads and compares, part by part (`sums.py`); Spark evaluates expressions of its SQL
  alone (`parts.py`).
- Keys that changed between the two cuts that bracket the views are left out, and named, so that the
  caller checks them again. The batches of that time and the seq of the lake's rows
  identify them.
- Differences are stored rows (`ComparisonResult`), so that memory does not grow with them.
- Each row of the lake is compared once: a key that the lake has twice is a separate difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

from cdc_pipeline.errors import LakeStateError
from cdc_pipeline.sink.read.spilled import Spill, StoredRows
from cdc_pipeline.sink.verify.differences import KeyUse, differences, mark_keys
from cdc_pipeline.sink.verify.parts import StartSpark, lake_parts, source_parts
from cdc_pipeline.sink.verify.sides import ComparisonSides
from cdc_pipeline.sink.verify.sums import keys_of, unlike_rows

Kind = Literal["missing", "extra", "different", "duplicate", "ambiguous", "left_out"]

DIFFERENCES: Final[tuple[Kind, ...]] = ("missing", "extra", "different", "duplicate", "ambiguous")


@dataclass(frozen=True)
class ComparisonResult:
    """`keys`: those in `counts`: ``_kind``, ``_columns`` (that differ), ``_more`` (rows of the
    source less those of the lake), ``_lake_seq``, and ``c0 ...`` the row of the source, or of the
    lake if the source has none; `buckets`: parts by hash of the key; `stale`: rows of the lake with
    a key of `unread`: they were not compared.
    """

    sides: ComparisonSides
    keys: StoredRows
    rows_source: int
    rows_lake: int
    buckets: int
    buckets_differing: int
    counts: Mapping[Kind, int]
    stale: int = 0

    @property
    def differences(self) -> int:
        return sum(count for kind, count in self.counts.items() if kind in DIFFERENCES)

    def of_kinds(self, kinds: Collection[Kind]) -> Iterator[pa.Table]:
        wanted = pa.array(sorted(kinds))
        for rows in self.keys.batches():
            yield rows.filter(pc.is_in(rows.column("_kind"), value_set=wanted))


def compare(
    start: StartSpark,
    sides: ComparisonSides,
    stored: StoredRows,
    *,
    spill: Spill,
    keys: Mapping[KeyUse, StoredRows] = MappingProxyType({}),
) -> ComparisonResult:
    """Compare, and store what differs and what is left out. `start`: None if Spark may not start;
    `stored`: rows of the source; `keys` (``k0 ...``): that changed meanwhile; of `unread` rows; and
    the `wanted` ones, if only these are compared.

    Raises LakeStateError: files are gone or damaged, or columns others than were written;
    IncompleteChangelogError: images lack columns; SparkNeededError; MergeError.
    """
    try:
        source = (
            source_parts(sides, stored, start, spill)
            if sides.source is None
            else lake_parts(sides, sides.source, spill)
        )
        listed = _listed_keys(sides, source, keys)
        lake = lake_parts(sides, sides.lake, spill, listed)
        unlike = unlike_rows(sides, (source, lake), keys, spill)
        found, counts, stale = StoredRows(spill), Counter[Kind](), 0
        source_rows = lake_rows = unlike.equal
        for part in unlike.parts:
            rows, of_part = mark_keys(sides, part.rows, part.keys)
            stale += of_part
            keys_of_part = differences(sides, rows)
            found.add(keys_of_part)
            counted = pc.value_counts(keys_of_part.column("_kind")).to_pylist()
            counts.update({of_kind["values"]: of_kind["counts"] for of_kind in counted})
            rows = rows.filter(pc.invert(rows.column("_changed")))
            weights, of_source = (rows.column(n).to_numpy() for n in ("_weight", "_in_source"))
            source_rows += int(weights[of_source].sum())
            lake_rows += int(weights[~of_source].sum())
    except pa.ArrowException as error:
        raise LakeStateError(
            "values of the table do not fit the types that they were written with",
            table=sides.target.table,
            got=f"{type(error).__name__}: {error}",
            next_step="restore the table from a backup of the lake, or take a new snapshot of it",
        ) from None
    return ComparisonResult(
        sides,
        found,
        rows_source=source_rows,
        rows_lake=lake_rows,
        buckets=unlike.buckets,
        buckets_differing=unlike.buckets_differing,
        counts=counts,
        stale=stale,
    )


def _listed_keys(
    sides: ComparisonSides,
    source: Iterable[pa.Table],
    keys: Mapping[KeyUse, StoredRows],
) -> list[pa.Table]:
    """The only keys that rows of the lake count with, where they are few; [] if all rows do."""
    if "wanted" in keys:
        uses: tuple[KeyUse, ...] = ("wanted", "unread")
        listed = []
    elif sides.sampled and isinstance(source, list):
        uses, listed = ("unread",), list(source)
    else:
        return []
    of_uses = [keys[use] for use in uses if use in keys]
    if any(of_use.tables is None for of_use in of_uses):
        return []
    nothing = keys_of(sides, None)
    named = [keys_of(sides, some) for of_use in of_uses for some in of_use.tables or ()]
    return [nothing, *listed, *named]


def keys_found(spill: Spill, found: ComparisonResult, kinds: Collection[Kind]) -> StoredRows:
    sides = found.sides
    keys, columns = StoredRows(spill), [f"c{at}" for at in sides.key_positions]
    for part in found.of_kinds(kinds):
        keys.add(part.select(columns).rename_columns(sides.keys))
    return keys


def read_differences(
    found: ComparisonResult,
    kinds: Collection[Kind],
    *,
    limit: int,
    columns: Sequence[int] | None = None,
) -> pa.Table:
    """At most `limit` keys, as `ComparisonResult` has them, by default with all columns."""
    sides = found.sides
    listed = [f"c{at}" for at in (sides.positions if columns is None else columns)]
    parts: list[pa.Table] = []
    room = limit
    for part in found.of_kinds(kinds):
        parts.append(part.select(["_kind", "_columns", "_more", "_lake_seq", *listed])[:room])
        room -= len(parts[-1])
        if not room:
            break
    rows = pa.concat_tables(parts)
    order = [
        name
        for name in ("_kind", *(f"c{at}" for at in sides.key_positions))
        if name in rows.column_names
    ]
    kinds_of = {name: rows.schema.field(name).type for name in order}
    sortable = [
        n
        for n, kind in kinds_of.items()
        if not (pa.types.is_nested(kind) or pa.types.is_boolean(kind))
    ]
    return rows.sort_by([(name, "ascending") for name in sortable])
