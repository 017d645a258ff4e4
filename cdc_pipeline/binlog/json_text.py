"""The canonical text of a JSON value: one rule for the log and for a snapshot.

Rule: the canonical text is what the server itself prints for the column, ``SELECT CAST(doc AS CHAR CHARACTER SET
utf8mb4)``. So a row that a snapshot read and the same row from the log hold the same bytes. On MySQL that means:

- Members are ordered by the length of their keys in UTF-8 bytes, then by those bytes; each key once.
- ``", "`` between elements and ``": "`` behind keys; no other space and no line ends.
- In strings ``"`` and ``\\`` are escaped by a backslash, U+0008, U+0009, U+000A, U+000C and U+000D by their letters,
  other characters below U+0020 as ``\\u00xx`` with small letters; everything else stands as it is, in UTF-8.
- Integers are plain. Doubles are the shortest digits that read back: plain where the point falls -14 to 15 digits from
  the front or between two digits, with ``.0`` where they have no fraction; else ``d.ddde[-]x``.
- DECIMAL values are plain digits with all digits of their scale. DATE, TIME, DATETIME and TIMESTAMP are strings, the
  last three with six digits of fraction. All other opaque values are ``"base64:type<number>:<base64>"``, whose lines of
  76 characters are parted by an escaped line end.
- The JSON null is the text ``null``. SQL's NULL is NULL.

MariaDB's JSON is a LONGTEXT: its canonical text is the text that the column holds, unchanged.

The log's side is `kernels/jsonb.py` (documents) and `kernels/json_diff.py` (changes of documents).
"""

from __future__ import annotations

import pyarrow as pa


def canonical_texts(texts: pa.Array) -> pa.Array:
    """Canonical form of JSON values that a server printed, null for SQL's NULL.

    The server's own text is canonical: nothing is changed. A reader of snapshots passes its JSON columns through here
    all the same, so that both ways stay one if the rule ever changes.

    Args:
        texts: string (n,), as ``CAST(doc AS CHAR CHARACTER SET utf8mb4)`` gave them.

    Raises:
        TypeError: the array holds no strings.
    """
    if not (pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type)):
        raise TypeError(f"JSON texts are strings, got {texts.type}")
    return texts
