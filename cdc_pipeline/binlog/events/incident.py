"""The incident event: the server reports that its log has a gap here.

Source: MySQL and MariaDB "INCIDENT_EVENT": two bytes of number, one byte of length, the message.
"""

from __future__ import annotations

from typing import Final

_NAMES: Final = {0: "NONE", 1: "LOST_EVENTS"}


def incident_text(body: bytes) -> str:
    """Number, name and message of an incident from its body, which may be truncated."""
    number = int.from_bytes(body[:2], "little")
    size = body[2] if len(body) > 2 else 0
    message = body[3 : 3 + size].decode("utf-8", "replace")
    return f"incident {number} ({_NAMES.get(number, 'unknown')}), message {message!r}"
