"""Where a run starts: each row of the decision table, and every refusal (SPEC P3-P5, pitfalls 1 and 4)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from cdc_pipeline.binlog.chunk import Chunk
from cdc_pipeline.binlog.event_types import EventType
from cdc_pipeline.config import GtidConfig, PositionConfig
from cdc_pipeline.errors import CdcError, PositionError, SourceIdentityError, UnsupportedEventError
from cdc_pipeline.position.cursor import CursorState
from cdc_pipeline.position.gtid_sets import encode_mysql_binary, parse_gtid_set
from cdc_pipeline.position.position import Position, ServerIdentity
from cdc_pipeline.position.start import StartDecision, resolve_start
from tests.grouping.journal_builder import JournalBuilder, cut

UUID = "00010203-0405-0607-0809-0a0b0c0d0e0f"
ME = ServerIdentity("mysql", 1, "3f0c-a", "db1:3306")


def journal(number: int, before: str, gnos: list[int], *, ddl: bool = False) -> Chunk:
    builder = JournalBuilder(journal=f"binlog.{number:06}").fde()
    builder.add(EventType.PREVIOUS_GTIDS, encode_mysql_binary(parse_gtid_set(before, "mysql")))
    for gno in gnos:
        builder.gtid(gno).query("BEGIN").rows(2).xid()
    if ddl:
        builder.gtid(gnos[-1] + 1).query("ALTER TABLE t ADD c INT")
    return builder.chunk()


@dataclass
class ListSource:
    """A source over chunks in memory, read by journal and offset as an archive is."""

    log: list[Chunk]
    identity: ServerIdentity = ME
    end_gtid_set: str = f"{UUID}:1-6"
    earliest_gtid_set: str = ""
    has_catalog: bool = True
    validated: list[Position] = field(default_factory=list)
    failure_at: int | None = None
    closed: int = 0

    def earliest_position(self) -> Position:
        return Position(self.log[0].journal, 4, gtid_set=self.earliest_gtid_set)

    def end_position(self) -> Position:
        return Position(self.log[-1].journal, self.log[-1].end_offset, gtid_set=self.end_gtid_set)

    def validate_position(self, position: Position) -> None:
        self.validated.append(position)

    def tables(self) -> list[str] | None:
        return ["shop.t"] if self.has_catalog else None

    def chunks(self, start: Position, end: Position) -> Iterator[Chunk]:
        try:
            for chunk in self.log:
                if (chunk.journal, chunk.end_offset) <= (start.journal, start.offset):
                    continue
                assert chunk.journal <= end.journal
                if self.failure_at is not None:
                    raise UnsupportedEventError("no", journal=chunk.journal, offset=self.failure_at)
                events = chunk.events
                if chunk.journal == start.journal:
                    events = events[events["offset"] >= start.offset]
                yield replace(chunk, events=events.copy())
        finally:
            self.closed += 1


def source(**options) -> ListSource:
    first, second = journal(1, "", [1, 2, 3]), journal(2, f"{UUID}:1-3", [4, 5], ddl=True)
    return ListSource([*cut(first, [4, 7]), *cut(second, [9])], **options)


def cursor(**changes) -> CursorState:
    values = {
        "source": "shop", "batch_number": 7, "flavor": "mysql", "server_id": 1, "server_uuid": "3f0c-a",
        "address": "db1:3306", "journal": "binlog.000001", "offset": 500, "gtid_set": f"{UUID}:1-2",
    }  # fmt: skip
    return CursorState(**(values | changes))


def refusal(expected: type[CdcError], **question) -> CdcError:
    question.setdefault("cursor", None)
    question.setdefault("start", "earliest")
    with pytest.raises(expected) as caught:
        resolve_start(**question)
    assert type(caught.value) is expected
    assert caught.value.next_step
    return caught.value


# -- cursor -----------------------------------------------------------------------------------------------------------


def test_p5_a_cursor_of_this_server_wins_over_the_configuration() -> None:
    log = source()
    decision = resolve_start(cursor=cursor(), start="latest", source=log)
    assert decision.position == cursor().position
    assert log.validated == [cursor().position]
    assert decision.reasons[0] == "the cursor of batch 7 stands at binlog.000001:500"
    assert "goes on to" in decision.reasons[-1]


def test_a_cursor_at_the_end_says_that_nothing_is_new() -> None:
    log = source()
    end = log.end_position()
    at_end = cursor(journal=end.journal, offset=end.offset, gtid_set=end.gtid_set)
    assert "nothing is new" in resolve_start(cursor=at_end, start="earliest", source=log).reasons[-1]


@pytest.mark.parametrize(
    "other", [{"server_uuid": "other"}, {"server_uuid": "", "server_id": 9}, {"flavor": "mariadb"}]
)
def test_a_cursor_of_another_server_is_refused_with_both_names(other: dict) -> None:
    mine = cursor(**other)
    error = refusal(SourceIdentityError, cursor=mine, source=source())
    assert str(mine.identity) in str(error)
    assert str(ME) in str(error)
    assert "wipe the cursor" in str(error)


def test_an_archive_of_the_same_server_id_goes_on_with_a_live_cursor() -> None:
    archive = source(identity=ServerIdentity("mysql", 1, "", "/journals"))
    assert resolve_start(cursor=cursor(), start="earliest", source=archive).position.offset == 500


@pytest.mark.parametrize("ahead", [{"journal": "binlog.000009"}, {"journal": "binlog.000002", "offset": 10**9}])
def test_pitfall_1_a_cursor_beyond_the_end_never_reads_as_nothing_new(ahead: dict) -> None:
    log = source()
    error = refusal(SourceIdentityError, cursor=cursor(**ahead), source=log)
    assert "ahead of the log" in str(error)
    assert str(log.end_position()) in str(error)


def test_pitfall_1_a_cursor_whose_gtids_the_server_never_executed_is_refused() -> None:
    error = refusal(SourceIdentityError, cursor=cursor(gtid_set=f"{UUID}:1-2:900"), source=source())
    assert f"{UUID}:900" in str(error)


def test_gtids_are_not_compared_where_the_end_has_none() -> None:
    log = source(end_gtid_set="")
    assert resolve_start(cursor=cursor(gtid_set=f"{UUID}:900"), start="earliest", source=log).position.offset == 500


# -- configured offset ------------------------------------------------------------------------------------------------


def offset_of(log: ListSource, number: int, event: int) -> int:
    chunks = [chunk for chunk in log.log if chunk.journal == f"binlog.{number:06}"]
    return int(np.concatenate([chunk.events["offset"] for chunk in chunks])[event])


@pytest.mark.parametrize(
    ("number", "event", "executed"),
    [(1, 2, ""), (1, 8, "1"), (1, 14, "1-2"), (2, 0, "1-3"), (2, 2, "1-3"), (2, 8, "1-4"), (2, 14, "1-5")],
)
def test_pitfall_4_a_configured_offset_gets_all_gtids_executed_before_it(
    number: int, event: int, executed: str
) -> None:
    log = source()
    start = PositionConfig(journal=f"binlog.{number:06}", offset=offset_of(log, number, event))
    position = resolve_start(cursor=None, start=start, source=log).position
    assert (position.journal, position.offset) == (start.journal, start.offset)
    assert position.gtid_set == (f"{UUID}:{executed}" if executed else "")
    assert position.journal_created_s == 1_700_000_000
    assert [(p.journal, p.offset) for p in log.validated] == [(start.journal, start.offset)]
    assert log.closed == 1


def test_a_configured_offset_at_the_very_end() -> None:
    log = source()
    end = log.end_position()
    position = resolve_start(
        cursor=None, start=PositionConfig(journal=end.journal, offset=end.offset), source=log
    ).position
    assert position.gtid_set == f"{UUID}:1-6"


@pytest.mark.parametrize("event", [3, 5, 9, 11])
def test_a_configured_offset_inside_a_transaction_is_refused_with_that_of_its_begin(event: int) -> None:
    log = source()
    begin = offset_of(log, 1, 2 if event < 8 else 8)
    start = PositionConfig(journal="binlog.000001", offset=offset_of(log, 1, event))
    error = refusal(PositionError, start=start, source=log)
    assert error.setting == "start.offset"
    assert str(begin) in str(error.next_step)


def test_events_that_cannot_be_read_before_the_offset_stop_only_where_gtids_are_needed() -> None:
    start = PositionConfig(journal="binlog.000001", offset=600)
    error = refusal(PositionError, start=start, source=source(failure_at=300))
    assert error.offset == 300
    assert "FLUSH BINARY LOGS" in str(error)
    plain = source(failure_at=300, end_gtid_set="")
    assert resolve_start(cursor=None, start=start, source=plain).position.gtid_set == ""


# -- GTID set, earliest, latest ---------------------------------------------------------------------------------------


def test_p3_a_gtid_set_on_a_server_keeps_the_set_in_canonical_form() -> None:
    log = source()
    decision = resolve_start(cursor=None, start=GtidConfig(gtid_set=f"{UUID.upper()}:2:1"), source=log)
    assert decision.position == replace(log.earliest_position(), gtid_set=f"{UUID}:1-2")
    assert log.validated == [decision.position]


def test_a_gtid_set_on_a_log_without_gtids_is_refused() -> None:
    error = refusal(PositionError, start=GtidConfig(gtid_set=f"{UUID}:1"), source=source(end_gtid_set=""))
    assert error.setting == "start.gtid_set"


def test_a_gtid_set_of_the_other_flavor_is_refused() -> None:
    assert "3e11fa47" in str(refusal(PositionError, start=GtidConfig(gtid_set="0-1-5"), source=source()))


def located(numbers: str, **options) -> StartDecision:
    log = source(has_catalog=False, **options)
    return resolve_start(cursor=None, start=GtidConfig(gtid_set=f"{UUID}:{numbers}"), source=log)


@pytest.mark.parametrize(("numbers", "number", "event"), [("1", 1, 8), ("1-2", 1, 14), ("1-3", 2, 2), ("1-5", 2, 14)])
def test_a_gtid_set_is_located_in_an_archive(numbers: str, number: int, event: int) -> None:
    position = located(numbers).position
    assert (position.journal, position.offset) == (f"binlog.{number:06}", offset_of(source(), number, event))
    assert position.gtid_set == f"{UUID}:{numbers}"


def test_a_gtid_set_that_holds_the_whole_archive_is_its_end() -> None:
    position = located("1-6").position
    assert (position.journal, position.offset) == (source().end_position().journal, source().end_position().offset)


@pytest.mark.parametrize(
    ("numbers", "options"), [("1:3", {}), ("2-3", {}), ("1-9", {}), ("5", {"earliest_gtid_set": f"{UUID}:50"})]
)
def test_a_gtid_set_that_no_one_place_parts_is_refused(numbers: str, options: dict) -> None:
    with pytest.raises(PositionError) as caught:
        located(numbers, **options)
    assert caught.value.setting == "start.gtid_set"


def test_earliest_and_latest() -> None:
    log = source()
    assert resolve_start(cursor=None, start="earliest", source=log).position == log.earliest_position()
    decision = resolve_start(cursor=None, start="latest", source=log)
    assert decision.position == log.end_position()
    assert decision.reasons[0] == "there is no cursor"
