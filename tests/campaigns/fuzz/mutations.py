"""Damage by number: the same number gives the same mutant of the same seed, and every mutant can be
written down.

A mutant is a seed's name, steps, and what is made right again afterwards (lengths, positions,
checksums). A step is a list of a name and plain values, so that a case is a few lines of JSON.
Steps apply where they can: an index counts modulo what is there.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tests.campaigns.fuzz import journal as wire

EDGE_BYTES: Final = (0, 1, 2, 7, 8, 0x7F, 0x80, 0xFA, 0xFB, 0xFC, 0xFD, 0xFE, 0xFF)
EDGE_NUMBERS: Final = (
    0, 1, 2, 250, 251, 255, 256, 65535, 65536, (1 << 24) - 1, 1 << 24, (1 << 31) - 1, 1 << 31,
    (1 << 32) - 1,
    1 << 32,
    0x7F800000, 0x7FC00000, 0x7FF0000000000000, 0xFFF8000000000000, 1 << 40, 1 << 48, 1 << 60,
    1 << 62,
    (1 << 63) - 1, (1 << 63) - 8, 1 << 63, (1 << 63) + 1, (1 << 64) - 8, (1 << 64) - 1,
)  # fmt: skip
# Types of columns and events, known and not; in JSON, types of values.
CODES: Final = tuple(range(46)) + tuple(range(140, 172)) + (200, 242, *range(244, 256))
# Table maps, heads of journals and payloads are small and rich in fields: they are hit more often.
RICH: Final = {15: 2, 19: 6, 33: 2, 35: 2, 38: 3, 40: 4, 42: 3, 162: 2, 163: 2, 2: 2}

Step = list[Any]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A seed and what is done to it. `seed`: name of a recorded journal; `steps`: see STEPS;
    `repair`: any of "lengths", "positions", "checksums", made right at the end.
    """

    seed: str
    steps: list[Step]
    repair: list[str]

    def journal(self) -> bytes:
        events = wire.split(wire.seed(self.seed))
        tail: list[bytes | int] = []
        for name, *values in self.steps:
            if name in ("truncate", "append"):
                tail.append(values[0] if name == "truncate" else bytes.fromhex(values[0]))
            elif events:
                STEPS[name](events, *values)
        data = wire.joined(
            events, **{what: what in self.repair for what in ("checksums", "lengths", "positions")}
        )
        for part in tail:
            data = data + part if isinstance(part, bytes) else data[: part % (len(data) + 1)]
        return data

    def as_dict(self) -> dict[str, Any]:
        return {"seed": self.seed, "steps": self.steps, "repair": self.repair}


def mutant(number: int) -> Mutant:
    names = wire.seed_names()
    name = names[number % len(names)]
    source = random.Random(number)
    events = wire.split(wire.seed(name))
    steps = [_draw(source, events) for _ in range(source.choice((1, 1, 1, 2, 3)))]
    repair = [
        what
        for what, share in (("lengths", 0.9), ("positions", 0.93), ("checksums", 0.95))
        if source.random() < share
    ]
    return Mutant(name, steps, repair)


# -- steps: each changes a list of events in place -------------------------------------------------

Events = list[bytearray]


def _flip(events: Events, index: int, at: int, bit: int) -> None:
    event = events[index % len(events)]
    event[at % len(event)] ^= 1 << bit


def _set(events: Events, index: int, at: int, value: int) -> None:
    event = events[index % len(events)]
    event[at % len(event)] = value


def _number(events: Events, index: int, at: int, width: int, value: int) -> None:
    event = events[index % len(events)]
    at %= len(event)
    raw = (value & (1 << 8 * width) - 1).to_bytes(width, "little")[: len(event) - at]
    event[at : at + len(raw)] = raw


def _add(events: Events, index: int, at: int, width: int, value: int) -> None:
    event = events[index % len(events)]
    at %= len(event)
    raw = event[at : at + width]
    event[at : at + width] = (
        (int.from_bytes(raw, "little") + value) % (1 << 8 * len(raw))
    ).to_bytes(len(raw), "little")


def _lenenc(events: Events, index: int, at: int, value: int) -> None:
    event = events[index % len(events)]
    at %= len(event)
    event[at : at + 1] = b"\xfe" + (value & (1 << 64) - 1).to_bytes(8, "little")


def _insert(events: Events, index: int, at: int, raw: str) -> None:
    event = events[index % len(events)]
    at %= len(event) + 1
    event[at:at] = bytes.fromhex(raw)


def _remove(events: Events, index: int, at: int, count: int) -> None:
    event = events[index % len(events)]
    at %= len(event)
    del event[at : at + count]


def _cut(events: Events, index: int, at: int, tail: int) -> None:
    """The event ends at `at`, but for its last `tail` bytes (its checksum)."""
    event = events[index % len(events)]
    at %= len(event)
    end = max(at, len(event) - tail)
    event[at:] = event[end:]


def _copy(events: Events, index: int, at: int, other: int, first: int, count: int) -> None:
    event, source = events[index % len(events)], events[other % len(events)]
    at, first = at % len(event), first % len(source)
    raw = source[first : first + count][: len(event) - at]
    event[at : at + len(raw)] = raw


def _drop(events: Events, index: int) -> None:
    del events[index % len(events)]


def _double(events: Events, index: int, to: int) -> None:
    events.insert(to % (len(events) + 1), bytearray(events[index % len(events)]))


def _swap(events: Events, index: int, other: int) -> None:
    index, other = index % len(events), other % len(events)
    events[index], events[other] = events[other], events[index]


def _inside(events: Events, index: int, steps: list[Step]) -> None:
    """Steps on what is compressed in an event: on the events in a payload, or on packed bytes as
    one piece."""
    index %= len(events)
    event = events[index]
    crc_bytes = wire.CRC_BYTES if wire.has_checksums(events) else 0
    try:
        content = wire.packed_content(event, crc_bytes)
    except Exception:  # an earlier step has damaged it: nothing to go into
        return
    if not content:
        return
    inner = wire.split(wire.MAGIC + content) if event[4] == wire.PAYLOAD else [bytearray(content)]
    for name, *values in steps:
        if inner:
            STEPS[name](inner, *values)
    if event[4] == wire.PAYLOAD:
        for child in inner:
            if len(child) >= wire.HEADER_BYTES and index % 7:
                child[9:13] = len(child).to_bytes(4, "little")
    events[index] = wire.with_content(event, b"".join(inner), crc_bytes)


STEPS: Final[dict[str, Callable[..., None]]] = {
    "flip": _flip, "set": _set, "number": _number, "add": _add, "lenenc": _lenenc,
    "insert": _insert,
    "remove": _remove, "cut": _cut, "copy": _copy, "drop": _drop, "double": _double, "swap": _swap,
    "inside": _inside,
}  # fmt: skip
_IN_AN_EVENT: Final = (
    "flip",
    "set",
    "set",
    "number",
    "number",
    "add",
    "lenenc",
    "insert",
    "remove",
    "cut",
    "copy",
    "code",
)
_OF_EVENTS: Final = ("drop", "double", "swap", "type", "truncate", "append")


# -- drawing ---------------------------------------------------------------------------------------


def _draw(source: random.Random, events: Events) -> Step:
    if source.random() < 0.12:
        return _draw_whole(source, events)
    weights = [RICH.get(event[4], 1) for event in events]
    index = source.choices(range(len(events)), weights)[0]
    event = events[index]
    is_packed = event[4] == wire.PAYLOAD or wire.QUERY_COMPRESSED <= event[4] < 172
    if is_packed and source.random() < 0.7:
        crc_bytes = wire.CRC_BYTES if wire.has_checksums(events) else 0
        content = wire.packed_content(event, crc_bytes) or b"\0"
        inner = (
            wire.split(wire.MAGIC + content) if event[4] == wire.PAYLOAD else [bytearray(content)]
        )
        return [
            "inside",
            index,
            [_draw_inner(source, inner) for _ in range(source.choice((1, 1, 2)))],
        ]
    return _draw_inside(source, events, index)


def _draw_inner(source: random.Random, inner: Events) -> Step:
    if len(inner) > 1 and source.random() < 0.1:
        name = source.choice(("drop", "double", "swap"))
        return [
            name,
            source.randrange(len(inner)),
            *([] if name == "drop" else [source.randrange(len(inner))]),
        ]
    return _draw_inside(source, inner, source.randrange(len(inner)))


def _draw_whole(source: random.Random, events: Events) -> Step:
    name = source.choice(_OF_EVENTS)
    index = source.randrange(len(events))
    if name == "drop":
        return [name, index]
    if name in ("double", "swap"):
        return [name, index, source.randrange(len(events))]
    if name == "type":
        return ["set", index, 4, source.choice(CODES)]
    if name == "truncate":
        return [name, source.randrange(sum(map(len, events)))]
    return [name, source.randbytes(source.choice((1, 18, 19, 64))).hex()]


def _draw_inside(source: random.Random, events: Events, index: int) -> Step:
    size = len(events[index])
    name = source.choice(_IN_AN_EVENT)
    if size <= wire.HEADER_BYTES or source.random() < 0.1:
        at = source.randrange(size)
    elif size > 160 and source.random() < 0.5:
        at = wire.HEADER_BYTES + source.randrange(140)  # the fields before the values
    else:
        at = source.randrange(wire.HEADER_BYTES, size)
    if name == "flip":
        return [name, index, at, source.randrange(8)]
    if name == "set":
        return [name, index, at, source.choice(EDGE_BYTES)]
    if name == "code":
        return ["set", index, at, source.choice(CODES)]
    if name == "number":
        return [name, index, at, source.choice((2, 3, 4, 8)), source.choice(EDGE_NUMBERS)]
    if name == "add":
        return [
            name,
            index,
            at,
            source.choice((1, 2, 3, 4, 8)),
            source.choice((-256, -8, -2, -1, 1, 2, 8, 256)),
        ]
    if name == "lenenc":
        return [name, index, at, source.choice(EDGE_NUMBERS)]
    if name == "insert":
        return [name, index, at, source.randbytes(source.choice((1, 2, 8, 100))).hex()]
    if name == "remove":
        return [name, index, at, source.choice((1, 1, 2, 4, 9, 50))]
    if name == "cut":
        return [name, index, at, wire.CRC_BYTES]
    other = source.randrange(len(events))
    return [
        name,
        index,
        at,
        other,
        source.randrange(len(events[other])),
        source.choice((1, 2, 4, 8, 32)),
    ]
