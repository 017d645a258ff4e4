"""The content hash again, slow and in plain Python: the compiled kernel must agree with it."""

from __future__ import annotations

import struct

from cdc_pipeline.binlog.chunk import Chunk, Role

_WORD = 2**64 - 1
_PRIME_A, _PRIME_B = 0x100000001B3, 0x9E3779B97F4A7C15
_SEEDS = (0xCBF29CE484222325, 0x6A09E667F3BCC909)
_KINDS = {23: 1, 30: 1, 24: 2, 31: 2, 25: 3, 32: 3, 39: 4}

Lanes = tuple[int, int]


def absorb(content: bytes, lanes: Lanes = _SEEDS) -> Lanes:
    a, b = lanes
    for byte in content:
        a = (a ^ byte) * _PRIME_A & _WORD
        b = ((b << 7 | b >> 57) & _WORD) + byte & _WORD
        b = b * _PRIME_B & _WORD
    return a, b


def finish(value: int) -> int:
    value ^= value >> 33
    value = value * 0xFF51AFD7ED558CCD & _WORD
    return value ^ value >> 33


def word(number: int) -> bytes:
    return struct.pack("<Q", number)


def packed(body: bytes, at: int) -> tuple[int, int]:
    size = {0xFC: 2, 0xFD: 3, 0xFE: 8}.get(body[at], 0)
    return (
        (int.from_bytes(body[at + 1 : at + 1 + size], "little"), at + 1 + size)
        if size
        else (body[at], at + 1)
    )


class Twin:
    """Feed it the chunks of a log after the transaction pass, with the rows where transactions
    end."""

    def __init__(self) -> None:
        self.found: list[Lanes] = []
        self._begin()

    def _begin(self) -> None:
        self._lanes: Lanes = _SEEDS
        self._head: Lanes | None = None
        self._maps: dict[int, Lanes] = {}

    def feed(self, chunk: Chunk, ends: set[int]) -> None:
        for row in range(len(chunk.events)):
            event = chunk.events[row]
            self._event(int(event["event_type"]), bytes(chunk.body(row)), Role(int(event["role"])))
            if row in ends:
                if event["role"] != Role.ROLLBACK:
                    self.found.append((finish(self._lanes[0]), finish(self._lanes[1])))
                self._begin()

    def _event(self, kind: int, body: bytes, role: Role) -> None:
        if kind == 19:
            self._maps[int.from_bytes(body[:6], "little")] = absorb(body[8:])
        elif kind in _KINDS:
            at = 8
            if kind >= 30:
                at += int.from_bytes(body[8:10], "little")
            head_at = at
            width, at = packed(body, at)
            at += (width + 7) // 8 * (2 if _KINDS[kind] in (2, 4) else 1)
            table = self._maps[int.from_bytes(body[:6], "little")]
            head = absorb(word(_KINDS[kind]) + word(table[0]) + word(table[1]) + body[head_at:at])
            if head != self._head:
                self._head = head
                self._lanes = absorb(word(0xE3) + word(head[0]) + word(head[1]), self._lanes)
            self._lanes = absorb(body[at:], self._lanes)
        elif kind == 2 and role is Role.STATEMENT:
            text = body[13 + int.from_bytes(body[11:13], "little") :]
            self._lanes = absorb(word(0xE1) + word(len(text)) + text, self._lanes)
            self._head = None
        elif kind == 38:
            self._lanes = absorb(word(0xE2) + body, self._lanes)
