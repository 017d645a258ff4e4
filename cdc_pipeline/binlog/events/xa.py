"""XA transactions in the log: the prepare event, and the canonical text of an xid (K8).

Rules:
- An xid is a format id, a global part of up to 64 bytes and a branch of up to 64. Its canonical
  text is the form in XA COMMIT and XA ROLLBACK of both flavors: ``X'<global>',X'<branch>',<format
  id>``, in lower-case hex.
- The prepare event has 32 bits of the format id, whereas MySQL's statements may have more. The text
  uses the low 32 bits, unsigned, so that both have the same text. (MariaDB allows 31 bits.)

Source: MySQL `XA_prepare_event` and `XA_log_event`, MariaDB `XA_prepare_log_event`; verified on
MySQL 9.7, MariaDB 10.11.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from cdc_pipeline.binlog.chunk import Chunk
from cdc_pipeline.errors import DamagedJournalError

_FIELDS = struct.Struct("<Biii")


@dataclass(frozen=True, slots=True)
class XaPrepare:
    """An XA_PREPARE event.

    Attributes:
        one_phase: True for XA COMMIT ... ONE PHASE: the group is committed.
        xid: canonical text.
    """

    one_phase: bool
    xid: str


def xid_text(format_id: int, global_part: bytes, branch: bytes) -> str:
    return f"X'{global_part.hex()}',X'{branch.hex()}',{format_id & 0xFFFFFFFF}"


def parse_prepare(chunk: Chunk, row: int) -> XaPrepare:
    """Parse the XA_PREPARE event at `row`: one phase u8; format id and both lengths, each i32; both
    parts. Raises DamagedJournalError: the body ends too early.
    """
    body = bytes(chunk.body(row))
    if len(body) >= _FIELDS.size:
        one_phase, format_id, global_bytes, branch_bytes = _FIELDS.unpack_from(body)
        data = body[_FIELDS.size :]
        if global_bytes >= 0 <= branch_bytes and len(data) >= global_bytes + branch_bytes:
            branch = data[global_bytes : global_bytes + branch_bytes]
            return XaPrepare(bool(one_phase), xid_text(format_id, data[:global_bytes], branch))
    raise DamagedJournalError(
        "an XA_PREPARE event is shorter than its own fields",
        at=(chunk.journal, int(chunk.events["offset"][row])),
        expected=f"{_FIELDS.size} bytes and the two parts of an xid",
        got=f"{len(body)} bytes",
    )
