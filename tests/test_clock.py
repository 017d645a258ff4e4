"""Times in microseconds since 1970."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import example, given
from hypothesis import strategies as st

from cdc_pipeline.clock import microseconds_of, time_of


@given(st.datetimes(timezones=st.just(UTC)))
@example(datetime(2262, 4, 11, 23, 47, 16, 854775, tzinfo=UTC))
@example(datetime.max.replace(tzinfo=UTC))
def test_a_time_is_kept_to_the_microsecond(moment: datetime) -> None:
    """A float of seconds is not: it has no room for the microseconds of times after 2112."""
    at_us = microseconds_of(moment)
    assert time_of(at_us) == moment
    assert time_of(at_us) - time_of(0) == timedelta(microseconds=at_us)
