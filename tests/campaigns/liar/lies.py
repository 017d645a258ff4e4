"""Lies: which answer of which conversation is changed, and how.

Rules:
- A number gives a lie; a lie is JSON, so that a finding can be kept.
- Bytes are changed by the steps of the fuzzer (`tests.campaigns.fuzz.mutations`), with packets in
  the place of events.
- A lie is believable if a server could say it within the protocol: other values, fewer rows,
  another version. Rows may then be others than recorded. All other lies must end with the recorded
  rows, or with an error.
"""

from __future__ import annotations

import functools
import random
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, get_args

from tests.campaigns.fuzz.mutations import EDGE_BYTES, EDGE_NUMBERS, STEPS
from tests.campaigns.liar import wire
from tests.campaigns.liar.conversations import NAMES, Name
from tests.campaigns.liar.lying_server import Answer
from tests.campaigns.liar.recording import GREETING, LOGIN, Exchange, Recording
from tests.servers import Flavor

FLAVORS: Final[tuple[Flavor, ...]] = get_args(Flavor)
LOCAL_FILE: Final = "/cdc-liar-asks-for-this"  # replaced by the judge's own file
_EVENT_BYTES: Final = 19
_HEARTBEATS: Final = (27, 41)
_ROTATE: Final = 4

VERSIONS: Final = (
    "", "x", "3.23.58", "4.1.0", "5.5.5-10.11.6-MariaDB", "8.0.36-cluster", "11.8.2-MariaDB-log",
    "99999999999999999999.1.2", "9.7.0\x1b[2J", "9.7.0'; DROP TABLE a; --", "-1.0", "TiDB-v8.5.0",
    "9." * 3000, "\u0669.7.0",
)  # fmt: skip
PLUGINS: Final = (
    "mysql_clear_password", "mysql_old_password", "dialog", "sha256_password",
    "caching_sha2_password", "mysql_native_password", "client_ed25519", "auth_gssapi_client",
    "", "x" * 500, "../../lib/evil", "mysql_clear_password\x1b[2J",
)  # fmt: skip
CELLS: Final = (
    None, b"", b"-1", b"0", b"1e308", b"NaN", b"inf", b"99999999999999999999999", b"4294967296",
    b"18446744073709551615", b"../../../../tmp/cdc-liar.000001", b"/tmp/cdc-liar.000001",
    b"binlog.000001\n", b"binlog", b"binlog.999999999999999999999", b"binlog.-00001", b".000001",
    b"binlog.0000\xd9\xa1", b"\xff\xfe\xfd", b"a\0b", b"\x1b[2J", b"`; DROP TABLE a; --", b"'",
    b"YES", b"NO", b"PRI", b"int", b"enum('a", b"varchar(99999999999)", b"decimal(999,999)",
    b"geometry", b"x" * 70_000, b"0-1-18446744073709551616", b"0-1-1,0-1-1",
    b"00000000-0000-0000-0000-000000000000:1-9223372036854775807", b"not a set:1-", b"utf8mb9",
    b"2147483648", b"9223372036854775808", b"1.5", b"\xe2\x80\xae", b"[" * 5000,
)  # fmt: skip
ERRORS: Final = (
    0, 1, 1044, 1045, 1046, 1053, 1064, 1105, 1142, 1146, 1152, 1158, 1193, 1205, 1213, 1226, 1227,
    1236, 1290, 1317, 1381, 1412, 1927, 2006, 2013, 2026, 2059, 3159, 4031, 65535,
)  # fmt: skip
TEXTS: Final = (
    "", "no", "\x1b[2Jx", "\ufffd" * 300, "x" * 5000, "Could not find first log file name",
    "purged required binary logs", "same server_uuid/server_id", "impossible position", "crc check",
    "you need (at least one of) the SUPER privilege(s) for this operation",
)  # fmt: skip
JOURNALS: Final = (
    b"../../../../tmp/cdc-liar.000002", b"/tmp/cdc-liar.000002", b"binlog.000001", b"",
    b"binlog.000002\n\x1b[2J", b"x" * 600, b"binlog.4294967296", b"other.000002", b"\xff.000002",
    b"binlog.000000",
)  # fmt: skip
_BYTE_STEPS: Final = ("flip", "set", "number", "add", "lenenc", "insert", "remove", "cut")
_PACKET_STEPS: Final = ("drop", "double", "swap")


@dataclass(frozen=True)
class Lie:
    """One lie. `flavor`, `name`: the conversation; `at`: index of the exchange that is changed;
    `steps`: see `STEPS_OF_LIES`; after them `repairs` makes the checksums of events right.
    """

    flavor: Flavor
    name: Name
    at: int
    steps: list[list[Any]]
    repairs: bool = False
    has_tls: bool = False

    @property
    def is_believable(self) -> bool:
        """See the module."""
        key = recording(self.flavor).exchanges[self.name][self.at].key
        if key[0] in (wire.DUMP, wire.DUMP_GTID):
            return self.repairs and any(step[0] in _BYTE_STEPS for step in self.steps)
        return any(step[0] in (*_BYTE_STEPS, *_PACKET_STEPS, *_BELIEVABLE) for step in self.steps)

    def applied(self, index: int, answer: Answer) -> Answer:
        if index != self.at:
            return answer
        key = recording(self.flavor).exchanges[self.name][index].key
        before = list(answer.packets)
        for name, *values in self.steps:
            _apply(answer, name, values)
        if self.repairs and key[0] in (wire.DUMP, wire.DUMP_GTID):
            known = set(before)
            answer.packets = [
                one if one in known else _with_checksum(one) for one in answer.packets
            ]
        return answer


@functools.cache
def recording(flavor: Flavor) -> Recording:
    return Recording.load(flavor)


def _with_checksum(packet: bytes) -> bytes:
    if len(packet) < 1 + _EVENT_BYTES + 4 or packet[0]:
        return packet
    event = packet[1:-4]
    size = len(event) + 4
    event = event[:9] + struct.pack("<I", size) + event[13:]
    return b"\0" + event + struct.pack("<I", zlib.crc32(event))


# -- steps -----------------------------------------------------------------------------------------


def _apply(answer: Answer, name: str, values: list[Any]) -> None:
    if name in _BYTE_STEPS or name in _PACKET_STEPS:
        packets = [bytearray(packet) for packet in answer.packets]
        if packets and (name in _PACKET_STEPS or packets[values[0] % len(packets)]):
            STEPS[name](packets, *values)
        answer.packets = [bytes(packet) for packet in packets]
    elif answer.packets:  # a step before may have left none
        STEPS_OF_LIES[name](answer, *values)


def _instead(answer: Answer, index: int, payload: str) -> None:
    answer.packets = [*answer.packets[: index % len(answer.packets)], bytes.fromhex(payload)]


def _between(answer: Answer, index: int, payload: str) -> None:
    answer.packets.insert(index % len(answer.packets), bytes.fromhex(payload))


def _end(answer: Answer, index: int) -> None:
    answer.packets = answer.packets[: index % len(answer.packets)]
    answer.closes = True


def _endless(answer: Answer, index: int, slowly: bool) -> None:
    at = index % len(answer.packets)
    answer.packets, answer.endless = answer.packets[:at], (answer.packets[at],)
    answer.slowly = slowly


def _endless_payload(answer: Answer, index: int, payload: str, slowly: bool) -> None:
    at = index % len(answer.packets)
    answer.packets, answer.endless = answer.packets[:at], (bytes.fromhex(payload),)
    answer.slowly = slowly


def _immense(answer: Answer, index: int) -> None:
    answer.packets = answer.packets[: index % len(answer.packets)]
    answer.is_immense = True


def _sequence(answer: Answer, index: int, change: int) -> None:
    at = index % len(answer.packets)
    answer.numbers = dict.fromkeys(range(at, len(answer.packets)), change)


def _length(answer: Answer, index: int, length: int, closes: bool) -> None:
    answer.lengths = {index % len(answer.packets): length}
    answer.closes = closes


def _cell(answer: Answer, index: int, column: int, value: str | None) -> None:
    rows = _text_rows(answer.packets)
    if not rows:
        return
    at = rows[index % len(rows)]
    values = wire.cells(answer.packets[at])
    assert values
    values[column % len(values)] = None if value is None else bytes.fromhex(value)
    answer.packets[at] = wire.from_cells(values)


def _column(answer: Answer, index: int, name: str) -> None:
    columns = _columns(answer.packets)
    if not columns:
        return
    at = columns[index % len(columns)]
    packet = answer.packets[at]
    texts, end = [], 0
    for _ in range(6):
        size = packet[end]
        texts.append(packet[end + 1 : end + 1 + size])
        end += 1 + size
    texts[4] = texts[5] = bytes.fromhex(name)
    answer.packets[at] = b"".join(map(wire.text, texts)) + packet[end:]


def _count(answer: Answer, count: int) -> None:
    head = b"\xfe" + struct.pack("<Q", count) if count > 0xFA else bytes([count])
    answer.packets[0] = head


def _no_rows(answer: Answer) -> None:
    rows = set(_text_rows(answer.packets))
    answer.packets = [one for at, one in enumerate(answer.packets) if at not in rows]


def _greet(answer: Answer, version: str, plugin: str | None, thread: int) -> None:
    packet = answer.packets[0]
    end = packet.index(b"\0", 1)
    rest = packet[end + 5 :]
    if plugin is not None:
        last = rest.rstrip(b"\0").rindex(b"\0")
        rest = rest[: last + 1] + plugin.encode() + b"\0"
    answer.packets[0] = b"\x0a" + version.encode() + b"\0" + struct.pack("<I", thread) + rest


def _event(answer: Answer, index: int, field: int, value: int) -> None:
    """A number in the header of an event: time, type, server, length, position or flags."""
    at = index % len(answer.packets)
    packet = bytearray(answer.packets[at])
    if len(packet) > _EVENT_BYTES:
        form, offset = (("<I", 0), ("<B", 4), ("<I", 5), ("<I", 9), ("<I", 13), ("<H", 17))[field]
        width = struct.calcsize(form)
        struct.pack_into(form, packet, 1 + offset, value & ((1 << 8 * width) - 1))
    answer.packets[at] = bytes(packet)


def event_packet(kind: int, body: bytes, *, position: int = 0, flags: int = 0x20) -> bytes:
    size = _EVENT_BYTES + len(body) + 4
    event = struct.pack("<IBIIIH", 0, kind, 1, size, position, flags) + body
    return b"\0" + event + struct.pack("<I", zlib.crc32(event))


def _text_rows(packets: list[bytes]) -> list[int]:
    ends = [at for at, packet in enumerate(packets) if wire.is_end(packet)]
    if len(ends) < 2 or len(packets[0]) > 9:
        return []
    return [at for at in range(ends[0] + 1, ends[1]) if wire.cells(packets[at])]


def _columns(packets: list[bytes]) -> list[int]:
    return [at for at, packet in enumerate(packets) if packet[:4] == b"\x03def"]


STEPS_OF_LIES: Final[dict[str, Callable[..., None]]] = {
    "instead": _instead, "between": _between, "end": _end, "endless": _endless,
    "endless_payload": _endless_payload, "immense": _immense, "sequence": _sequence,
    "length": _length, "cell": _cell, "column": _column, "count": _count, "no_rows": _no_rows,
    "greet": _greet, "event": _event,
}  # fmt: skip
_TLS_ONE_IN: Final = 5
# What a server may say; `instead` and `between` may be an end of rows.
_BELIEVABLE: Final = ("instead", "between", "cell", "column", "no_rows", "greet")


# -- drawing ---------------------------------------------------------------------------------------


def lie(number: int) -> Lie:
    source = random.Random(number)
    flavor = FLAVORS[number % 2]
    name = NAMES[number // 2 % len(NAMES)]
    exchanges = recording(flavor).exchanges[name]
    at = _drawn_exchange(source, exchanges)
    key, packets = exchanges[at].key, exchanges[at].packets
    repairs = False
    if key[0] in (wire.DUMP, wire.DUMP_GTID):
        steps = [_drawn_dump(source, packets) for _ in range(source.choice((1, 1, 2)))]
        repairs = source.random() < 0.5
    elif key in (GREETING, LOGIN):
        steps = [_drawn_login(source, key, packets)]
    else:
        step = _drawn_result(source, packets)
        if key[0] == wire.EXECUTE and step[0] in ("endless", "endless_payload"):
            step = ["end", step[1]]  # a table may be as large as a server says
        steps = [step]
    return Lie(flavor, name, at, steps, repairs, has_tls=number % _TLS_ONE_IN == 0)


def _drawn_exchange(source: random.Random, exchanges: list[Exchange]) -> int:
    """One of the conversation: as often a dump, a login or rows as any other."""
    dumps = [at for at, one in enumerate(exchanges) if one.key[0] in (wire.DUMP, wire.DUMP_GTID)]
    logins = [at for at, one in enumerate(exchanges) if one.key in (GREETING, LOGIN)]
    rows = [at for at, one in enumerate(exchanges) if one.key[0] in (wire.PREPARE, wire.EXECUTE)]
    answers = [at for at, one in enumerate(exchanges) if len(one.packets) > 1]
    groups = [group for group in (dumps, logins, rows, answers, answers) if group]
    if source.random() < 0.1:
        return source.randrange(len(exchanges))
    return source.choice(source.choice(groups))


def _payload(source: random.Random) -> str:
    made = source.choice(("error", "error", "ok", "eof", "file", "switch", "more", "odd"))
    if made == "error":
        return wire.error(source.choice(ERRORS), source.choice(TEXTS)).hex()
    if made == "ok":
        return source.choice((wire.OK, b"\0", b"\0\xfe\xff\xff", b"\0\0\0\x0a\0\0\0")).hex()
    if made == "eof":
        return source.choice((wire.EOF, b"\xfe", b"\xfe\xff\xff\x08\0", b"\xfe" + bytes(8))).hex()
    if made == "file":
        return (b"\xfb" + LOCAL_FILE.encode()).hex()
    if made == "switch":
        return (b"\xfe" + source.choice(PLUGINS).encode() + b"\0" + bytes(range(65, 86))).hex()
    if made == "more":
        return source.choice((b"\x01\x04", b"\x01\x03", b"\x01", b"\x01-----BEGIN")).hex()
    return source.choice((b"", b"\xff", b"\xff\x15", source.randbytes(40))).hex()


def _drawn_bytes(source: random.Random, packets: list[bytes]) -> list[Any]:
    index = source.randrange(len(packets))
    at = source.randrange(max(1, min(len(packets[index]), 200)))
    name = source.choice(_BYTE_STEPS + _PACKET_STEPS)
    step: dict[str, Callable[[], list[Any]]] = {
        "flip": lambda: [at, source.randrange(8)],
        "set": lambda: [at, source.choice(EDGE_BYTES)],
        "number": lambda: [at, source.choice((2, 3, 4, 8)), source.choice(EDGE_NUMBERS)],
        "add": lambda: [at, source.choice((1, 2, 4)), source.choice((-256, -1, 1, 8))],
        "lenenc": lambda: [at, source.choice(EDGE_NUMBERS)],
        "insert": lambda: [at, source.randbytes(source.choice((1, 8, 100))).hex()],
        "remove": lambda: [at, source.choice((1, 2, 9, 50))],
        "cut": lambda: [at, source.choice((0, 4))],
        "drop": list,
        "double": lambda: [source.randrange(len(packets) + 1)],
        "swap": lambda: [source.randrange(len(packets))],
    }
    return [name, index, *step[name]()]


def _drawn_protocol(source: random.Random, packets: list[bytes]) -> list[Any]:
    index = source.randrange(len(packets))
    name = source.choice(
        ("instead", "instead", "between", "end", "endless", "endless_payload", "immense",
         "sequence", "length")
    )  # fmt: skip
    slowly = source.random() < 0.5
    step: dict[str, Callable[[], list[Any]]] = {
        "instead": lambda: [index, _payload(source)],
        "between": lambda: [index, _payload(source)],
        "end": lambda: [index],
        "endless": lambda: [index, slowly],
        "endless_payload": lambda: [index, _payload(source), slowly],
        "immense": lambda: [index],
        "sequence": lambda: [index, source.choice((-1, 1, 128, 255))],
        "length": lambda: [index, source.choice((0, 1, 5, 300, (1 << 24) - 1)), slowly],
    }
    return [name, *step[name]()]


def _drawn_login(source: random.Random, key: bytes, packets: list[bytes]) -> list[Any]:
    drawn = source.random()
    if key == GREETING and drawn < 0.5:
        plugin = source.choice((None, *PLUGINS))
        thread = source.choice((0, 7, (1 << 32) - 1))
        return ["greet", source.choice((*VERSIONS, "9.7.0", "10.11.6-MariaDB")), plugin, thread]
    if drawn < 0.8:
        return _drawn_protocol(source, packets)
    return _drawn_bytes(source, packets)


def _drawn_result(source: random.Random, packets: list[bytes]) -> list[Any]:
    drawn = source.random()
    if _text_rows(packets) and drawn < 0.6:
        value = source.choice(CELLS)
        return [
            "cell",
            source.randrange(1000),
            source.randrange(20),
            None if value is None else value.hex(),
        ]
    if _columns(packets) and drawn < 0.7:
        choices: tuple[list[Any], ...] = (
            ["column", source.randrange(20), source.choice((b"", b"a", b"Pos", b"\xff")).hex()],
            ["count", source.choice((0, 1, 2, 250, 65_535, 1 << 24, 1 << 63, (1 << 64) - 1))],
            ["no_rows"],
        )
        return source.choice(choices)
    if drawn < 0.85:
        return _drawn_protocol(source, packets)
    return _drawn_bytes(source, packets)


def _drawn_dump(source: random.Random, packets: list[bytes]) -> list[Any]:
    index = source.randrange(len(packets))
    drawn = source.random()
    if drawn < 0.3:
        return _drawn_bytes(source, packets)
    if drawn < 0.5:
        return _drawn_protocol(source, packets)
    if drawn < 0.75:
        value = source.choice((*EDGE_NUMBERS, source.choice(_HEARTBEATS), _ROTATE))
        return ["event", index, source.randrange(6), value]
    journal = source.choice(JOURNALS)
    kind = source.choice((_ROTATE, *_HEARTBEATS))
    position = source.choice((0, 4, 5, 1 << 31, (1 << 32) - 1))
    if kind == _ROTATE:
        body = struct.pack("<Q", source.choice((0, 4, 5, 1 << 40, (1 << 64) - 1))) + journal
    elif kind == _HEARTBEATS[0]:
        body = journal
    else:
        body = bytes([1, len(journal) & 0xFF]) + journal + b"\x02\x04" + bytes(4)
    payload = event_packet(kind, body, position=position, flags=source.choice((0, 0x20))).hex()
    if source.random() < 0.5:
        return ["between", index, payload]
    return ["endless_payload", index, payload, source.random() < 0.5]
