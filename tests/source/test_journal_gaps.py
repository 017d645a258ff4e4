"""A journal that is left out between two others is missing, unless GTIDs prove that nothing was in
it (K5)."""

from __future__ import annotations

import pytest

from cdc_pipeline.binlog.chunk import Chunk
from cdc_pipeline.binlog.event_types import EventType
from cdc_pipeline.errors import JournalMissingError
from cdc_pipeline.position.gtid.sets import encode_mysql_binary, parse_gtid_set
from cdc_pipeline.position.position import Position
from cdc_pipeline.source.journal_ends import JournalEndProof
from tests.position.start.log import UUID
from tests.support.event_builder import JournalBuilder


def journal(number: int, before: str, gnos: list[int]) -> Chunk:
    """It ends with ROTATE."""
    builder = JournalBuilder(journal=f"binlog.{number:06}").fde()
    builder.add(EventType.PREVIOUS_GTIDS, encode_mysql_binary(parse_gtid_set(before, "mysql")))
    for gno in gnos:
        builder.gtid(gno).query("BEGIN").rows(1).xid()
    following = f"binlog.{number + 1:06}".encode()
    return builder.add(EventType.ROTATE, bytes(8) + following).chunk()


def proved(*chunks: Chunk, start: Position) -> list[str]:
    proof = JournalEndProof(
        start, open_offset=lambda: -1, ends_closed=lambda _position: True, pipeline_name="shop"
    )
    return [chunk.journal for chunk in proof.over(iter(chunks))]


def test_k5_a_journal_that_was_taken_out_of_the_index_is_missing() -> None:
    """ROTATE at the end of the one before proves that one's end, and not the next one's place."""
    first = journal(1, "", [1, 2])
    start = Position("binlog.000001", 4)
    assert proved(first, journal(2, f"{UUID}:1-2", [3]), start=start)
    with pytest.raises(JournalMissingError, match=r"binlog.000003 follows binlog.000001") as caught:
        proved(first, journal(3, f"{UUID}:1-4", [5]), start=start)
    assert caught.value.journal == "binlog.000002"
    assert f"{UUID}:3-4" in str(caught.value.got)
    assert "cursor set shop --from latest" in str(caught.value.next_step)


def test_k5_a_gap_in_the_numbers_without_transactions_is_none() -> None:
    first = journal(1, "", [1, 2])
    assert proved(first, journal(3, f"{UUID}:1-2", [3]), start=Position("binlog.000001", 4)) == [
        "binlog.000001",
        "binlog.000003",
    ]


def test_k5_without_gtids_a_gap_is_missing_even_behind_a_start_at_a_journals_end() -> None:
    late = journal(3, "", [])
    start = Position("binlog.000001", 500)
    with pytest.raises(JournalMissingError) as caught:
        proved(late, start=start)
    assert caught.value.journal == "binlog.000002"
