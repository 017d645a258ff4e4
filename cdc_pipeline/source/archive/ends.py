"""Find where the last journal of an archive ends: at its last whole transaction (K5).

The ends of the others are proved while they are read: `source.journal_ends`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cdc_pipeline.binlog.events import gtid
from cdc_pipeline.binlog.framing.compressed import EVENT_UNPACKED_BYTES_MAX
from cdc_pipeline.binlog.transactions.grouping import TransactionPass
from cdc_pipeline.errors import CdcError
from cdc_pipeline.position.gtid.sets import parse_gtid_set
from cdc_pipeline.position.position import Flavor, Position
from cdc_pipeline.source.archive.files import JournalHead, read_journal


@dataclass(frozen=True, slots=True)
class JournalScan:
    """`end` is after the last event that is not part of an unfinished transaction; `failure`
    stopped the reading there.
    """

    end: Position
    failure: CdcError | None


def flavor_of(head: JournalHead) -> Flavor:
    return "mariadb" if head.journal_format.is_mariadb else "mysql"


def scan(
    file: Path, head: JournalHead, *, unpacked_bytes_max: int = EVENT_UNPACKED_BYTES_MAX
) -> JournalScan:
    """Read a journal to its end, or to its first fault."""
    transactions = TransactionPass()
    found: dict[str, list[NDArray[np.int64]]] = {}
    open_found: dict[str, list[NDArray[np.int64]]] = {}
    offset, timestamp_s, server_id = 4, 0, 0
    failure: CdcError | None = None
    try:
        for chunk in read_journal(file, unpacked_bytes_max=unpacked_bytes_max):
            grouped = transactions.step(chunk)
            boundaries = grouped.bounds.boundaries
            whole = int(boundaries[-1]) if len(boundaries) else 0
            if whole:
                for key, parts in open_found.items():
                    found.setdefault(key, []).extend(parts)
                open_found = {}
                last = chunk.events[whole - 1]
                offset = int(last["next_offset"])
                timestamp_s = int(last["timestamp_s"])
                server_id = int(last["server_id"])
            for target, first, stop in ((found, 0, whole), (open_found, whole, grouped.rows)):
                for key, values in gtid.executed(chunk, first, stop).items():
                    target.setdefault(key, []).append(values)
            if grouped.error is not None:
                raise grouped.error
    except CdcError as error:
        failure = error
    numbers = {key: np.concatenate(parts) for key, parts in found.items()}
    end = Position(
        file.name,
        offset,
        timestamp_s=timestamp_s,
        server_id=server_id,
        gtid_set=_executed_text(head, numbers),
        journal_created_s=head.journal_format.created_s,
    )
    return JournalScan(end, failure)


def preceding_set(head: JournalHead) -> str:
    """The GTID set with which a capture from the journal's beginning starts.

    MariaDB lists every server of every domain, the latest of a domain last: only that one is its
    position.
    """
    text = head.previous_set or ""
    if not head.journal_format.is_mariadb:
        return text
    return ",".join(
        {entry.partition("-")[0]: entry for entry in filter(None, text.split(","))}.values()
    )


def _executed_text(head: JournalHead, numbers: dict[str, NDArray[np.int64]]) -> str:
    executed = parse_gtid_set(preceding_set(head), flavor_of(head))
    for key, values in numbers.items():
        executed = executed.add_many(key, values)
    return str(executed)
