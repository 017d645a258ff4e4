"""Find where a GTID set ends in an archive, which cannot skip executed transactions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cdc_pipeline.binlog.chunk import Chunk
from cdc_pipeline.errors import PositionError
from cdc_pipeline.position.gtid.sets import MariadbGtidSet, MysqlGtidSet, parse_gtid_set
from cdc_pipeline.position.position import Flavor, Position


def locate_gtid_set(
    chunks: Iterator[Chunk], *, wanted: str, earliest: Position, end: Position, flavor: Flavor
) -> Position:
    """Find the position in a log after which only transactions outside `wanted` follow.

    Reading ends as soon as all of `wanted` was found before it: a log has a GTID once.

    Args:
        chunks: all chunks from `earliest` to `end`.
        earliest: a journal's begin, with the set that precedes it.
        wanted: the transactions that count as executed.

    Raises:
        PositionError: no single position separates executed from other transactions, or the log
            lacks some.
    """
    from cdc_pipeline.binlog.events import gtid
    from cdc_pipeline.binlog.transactions.grouping import TransactionPass

    skip: Any = parse_gtid_set(wanted, flavor)
    known: Any = parse_gtid_set(earliest.gtid_set, flavor)
    grouping = TransactionPass()
    start: Position | None = None
    for chunk in chunks:
        starts = grouping.apply(chunk).starts
        whole: Any = _set_of(gtid.executed(chunk, 0, len(chunk.events)), flavor)
        if start is None and skip.contains(whole):
            known = known.union(whole)
            continue
        # Examine single transactions only in a chunk that has both kinds.
        is_mixed = start is None or bool(whole.subtract(whole.subtract(skip)))
        for row in starts.tolist() if is_mixed else ():
            one: Any = _set_of(gtid.executed(chunk, row, row + 1), flavor)
            if not one:
                continue
            if not skip.contains(one):
                if start is None:
                    offset = int(chunk.events["offset"][row])
                    created_s = chunk.journal_format.created_s
                    start = Position(chunk.journal, offset, journal_created_s=created_s)
                continue
            if start is not None:
                raise _mixed_error(
                    wanted, chunk.journal, int(chunk.events["offset"][row]), str(one)
                )
            known = known.union(one)
        if start is not None and not skip.subtract(known):
            break
    missing = skip.subtract(known)
    if missing or known.subtract(skip):
        raise PositionError(
            "the log does not match the configured GTID set",
            setting="start.gtid_set",
            expected=f"a log that begins at or before the end of {wanted} and "
            "contains the rest of it",
            got=f"before its first journal: {earliest.gtid_set or 'nothing'}; not found: "
            f"{missing or 'nothing'}",
            next_step="start at earliest, or take the GTID set from the server that "
            "wrote these journals",
        )
    return replace(start or end, gtid_set=wanted)


def _mixed_error(wanted: str, journal: str, offset: int, found: str) -> PositionError:
    return PositionError(
        "transactions of the configured GTID set come after transactions that are not in it",
        journal=journal,
        offset=offset,
        setting="start.gtid_set",
        expected=f"all of {wanted} before anything else",
        got=found,
        next_step="start at a journal and an offset",
    )


def _set_of(
    executed: dict[str, NDArray[np.int64]], flavor: Flavor
) -> MysqlGtidSet | MariadbGtidSet:
    found = parse_gtid_set("", flavor)
    for key, numbers in executed.items():
        found = found.add_many(key, numbers)
    return found
