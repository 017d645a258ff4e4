"""Where a run starts: each row of the decision table, and every refusal (SPEC P3-P8, K1)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from cdc_pipeline.config.pipeline_config import GtidConfig, PositionConfig, Start, TimeConfig
from cdc_pipeline.errors import (
    InsecureLoginError,
    JournalMissingError,
    LakeStateError,
    LoginError,
    MissingGrantError,
    PositionError,
    ServerChangedError,
    ServerSettingError,
    SourceIdentityError,
    TableIdNotFoundError,
    UnsupportedDdlError,
)
from cdc_pipeline.position.dump_errors import DumpErrors
from cdc_pipeline.position.position import Position, ServerIdentity
from cdc_pipeline.position.start.context import OverlapResult, StartDecision, StartRules
from cdc_pipeline.position.start.start import resolve_start
from tests.position.start.log import ME, UUID, ListSource, cursor, refusal, source, timed_journal

STANDBY = ServerIdentity("mysql", 2, "3f0c-b", "db2:3306")
PAIR = StartRules(addresses=("db1:3306", "db2:3306"))
ALONE = StartRules(addresses=("db1:3306",))
SECOND_US = 1_000_000
NOON_US = 1_767_268_800 * SECOND_US


def started(log: ListSource, start: Start = "latest", **facts: Any) -> StartDecision:
    return resolve_start(start=start, source=log, **{"cursor": None, **facts})


def by_offset(position: Position) -> Position:
    return replace(position, gtid_set="")


# -- history, same server (P5, P3) -----------------------------------------------------------------


def test_p5_a_cursor_of_this_server_wins_over_the_configuration() -> None:
    log = source()
    decision = started(log, cursor=cursor())
    assert decision.position == cursor().position
    assert not decision.epoch_grows
    assert decision.overlap_until_us is None
    assert decision.reasons[0] == "the cursor's own server: continue at the last position"
    assert decision.reasons[1] == "the cursor of batch 7 is at binlog.000001:500"
    assert "continues to" in decision.reasons[-1]


def test_p3_the_own_server_is_read_after_the_cursors_set() -> None:
    """Also where it was reached by the set in another server's order, so that its offset alone
    tells too little."""
    log = source()
    decision = started(log, cursor=cursor())
    assert not decision.by_offset
    assert decision.read_from == cursor().position == log.validated[0]


def test_p3_what_a_dump_by_set_would_pass_over_is_read_by_offset_first() -> None:
    """The second journal begins after the cursor's set: the server would begin there."""
    log = source()
    end_of_first = offset_of(log, 1, 19) + 31  # behind its last XID
    at_end = cursor(offset=end_of_first, gtid_set=f"{UUID}:1-3")
    asked: list[tuple[Position, Position]] = []
    read = log.chunks
    log.chunks = lambda start, end: (asked.append((start, end)), read(start, end))[1]  # type: ignore[method-assign]
    started(log, cursor=at_end)
    assert (by_offset(at_end.position), Position("binlog.000002", 4)) in asked
    asked.clear()
    started(log, cursor=cursor(gtid_set=f"{UUID}:1-2"))
    assert all(start.offset == 4 for start, _ in asked), (
        "it begins in the cursor's own journal: nothing is passed over"
    )


def test_a_cursor_at_the_end_says_that_nothing_is_new() -> None:
    log = source()
    end = log.end_position()
    at_end = cursor(journal=end.journal, offset=end.offset, gtid_set=end.gtid_set)
    assert "there is nothing new" in started(log, "earliest", cursor=at_end).reasons[-1]


def test_an_archive_of_the_same_server_id_goes_on_with_a_live_cursor() -> None:
    archive = source(identity=ServerIdentity("mysql", 1, "", "/journals"))
    assert started(archive, "earliest", cursor=cursor()).position.offset == 500


@pytest.mark.parametrize(
    "ahead", [{"journal": "binlog.000009"}, {"journal": "binlog.000002", "offset": 10**9}]
)
@pytest.mark.parametrize("gtid_set", ["", f"{UUID}:1-2"])
def test_pitfall_1_a_cursor_beyond_the_end_never_reads_as_nothing_new(
    ahead: dict, gtid_set: str
) -> None:
    log = source()
    error = refusal(SourceIdentityError, cursor=cursor(gtid_set=gtid_set, **ahead), source=log)
    assert "ahead of the log" in str(error)
    assert str(log.end_position()) in str(error)


def test_pitfall_1_a_cursor_whose_gtids_the_server_never_executed_is_refused() -> None:
    error = refusal(SourceIdentityError, cursor=cursor(gtid_set=f"{UUID}:1-2:900"), source=source())
    assert f"{UUID}:900" in str(error)


def test_p3_a_server_that_has_begun_to_use_gtids_goes_on_by_offset_with_the_whole_set() -> None:
    """Without the GTIDs before it, the next dump by GTID would send them all again."""
    log = source()
    at = offset_of(log, 1, 14)
    decision = started(log, "earliest", cursor=cursor(gtid_set="", offset=at))
    assert (decision.position.offset, decision.position.gtid_set) == (at, f"{UUID}:1-2")
    assert decision.by_offset
    assert not decision.epoch_grows
    assert decision.reasons[0].startswith("the server has begun to use GTIDs")


def test_p5_a_server_that_uses_gtids_no_more_goes_on_by_offset_without_the_set() -> None:
    """What comes without a GTID is in no set: a set kept through that time would lose it when GTIDs
    come back."""
    log = source(end_gtid_set="")
    decision = started(log, "earliest", cursor=cursor(gtid_set=f"{UUID}:900"))
    assert decision.position == by_offset(cursor().position)
    assert "dropped" in " ".join(decision.reasons)


def test_p3_a_purged_journal_is_passed_by_the_set() -> None:
    log = source(oldest_listed=1)
    decision = started(log, "earliest", cursor=cursor())
    assert decision.reasons[0].startswith("the cursor's journal was purged")
    assert decision.read_from == decision.position == cursor().position == log.validated[0]
    error = refusal(
        JournalMissingError,
        cursor=cursor(),
        source=source(oldest_listed=1, refused=JournalMissingError),
    )
    assert error.journal == "binlog.000001"


def test_p5_a_purged_journal_without_a_set_is_missing() -> None:
    log = source(oldest_listed=1, end_gtid_set="", refused=JournalMissingError)
    refusal(JournalMissingError, cursor=cursor(gtid_set=""), source=log)


def test_p7_after_rows_without_a_table_map_the_start_goes_back_to_a_begin() -> None:
    log = source(end_gtid_set="")
    begin, inside = offset_of(log, 1, 8), offset_of(log, 1, 11)
    rules = replace(ALONE, dump_errors=DumpErrors(count=1, table_id_not_found=True))
    mine = cursor(offset=inside, gtid_set="")
    decision = started(log, "earliest", cursor=mine, rules=rules)
    assert (decision.position.offset, decision.position.gtid_set) == (begin, "")
    assert any(
        reason.startswith("the last run found rows without a table map")
        for reason in decision.reasons
    )
    whole = started(log, "earliest", cursor=cursor(offset=begin, gtid_set=""), rules=rules)
    assert whole.position.offset == begin
    untouched = started(log, "earliest", cursor=mine)
    assert untouched.position.offset == inside
    # With a set there is nothing to go back to: a dump by set sends whole transactions.
    by_set = started(source(), "earliest", cursor=cursor(offset=inside), rules=rules)
    assert by_set.position == cursor(offset=inside).position


# -- history, another server -----------------------------------------------------------------------


def test_p3_another_server_with_gtids_takes_over_at_its_earliest_journal() -> None:
    log = source(identity=STANDBY)
    for rules in (PAIR, ALONE, StartRules()):
        decision = started(log, cursor=cursor(), rules=rules)
        assert decision.position == replace(log.earliest_position(), gtid_set=f"{UUID}:1-2")
        assert decision.read_from == decision.position
        assert decision.epoch_grows
        assert decision.overlap_until_us is None
        assert decision.reasons[0].startswith("another server")
    assert log.validated[0].gtid_set == f"{UUID}:1-2"
    # A virtual IP: it waits for no dump errors.
    moved = source(identity=replace(STANDBY, address="db1:3306"))
    assert started(moved, cursor=cursor(), rules=ALONE).epoch_grows


def test_p3_another_servers_archive_is_searched_for_the_place() -> None:
    archive = source(identity=ServerIdentity("mysql", 2, "", "/journals"), is_archive=True)
    decision = started(archive, "earliest", cursor=cursor())
    assert decision.position.offset == offset_of(archive, 1, 14)
    assert decision.epoch_grows


@pytest.mark.parametrize("expected", [JournalMissingError, SourceIdentityError])
def test_p3_what_the_other_server_purged_or_never_had_is_refused(expected: type) -> None:
    refusal(
        expected, cursor=cursor(), source=source(identity=STANDBY, refused=expected), rules=PAIR
    )


_OTHER_KIND = {"flavor": "mariadb", "gtid_set": "0-1-5"}
_UNRELATED = {"server_uuid": "other", "server_id": 9, "gtid_set": ""}


@pytest.mark.parametrize(
    ("changes", "rules"),
    [
        (_OTHER_KIND, StartRules()),
        (_OTHER_KIND, ALONE),
        (_OTHER_KIND, PAIR),
        ({**_UNRELATED, "address": "db9:3306"}, ALONE),
        ({**_UNRELATED, "address": "db9:3306"}, PAIR),
        (_UNRELATED, PAIR),
        (_UNRELATED, StartRules()),
    ],
)
def test_p5_a_server_that_nothing_connects_with_the_cursor_is_refused(
    changes: dict, rules: StartRules
) -> None:
    mine = cursor(**changes)
    rules = replace(rules, dump_errors=DumpErrors(count=99))
    error = refusal(SourceIdentityError, cursor=mine, source=source(), rules=rules)
    assert str(mine.identity) in str(error)
    assert str(ME) in str(error)
    assert "cursor set shop --from latest" in str(error)
    assert not error.retryable


def timed_source(**options) -> ListSource:
    """Three journals without GTIDs: one commit a minute, from two minutes before noon to six after
    it."""
    minutes = [NOON_US + 60 * SECOND_US * minute for minute in range(-2, 7)]
    journals = [
        timed_journal(number, minutes[3 * number - 3 : 3 * number], created_s=created_s,
            anonymous=True)
        for number, created_s in [(1, NOON_US // SECOND_US - 130), (2,
            minutes[2] // SECOND_US + 30),
                                  (3, minutes[5] // SECOND_US + 30)]
    ]  # fmt: skip
    return ListSource(journals, **({"identity": STANDBY, "end_gtid_set": ""} | options))


def place_of(log: ListSource, number: int, transaction: int) -> tuple[int, int]:
    """Begin of a transaction of `timed_source`: six events each, after two."""
    return number, offset_of(log, number, 2 + 6 * transaction)


def without_gtids(**changes):
    return cursor(**({"gtid_set": "", "timestamp_s": NOON_US // SECOND_US + 100} | changes))


def test_p6_a_switch_without_gtids_searches_before_the_last_commit() -> None:
    """Last commit 12:01:40, less 60 s: the first commit at or after 12:00:40 is that of 12:01."""
    log = timed_source()
    decision = started(log, cursor=without_gtids(), rules=PAIR)
    assert decision.position.order == place_of(log, 2, 0)
    assert decision.position.journal_created_s == log.log[1].journal_format.created_s
    assert decision.by_offset
    assert decision.epoch_grows
    assert decision.overlap_until_us == NOON_US + 100 * SECOND_US
    assert decision.reasons[0].startswith("primary and standby were switched")
    assert "12:00:40" in " ".join(decision.reasons)


def test_p6_back_to_the_primary_is_a_switch_too() -> None:
    log = timed_source(identity=ME)
    mine = without_gtids(server_uuid="3f0c-b", server_id=2, address="db2:3306")
    decision = started(log, cursor=mine, rules=PAIR)
    assert decision.epoch_grows
    assert decision.reasons[0].startswith("primary and standby were switched")


def test_p6_the_fallback_interval_and_the_cuts_commit_time_decide_where_the_search_begins() -> None:
    log = timed_source()
    rules = replace(PAIR, fallback_interval_us=0, last_commit_us=NOON_US + 150 * SECOND_US)
    decision = started(log, cursor=without_gtids(), rules=rules)
    assert decision.position.order == place_of(log, 2, 2)
    assert decision.overlap_until_us == NOON_US + 150 * SECOND_US
    wide = replace(PAIR, fallback_interval_us=100 * SECOND_US)
    decision = started(log, cursor=without_gtids(), rules=wide)
    assert decision.position.order == place_of(log, 1, 2)


def test_p6_a_standby_that_lags_is_read_from_its_end() -> None:
    log = timed_source()
    late = without_gtids(timestamp_s=NOON_US // SECOND_US + 3600)
    decision = started(log, cursor=late, rules=PAIR)
    assert decision.position == log.end_position()
    assert "the end of the log at" in " ".join(decision.reasons)


@pytest.mark.parametrize(
    ("timestamp_s", "expected", "told"),
    [
        (NOON_US // SECOND_US - 140, JournalMissingError, "the log of mysql:3f0c-b"),
        (0, SourceIdentityError, "no time to search by"),
    ],
    ids=["the log begins later", "a cursor without a time"],
)
def test_p6_what_cannot_be_searched_for_is_refused(
    timestamp_s: int, expected: type, told: str
) -> None:
    mine = without_gtids(timestamp_s=timestamp_s)
    assert told in str(refusal(expected, cursor=mine, source=timed_source(), rules=PAIR))


def test_k7_what_the_overlap_finds_is_where_reading_goes_on() -> None:
    log = timed_source()
    asked: list[Position] = []
    after = Position("binlog.000002", place_of(log, 2, 2)[1])

    def overlap(found: Position, since_us: int) -> OverlapResult:
        asked.append(found)
        assert since_us == NOON_US + 40 * SECOND_US
        return OverlapResult(after, None, "two transactions are known")

    decision = started(log, cursor=without_gtids(), rules=PAIR, overlap=overlap)
    assert [found.order for found in asked] == [place_of(log, 2, 0)]
    assert decision.position == after
    assert decision.overlap_until_us is None
    assert decision.reasons[-1] == "two transactions are known"


def test_p6_a_standby_that_uses_gtids_is_searched_and_its_set_completed() -> None:
    log = timed_source(end_gtid_set=f"{UUID}:1-3")
    log.log = [
        timed_journal(1, [NOON_US - 60 * SECOND_US, NOON_US, NOON_US + 60 * SECOND_US], created_s=5)
    ]
    mine = without_gtids(timestamp_s=NOON_US // SECOND_US + 60)
    decision = started(log, cursor=mine, rules=PAIR)
    assert decision.position.order == place_of(log, 1, 1)
    assert decision.position.gtid_set == f"{UUID}:1"
    assert decision.by_offset


@pytest.mark.parametrize(("count", "more"), [(0, "2 more"), (1, "1 more"), (2, "0 more")])
def test_p5_virtual_ip_another_server_is_an_error_that_says_how_many_are_needed(
    count: int, more: str
) -> None:
    log = timed_source(identity=replace(STANDBY, address="db1:3306"))
    rules = replace(ALONE, dump_errors=DumpErrors(count=count))
    error = refusal(ServerChangedError, cursor=without_gtids(), source=log, rules=rules)
    assert more in str(error)
    assert error.retryable


def test_p5_virtual_ip_after_more_than_two_dump_errors_it_is_searched_and_the_count_reset() -> None:
    log = timed_source(identity=replace(STANDBY, address="db1:3306"))
    rules = replace(ALONE, dump_errors=DumpErrors(count=3))
    decision = started(log, cursor=without_gtids(), rules=rules)
    assert decision.position.order == place_of(log, 2, 0)
    assert decision.resets_dump_errors
    assert decision.epoch_grows
    assert decision.overlap_until_us is not None


def test_p5_dump_errors_of_the_same_server_change_nothing() -> None:
    rules = replace(ALONE, dump_errors=DumpErrors(count=99))
    decision = started(source(), cursor=cursor(), rules=rules)
    assert decision.position == cursor().position
    assert not decision.resets_dump_errors


def test_p5_f199_dump_errors_count_reading_alone() -> None:
    none = DumpErrors()
    lost = none.after(SourceIdentityError("another server"))
    assert (lost.count, lost.last) == (1, "another server")
    unknown = lost.after(TableIdNotFoundError("rows without a table map"))
    assert (unknown.count, unknown.table_id_not_found) == (2, True)
    assert not unknown.after(JournalMissingError("gone")).table_id_not_found
    for error in (
        InsecureLoginError("no"),
        LoginError("no"),
        MissingGrantError("no"),
        ServerSettingError("no"),
        LakeStateError("no"),
        UnsupportedDdlError("no"),
    ):
        assert lost.after(error) == lost


# -- configured offset -----------------------------------------------------------------------------


def offset_of(log: ListSource, number: int, event: int) -> int:
    chunks = [chunk for chunk in log.log if chunk.journal == f"binlog.{number:06}"]
    return int(np.concatenate([chunk.events["offset"] for chunk in chunks])[event])


@pytest.mark.parametrize(
    ("number", "event", "executed"),
    [
        (1, 2, ""),
        (1, 8, "1"),
        (1, 14, "1-2"),
        (2, 0, "1-3"),
        (2, 2, "1-3"),
        (2, 8, "1-4"),
        (2, 14, "1-5"),
    ],
)
def test_pitfall_4_a_configured_offset_gets_all_gtids_executed_before_it(
    number: int, event: int, executed: str
) -> None:
    log = source()
    start = PositionConfig(journal=f"binlog.{number:06}", offset=offset_of(log, number, event))
    position = started(log, start).position
    assert (position.journal, position.offset) == (start.journal, start.offset)
    assert position.gtid_set == (f"{UUID}:{executed}" if executed else "")
    assert position.journal_created_s == 1_700_000_000
    assert [(p.journal, p.offset) for p in log.validated] == [(start.journal, start.offset)]
    assert log.closed == 1


def test_a_configured_offset_at_the_very_end() -> None:
    log = source()
    end = log.end_position()
    position = started(log, PositionConfig(journal=end.journal, offset=end.offset)).position
    assert position.gtid_set == f"{UUID}:1-6"


@pytest.mark.parametrize(("event", "executed"), [(3, ""), (5, ""), (9, "1"), (11, "1")])
def test_p7_a_configured_offset_inside_a_transaction_goes_back_to_its_begin(
    event: int, executed: str
) -> None:
    log = source()
    begin, inside = offset_of(log, 1, 2 if event < 8 else 8), offset_of(log, 1, event)
    decision = started(log, PositionConfig(journal="binlog.000001", offset=inside))
    assert decision.position.offset == begin
    assert decision.position.gtid_set == (f"{UUID}:{executed}" if executed else "")
    assert (
        f"binlog.000001:{inside} is inside a transaction: back to its beginning at {begin}"
        in decision.reasons
    )


def test_events_that_cannot_be_read_before_the_offset_stop_only_where_gtids_are_needed() -> None:
    start = PositionConfig(journal="binlog.000001", offset=600)
    error = refusal(PositionError, start=start, source=source(failure_at=300))
    assert error.offset == 300
    assert "FLUSH BINARY LOGS" in str(error)
    plain = source(failure_at=300, end_gtid_set="")
    assert started(plain, start).position.gtid_set == ""


# -- GTID set, earliest, latest --------------------------------------------------------------------


def test_p3_a_gtid_set_on_a_server_keeps_the_set_in_canonical_form() -> None:
    log = source()
    decision = started(log, GtidConfig(gtid_set=f"{UUID.upper()}:2:1"))
    assert decision.position == replace(log.earliest_position(), gtid_set=f"{UUID}:1-2")
    assert log.validated == [decision.position]


def test_a_gtid_set_of_no_such_log_is_refused() -> None:
    """The log has none, or those of the other flavor."""
    start = GtidConfig(gtid_set=f"{UUID}:1")
    error = refusal(PositionError, start=start, source=source(end_gtid_set=""))
    assert error.setting == "start.gtid_set"
    other = refusal(PositionError, start=GtidConfig(gtid_set="0-1-5"), source=source())
    assert "3e11fa47" in str(other)


def located(numbers: str, **options) -> StartDecision:
    log = source(is_archive=True, **options)
    return started(log, GtidConfig(gtid_set=f"{UUID}:{numbers}"))


@pytest.mark.parametrize(
    ("numbers", "number", "event"), [("1", 1, 8), ("1-2", 1, 14), ("1-3", 2, 2), ("1-5", 2, 14)]
)
def test_a_gtid_set_is_located_in_an_archive(numbers: str, number: int, event: int) -> None:
    position = located(numbers).position
    assert position.order == (number, offset_of(source(), number, event))
    assert position.gtid_set == f"{UUID}:{numbers}"
    assert located("1-6").position.order == source().end_position().order


@pytest.mark.parametrize(
    ("numbers", "options"),
    [("1:3", {}), ("2-3", {}), ("1-9", {}), ("5", {"earliest_gtid_set": f"{UUID}:50"})],
)
def test_a_gtid_set_that_no_one_place_parts_is_refused(numbers: str, options: dict) -> None:
    with pytest.raises(PositionError) as caught:
        located(numbers, **options)
    assert caught.value.setting == "start.gtid_set"


def test_p4_earliest_and_latest() -> None:
    log = source()
    created_s = log.log[0].journal_format.created_s
    earliest = started(log, "earliest")
    assert earliest.position == replace(log.earliest_position(), journal_created_s=created_s)
    latest = started(log)
    assert latest.position == replace(log.end_position(), journal_created_s=created_s)
    assert latest.reasons[0] == "there is no cursor: the end of the log"


# -- time (P4, P8, K6) -----------------------------------------------------------------------------


def at(seconds: float, journal: str | None = None) -> TimeConfig:
    return TimeConfig(
        time=datetime.fromtimestamp(NOON_US / SECOND_US, tz=UTC) + timedelta(seconds=seconds),
        journal=journal,
    )


@pytest.mark.parametrize(
    ("seconds", "number", "transaction"),
    [(-120, 1, 0), (0, 1, 2), (0.000001, 2, 0), (60, 2, 0), (61, 2, 1), (-9999, 1, 0), (360, 3, 2)],
)
def test_p8_a_time_is_the_first_commit_at_or_after_it(
    seconds: float, number: int, transaction: int
) -> None:
    log = timed_source()
    decision = started(log, at(seconds))
    assert decision.position.order == place_of(log, number, transaction)
    assert not decision.epoch_grows
    assert ("was created after that time" in decision.reasons[-1]) == (seconds == -9999)
    after_the_last = started(log, at(361)).position
    assert after_the_last.order == log.end_position().order


def test_p4_a_time_in_a_journal_is_searched_there_alone() -> None:
    log = timed_source()
    second = "binlog.000002"
    inside = started(log, at(61, second)).position
    assert inside.order == place_of(log, 2, 1)
    before = started(log, at(-100, second)).position
    assert before.order == place_of(log, 2, 0)
    after = started(log, at(240, second))
    assert (after.position.journal, after.position.offset) == (second, 4)
    assert "all of the journal is read" in " ".join(after.reasons)
    last = started(log, at(9999, "binlog.000003"))
    assert (last.position.journal, last.position.offset) == ("binlog.000003", 4)


def test_p4_timestamp_and_server_id_of_a_configured_place_are_filled_in() -> None:
    log = source()
    offset = offset_of(log, 1, 8)
    position = started(log, PositionConfig(journal="binlog.000001", offset=offset)).position
    assert (position.timestamp_s, position.server_id) == (1_700_000_008, 1)
    log = timed_source()
    found = started(log, at(60)).position
    assert (found.timestamp_s, found.server_id) == (1_700_000_002, 1)
    assert found.journal_created_s == log.log[1].journal_format.created_s


# -- standby (P4) ----------------------------------------------------------------------------------


def test_p4_the_standby_has_a_start_of_its_own() -> None:
    log = source(identity=STANDBY)
    rules = replace(PAIR, standby_start=PositionConfig(journal="binlog.000002"))
    start = PositionConfig(journal="binlog.000099", offset=12345)
    assert started(log, start, rules=rules).position.journal == "binlog.000002"
    primary = source()
    rules = replace(PAIR, standby_start=start)
    assert started(primary, "earliest", rules=rules).position.offset == 4


@pytest.mark.parametrize("start", ["earliest", PositionConfig(journal="binlog.000001"), at(0)])
def test_p4_a_standby_without_a_start_begins_at_its_current_end(start) -> None:
    log = source(identity=STANDBY)
    decision = started(log, start, rules=PAIR)
    assert decision.position.order == log.end_position().order
    assert decision.reasons[0] == "there is no cursor: the standby without a configured start"


def test_p3_a_configured_gtid_set_means_the_same_on_the_standby() -> None:
    log = source(identity=STANDBY)
    decision = started(log, GtidConfig(gtid_set=f"{UUID}:1-2"), rules=PAIR)
    assert decision.position.gtid_set == f"{UUID}:1-2"
    assert not decision.by_offset
