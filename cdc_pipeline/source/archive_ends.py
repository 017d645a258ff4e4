"""Where journals end, and whether that end is proved (K5).

Rules:
- A journal that ends with ROTATE or STOP is whole. Any other is whole only if the GTID set at the head of the next one
  equals its own head's set plus the GTIDs of all its ended transactions. Without GTIDs nothing can be proved.
- The last journal of an archive ends at its last whole transaction.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cdc_pipeline.binlog import gtid
from cdc_pipeline.binlog.event_types import EventType
from cdc_pipeline.binlog.grouping import TransactionPass
from cdc_pipeline.errors import CdcError, DamagedJournalError
from cdc_pipeline.position.gtid_sets import parse_gtid_set
from cdc_pipeline.position.position import Flavor, Position
from cdc_pipeline.source.archive_files import JournalHead, read_journal

_UNPROVED = "fetch the whole journal from its server again; if the server lost its end, load the tables anew after it"


@dataclass(frozen=True, slots=True)
class JournalScan:
    """One journal, read whole.

    Attributes:
        end: after the last event that is not part of an unfinished transaction, with the executed GTIDs.
        numbers: transaction numbers of its ended transactions, by key (see `gtid.executed`).
        anonymous: whether it has transactions without a GTID.
        failure: what stopped the reading, if anything did.
    """

    end: Position
    numbers: dict[str, NDArray[np.int64]]
    anonymous: bool
    failure: CdcError | None


def flavor_of(head: JournalHead) -> Flavor:
    """Flavor of the server that wrote a journal."""
    return "mariadb" if head.journal_format.is_mariadb else "mysql"


def scan(file: Path, head: JournalHead) -> JournalScan:
    """Read a journal to its end, or to the first thing that is wrong with it."""
    transactions = TransactionPass()
    found: dict[str, list[NDArray[np.int64]]] = {}
    open_found: dict[str, list[NDArray[np.int64]]] = {}
    offset, timestamp_s, server_id = 4, 0, 0
    anonymous = False
    failure: CdcError | None = None
    try:
        for chunk in read_journal(file):
            grouped = transactions.step(chunk)
            boundaries = grouped.bounds.boundaries
            whole = int(boundaries[-1]) if len(boundaries) else 0
            if whole:
                for key, parts in open_found.items():
                    found.setdefault(key, []).extend(parts)
                open_found = {}
                last = chunk.events[whole - 1]
                offset, timestamp_s, server_id = (
                    int(last["next_offset"]),
                    int(last["timestamp_s"]),
                    int(last["server_id"]),
                )
            for target, first, stop in ((found, 0, whole), (open_found, whole, grouped.rows)):
                for key, values in gtid.executed(chunk, first, stop).items():
                    target.setdefault(key, []).append(values)
            anonymous = anonymous or bool(np.any(chunk.events["event_type"] == EventType.ANONYMOUS_GTID))
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
    return JournalScan(end, numbers, anonymous, failure)


def preceding_set(head: JournalHead) -> str:
    """GTID set that a capture from the journal's begin starts with; "" where it has none.

    MariaDB lists every server of every domain, the latest of a domain last: only that one is its position.
    """
    text = head.previous_set or ""
    if not head.journal_format.is_mariadb:
        return text
    return ",".join({entry.partition("-")[0]: entry for entry in filter(None, text.split(","))}.values())


def _executed_text(head: JournalHead, numbers: dict[str, NDArray[np.int64]]) -> str:
    executed = parse_gtid_set(preceding_set(head), flavor_of(head))
    for key, values in numbers.items():
        executed = executed.add_many(key, values)
    return str(executed)


def prove_end(file: Path, head: JournalHead, following: JournalHead, following_name: str) -> None:
    """Check that a journal without ROTATE or STOP lost nothing at its end.

    Raises:
        DamagedJournalError: it did, or that cannot be told.
        BinlogError: the journal cannot be read whole.
    """
    scanned = scan(file, head)
    if scanned.failure is not None:
        raise scanned.failure
    if head.journal_format.is_mariadb:
        mine = _mariadb_state(head.previous_set or "")
        for key, values in scanned.numbers.items():
            mine[key] = int(values[-1])
        theirs = _mariadb_state(following.previous_set or "")
        same = following.previous_set is not None and mine == theirs
        expected = ",".join(f"{key}-{number}" for key, number in sorted(mine.items()))
    else:
        expected = scanned.end.gtid_set
        same = following.previous_set is not None and expected == _executed_text(following, {})
    has_gtids = bool(expected) and not scanned.anonymous
    if same and has_gtids:
        return
    if has_gtids:
        raise DamagedJournalError(
            f"the journal ends without ROTATE or STOP, and {following_name} does not go on where it ends",
            journal=file.name,
            offset=scanned.end.offset,
            expected=f"{following_name} to begin after the set {expected}",
            got=following.previous_set,
            next_step=_UNPROVED,
        )
    raise DamagedJournalError(
        "the journal ends without ROTATE or STOP, and has no GTIDs that could prove that its end is there",
        journal=file.name,
        offset=scanned.end.offset,
        expected="ROTATE or STOP at its end",
        next_step=_UNPROVED,
    )


def _mariadb_state(text: str) -> dict[str, int]:
    """Last number by ``domain-server`` of a GTID_LIST."""
    state = {}
    for entry in filter(None, text.split(",")):
        key, _, number = entry.rpartition("-")
        state[key] = int(number)
    return state
