"""Read a socket, walk over its packets and frame their events in compiled code, block by block.

The only module of `binlog` that does I/O. Between two reads no Python runs: the interpreter's lock
is not needed, and new bytes are still in the processor's cache when their checksums are computed
and their headers are read.

Rules:
- The socket does not block; waiting uses `poll` with a limit. Slow data is returned when the time
  is up, so that heartbeats alone cannot hold up a reader (K25).
- Errors are not examined here: the caller then reads through the socket object, which raises them.
- Symbols are those of the C library of the process; cached machine code stays valid in later
  processes.

Source: POSIX recv, poll, clock_gettime.
"""

from __future__ import annotations

import time
from enum import IntEnum
from typing import Any, Final

from numba import config, types

from cdc_pipeline.binlog.framing.framing_kernel import (
    AHEAD_ROW,
    AHEAD_ROWS_GOAL,
    EVENT_CLASSES,
    frame_ahead,
)
from cdc_pipeline.binlog.framing.packets_kernel import NEED_MORE, STOP, WHOLE, walk_packets
from cdc_pipeline.binlog.native.arrays import Bytes, Int32s, Int64s
from cdc_pipeline.binlog.native.compiling import kernel

_POLLIN: Final = 1


class Received(IntEnum):
    """Why receiving stopped."""

    ENOUGH = 0  # as many events as wanted, no more room, or packets for Python
    TIMEOUT = 1
    CLOSED = 2  # by the other side
    FAILED = 3  # an error of the socket, or a signal
    LATE = 4  # the time is up, and bytes still come


_ENOUGH: Final = int(Received.ENOUGH)
_TIMEOUT: Final = int(Received.TIMEOUT)
_CLOSED: Final = int(Received.CLOSED)
_FAILED: Final = int(Received.FAILED)
_LATE: Final = int(Received.LATE)
_CLOCK: Final = time.CLOCK_MONOTONIC
_SECOND_NS: Final = 1_000_000_000

is_possible: Final = not config.DISABLE_JIT  # type: ignore[attr-defined]

_recv: Any = types.ExternalFunction(
    "recv", types.int64(types.int32, types.uintp, types.uint64, types.int32)
)
_clock_gettime: Any = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.uintp))
_poll: Any = types.ExternalFunction("poll", types.int32(types.uintp, types.uint64, types.int32))


@kernel
def receive(
    descriptor: int,
    data: Bytes,
    goal: int,
    read_bytes: int,
    timeout_ms: int,
    late_ns: int,
    waiting: Int32s,
    now: Int64s,
    state: Int64s,
    first: int,
    events: Any,
    ahead: Int64s,
) -> tuple[int, int]:
    """Read into ``data[state[STOP]:]`` and walk the packets there. Returns (status of the walk, a
    Received).

    Args:
        descriptor: descriptor of a non-blocking socket.
        data: uint8 (n,), the block.
        goal: index in `data`; stop when complete events reach it.
        read_bytes: largest single read; receiving ends if `data` has less room.
        timeout_ms: longest wait for the next bytes.
        late_ns: time of the monotonic clock after which it stops waiting.
        waiting: int32 (2,), for `poll`.
        now: int64 (2,), for `clock_gettime`.
        state: of `walk_packets`.
        first: where the unconsumed bytes begin in `data`.
        events, ahead: of `frame_ahead`; receiving also ends with as many rows as `ahead` wants.
    """
    status = walk_packets(data, state)
    frame_ahead(data, first, state[WHOLE], events, ahead, EVENT_CLASSES)
    while (
        status == NEED_MORE
        and state[WHOLE] < goal
        and ahead[AHEAD_ROW] < ahead[AHEAD_ROWS_GOAL]
        and state[STOP] + read_bytes <= len(data)
    ):
        place = data.ctypes.data + state[STOP]
        count = _recv(descriptor, place, read_bytes, 0)
        if count < 0:
            _clock_gettime(_CLOCK, now.ctypes.data)
            if now[0] * _SECOND_NS + now[1] >= late_ns:
                return status, _LATE
            waiting[0] = descriptor
            waiting[1] = _POLLIN  # the two fields `events` and `revents`
            ready = _poll(waiting.ctypes.data, 1, timeout_ms)
            if ready == 0:
                return status, _TIMEOUT
            if ready > 0:
                count = _recv(descriptor, place, read_bytes, 0)
            if count < 0:
                return status, _FAILED
        if count == 0:
            return status, _CLOSED
        state[STOP] += count
        status = walk_packets(data, state)
        frame_ahead(data, first, state[WHOLE], events, ahead, EVENT_CLASSES)
    return status, _ENOUGH
