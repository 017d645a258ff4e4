"""Search by time against a slow twin, over random journals (K6, SPEC P8)."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cdc_pipeline.binlog.chunk import Chunk
from cdc_pipeline.position.position import Position
from cdc_pipeline.position.start.search import ALL_READ_MAX, journals_to_scan, search_by_time
from tests.position.start.log import ListSource, timed_journal
from tests.support.event_builder import MARIADB, JournalBuilder, cut, mariadb_gtid_body

SECOND_US = 1_000_000


def twin(log: list[tuple[int, list[int]]], t_us: int) -> tuple[int, int] | None:
    """(journal number, transaction) of the first commit at or after `t_us`, in the order of the
    log."""
    for number, (_, commits) in enumerate(log, 1):
        for transaction, commit_us in enumerate(commits):
            if commit_us >= t_us:
                return number, transaction
    return None


def log_of(journals: list[tuple[int, list[int]]], **options) -> ListSource:
    chunks: list[Chunk] = []
    for number, (created_s, commits) in enumerate(journals, 1):
        whole = timed_journal(number, commits, created_s=created_s, anonymous=number % 2 == 0)
        chunks += cut(whole, [3, 5])
    return ListSource(chunks, **options)


def place(log: ListSource, found: Position | None) -> tuple[int, int] | None:
    if found is None:
        return None
    offsets = [
        int(o)
        for chunk in log.log
        if chunk.journal == found.journal
        for o in chunk.events["offset"]
    ]
    row = offsets.index(found.offset)
    assert (row - 2) % 6 == 0, "not the begin of a transaction"
    return found.order[0], (row - 2) // 6


@st.composite
def monotone_logs(draw: st.DrawFn) -> list[tuple[int, list[int]]]:
    """Journals created one after another; a commit is not monotone, but before the next journal's
    creation."""
    journals = []
    now_us = 1_700_000_000 * SECOND_US
    for _ in range(draw(st.integers(1, 12))):
        created_us = now_us
        # more than a second long, so that journals are told apart by their creation times, or
        # within one second
        now_us += draw(st.sampled_from([300_000, 4 * SECOND_US]))
        commits = draw(st.lists(st.integers(created_us, now_us - 1), max_size=4))
        journals.append((created_us // SECOND_US, commits))
    return journals


@settings(max_examples=60, deadline=None)
@given(monotone_logs(), st.data())
def test_k6_it_finds_what_the_slow_twin_finds(
    journals: list[tuple[int, list[int]]], data: st.DataObject
) -> None:
    first_us, last_us = journals[0][0] * SECOND_US, (journals[-1][0] + 6) * SECOND_US
    known = [commit for _, commits in journals for commit in commits]
    t_us = data.draw(
        st.one_of(st.integers(first_us - 10, last_us), *([st.sampled_from(known)] if known else []))
    )
    log = log_of(journals)
    assert place(log, search_by_time(log, t_us=t_us)) == twin(journals, t_us)


def test_k6_it_finds_the_first_around_every_moment_of_a_small_log() -> None:
    """A transaction that is earlier than the one before it, and one in the second in which the next
    journal begins."""
    journals = [
        (1_000, [1_001_500_000, 1_009_000_000, 1_010_200_000]),
        (1_010, [1_013_000_000, 1_011_000_000, 1_015_000_000]),
        (1_020, [1_025_000_000]),
    ]
    moments = [commit for _, commits in journals for commit in commits] + [
        at * SECOND_US for at, _ in journals
    ]
    chunks = [
        timed_journal(number, commits, created_s=at)
        for number, (at, commits) in enumerate(journals, 1)
    ]
    for log in (log_of(journals), ListSource(chunks)):
        for t_us in (moment + by_us for moment in moments for by_us in (-100_000, 0, 1, 100_000)):
            assert place(log, search_by_time(log, t_us=t_us)) == twin(journals, t_us), t_us


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(1_000, 1_400), min_size=1, max_size=4 * ALL_READ_MAX).map(sorted),
    st.integers(990, 1_410),
    st.integers(0, SECOND_US - 1),
)
def test_k6_the_binary_search_ends_where_asking_all_does(
    created: list[int], second: int, microsecond: int
) -> None:
    names = [f"binlog.{number:06}" for number in range(1, len(created) + 1)]

    class Heads:
        heads_are_local = False
        asked = 0

        def journal_created_s(self, name: str) -> int:
            self.asked += 1
            return created[names.index(name)]

    remote, local = Heads(), Heads()
    local.heads_are_local = True
    t_us = second * SECOND_US + microsecond
    found = journals_to_scan(remote, names, t_us=t_us)  # type: ignore[arg-type]
    assert found == journals_to_scan(local, names, t_us=t_us)  # type: ignore[arg-type]
    # Everything before it was created, and ended, before the moment.
    assert all((at + 1) * SECOND_US <= t_us for at in created[1 : found.first + 1])
    assert not found.single
    if len(names) > ALL_READ_MAX:
        assert remote.asked <= len(names) / 8 + 26


@settings(max_examples=300, deadline=None)
@given(
    st.integers(ALL_READ_MAX + 1, 6 * ALL_READ_MAX),
    st.lists(
        st.tuples(st.integers(1, 180), st.integers(20, 1200) | st.integers(-1200, -20)),
        min_size=1,
        max_size=3,
    ),
    st.integers(9_000, 13_500),
)
def test_k6_f52_no_journal_is_missed_wherever_the_clock_was_set(
    count: int, jumps: list[tuple[int, int]], second: int
) -> None:
    """Journals of 10 s each, in a log so long that not every head is read: the clock was set back
    and forth as journals ended, never forward and back within the journals between two heads."""
    places = sorted(at for at, _ in jumps)
    assume(all(after - before >= 8 for before, after in pairwise(places)))
    created = [
        10_000 + 10 * number + sum(by_s for at, by_s in jumps if number >= at)
        for number in range(count)
    ]
    names = [f"binlog.{number:06}" for number in range(count)]

    class Heads:
        heads_are_local = False

        def journal_created_s(self, name: str) -> int:
            return created[names.index(name)]

    found = journals_to_scan(Heads(), names, t_us=second * SECOND_US)  # type: ignore[arg-type]
    late = next((number for number, at in enumerate(created) if at + 9 >= second), count)
    assert late in found.single or late >= found.first


@pytest.mark.parametrize("heads_are_local", [True, False])
@pytest.mark.parametrize("back_s", [50, 5000])
def test_k6_a_clock_that_was_set_back_loses_no_transaction(
    heads_are_local: bool, back_s: int
) -> None:
    """40 journals, one each 10 s; before the 31st the clock goes back: the times from there come a
    second time."""
    starts = [10_000 + 10 * number - (back_s if number >= 30 else 0) for number in range(40)]
    journals = [(start, [(start + 3) * SECOND_US, (start + 8) * SECOND_US]) for start in starts]
    for t_s in (10_290, 10_297, 10_260, 10_000):
        log = log_of(journals, heads_are_local=heads_are_local)
        assert place(log, search_by_time(log, t_us=t_s * SECOND_US)) == twin(
            journals, t_s * SECOND_US
        )


def test_p8_many_journals_cost_few_heads_and_one_scan() -> None:
    journals = [
        (10_000 + 10 * number, [(10_005 + 10 * number) * SECOND_US]) for number in range(200)
    ]
    log = log_of(journals, heads_are_local=False)
    assert place(log, search_by_time(log, t_us=10_904 * SECOND_US)) == (91, 0)
    assert len(log.heads_asked) <= 200 / 8 + 26
    assert log.closed == 1


def test_k6_without_commit_timestamps_the_headers_count() -> None:
    builder = JournalBuilder(journal_format=replace(MARIADB, created_s=1_699_999_000)).fde()
    for number in range(5):
        builder.add(162, mariadb_gtid_body(0, number + 1)).rows(1).xid()
    log = ListSource([builder.chunk()])
    starts = [int(o) for o in log.log[0].events["offset"][1::4]]
    found = search_by_time(log, t_us=(1_700_000_001 + 8) * SECOND_US)
    assert found is not None
    assert (found.offset, found.timestamp_s) == (starts[2], 1_700_000_009)
    assert search_by_time(log, t_us=1_700_000_018 * SECOND_US) is None
