"""Fault points: named places where a run can be watched, stopped or killed from outside.

A run must survive being ended anywhere (K2, K21). The places where its durable state has just
changed, or is about to, are named: the code calls `reach` there, and whoever listens can raise,
kill the process, copy the files, or write to the source at exactly that moment. Tests and campaigns
listen; the product never does, and its behaviour must not depend on a listener.

- Listeners belong to the process, not to a run or a thread: the points of the reader's thread, of
  merging threads and of side lakes are told to the same listeners. A child process has none.
- A listener is called in the thread that reaches the point. What it raises there goes on as if the
  step had failed; only at `spill` it must not raise, in the middle of the store's own accounts.
- Without a listener a point costs one truth test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Final

# All points, each with what is durable there.
FAULT_POINTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        # Reading: nothing but the spill is on the disk, and a run that starts again ignores it.
        "put": "Nothing new: a list of events is in the store, in memory or in its files.",
        "spill": "Nothing that counts: the store has written a list of events to its files.",
        # Kept journals.
        "journal_written": "More bytes in the file of a kept journal; its name tells of none yet.",
        "journal_part": "More of a kept journal, and its file's name tells of it.",
        "journal_sealing": "All of a kept journal in one file, whose name is still another.",
        "journal_sealed": "A sealed journal; in an object store its parts are still there.",
        "journal_pruned": "One kept journal less.",
        # A batch, in order (K2).
        "staging": "Some of the batch's staged rows, which no record names yet.",
        "parking": "A prepared transaction's rows, complete, under a temporary name (K8).",
        "before_record": "All staged files of the batch; its record comes next.",
        "after_record": "The batch's record: from now on the batch is finished by any later run.",
        "before_replaced": (
            "All files of a target's new content; the commit that adopts them is next."
        ),
        "before_adopted": "The names of staged data files in a table's folder; the commit is next.",
        "between_merges": "One more target is merged; others may be at work.",
        "before_cut": "All targets are merged and on the disk; the cut comes next.",
        "before_cursor": "The cut; the cursor comes next.",
        "before_ack": "The cursor; the store still retains what it covers.",
        "before_published": "The cursor; views of the cut are in a database of their own, or in no "
        "file yet, and what shows them to readers comes next.",
        # An erasure, around its batch.
        "erasure_recorded": "The erasure's own file: later readings of the log leave its keys out.",
        "erasure_removed": "The cut of tables without the rows; quarantine and certificate follow.",
        # New masks, around the snapshot or rebuild that has them.
        "remask_recorded": "The request's own file; the targets follow the source as before.",
        "remask_suspended": "The cut in which the targets wait for rows with the new masks.",
        "remask_swapped": "The cut with these rows; search and certificate follow.",
        # Either of them.
        "old_values_cleaned": "The same, and the quarantine is without them; the search follows.",
        # A snapshot or a rebuild, around batches of the main lake and of the side lake.
        "snapshot_begun": "The snapshot's own file: its tables, and the place of the log where it "
        "begins.",
        "snapshot_created": "The side lake's empty tables.",
        "snapshot_chunks": "A batch of rows (in the side lake, or read again), and the progress.",
        "snapshot_passed_ddl": "Main and side lake, both captured past a DDL of one of its tables.",
        "snapshot_read": "All rows of the snapshot, in the side lake.",
        "snapshot_caught_up": "The side lake, captured to the main lake's cursor.",
        "snapshot_swapping": "The same; the main lake is locked, and the swap's batch comes next.",
        "snapshot_swapped": "The cut that has the new tables.",
        "snapshot_removed": "The same, and the side lake is gone.",
    }
)

_listeners: Final[list[Callable[[str], None]]] = []


def reach(point: str) -> None:
    """Tell the listeners that this thread has reached a point."""
    if _listeners:
        for listener in tuple(_listeners):
            listener(point)


@contextmanager
def listening(listener: Callable[[str], None]) -> Iterator[None]:
    """Call `listener` with the name of each point that this process reaches in the context."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)
