"""Rows of events that were framed while they were received.

The bytes of an event are in the processor's cache when it is received, and no longer when its chunk
is complete. So `receiving` frames them block by block, and `framing` continues from there.

Rules:
- Only plainly good events are framed ahead. At the first other one it stops, and framing meets that
  event again, as if nothing had been framed.
- The memory of rows is reused when no chunk refers to it any more.
- The rows belong to the unconsumed bytes of one `PacketBuffer`, counted from their front.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from cdc_pipeline.binlog.chunk import EVENT_DTYPE
from cdc_pipeline.binlog.framing import framing_kernel as kernel
from cdc_pipeline.binlog.native.block_pool import BlockPool

# A chunk of small events ends with so many: its rows are still in the cache in the next pass.
ROWS_GOAL: Final = 8192
_ROWS_MAX: Final = 2 * ROWS_GOAL  # the last block that is received may exceed the goal
_POOL: Final = BlockPool(_ROWS_MAX * EVENT_DTYPE.itemsize, spare_blocks_max=16)


class FramedAhead:
    """What is framed of the next chunk.

    Attributes:
        events: array of EVENT_DTYPE, of which `rows` are filled.
        state: int64 array of `framing_kernel.frame_ahead`.

    Args:
        offset: journal offset of the first event.
        checksum_bytes, table_id_bytes: as for `framing_kernel.frame`.
    """

    def __init__(self, offset: int, *, checksum_bytes: int, table_id_bytes: int) -> None:
        self.events = _POOL.take().view(EVENT_DTYPE)
        self.state: NDArray[np.int64] = np.zeros(kernel.AHEAD_FIELDS, dtype=np.int64)
        self.state[kernel.AHEAD_OFFSET] = offset
        self.state[kernel.AHEAD_CHECKSUM_BYTES] = checksum_bytes
        self.state[kernel.AHEAD_TABLE_ID_BYTES] = table_id_bytes
        self.state[kernel.AHEAD_ROWS_GOAL] = ROWS_GOAL

    @property
    def rows(self) -> int:
        return int(self.state[kernel.AHEAD_ROW])

    @property
    def is_enough(self) -> bool:
        """Whether there are as many as a chunk of small events has."""
        return self.rows >= ROWS_GOAL


def nothing_ahead() -> FramedAhead:
    """A state that frames nothing."""
    found = FramedAhead(0, checksum_bytes=-1, table_id_bytes=0)
    found.state[kernel.AHEAD_STATUS] = int(kernel.Status.FULL)
    return found
