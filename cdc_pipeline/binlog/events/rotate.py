"""The rotate event: the name of the next journal, and where to continue in it."""

from __future__ import annotations

from typing import NamedTuple

from cdc_pipeline.binlog.seq import OFFSET_BITS
from cdc_pipeline.errors import DamagedJournalError


class Rotate(NamedTuple):
    """Next journal and the offset of its next event."""

    journal: str
    offset: int


def parse(body: bytes | memoryview, *, journal: str, offset: int) -> Rotate:
    """Parse a rotate event from its bytes between header and checksum; `journal` and `offset` are
    its own. Raises DamagedJournalError: it is too short, or its name or its position is
    impossible.
    """
    raw = bytes(body)
    name = raw[8:].rstrip(b"\0")
    position = int.from_bytes(raw[:8], "little")
    if len(raw) < 9 or not name or b"/" in name or b"\0" in name or position >> OFFSET_BITS:
        raise DamagedJournalError(
            "a rotate event names no journal",
            at=(journal, offset),
            expected="8 bytes of position and a file name",
            got=raw[:64].hex(" "),
            next_step="fetch the journal again from its server",
        )
    return Rotate(name.decode("utf-8", "replace"), position)
