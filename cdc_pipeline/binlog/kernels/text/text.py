"""Second pass: copy or transcode values of variable width into Arrow's data and offset buffers.

Rules:
- All text is output as validated UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF.
- A value that is not text in its charset is INVALID and empty; the caller reports the bytes.
- Offsets are int32: the caller ensures that the column's data stay below 2 GiB.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from cdc_pipeline.binlog.kernels.memory import byte_at, unsigned_at
from cdc_pipeline.binlog.kernels.numbers import INVALID, NULL, VALID
from cdc_pipeline.binlog.native.arrays import Bytes, Int32s, Int64s
from cdc_pipeline.binlog.native.compiling import Integer, helper, kernel, routine

# How the bytes of a charset are read.
BYTES: Final = 0  # not text: any bytes
ASCII: Final = 1
UTF8_3: Final = 3  # utf8mb3: up to U+FFFF
UTF8_4: Final = 4
TABLE: Final = 5  # one, two or three bytes by tables
UCS2: Final = 6
UTF16: Final = 7
UTF16LE: Final = 8
UTF32: Final = 9
GB18030: Final = 10

NOT_A_CODE: Final = 0xFFFF  # in the tables: no such code
LEAD_BYTE: Final = 0xFFFE  # in the table of single bytes: more bytes follow
THREE_BYTE_LEAD: Final = 0x8F  # of ujis and eucjpms

_GB_LINEAR_SUPPLEMENTARY = 189_000  # linear number of 90 30 81 30, which is U+10000


@routine
def valid_utf8(data: Bytes, position: Integer, end: Integer, longest: Integer) -> Integer:
    """Whether data[position:end] is UTF-8 of at most `longest` (3 or 4) bytes a character."""
    while position < end:
        lead = byte_at(data, position)
        if lead < 0x80:
            position += 1
            continue
        if lead < 0xC2:
            return False
        if lead < 0xE0:
            more = 1
        elif lead < 0xF0:
            more = 2
        elif lead < 0xF5 and longest == 4:
            more = 3
        else:
            return False
        if position + more >= end:
            return False
        second = byte_at(data, position + 1)
        if second & 0xC0 != 0x80:
            return False
        if lead == 0xE0 and second < 0xA0:
            return False
        if lead == 0xED and second > 0x9F:
            return False
        if lead == 0xF0 and second < 0x90:
            return False
        if lead == 0xF4 and second > 0x8F:
            return False
        for index in range(2, more + 1):
            if byte_at(data, position + index) & 0xC0 != 0x80:
                return False
        position += more + 1
    return True


@kernel
def gather_bytes(
    data: Bytes,
    base: Int64s,
    relative: Int32s,
    prefix: Integer,
    skip: Integer,
    pad_to: Integer,
    mode: Integer,
    out: Bytes,
    position: Integer,
    offsets: Int32s,
    state: Bytes,
) -> Integer:
    """Copy values, checked as BYTES, ASCII, UTF8_3 or UTF8_4, to `out` from `position`. Returns the
    end.

    Args:
        prefix: count of length bytes before each value.
        skip: bytes to omit at the value's front; a shorter value is INVALID.
        pad_to: zero bytes are added up to this length (BINARY(n)).
        offsets: int32 (rows + 1,), of which [1:] are written. state: uint8 (rows,).
    """
    for row in range(base.shape[0]):
        if relative[row] < 0:
            state[row] = NULL
            offsets[row + 1] = position
            continue
        source = base[row] + relative[row]
        length = unsigned_at(data, source, prefix)
        source += prefix
        if length < skip:
            state[row] = INVALID
            offsets[row + 1] = position
            continue
        source += skip
        length -= skip
        seen = np.uint8(0)
        for index in range(length):
            value = data[np.uint64(source + index)]
            out[np.uint64(position + index)] = value
            seen |= value
        state[row] = VALID
        if (
            mode != BYTES
            and seen >= 128
            and (mode == ASCII or not valid_utf8(data, source, source + length, mode))
        ):
            state[row] = INVALID
        else:
            position += length
            for _ in range(length, pad_to):
                out[np.uint64(position)] = 0
                position += 1
        offsets[row + 1] = position
    return position


@helper
def put_character(out: Bytes, position: Integer, code: Integer) -> Integer:
    """Write one code point as UTF-8. Returns the position after it."""
    if code < 0x80:
        out[position] = code
        return position + 1
    if code < 0x800:
        out[position] = 0xC0 | code >> 6
        out[position + 1] = 0x80 | code & 0x3F
        return position + 2
    if code < 0x10000:
        out[position] = 0xE0 | code >> 12
        out[position + 1] = 0x80 | (code >> 6) & 0x3F
        out[position + 2] = 0x80 | code & 0x3F
        return position + 3
    out[position] = 0xF0 | code >> 18
    out[position + 1] = 0x80 | (code >> 12) & 0x3F
    out[position + 2] = 0x80 | (code >> 6) & 0x3F
    out[position + 3] = 0x80 | code & 0x3F
    return position + 4


@helper
def _next_character(
    data: Bytes,
    position: Integer,
    end: Integer,
    mode: Integer,
    one: NDArray[np.uint16],
    two: NDArray[np.uint16],
    three: NDArray[np.uint16],
) -> tuple[Integer, Integer]:
    """The code point at `position` and the position after it; -1 if there is none."""
    left = end - position
    if mode in (UCS2, UTF16, UTF16LE):
        if left < 2:
            return np.int64(-1), position
        swap = 1 if mode == UTF16LE else 0
        code = byte_at(data, position + swap) << 8 | byte_at(data, position + 1 - swap)
        if code & 0xF800 != 0xD800:
            return code, position + 2
        if mode == UCS2 or code >= 0xDC00 or left < 4:
            return np.int64(-1), position
        trail = byte_at(data, position + 2 + swap) << 8 | byte_at(data, position + 3 - swap)
        if trail & 0xFC00 != 0xDC00:
            return np.int64(-1), position
        return 0x10000 + ((code & 0x3FF) << 10 | trail & 0x3FF), position + 4
    if mode == UTF32:
        if left < 4:
            return np.int64(-1), position
        code = np.int64(0)
        for index in range(4):
            code = code << 8 | byte_at(data, position + index)
        if code > 0x10FFFF or code & 0xFFFFF800 == 0xD800:
            return np.int64(-1), position
        return code, position + 4
    lead = byte_at(data, position)
    code = np.int64(one[lead])
    if code < LEAD_BYTE:
        return code, position + 1
    if code == NOT_A_CODE or left < 2:
        return np.int64(-1), position
    second = byte_at(data, position + 1)
    if lead == THREE_BYTE_LEAD and mode == TABLE and three.shape[0] > 1:
        if left < 3:
            return np.int64(-1), position
        code = np.int64(three[second << 8 | byte_at(data, position + 2)])
        return (code, position + 3) if code < LEAD_BYTE else (np.int64(-1), position)
    if mode == GB18030 and 0x30 <= second <= 0x39:
        if left < 4:
            return np.int64(-1), position
        third, fourth = byte_at(data, position + 2), byte_at(data, position + 3)
        if third < 0x81 or third > 0xFE or fourth < 0x30 or fourth > 0x39:
            return np.int64(-1), position
        linear = ((lead - 0x81) * 10 + second - 0x30) * 1260 + (third - 0x81) * 10 + fourth - 0x30
        if linear < three.shape[0]:
            return np.int64(three[linear]), position + 4
        code = linear - _GB_LINEAR_SUPPLEMENTARY + 0x10000
        # A well-formed code without a character becomes a question mark, as on the server.
        return (code, position + 4) if 0x10000 <= code <= 0x10FFFF else (np.int64(63), position + 4)
    code = np.int64(two[lead << 8 | second])
    return (code, position + 2) if code < LEAD_BYTE else (np.int64(-1), position)


@kernel
def transcode(
    data: Bytes,
    base: Int64s,
    relative: Int32s,
    prefix: Integer,
    mode: Integer,
    one: NDArray[np.uint16],
    two: NDArray[np.uint16],
    three: NDArray[np.uint16],
    out: Bytes,
    position: Integer,
    offsets: Int32s,
    state: Bytes,
) -> Integer:
    """Append text of any charset except UTF-8 and ASCII to `out` as UTF-8. Returns the end.

    Args:
        one: uint16 (256,): code points of single bytes, LEAD_BYTE or NOT_A_CODE.
        two: uint16 (65536,) by lead << 8 | second; three: the same by the two bytes after 0x8F, or
            for GB18030 by the linear number of four bytes. Arrays of one element if the charset has
            no such codes.
        out: uint8 with room for three bytes per byte of text.
    """
    for row in range(base.shape[0]):
        state[row] = NULL
        if relative[row] >= 0:
            source = base[row] + relative[row]
            end = source + prefix + unsigned_at(data, source, prefix)
            source += prefix
            start = position
            state[row] = VALID
            while source < end:
                code, after = _next_character(data, source, end, mode, one, two, three)
                if code < 0:
                    state[row] = INVALID
                    position = start
                    break
                position = put_character(out, position, code)
                source = after
        offsets[row + 1] = position
    return position


@kernel
def set_bytes(values: Int64s, label_offsets: Int64s, state: Bytes) -> Integer:
    """The size of the labels of SET values, joined by commas. A bit above the labels is INVALID.

    values: int64 (rows,) bit patterns; label_offsets: int64 (labels + 1,).
    """
    labels = label_offsets.shape[0] - 1
    total = np.int64(0)
    for row in range(values.shape[0]):
        if state[row] == VALID:
            rest = np.uint64(values[row])
            label = 0
            while rest and label < labels:
                if rest & np.uint64(1):
                    total += label_offsets[label + 1] - label_offsets[label] + 1
                rest >>= np.uint64(1)
                label += 1
            if rest:
                state[row] = INVALID
    return total


@kernel
def set_labels(
    values: Int64s,
    label_data: Bytes,
    label_offsets: Int64s,
    out: Bytes,
    offsets: Int32s,
    state: Bytes,
) -> Integer:
    """Write labels of SET values in definition order, a comma before each that follows text.
    Returns the count of bytes written.
    """
    position = np.int64(0)
    offsets[0] = 0
    for row in range(values.shape[0]):
        if state[row] == VALID:
            rest = np.uint64(values[row])
            label = 0
            while rest:
                if rest & np.uint64(1):
                    if position > offsets[row]:
                        out[position] = 44
                        position += 1
                    for index in range(label_offsets[label], label_offsets[label + 1]):
                        out[position] = label_data[index]
                        position += 1
                rest >>= np.uint64(1)
                label += 1
        offsets[row + 1] = position
    return position
