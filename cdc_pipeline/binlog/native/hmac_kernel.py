"""Compute HMAC-SHA-256 of many values at once, as lower-case hex (FIPS 180-4, RFC 2104).

Rules:
- One compiled pass over the values of a column; nothing loops over rows in Python.
- The two key blocks are hashed once (`hmac_states`): a value costs one block per 64 bytes, plus
  one.
- Only `hmac_states` takes the key; it is not stored.
"""

from __future__ import annotations

import hashlib
from typing import Final

import numpy as np
from numba import njit
from numpy.typing import NDArray

HEX_BYTES: Final = 64
_BLOCK_BYTES: Final = 64


def _primes(count: int) -> list[int]:
    found: list[int] = []
    number = 2
    while len(found) < count:
        if all(number % prime for prime in found):
            found.append(number)
        number += 1
    return found


def _root_fraction(prime: int, root: int) -> int:
    """Return the first 32 bits of the fraction of a square (2) or cube (3) root,
    by integer arithmetic.
    """
    scaled = prime << (32 * root)
    low, high = 0, 1 << 40
    while low < high:
        middle = (low + high + 1) // 2
        if middle**root <= scaled:
            low = middle
        else:
            high = middle - 1
    return low & 0xFFFFFFFF


_ROUND: Final = np.array([_root_fraction(prime, 3) for prime in _primes(64)], np.uint64)
_START: Final = np.array([_root_fraction(prime, 2) for prime in _primes(8)], np.uint64)
_DIGITS: Final = np.frombuffer(b"0123456789abcdef", np.uint8)


@njit(cache=True, nogil=True)
def _rotated(word: np.uint64, bits: int) -> np.uint64:
    low = np.uint64(bits)
    return ((word >> low) | (word << (np.uint64(32) - low))) & np.uint64(0xFFFFFFFF)


@njit(cache=True, nogil=True)
def _compress(
    state: NDArray[np.uint64], block: NDArray[np.uint8], words: NDArray[np.uint64]
) -> None:
    """Hash one block of 64 bytes into a state of 8 words; `words` is scratch for 64."""
    mask = np.uint64(0xFFFFFFFF)
    for i in range(16):
        words[i] = (
            (np.uint64(block[4 * i]) << np.uint64(24))
            | (np.uint64(block[4 * i + 1]) << np.uint64(16))
            | (np.uint64(block[4 * i + 2]) << np.uint64(8))
            | np.uint64(block[4 * i + 3])
        )
    for i in range(16, 64):
        low, high = words[i - 15], words[i - 2]
        s0 = _rotated(low, 7) ^ _rotated(low, 18) ^ (low >> np.uint64(3))
        s1 = _rotated(high, 17) ^ _rotated(high, 19) ^ (high >> np.uint64(10))
        words[i] = (words[i - 16] + s0 + words[i - 7] + s1) & mask
    a, b, c, d = state[0], state[1], state[2], state[3]
    e, f, g, h = state[4], state[5], state[6], state[7]
    for i in range(64):
        s1 = _rotated(e, 6) ^ _rotated(e, 11) ^ _rotated(e, 25)
        choice = (e & f) ^ ((e ^ mask) & g)
        first = (h + s1 + choice + _ROUND[i] + words[i]) & mask
        s0 = _rotated(a, 2) ^ _rotated(a, 13) ^ _rotated(a, 22)
        majority = (a & b) ^ (a & c) ^ (b & c)
        second = (s0 + majority) & mask
        h, g, f, e = g, f, e, (d + first) & mask
        d, c, b, a = c, b, a, (first + second) & mask
    state[0] = (state[0] + a) & mask
    state[1] = (state[1] + b) & mask
    state[2] = (state[2] + c) & mask
    state[3] = (state[3] + d) & mask
    state[4] = (state[4] + e) & mask
    state[5] = (state[5] + f) & mask
    state[6] = (state[6] + g) & mask
    state[7] = (state[7] + h) & mask


@njit(cache=True, nogil=True)
def _finish(
    state: NDArray[np.uint64],
    data: NDArray[np.uint8],
    before_bytes: int,
    block: NDArray[np.uint8],
    words: NDArray[np.uint64],
) -> None:
    """Hash `data` and the padding into a state of already `before_bytes` bytes,
    a multiple of 64.
    """
    length = len(data)
    whole = length // 64
    for i in range(whole):
        _compress(state, data[64 * i : 64 * i + 64], words)
    rest = length - 64 * whole
    block[:] = 0
    block[:rest] = data[64 * whole :]
    block[rest] = 0x80
    if rest >= 56:
        _compress(state, block, words)
        block[:] = 0
    bits = np.uint64(8 * (before_bytes + length))
    for i in range(8):
        block[63 - i] = (bits >> np.uint64(8 * i)) & np.uint64(0xFF)
    _compress(state, block, words)


@njit(cache=True, nogil=True)
def _state_after(block: NDArray[np.uint8]) -> NDArray[np.uint64]:
    state = _START.copy()
    _compress(state, block, np.empty(64, np.uint64))
    return state


@njit(cache=True, nogil=True)
def _hash_all(
    data: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    inner: NDArray[np.uint64],
    outer: NDArray[np.uint64],
) -> NDArray[np.uint8]:
    count = len(offsets) - 1
    out = np.empty(count * 64, np.uint8)
    words, block = np.empty(64, np.uint64), np.empty(64, np.uint8)
    state, digest = np.empty(8, np.uint64), np.empty(32, np.uint8)
    for row in range(count):
        state[:] = inner
        _finish(state, data[offsets[row] : offsets[row + 1]], 64, block, words)
        for i in range(32):
            digest[i] = (state[i // 4] >> np.uint64(24 - 8 * (i % 4))) & np.uint64(0xFF)
        state[:] = outer
        _finish(state, digest, 64, block, words)
        for i in range(64):
            out[64 * row + i] = _DIGITS[
                (state[i // 8] >> np.uint64(28 - 4 * (i % 8))) & np.uint64(0xF)
            ]
    return out


def hmac_states(key: bytes) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return the states of the inner and the outer hash after the key: uint64 (8,) each."""
    if len(key) > _BLOCK_BYTES:
        key = hashlib.sha256(key).digest()
    padded = np.zeros(_BLOCK_BYTES, np.uint8)
    padded[: len(key)] = np.frombuffer(key, np.uint8)
    inner: NDArray[np.uint64] = _state_after(padded ^ np.uint8(0x36))
    outer: NDArray[np.uint64] = _state_after(padded ^ np.uint8(0x5C))
    return inner, outer


def hmac_hex(
    data: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    states: tuple[NDArray[np.uint64], NDArray[np.uint64]],
) -> NDArray[np.uint8]:
    """Compute the HMACs of n values.

    Args:
        data: uint8; value i is data[offsets[i] : offsets[i + 1]].
        offsets: int64 (n + 1,).
        states: states of the key, from `hmac_states`.

    Returns:
        uint8 (64 n,): 64 hex digits for each.
    """
    hexes: NDArray[np.uint8] = _hash_all(data, offsets, states[0], states[1])
    return hexes
