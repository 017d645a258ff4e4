"""What of a get is interpreted together."""

from __future__ import annotations

import numpy as np

from cdc_pipeline.binlog.chunk import SliceKind
from cdc_pipeline.run.capture.interpret import halves, units
from tests.store.contract_suite import Feed


def test_slices_that_follow_each_other_in_a_chunk_are_one() -> None:
    feed = Feed()
    whole, other = feed.transactions(5, 6, 7, 5), feed.transactions(5, 5)
    first, second, third = whole.part(0, 5), whole.part(5, 11), whole.part(11, 23)
    (unit,) = units([first, second, third, other])
    assert [(piece.first, piece.stop) for piece in unit] == [(0, 23), (0, 10)]
    assert np.array_equal(unit[0].events, whole.events)
    assert unit[0].event_bytes == whole.event_bytes
    # a failing transaction is still found, whatever slices it came in
    parts = halves(unit[:1])
    assert parts is not None
    assert sum(piece.event_count for part in parts for piece in part) == 23


def test_slices_with_something_between_them_stay_apart() -> None:
    feed = Feed()
    whole, ddl = feed.transactions(5, 6, 7), feed.ddl()
    first, last = whole.part(0, 5), whole.part(11, 18)
    assert [len(unit) for unit in units([first, last])] == [2]  # a gap in the chunk
    found = list(units([first, ddl, whole.part(5, 11), last]))
    assert [unit[0].kind for unit in found] == [
        SliceKind.TRANSACTIONS,
        SliceKind.STATEMENT,
        SliceKind.TRANSACTIONS,
    ]
    assert [(piece.first, piece.stop) for piece in found[2]] == [(5, 18)]
