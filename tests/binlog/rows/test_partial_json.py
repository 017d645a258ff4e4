"""PARTIAL_UPDATE_ROWS made by hand: differences applied by a twin in plain Python must give the
same documents."""

from __future__ import annotations

import copy
import json
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_pipeline.binlog.decoded import DecodedRows
from cdc_pipeline.binlog.rows.partial_rows import NO_DOCUMENT
from cdc_pipeline.binlog.rows.rows import RowsSelection, decode_rows
from cdc_pipeline.binlog.rows.text_jsonl import jsonl_lines
from cdc_pipeline.binlog.table_schema import Column
from cdc_pipeline.errors import DamagedJournalError, SchemaError
from tests.binlog.rows.test_json import JSON, document
from tests.support.rows_events import (
    UPDATE,
    Image,
    chunk_of,
    full,
    int_column,
    prefixed,
    rows_body,
    schema_of,
)

PARTIAL = 39
REPLACE, INSERT, REMOVE = 0, 1, 2
Diff = tuple[int, str, Any]
SCHEMA = schema_of(int_column(), JSON, int_column("n"), Column("more", JSON.kind, 245, 4, True))


def packed(size: int) -> bytes:
    if size < 251:
        return bytes([size])
    return (
        b"\xfc" + struct.pack("<H", size)
        if size < 1 << 16
        else b"\xfd" + size.to_bytes(3, "little")
    )


def encoded(diffs: list[Diff]) -> bytes:
    out = b""
    for operation, path, value in diffs:
        raw = path.encode()
        out += bytes([operation]) + packed(len(raw)) + raw
        if operation != REMOVE:
            raw = value if isinstance(value, bytes) else document(ordered(value))
            out += packed(len(raw)) + raw
    return prefixed(out, 4)


def partial_body(rows: list[tuple[Image, Image, int | None]]) -> bytes:
    """Body of an event with (before, after, bits of the JSON columns or None for no option at
    all)."""
    body = rows_body(UPDATE, [rows[0][0], rows[0][1]])
    body = body[: len(body) - len(rows[0][0].encode()) - len(rows[0][1].encode())]
    for before, after, diffs in rows:
        options = b"\x00" if diffs is None else b"\x01" + bytes([diffs])
        body += before.encode() + options + after.encode()
    return body


def decode(body: bytes, kind: int = PARTIAL) -> DecodedRows:
    rows = decode_rows([RowsSelection(chunk_of([(kind, body)]), np.array([0]))], SCHEMA, epoch=0)
    rows.after.validate(full=True)
    return rows


def one_document(before: bytes, diffs: bytes) -> DecodedRows:
    """A row whose second JSON column has differences and whose first has a document."""
    number, plain = b"\1\0\0\0", prefixed(document([1]), 4)
    images = full(number, plain, number, before), full(number, plain, number, diffs)
    return decode(partial_body([(*images, 2)]))


def ordered(value: Any) -> Any:
    """The value with all members in the server's order."""
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: (len(key.encode()), key.encode()))
        return {key: ordered(value[key]) for key in keys}
    return [ordered(item) for item in value] if isinstance(value, list) else value


def apply(value: Any, diffs: list[tuple[int, list[Any], Any]]) -> Any:
    """The twin: differences with paths as lists of keys and indexes."""
    holder = [copy.deepcopy(value)]
    for operation, legs, new in diffs:
        place: Any = 0
        parent: Any = holder
        for leg in legs:
            parent = parent[place]
            place = leg
        if operation == REMOVE:
            del parent[place]
        elif operation == INSERT and isinstance(parent, list):
            parent.insert(place, copy.deepcopy(new))
        else:
            parent[place] = copy.deepcopy(new)
    return ordered(holder[0])


keys = st.text(st.characters(exclude_categories=["Cs"]), max_size=4) | st.sampled_from(
    ["a", "b", 'q"', "\\", "x.y", "[0]"]
)
leaves = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=20)
documents = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(keys, inner, max_size=5),
    max_leaves=20,
)


def draw_diffs(value: Any, data: st.DataObject) -> list[tuple[int, list[Any], Any]]:
    """Differences that fit, each made for the document that the ones before it leave."""
    found: list[tuple[int, list[Any], Any]] = []
    for _ in range(data.draw(st.integers(0, 6))):
        current = apply(value, found)
        legs: list[Any] = []
        while isinstance(current, (dict, list)) and current and data.draw(st.booleans()):
            leg = data.draw(
                st.sampled_from(
                    list(current) if isinstance(current, dict) else list(range(len(current)))
                )
            )
            legs.append(leg)
            current = current[leg]
        new = data.draw(documents)
        operation = data.draw(st.sampled_from([REPLACE, INSERT, REMOVE]))
        if operation == INSERT and isinstance(current, dict):
            key = data.draw(keys)
            found.append((REPLACE if key in current else INSERT, [*legs, key], new))
        elif operation == INSERT and isinstance(current, list):
            found.append((INSERT, [*legs, data.draw(st.integers(0, len(current)))], new))
        elif operation == REMOVE and legs:
            found.append((REMOVE, legs, None))
        else:
            found.append((REPLACE, legs, new))
    return found


def path_of(legs: list[Any], *, escape: bool) -> str:
    return "$" + "".join(
        f"[{leg}]" if isinstance(leg, int) else "." + json.dumps(leg, ensure_ascii=escape)
        for leg in legs
    )


@settings(max_examples=100)
@given(documents, st.booleans(), st.booleans(), st.data())
def test_differences_are_applied_in_order(
    value: Any, large: bool, escape: bool, data: st.DataObject
) -> None:
    diffs = draw_diffs(ordered(value), data)
    raw = prefixed(document(ordered(value), large), 4)
    rows = one_document(
        raw, encoded([(kind, path_of(legs, escape=escape), new) for kind, legs, new in diffs])
    )
    assert rows.invalid == []
    assert rows.before.column("more").to_pylist() == [
        json.dumps(ordered(value), ensure_ascii=False)
    ]
    assert rows.after.column("more").to_pylist() == [
        json.dumps(apply(ordered(value), diffs), ensure_ascii=False)
    ]
    assert rows.after.column("doc").to_pylist() == ["[1]"]
    assert rows.all_present


@pytest.mark.parametrize(
    ("value", "diffs", "result"),
    [
        ([1, 2, 3], [(REPLACE, "$[last]", 9), (REMOVE, "$[last-1]", None)], [1, 9]),
        ([1], [(INSERT, "$[7]", 2), (INSERT, "$[last-7]", 0)], [0, 1, 2]),
        ({"a": 5}, [(REPLACE, "$.a[0]", 6), (REPLACE, "$[last].a", 7)], {"a": 7}),
        ({"a": 5}, [(REPLACE, "$", [])], []),
        ({"aa": 1, "b": 2}, [(INSERT, "$.c", 3), (INSERT, "$. bb", 4)],
            {"b": 2, "c": 3, "aa": 1, "bb": 4}),
        ({}, [(INSERT, '$."\\ud83d\\ude00\\u00e9\\/\\n"', 1)], {"😀é/\n": 1}),
        ([], [(INSERT, f"$[{at}]", at) for at in range(500)], list(range(500))),
        ({}, [(INSERT, f"$.k{at}", {}) for at in range(300)] + [(INSERT, f"$.k{at}.x",
            at) for at in range(300)],
         {f"k{at}": {"x": at} for at in range(300)}),
    ],
)  # fmt: skip
def test_paths(value: Any, diffs: list[Diff], result: Any) -> None:
    rows = one_document(prefixed(document(ordered(value)), 4), encoded(diffs))
    assert rows.after.column("more").to_pylist() == [
        json.dumps(ordered(result), ensure_ascii=False)
    ]


@pytest.mark.parametrize(
    ("diffs", "text"),
    [
        ([(REPLACE, "$.zz", 1)], '[{"op": "replace", "path": "$.zz", "value": 1}]'),
        ([(INSERT, "$.a", 1)], '[{"op": "insert", "path": "$.a", "value": 1}]'),
        ([(REMOVE, "$.zz", None)], '[{"op": "remove", "path": "$.zz"}]'),
        ([(REMOVE, "$", None)], '[{"op": "remove", "path": "$"}]'),
        ([(INSERT, "$[0]", 1)], '[{"op": "insert", "path": "$[0]", "value": 1}]'),
        ([(REPLACE, "$.a[1]", 1)], '[{"op": "replace", "path": "$.a[1]", "value": 1}]'),
        ([(REPLACE, "$.*", 1)], '[{"op": "replace", "path": "$.*", "value": 1}]'),
        ([(REPLACE, "$[", 1)], '[{"op": "replace", "path": "$[", "value": 1}]'),
        ([(REPLACE, '$."a', 1)], None),
        ([(REPLACE, '$."\\ud83d"', 1)], None),
        ([(REPLACE, "$.", 1)], None),
        ([(REPLACE, "", 1)], None),
        ([(REPLACE, "$[99999999999]", 1)], None),
        ([(REPLACE, "$[laxt]", 1)], None),
        ([(REPLACE, "$.a", b"")], None),
        ([(3, "$.a", 1)], ""),
    ],
)
def test_differences_that_do_not_fit_are_listed(diffs: list[Diff], text: str | None) -> None:
    rows = one_document(prefixed(document({"a": 5}), 4), encoded(diffs))
    assert rows.after.column("more").to_pylist() == [None]
    (value,) = rows.invalid
    assert (value.image, value.column) == ("after", 3)
    assert value.reason == "differences that do not fit their JSON document"
    if text is not None:
        assert value.text == (text or encoded(diffs)[4:].hex())


def test_rows_with_and_without_differences_share_an_event() -> None:
    one, two = prefixed(document({"a": 1}), 4), prefixed(document([1, 2]), 4)
    number = b"\1\0\0\0"
    added = encoded([(INSERT, "$.b", 2)])
    removed = encoded([(REMOVE, "$[0]", None)])
    before = full(number, one, number, two)
    rows = decode(
        partial_body(
            [
                (before, full(number, added, number, removed), 3),
                (before, full(number, one, number, two), None),
                (before, full(number, added, number, None), 1),
                (before, full(number, prefixed(b"", 4), number, prefixed(b"", 4)), 3),
                (before, full(number, prefixed(document(None), 4), None, removed), 2),
            ]
        )
    )
    assert rows.invalid == []
    assert rows.op.tolist() == [2] * 5
    assert rows.after.column("n").to_pylist() == [1, 1, 1, 1, None]
    texts = rows.after.column("doc").to_pylist()
    assert texts == ['{"a": 1, "b": 2}', '{"a": 1}', '{"a": 1, "b": 2}', '{"a": 1}', "null"]
    assert rows.after.column("more").to_pylist() == ["[2]", "[1, 2]", None, "[1, 2]", "[2]"]
    assert len(set(rows.seq.to_pylist())) == 5


def test_events_of_all_kinds_are_decoded_together() -> None:
    number, plain = b"\1\0\0\0", prefixed(document([1]), 4)
    image = full(number, plain, number, plain)
    changed = full(number, plain, number, encoded([(INSERT, "$[1]", 2)]))
    bodies = [
        (30, rows_body(30, [image])), (PARTIAL, partial_body([(image, changed, 2), (image, changed,
            2)])),
        (UPDATE, rows_body(UPDATE, [image, image])), (PARTIAL, partial_body([(image, changed, 2)])),
        (32, rows_body(32, [image])),
    ]  # fmt: skip
    rows = decode_rows([RowsSelection(chunk_of(bodies), np.arange(5))], SCHEMA, epoch=0)
    assert rows.op.tolist() == [1, 2, 2, 2, 2, 3]
    assert rows.event_row.tolist() == [0, 1, 1, 2, 3, 4]
    assert rows.after.column("more").to_pylist() == [
        "[1]",
        "[1, 2]",
        "[1, 2]",
        "[1]",
        "[1, 2]",
        None,
    ]


def test_minimal_images_lack_the_document() -> None:
    """Differences cannot be applied; a value without any did not change, and is absent like other
    unchanged columns."""
    number = b"\1\0\0\0"
    before = Image((number, None, None, None), (True, False, False, False))

    def after(doc: bytes, more: bytes) -> Image:
        return Image((None, doc, None, more), (False, True, False, True))

    changed, same = encoded([(REPLACE, "$.a", "x")]), prefixed(b"", 4)
    rows = decode(
        partial_body(
            [(before, after(same, changed), 3), (before, after(prefixed(document(7), 4), same), 2)]
        )
    )
    assert rows.after.column("doc").to_pylist() == [None, "7"]
    assert rows.after.column("more").to_pylist() == [None, None]
    assert [(value.row, value.column, value.reason) for value in rows.invalid] == [
        (0, 3, NO_DOCUMENT)
    ]
    assert rows.invalid[0].text == '[{"op": "replace", "path": "$.a", "value": "x"}]'
    assert rows.after_present.tolist() == [[0b1000], [0b0010]]
    assert rows.before_present.tolist() == [[1], [1]]
    assert not rows.all_present


def test_k20_lines_tell_differences_from_a_document() -> None:
    """K20, F23: a document is a string, differences are an object, whatever stands in them."""
    number, changed = b"\1\0\0\0", encoded([(REPLACE, "$.a", "x")])
    looks_alike = document([{"op": "replace", "path": "$.a", "value": "x"}])
    before = Image((number, None, None, None), (True, False, False, False))
    after = Image((None, prefixed(looks_alike, 4), None, changed), (False, True, False, True))
    rows = decode(partial_body([(before, after, 2)]))
    (line,) = jsonl_lines(rows, journal="j.000001", offsets=[4], gtids=[None])
    found = json.loads(line)["after"]
    assert found["more"] == {"differences": [{"op": "replace", "path": "$.a", "value": "x"}]}
    assert json.loads(found["doc"]) == [{"op": "replace", "path": "$.a", "value": "x"}]


def test_unknown_options_are_refused() -> None:
    image = full(b"\1\0\0\0", None, None, None)
    body = bytearray(partial_body([(image, image, None)]))
    body[-len(image.encode()) - 1] = 2
    with pytest.raises(DamagedJournalError, match="options that no known server writes") as caught:
        decode(bytes(body))
    assert (caught.value.table, caught.value.got) == ("shop.orders", "options 0x2")
    assert caught.value.offset is not None


@settings(max_examples=100)
@given(documents, st.data())
def test_damaged_events_are_values_or_errors(value: Any, data: st.DataObject) -> None:
    number = b"\1\0\0\0"
    diffs = draw_diffs(ordered(value), data)
    raw = prefixed(document(ordered(value)), 4)
    before = full(number, None, number, raw)
    after = full(
        number,
        None,
        number,
        encoded([(kind, path_of(legs, escape=True), new) for kind, legs, new in diffs]),
    )
    body = bytearray(partial_body([(before, after, 2)] * 2))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(6, len(body) - 1))] = data.draw(st.integers(0, 255))
    body = body[: data.draw(st.integers(8, len(body)))]
    try:
        rows = decode(bytes(body))
    except (DamagedJournalError, SchemaError):
        return
    for text in rows.after.column("more").to_pylist():
        if text is not None:
            json.loads(text, strict=False)


def test_a_container_shared_by_many_entries_cannot_blow_up() -> None:
    """An array of 20,000 entries that all name one array: the document is 60 KB, its text would be
    gigabytes."""
    inner = document([0] * 20_000)[1:]
    count = 20_000
    head = struct.pack("<II", count, 8 + 5 * count + len(inner))
    raw = b"\x03" + head + (b"\x02" + struct.pack("<I", 8 + 5 * count)) * count + inner
    rows = one_document(prefixed(raw, 4), encoded([(REPLACE, "$[0]", 1), (REPLACE, "$[1][5]", 2)]))
    assert rows.after.column("more").to_pylist() == [None]
    assert rows.before.column("more").to_pylist() == [None]
    assert {value.image for value in rows.invalid} == {"before", "after"}
