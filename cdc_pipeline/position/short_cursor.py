"""Cursors whose documents leave out what the cut of their batch has (K3, K25).

Rules:
- Only a long document is shortened, and only by parts that equal the cut's; executed GTIDs since
  the cut stay, so that a position that moved under the same number is short too.
- The digest covers the left parts as the whole cursor has them. A cut with others is not the one
  that the cursor was written after: it does not make the cursor whole.
- Sets of GTIDs are imported where they are needed: `status` reads cursors, and needs no numpy.
- What is not bounded: XA transactions and shadow tables that came since the cut, under its number.
  Those of captured tables soon end in a cut, and a server holds few at once.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

from cdc_pipeline.errors import PositionError
from cdc_pipeline.position.cursor import (
    CURSOR_PARTS,
    CursorPart,
    CursorState,
    PartsOfCut,
    ShortCursor,
    StoredCursor,
    cursor_document,
)

DOCUMENT_BYTES_MAX: Final = 8_000

_SHORT_FIELDS: Final = ShortCursor.model_fields.keys() - {"of_cut"}


def short_document(
    cursor: CursorState, at_cut: CursorState | None, *, bytes_max: int = DOCUMENT_BYTES_MAX
) -> dict[str, Any]:
    """Without what the last cut has, if it is longer than `bytes_max`. `at_cut`: its cursor, if
    known.
    """
    document = cursor_document(cursor)
    if (
        at_cut is None
        or at_cut.batch_number != cursor.batch_number
        or len(json.dumps(document)) <= bytes_max
    ):
        return document
    parts = tuple(
        name
        for name in CURSOR_PARTS
        if getattr(cursor, name) and getattr(cursor, name) == getattr(at_cut, name)
    )
    gtid_added = "" if "gtid_set" in parts else _gtid_added(cursor, at_cut)
    if gtid_added:
        parts = (*parts, "gtid_set")
    if not parts:
        return document
    of_cut = PartsOfCut(
        parts=parts,
        targets=len(cursor.targets),
        sha256=_digest(document, parts),
        gtid_added=gtid_added,
    )
    short = {name: value for name, value in document.items() if name not in parts}
    return short | {"of_cut": of_cut.model_dump(mode="json")}


def whole_cursor(stored: StoredCursor, at_cut: CursorState) -> CursorState | None:
    """None if `at_cut` is of another cut than it was written after."""
    if isinstance(stored, CursorState):
        return stored
    of_cut = stored.of_cut
    values = {name: getattr(at_cut, name) for name in of_cut.parts}
    if of_cut.gtid_added:
        joined = _joined(at_cut, of_cut.gtid_added)
        if joined is None:
            return None
        values["gtid_set"] = joined
    kept = {
        name: getattr(stored, name)
        for name in _SHORT_FIELDS
        if name not in values and getattr(stored, name) is not None
    }
    cursor = CursorState(**kept, **values)
    is_same = _digest(cursor_document(cursor), of_cut.parts) == of_cut.sha256
    return cursor if is_same else None


def _gtid_added(cursor: CursorState, at_cut: CursorState) -> str:
    """Empty if that is not shorter, or does not join the cut's to the cursor's."""
    from cdc_pipeline.position.gtid.sets import parse_gtid_set  # late: it brings numpy

    try:
        found = parse_gtid_set(cursor.gtid_set, cursor.flavor)
        added = str(found.subtract(parse_gtid_set(at_cut.gtid_set, at_cut.flavor)))
    except PositionError:
        return ""
    is_shorter = 0 < len(added) < len(cursor.gtid_set)
    return added if is_shorter and _joined(at_cut, added) == cursor.gtid_set else ""


def _joined(at_cut: CursorState, gtid_added: str) -> str | None:
    from cdc_pipeline.position.gtid.sets import parse_gtid_set  # late: it brings numpy

    try:
        held = parse_gtid_set(at_cut.gtid_set, at_cut.flavor)
        return str(held.union(parse_gtid_set(gtid_added, at_cut.flavor)))
    except PositionError:
        return None


def _digest(document: dict[str, Any], parts: tuple[CursorPart, ...]) -> str:
    text = json.dumps({name: document[name] for name in parts}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
