"""Binary JSON: a writer in plain Python makes documents, the kernel must print them as the server
would."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_pipeline.binlog.decoded import DecodedRows
from cdc_pipeline.binlog.rows.rows import RowsSelection, decode_rows
from cdc_pipeline.binlog.table_schema import Column, Kind
from tests.support.rows_events import WRITE, chunk_of, full, prefixed, rows_body, schema_of

JSON = Column("doc", Kind.JSON, 245, 4, True)
LITERALS = {None: 0, True: 1, False: 2}


def decode(documents: list[bytes | None]) -> DecodedRows:
    images = [full(None if document is None else prefixed(document, 4)) for document in documents]
    chunk = chunk_of([(WRITE, rows_body(WRITE, images))])
    rows = decode_rows([RowsSelection(chunk, np.array([0]))], schema_of(JSON), epoch=0)
    rows.after.validate(full=True)
    return rows


def texts(documents: list[bytes | None]) -> list[str | None]:
    return decode(documents).after.column(0).to_pylist()


def encode(value: Any, large: bool) -> tuple[int, bytes]:
    """Type byte and value bytes, as json_binary.h describes them."""
    if value is None or isinstance(value, bool):
        return 4, bytes([LITERALS[value]])
    if isinstance(value, int):
        for kind, form, low, high in (
            (5, "<h", -(2**15), 2**15), (6, "<H", 0, 2**16), (7, "<i", -(2**31), 2**31),
            (8, "<I", 0, 2**32),
            (9, "<q", -(2**63), 2**63), (10, "<Q", 0, 2**64),
        ):  # fmt: skip
            if low <= value < high:
                return kind, struct.pack(form, value)
    if isinstance(value, float):
        return 11, struct.pack("<d", value)
    if isinstance(value, str):
        raw = value.encode()
        length, size = b"", len(raw)
        while True:
            length += bytes([size & 0x7F | (0x80 if size > 0x7F else 0)])
            size >>= 7
            if not size:
                return 12, length + raw
    word, width = ("<I", 4) if large else ("<H", 2)
    keys = [key.encode() for key in value] if isinstance(value, dict) else []
    items = list(value.values()) if isinstance(value, dict) else value
    at = 2 * width + len(keys) * (width + 2) + len(items) * (1 + width)
    key_entries = b""
    for key in keys:
        key_entries += struct.pack(word, at) + struct.pack("<H", len(key))
        at += len(key)
    entries = data = b""
    for item in items:
        kind, raw = encode(item, large)
        if kind in (4, 5, 6) or (large and kind in (7, 8)):
            entries += bytes([kind]) + raw.ljust(width, b"\0")
        else:
            entries += bytes([kind]) + struct.pack(word, at + len(data))
            data += raw
    body = key_entries + entries + b"".join(keys) + data
    head = struct.pack(word, len(items)) + struct.pack(word, 2 * width + len(body))
    return (0 if isinstance(value, dict) else 2) + large, head + body


def document(value: Any, large: bool = False) -> bytes:
    kind, raw = encode(value, large)
    return bytes([kind]) + raw


exact = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=200)
doubles = st.floats(allow_nan=False, allow_infinity=False)


def nested(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=5)
        ),
        max_leaves=20,
    )


@settings(max_examples=150)
@given(st.lists(nested(exact), min_size=1, max_size=4), st.booleans())
def test_documents_of_every_shape(values: list[Any], large: bool) -> None:
    """The layout is that of json.dumps: ", " and ": ", the same escapes."""
    got = texts([document(value, large) for value in values])
    assert got == [json.dumps(value, ensure_ascii=False) for value in values]


@settings(max_examples=100)
@given(nested(exact | doubles), st.booleans())
def test_documents_with_doubles_read_back(value: Any, large: bool) -> None:
    (text,) = texts([document(value, large)])
    assert text is not None
    assert json.loads(text) == value


def test_null_literal_is_not_sql_null() -> None:
    assert texts([document(None), None, b""]) == ["null", None, "null"]


def test_keys_stay_in_stored_order_and_control_characters_are_escaped() -> None:
    value = {"b": 1, "aa": ['"', "\\", "\b\f\n\r\t\x01\x1f/"], "": {}}
    assert texts([document(value)]) == [
        r'{"b": 1, "aa": ["\"", "\\", "\b\f\n\r\t\u0001\u001f/"], "": {}}'
    ]


def test_a_text_far_longer_than_its_document_gets_more_room() -> None:
    value = "\x01" * 200_000
    assert texts([document("x"), document(value), document("y")]) == [
        '"x"',
        '"' + "\\u0001" * 200_000 + '"',
        '"y"',
    ]


def test_a_hundred_levels() -> None:
    value: list[Any] = []
    for _ in range(99):
        value = [value]
    assert texts([document(value)]) == ["[" * 100 + "]" * 100]


def test_entries_that_share_bytes_cannot_blow_up() -> None:
    """Each level of this document names the next one twice: 2**60 leaves, if followed."""
    inner = b"\x00\x00\x04\x00"
    for _ in range(60):
        inner = struct.pack("<HH", 2, 10 + len(inner)) + b"\x02\x0a\x00\x02\x0a\x00" + inner
    rows = decode([b"\x02" + inner])
    assert rows.after.column(0).to_pylist() == [None]
    assert rows.invalid[0].reason == "not a JSON document in the server's binary form"


@settings(max_examples=300)
@given(nested(exact | doubles), st.booleans(), st.data())
def test_damaged_documents_are_text_or_invalid(
    value: Any, large: bool, data: st.DataObject
) -> None:
    raw = bytearray(document(value, large))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    raw = raw[: data.draw(st.integers(1, len(raw)))]
    rows = decode([bytes(raw), document("after it")])
    first, second = rows.after.column(0).to_pylist()
    assert second == '"after it"'
    if first is None:
        assert rows.invalid[0].text == bytes(raw).hex()
    else:
        json.loads(first, strict=False)
