"""Text from outside, made safe to display (K20: names and values from a source are hostile input).

Rules:
- Whatever a terminal or a page would obey or hide is shown as an escape: control characters (ESC
  too), text direction marks, zero-width characters, line separators and unusual spaces. Letters of
  all scripts stay.
- Output for programs (``--json``, records) is exact and does not go through this module.
"""

from __future__ import annotations

import re
from typing import Final

# Zero-width characters that Python calls printable: fillers and variation selectors.
_HIDDEN: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


def printable(text: str) -> str:
    r"""Return `text` on one line, with invisible characters escaped as in ``\x1b`` and
    ``\u202e``.
    """
    if text.isprintable() and (text.isascii() or not _HIDDEN.search(text)):
        return text
    return "".join(_escaped(character) for character in text)


def printable_lines(text: str) -> str:
    """Apply `printable` to each line of `text`; only a line feed ends a line."""
    return "\n".join(map(printable, text.split("\n")))


def _escaped(character: str) -> str:
    if character.isprintable() and not _HIDDEN.match(character):
        return character
    code = ord(character)
    return (
        f"\\x{code:02x}"
        if code < 0x100
        else f"\\u{code:04x}"
        if code < 0x10000
        else f"\\U{code:08x}"
    )
