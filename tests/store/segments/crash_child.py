"""A process that puts and acks until it is killed.

``python -m tests.store.segments.crash_child DIRECTORY FSYNC [pieces]``.

It says ``put N`` after put N and ``ack N`` after the ack of put N, a line each, unbuffered; `part` gives both sides the
same slices.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from cdc_pipeline.binlog.chunk import EventSlice
from cdc_pipeline.store.segments.file import FileEventStore
from tests.store.contract_suite import Feed

SEGMENT_BYTES = 400_000


def parts() -> Iterator[EventSlice]:
    """The slices of puts 0, 1, 2 ...: small and large ones, and statements."""
    feed = Feed()
    number = 0
    while True:
        if number % 11 == 7:
            yield feed.ddl()
        else:
            yield feed.transaction(1500 if number % 3 == 0 else 5 + number % 13)
        number += 1


def pieces() -> Iterator[EventSlice]:
    """As `parts`, but every transaction comes in three pieces."""
    feed = Feed()
    while True:
        yield from feed.pieces(400, 300, 7)


def main() -> None:
    store = FileEventStore(
        Path(sys.argv[1]),
        segment_bytes=SEGMENT_BYTES,
        fsync=sys.argv[2],  # type: ignore[arg-type]
        batch_mode="itemsize",
    )
    store.start()
    waiting: deque[tuple[int, int]] = deque()
    for number, part in enumerate(pieces() if sys.argv[3:] else parts()):
        store.put([part])
        os.write(1, f"put {number}\n".encode())
        waiting.append((number, part.event_count))
        if len(waiting) > 12:  # a dozen puts are always behind, over several segments
            acked, events = waiting.popleft()
            batch = store.try_get(events)
            assert batch.range is not None
            store.ack(batch.range.end)
            os.write(1, f"ack {acked}\n".encode())


if __name__ == "__main__":
    main()
