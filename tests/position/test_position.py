"""Positions: what they hold and how they are ordered (SPEC P1)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cdc_pipeline.position.cursor import parse_cursor
from cdc_pipeline.position.position import Position, ServerIdentity
from cdc_pipeline.run.capture.commit import cursor_state

PLACES = st.tuples(st.integers(1, 2_000_000), st.integers(4, 2**40))


@given(PLACES, PLACES)
def test_p1_positions_of_one_source_are_in_the_order_of_the_log(
    one: tuple[int, int], two: tuple[int, int]
) -> None:
    """By the journal's number, which may outgrow its six digits, then by offset."""
    left, right = (Position(f"binlog.{number:06d}", offset) for number, offset in (one, two))
    assert (left.order < right.order) == (one < two)
    assert (left.order == right.order) == (one == two)


def test_p1_what_a_position_holds_is_in_the_cursor_too() -> None:
    """Journal, offset, timestamp, server id and GTID set, with the identity and address of the
    source it came from."""
    at = Position(
        "binlog.000007",
        400,
        timestamp_s=1_700_000_000,
        server_id=3,
        gtid_set="0-1-7",
        journal_created_s=1_690_000_000,
    )
    identity = ServerIdentity("mariadb", 9, address="db.example:3306")
    cursor = parse_cursor(cursor_state("shop", identity, at).model_dump_json(), where="the test")
    assert cursor.position == at
    assert cursor.identity == identity
    assert at.included


def test_p1_identity_is_the_uuid_where_both_have_one_and_never_the_address() -> None:
    """An archive of a server's journals, and a server behind another address, are the same
    source."""
    server = ServerIdentity("mysql", 9, "3e11fa47-71ca-11e1-9e33-c80aa9429562", "one:3306")
    assert server.same_server(ServerIdentity("mysql", 10, server.server_uuid, "two:3306"))
    assert server.same_server(ServerIdentity("mysql", 9, address="/archive"))
    assert not server.same_server(
        ServerIdentity("mysql", 9, "91ba6d0a-45f6-11ef-8dfe-00155d2a1e10", "one:3306")
    )
    assert not server.same_server(ServerIdentity("mariadb", 9, address="one:3306"))
