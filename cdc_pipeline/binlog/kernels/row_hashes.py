"""Two independent 64-bit hashes of each row, value by value.

Rules:
- Each row has two lanes, which start and multiply differently. A word passes a bijection of the
  lane, and of the word, so that one changed word changes both lanes for certain. Other rows meet
  in one lane with a chance of 2**-64, in both of 2**-128.
- A value is preceded by a word that tells NULL and its length: no two rows are the same words.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cdc_pipeline.binlog.kernels.memory import unsigned_at
from cdc_pipeline.binlog.native.compiling import helper, kernel

SEEDS: Final = np.array([0xCBF29CE484222325, 0x6A09E667F3BCC909], np.uint64)
_FACTOR_A: Final = np.uint64(0x9E3779B97F4A7C15)
_FACTOR_B: Final = np.uint64(0xC2B2AE3D27D4EB4F)
_FINAL_1: Final = np.uint64(0xFF51AFD7ED558CCD)
_FINAL_2: Final = np.uint64(0xC4CEB9FE1A85EC53)
_NULL: Final = np.uint64(0)


@helper
def _after_a(lane, word):  # type: ignore[no-untyped-def]
    lane = (lane ^ word) * _FACTOR_A
    return lane ^ (lane >> np.uint64(32))


@helper
def _after_b(lane, word):  # type: ignore[no-untyped-def]
    lane = (((lane << np.uint64(29)) | (lane >> np.uint64(35))) + word) * _FACTOR_B
    return lane ^ (lane >> np.uint64(31))


@kernel
def absorb_words(words, width, valid, lanes):  # type: ignore[no-untyped-def]
    """Continue the lanes, uint64 (n, 2), with n values of `width` uint64 each; `valid`: bool (n,),
    or empty if none is NULL.
    """
    for row in range(len(lanes)):
        a, b = lanes[row, 0], lanes[row, 1]
        if len(valid) and not valid[row]:
            a, b = _after_a(a, _NULL), _after_b(b, _NULL)
        else:
            a, b = _after_a(a, np.uint64(width + 1)), _after_b(b, np.uint64(width + 1))
            for at in range(row * width, (row + 1) * width):
                a, b = _after_a(a, words[at]), _after_b(b, words[at])
        lanes[row, 0], lanes[row, 1] = a, b


@kernel
def absorb_texts(data, offsets, valid, lanes):  # type: ignore[no-untyped-def]
    """With n texts: of row n data[offsets[n]:offsets[n + 1]], uint8 and int64."""
    for row in range(len(lanes)):
        a, b = lanes[row, 0], lanes[row, 1]
        if len(valid) and not valid[row]:
            a, b = _after_a(a, _NULL), _after_b(b, _NULL)
        else:
            at, stop = np.int64(offsets[row]), np.int64(offsets[row + 1])
            word = np.uint64(stop - at + 1)
            a, b = _after_a(a, word), _after_b(b, word)
            while at + 8 <= stop:
                low, high = unsigned_at(data, at, 4), unsigned_at(data, at + 4, 4)
                word = np.uint64(low) | np.uint64(high) << np.uint64(32)
                a, b = _after_a(a, word), _after_b(b, word)
                at += 8
            word = np.uint64(0)
            while at < stop:
                word = word << np.uint64(8) | np.uint64(data[at])
                at += 1
            a, b = _after_a(a, word), _after_b(b, word)
        lanes[row, 0], lanes[row, 1] = a, b


@kernel
def absorb_lists(elements, offsets, in_order, valid, lanes):  # type: ignore[no-untyped-def]
    """With n lists of finished hashes, uint64 (m, 2): in their order, or whatever it is."""
    for row in range(len(lanes)):
        a, b = lanes[row, 0], lanes[row, 1]
        if len(valid) and not valid[row]:
            a, b = _after_a(a, _NULL), _after_b(b, _NULL)
        else:
            first, stop = np.int64(offsets[row]), np.int64(offsets[row + 1])
            word = np.uint64(stop - first + 1)
            a, b = _after_a(a, word), _after_b(b, word)
            sum_a, sum_b = np.uint64(0), np.uint64(0)
            for at in range(first, stop):
                if in_order:
                    a, b = _after_a(a, elements[at, 0]), _after_b(b, elements[at, 1])
                else:
                    sum_a += elements[at, 0]
                    sum_b += elements[at, 1]
            if not in_order:
                a, b = _after_a(a, sum_a), _after_b(b, sum_b)
        lanes[row, 0], lanes[row, 1] = a, b


@kernel
def finish(lanes, hashes):  # type: ignore[no-untyped-def]
    """Spread each bit over the hashes, uint64 (n, 2), which are written."""
    for row in range(len(lanes)):
        for lane in range(2):
            value = lanes[row, lane]
            value = (value ^ (value >> np.uint64(33))) * _FINAL_1
            value = (value ^ (value >> np.uint64(33))) * _FINAL_2
            hashes[row, lane] = value ^ (value >> np.uint64(33))


@kernel
def add_up(buckets, hashes, weights, side, counts, sums):  # type: ignore[no-untyped-def]
    """Add n rows, each as often as its weight, to what their buckets hold of a side (0 or 1):
    counts, int64 (m, 2), and the sums of both hashes, uint64 (m, 2), which are 0 where both sides
    have the same rows.
    """
    for row in range(len(hashes)):
        bucket = np.int64(buckets[row])
        counts[bucket, side] += weights[row]
        times = np.uint64(weights[row] if side == 0 else -weights[row])
        sums[bucket, 0] += hashes[row, 0] * times
        sums[bucket, 1] += hashes[row, 1] * times
