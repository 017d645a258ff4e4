"""Search by time against a slow twin, over random journals (K6, SPEC P8)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cdc_pipeline.binlog.chunk import Chunk
from cdc_pipeline.position.position import Position
from cdc_pipeline.position.start.lookup import journals_to_scan, search_by_time
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
def logs(draw: st.DrawFn) -> list[tuple[int, list[int]]]:
    """Journals created one after another; a commit is not monotone, but within its journal's time.
    Between journals the clock may be set forth, or back by a minute or by more than the journal's
    duration."""
    journals = []
    now_us = 1_700_000_000 * SECOND_US
    for _ in range(draw(st.integers(1, 12))):
        created_us = now_us
        # more than a second long, so that journals are told apart by their creation times, or
        # within one second
        duration_us = draw(st.sampled_from([300_000, 4 * SECOND_US, 100 * SECOND_US]))
        now_us += duration_us
        commits = draw(st.lists(st.integers(created_us, now_us - 1), max_size=4))
        journals.append((created_us // SECOND_US, commits))
        set_by_us = draw(st.just(0) | st.integers(-200 * SECOND_US, 200 * SECOND_US))
        is_hidden = 59 * SECOND_US < -set_by_us <= duration_us + SECOND_US
        now_us += 0 if is_hidden else set_by_us
    return journals


@settings(max_examples=200)
@given(logs(), st.data())
def test_k6_it_finds_what_the_slow_twin_finds(
    journals: list[tuple[int, list[int]]], data: st.DataObject
) -> None:
    created_s = [at for at, _ in journals]
    known = [commit for _, commits in journals for commit in commits]
    anywhere = st.integers(min(created_s) * SECOND_US - 10, (max(created_s) + 6) * SECOND_US)
    t_us = data.draw(anywhere | st.sampled_from(known) if known else anywhere)
    log = log_of(journals)
    assert place(log, search_by_time(log, t_us=t_us)) == twin(journals, t_us)


def test_k6_it_finds_the_first_around_every_moment_of_a_small_log() -> None:
    """A transaction that is earlier than the one before it, and one in the second in which the next
    journal begins."""
    journals = [
        (1_000, [1_001_500_000, 1_099_000_000, 1_100_200_000]),
        (1_100, [1_103_000_000, 1_101_000_000, 1_190_000_000]),
        (1_200, [1_250_000_000]),
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


@settings(max_examples=300)
@given(
    st.integers(1, 192),
    st.dictionaries(
        st.integers(1, 191), st.integers(-60, 12_000) | st.integers(-12_000, -101), max_size=4
    ),
    st.integers(9_000, 45_000),
)
@example(107, {89: 1320, 90: -1620}, 20_310)
def test_k6_f52_no_journal_is_missed_wherever_the_clock_was_set(
    count: int, jumps: dict[int, int], second: int
) -> None:
    """Journals of 100 s each; the clock was set forth as journals ended, or back by a minute or by
    more than a journal's duration."""
    created = [
        10_000 + 100 * number + sum(by_s for at, by_s in jumps.items() if number >= at)
        for number in range(count)
    ]
    names = [f"binlog.{number:06}" for number in range(count)]

    class Heads:
        def journal_created_s(self, name: str) -> int:
            return created[names.index(name)]

    journals = journals_to_scan(Heads(), names, t_us=second * SECOND_US)  # type: ignore[arg-type]
    late = next((number for number, at in enumerate(created) if at + 99 >= second), count)
    assert late in journals.single or late >= journals.first


@pytest.mark.parametrize("back_s", [30, 500, 5_000])
def test_k6_a_clock_that_was_set_back_loses_no_transaction(back_s: int) -> None:
    """40 journals, one each 100 s; before the 31st the clock goes back: the times from there come a
    second time."""
    starts = [10_000 + 100 * number - (back_s if number >= 30 else 0) for number in range(40)]
    journals = [(start, [(start + 30) * SECOND_US, (start + 98) * SECOND_US]) for start in starts]
    for t_s in (12_900, 12_970, 12_998, 12_600, 10_000):
        log = log_of(journals)
        assert place(log, search_by_time(log, t_us=t_s * SECOND_US)) == twin(
            journals, t_s * SECOND_US
        )


@pytest.mark.parametrize("late_s", [50, 90, 700, 4_000])
def test_k6_f149_a_server_whose_clock_is_late_has_commits_before_the_journals_of_their_time(
    late_s: int,
) -> None:
    """Commit times are the primary's, journals were created by the standby's clock; one of three
    has no transaction."""
    journals = [
        (10_000 + 100 * number - late_s, [10_030_000_000 + number * 100_000_000][: number % 3])
        for number in range(60)
    ]
    log = log_of(journals)
    for t_s in (10_000, 13_100, 13_131, 15_930):
        assert place(log, search_by_time(log, t_us=t_s * SECOND_US)) == twin(
            journals, t_s * SECOND_US
        )
    assert search_by_time(log, t_us=20_000 * SECOND_US) is None


def test_p8_many_journals_cost_a_head_each_up_to_the_one_found_and_one_scan() -> None:
    journals = [
        (10_000 + 10 * number, [(10_005 + 10 * number) * SECOND_US]) for number in range(200)
    ]
    log = log_of(journals)
    assert place(log, search_by_time(log, t_us=10_904 * SECOND_US)) == (91, 0)
    assert len(log.heads_asked) <= 91
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
