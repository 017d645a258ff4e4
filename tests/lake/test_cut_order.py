"""A cut is found by few reads, and is always the one that reading every cut would find."""

from __future__ import annotations

import math
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_pipeline.lake.cut_order import first_cut, sections, with_order
from cdc_pipeline.lake.records import Cut, Interval
from cdc_pipeline.position.cursor import CursorState
from cdc_pipeline.position.gtid.sets import parse_mysql
from cdc_pipeline.position.position import Position

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def cut_of(number: int, *, executed: int, time_us: int, flavor: str = "mysql") -> Cut:
    """A cut with `executed` transactions; none: the source does not use GTIDs."""
    return Cut(
        source="shop",
        batch_number=number,
        published_at_us=number,
        source_time_us=time_us,
        interval=Interval(start=Position("b.1"), end=Position("b.1")),
        cursor=CursorState(
            source="shop",
            batch_number=number,
            flavor=flavor,
            server_id=1,
            journal="b.000001",
            offset=4,
            gtid_set=f"{UUID}:1-{executed}" if executed else "",
        ),
    )


def chain(states: list[tuple[int, int]]) -> dict[int, Cut]:
    """Cuts from 1 on of (transactions, source time)."""
    cuts: dict[int, Cut] = {}
    previous: Cut | None = None
    for number, (executed, time_us) in enumerate(states, 1):
        made = cut_of(number, executed=executed, time_us=time_us)
        previous = cuts[number] = with_order(made, previous)
    return cuts


def holder(transaction: int):  # type: ignore[no-untyped-def]
    asked = parse_mysql(f"{UUID}:{transaction}")
    return lambda cut: (
        bool(cut.cursor.gtid_set) and parse_mysql(cut.cursor.gtid_set).contains(asked)
    )


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(-1, 9)), max_size=24),
    st.integers(1, 9),
    st.integers(0, 23),
)
def test_it_is_the_cut_that_reading_every_one_finds(
    states: list[tuple[int, int]], wanted: int, removed: int
) -> None:
    """Sets that shrink, clocks that go back, old ones removed."""
    cuts = chain(states)
    numbers = [number for number in cuts if number > removed or number == 3]
    has = holder(wanted)
    found = first_cut(numbers, cuts.__getitem__, has)
    assert found == next(
        (index for index, number in enumerate(numbers) if has(cuts[number])), len(numbers)
    )

    def is_later(cut: Cut) -> bool:
        return cut.latest_source_time_us > wanted

    found = first_cut(numbers, cuts.__getitem__, is_later)
    assert found == next(
        (index for index, number in enumerate(numbers) if is_later(cuts[number])), len(numbers)
    )


@given(st.lists(st.integers(-1, 9), min_size=1, max_size=24))
def test_a_cut_knows_the_latest_time_before_it(times: list[int]) -> None:
    cuts = chain([(number, time_us) for number, time_us in enumerate(times, 1)])
    assert [cut.latest_source_time_us for cut in cuts.values()] == list(accumulate(times, max))


def test_thousands_of_cuts_are_searched_by_few_reads() -> None:
    count = 10_000
    cuts = chain([(number, number) for number in range(1, count + 1)])
    reads: list[int] = []

    def read(number: int) -> Cut:
        reads.append(number)
        return cuts[number]

    assert first_cut(range(1, count + 1), read, holder(7_000)) == 6_999
    assert len(reads) <= math.log2(count) + 2


def test_what_a_person_moves_back_begins_a_section() -> None:
    cuts = chain([(5, 1), (9, 2), (3, -1), (9, 3), (0, 4)])
    found = [(low, last) for low, last, _ in sections(list(cuts), cuts.__getitem__)]
    assert found == [(4, 4), (2, 3), (0, 1)]


@pytest.mark.parametrize(
    ("before", "after", "sections_found"),
    [
        ("0-1-5", "0-2-9", 1),
        ("0-1-5", "0-2-4", 2),
        # a position has transactions of servers that a state does not name
        ("0-1-5", "0-1-5,0-2-9", 2),
        ("0-1-5,0-2-9", "0-1-5,0-2-10", 1),
    ],
)
def test_sets_of_mariadb(before: str, after: str, sections_found: int) -> None:
    previous: Cut | None = None
    cuts = {}
    for number, text in enumerate((before, after), 1):
        made = cut_of(number, executed=0, time_us=-1, flavor="mariadb")
        cursor = made.cursor.model_copy(update={"gtid_set": text})
        previous = cuts[number] = with_order(made.model_copy(update={"cursor": cursor}), previous)
    assert len(list(sections([1, 2], cuts.__getitem__))) == sections_found
