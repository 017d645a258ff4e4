"""The rotate event: the name of the next journal, and where to continue in it."""

from __future__ import annotations

from cdc_pipeline.binlog.seq import OFFSET_BITS
from cdc_pipeline.errors import DamagedJournalError


def parse(body: bytes | memoryview, *, journal: str, offset: int) -> tuple[str, int]:
    """The next journal, and the offset of its next event, from a rotate event's bytes between
    header and checksum; `journal` and `offset` are its own. Raises DamagedJournalError: it is too
    short, or its name or its position is impossible.
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
        )
    return name.decode("utf-8", "replace"), position
