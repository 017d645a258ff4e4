"""A sample of the campaign, and one lie of each kind that was believed, or broke
something, before."""

from __future__ import annotations

from typing import Any

import pytest

from tests.campaigns.liar import wire
from tests.campaigns.liar.conversations import NAMES, Name
from tests.campaigns.liar.judge import Judge, Verdict
from tests.campaigns.liar.lies import FLAVORS, LOCAL_FILE, Lie, event_packet, lie, recording
from tests.campaigns.liar.recording import GREETING, LOGIN
from tests.servers import Flavor

# Numbers that `make campaign NAME=liar` does not reach by itself. None is a flood at full speed,
# which takes seconds: F61 has tests of its own.
FIRST = 1_000_336
SAMPLE = 4


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Judge:
    return Judge(tmp_path_factory.mktemp("liar"))


def told(
    judge: Judge,
    name: Name,
    asked: bytes,
    *step: Any,
    flavor: Flavor = "mysql",
    repairs: bool = True,
    which: int = 0,
) -> Verdict:
    exchanges = recording(flavor).exchanges[name]
    at = [at for at, one in enumerate(exchanges) if one.key.startswith(asked)][which]
    return judge.judge(Lie(flavor, name, at, [list(step)], repairs))


@pytest.mark.parametrize("flavor", FLAVORS)
@pytest.mark.parametrize("name", NAMES)
def test_what_was_recorded_is_played_again(judge: Judge, flavor: Flavor, name: Name) -> None:
    has_tls = bool((NAMES.index(name) + FLAVORS.index(flavor)) % 2)
    assert judge.honest(flavor, name, has_tls=has_tls) == Verdict("equal")


@pytest.mark.parametrize("flavor", FLAVORS)
def test_a_recording_has_nothing_of_the_machine(flavor: Flavor) -> None:
    said = b"".join(
        packet
        for exchanges in recording(flavor).exchanges.values()
        for exchange in exchanges
        for packet in exchange.packets
    )
    assert b"/tmp/" not in said
    assert b"/home/" not in said


@pytest.mark.whole
@pytest.mark.parametrize("part", range(2 * len(NAMES)))
def test_k25_a_lie_ends_in_an_error_of_ours_or_is_seen_through(judge: Judge, part: int) -> None:
    """K25: whatever a server says, a run ends in bounded time and memory with its rows or an
    error."""
    for number in range(FIRST + part, FIRST + part + SAMPLE * 2 * len(NAMES), 2 * len(NAMES)):
        verdict = judge.judge(lie(number))
        assert verdict.outcome != "finding", f"lie {number}: {verdict.detail}"


@pytest.mark.parametrize(
    ("asked", "step"),
    [
        (GREETING, ("greet", "TiDB-v8.5.0", None, 7)),
        (GREETING, ("cut", 0, 12, 0)),
        (LOGIN, ("length", 0, 0, True)),
        (b"\x03SELECT @@GLOBAL.server_id", ("count", 1 << 24)),
        (b"\x03SELECT @@GLOBAL.server_id", ("instead", 1, wire.OK.hex())),
        (b"\x03SELECT @@GLOBAL.server_id", ("lenenc", 3, 0, (1 << 63) - 1)),
    ],
)
def test_k25_f43_what_is_not_the_protocol_is_an_error_of_ours(
    judge: Judge, asked: bytes, step: tuple[Any, ...]
) -> None:
    assert told(judge, "doctor", asked, *step).outcome == "server-answer"


@pytest.mark.whole
def test_k25_f61_rows_that_come_now_and_then_are_not_read_for_ever(judge: Judge) -> None:
    """An answer takes ten waits at most."""
    verdict = told(judge, "doctor", b"\x03SHOW GLOBAL VARIABLES", "endless", 4, True)
    assert verdict.outcome == "server-answer"
    assert "does not end" in verdict.detail


def test_k25_f61_rows_without_an_end_are_not_kept(judge: Judge) -> None:
    row = wire.from_cells([b"x" * 60_000, b""]).hex()
    asked = b"\x03SHOW GLOBAL VARIABLES"
    verdict = told(judge, "doctor", asked, "endless_payload", 4, row, False)
    assert verdict.outcome == "server-answer"
    assert "too large" in verdict.detail


def test_k25_f61_a_packet_without_an_end_is_not_kept(judge: Judge) -> None:
    verdict = told(judge, "doctor", b"\x03SHOW GLOBAL VARIABLES", "immense", 0)
    assert verdict.outcome == "server-answer"
    assert "too large" in verdict.detail


def test_k25_f177_a_server_that_lists_no_journals_is_told(judge: Judge) -> None:
    asked = b"\x03SHOW BINARY LOGS"
    verdict = told(judge, "capture_by_gtid", asked, "no_rows", repairs=False, which=-1)
    assert verdict.outcome == "journal-missing"


def test_k25_f61_heartbeats_that_come_faster_than_they_are_read_end(judge: Judge) -> None:
    heartbeat = event_packet(27, b"binlog.000002").hex()
    verdict = told(judge, "capture_by_gtid", b"\x1e", "endless_payload", 5, heartbeat, False)
    assert verdict.outcome == "server-unreachable"


@pytest.mark.parametrize(
    ("name", "asked", "column", "value"),
    [
        ("doctor", b"\x03SHOW BINARY LOG STATUS", 1, None),
        ("doctor", b"\x03SHOW BINARY LOG STATUS", 1, b"-1"),
        ("doctor", b"\x03SHOW BINARY LOG STATUS", 0, None),
        ("doctor", b"\x03SHOW BINARY LOGS", 1, b"inf"),
        ("doctor", b"\x03SELECT @@GLOBAL.server_id", 0, b"'; DROP TABLE a; --"),
        ("discover", b"\x03SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE", 0, None),
        ("discover", b"\x03SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE", 5, b"NaN"),
        ("load", b"\x03SELECT TABLE_SCHEMA, TABLE_NAME, ", 1, None),
    ],
)
def test_k25_f42_a_value_that_is_none_of_its_kind_is_an_error_of_ours(
    judge: Judge, name: Name, asked: bytes, column: int, value: bytes | None
) -> None:
    text = None if value is None else value.hex()
    # The first answer to this one only tells whether the log is filtered.
    which = -1 if asked.endswith(b"STATUS") else 0
    verdict = told(judge, name, asked, "cell", 0, column, text, which=which)
    assert verdict.outcome == "server-answer"


@pytest.mark.parametrize("flavor", FLAVORS)
def test_k22_f43_a_refused_statement_is_an_error_of_ours(judge: Judge, flavor: Flavor) -> None:
    """Whichever it is: the words of the server, and a next step."""
    asked = b"\x03SELECT BINLOG_GTID_POS" if flavor == "mariadb" else b"\x03SELECT TABLE_SCHEMA"
    name: Name = "doctor" if flavor == "mariadb" else "capture_by_gtid"
    refused = wire.error(1105, "not now").hex()
    verdict = told(judge, name, asked, "instead", 0, refused, flavor=flavor)
    assert verdict.outcome in ("statement", "source")
    assert "error 1105: not now" in verdict.detail


def test_k26_a_server_gets_neither_a_file_nor_the_password(judge: Judge) -> None:
    """The judge looks for both among all that was sent."""
    asks = (b"\xfb" + LOCAL_FILE.encode()).hex()
    assert told(judge, "doctor", b"\x03SELECT", "instead", 0, asks).outcome == "source"
    for plugin in (b"mysql_clear_password", b"dialog", b"mysql_old_password"):
        switch = (b"\xfe" + plugin + b"\0" + bytes(range(65, 86))).hex()
        verdict = told(judge, "doctor", LOGIN, "instead", 0, switch)
        assert verdict.outcome == "insecure-login"


def test_k22_f135_a_text_of_the_catalog_that_is_no_utf_8_is_an_error_of_ours(judge: Judge) -> None:
    asked = b"\x03SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE"
    verdict = told(
        judge, "discover", asked, "cell", 23, 16, "fffefd", flavor="mariadb", repairs=False
    )
    assert verdict.outcome == "server-answer", verdict


@pytest.mark.parametrize("flavor", FLAVORS)
@pytest.mark.parametrize("step", [("drop",), ("event", 5, 0x20)])
def test_k25_f44_an_event_of_a_transaction_that_a_server_leaves_out_is_missed(
    judge: Judge, flavor: Flavor, step: tuple[Any, ...]
) -> None:
    """Left out, or marked as made up, in a dump by GTIDs, which skips whole transactions."""
    name: Name = "capture_by_gtid"
    exchanges = recording(flavor).exchanges[name]
    by_set = wire.DUMP_GTID if flavor == "mysql" else wire.DUMP
    dumps = [at for at, exchange in enumerate(exchanges) if exchange.key[0] == by_set]
    at = max(dumps, key=lambda at: len(exchanges[at].packets))
    packets = exchanges[at].packets
    rows = [at for at, packet in enumerate(packets) if packet[5:6] in (b"\x17", b"\x1e")]
    lie = Lie(flavor, name, at, [[step[0], rows[-1], *step[1:]]], True)
    assert judge.judge(lie).outcome == "damaged-journal"


def test_k25_f44_a_place_that_no_journal_has_is_an_error_of_ours(judge: Judge) -> None:
    rotate = event_packet(4, bytes([0xFF] * 8) + b"binlog.000002").hex()
    verdict = told(judge, "capture_by_gtid", b"\x1e", "between", 5, rotate)
    assert verdict.outcome == "damaged-journal"


def test_what_the_judge_must_find(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("wire")

    monkeypatch.setattr("tests.campaigns.liar.conversations.discover", broken)
    verdict = judge.honest("mysql", "discover")
    assert (verdict.outcome, verdict.detail[:8]) == ("finding", "KeyError")
