"""Documents of cursors that do not grow with the number of tables (K3, K25)."""

from __future__ import annotations

import json

import pytest

from cdc_pipeline.errors import CursorError
from cdc_pipeline.position.cursor import (
    CursorState,
    OpenXa,
    ShortCursor,
    TargetState,
    cursor_document,
    parse_cursor,
)
from cdc_pipeline.position.gtid.sets import parse_gtid_set
from cdc_pipeline.position.position import Position
from cdc_pipeline.position.short_cursor import DOCUMENT_BYTES_MAX, short_document, whole_cursor
from tests.support.fake_capture import cursor as made_cursor

_MANY = {f"shop.orders_{number:04d}": number % 7 for number in range(1000)}


def _read(document: dict[str, object]) -> CursorState | ShortCursor:
    return parse_cursor(json.dumps(document), where="a test")


def _gtid_set(number: int, last: int) -> str:
    texts = [f"{at:08x}-71ca-11e1-9e33-c80aa9429562:1-{last}" for at in range(number)]
    return str(parse_gtid_set(",".join(texts), "mysql"))


def test_a_cursor_of_few_tables_is_whole() -> None:
    cursor = made_cursor(tables={"shop.orders": 1, "shop.items": 1})
    document = short_document(cursor, cursor)
    assert document == cursor_document(cursor)
    assert _read(document) == cursor


def test_k25_a_thousand_tables_are_left_to_the_cut() -> None:
    cursor = made_cursor(batch=4, tables=_MANY)
    document = short_document(cursor, cursor)
    assert len(json.dumps(document)) < 1_500
    assert document["of_cut"]["targets"] == 1000
    stored = _read(document)
    assert isinstance(stored, ShortCursor)
    assert whole_cursor(stored, cursor) == cursor


def test_k25_executed_sets_of_many_servers_are_left_to_the_cut_but_for_what_is_new() -> None:
    at_cut = made_cursor(tables=_MANY).model_copy(update={"gtid_set": _gtid_set(500, 7)})
    grown = parse_gtid_set(at_cut.gtid_set, "mysql").union(  # type: ignore[arg-type]
        parse_gtid_set("000001f3-71ca-11e1-9e33-c80aa9429562:8-9", "mysql")  # type: ignore[arg-type]
    )
    for cursor in (at_cut, at_cut.model_copy(update={"offset": 5000, "gtid_set": str(grown)})):
        document = short_document(cursor, at_cut)
        assert len(json.dumps(document)) < 1_500
        stored = _read(document)
        assert isinstance(stored, ShortCursor)
        assert whole_cursor(stored, at_cut) == cursor


def test_k25_mariadb_sets_of_many_domains_are_left_to_the_cut_but_for_what_is_new() -> None:
    texts = [f"{domain}-1-7" for domain in range(2000)]
    at_cut = made_cursor().model_copy(update={"flavor": "mariadb", "gtid_set": ",".join(texts)})
    texts[70] = "70-2-9"
    cursor = at_cut.model_copy(update={"offset": 5000, "gtid_set": ",".join(texts)})
    document = short_document(cursor, at_cut)
    assert document["of_cut"]["gtid_added"] == "70-2-9"
    stored = _read(document)
    assert isinstance(stored, ShortCursor)
    assert whole_cursor(stored, at_cut) == cursor


def test_k25_open_xa_transactions_of_the_cut_are_left_to_it() -> None:
    held = tuple(
        OpenXa(xid=f"X'{number:04x}'", begin=Position("binlog.000003", 4 + number))
        for number in range(200)
    )
    at_cut = made_cursor().model_copy(update={"open_xa": held})
    document = short_document(at_cut, at_cut)
    assert len(json.dumps(document)) < DOCUMENT_BYTES_MAX
    stored = _read(document)
    assert isinstance(stored, ShortCursor)
    assert whole_cursor(stored, at_cut) == at_cut
    # Those that were committed since are not: the list is the cursor's own.
    later = at_cut.model_copy(update={"offset": 5000, "open_xa": held[:1]})
    assert _read(short_document(later, at_cut)) == later


@pytest.mark.parametrize(
    "at_cut",
    [
        None,
        made_cursor(batch=3, tables=_MANY),
        made_cursor(batch=4).model_copy(update={"gtid_set": ""}),
    ],
)
def test_k3_what_no_cut_has_stays_in_the_cursor(at_cut: CursorState | None) -> None:
    cursor = made_cursor(batch=4, tables=_MANY)
    assert _read(short_document(cursor, at_cut)) == cursor


def test_k3_a_changed_target_is_another_cut() -> None:
    cursor = made_cursor(batch=4, tables=_MANY)
    stored = _read(short_document(cursor, cursor))
    name, state = next(iter(cursor.targets.items()))
    changed: dict[str, TargetState] = {
        **cursor.targets,
        name: state.model_copy(update={"table_version": 99}),
    }
    assert isinstance(stored, ShortCursor)
    assert whole_cursor(stored, cursor.model_copy(update={"targets": changed})) is None
    other_server = {"flavor": "mariadb", "gtid_set": "0-1-5"}
    assert whole_cursor(stored, cursor.model_copy(update=other_server)) is None
    assert whole_cursor(stored, cursor.model_copy(update={"targets": {}})) is None


def test_a_short_cursor_without_its_digest_is_refused() -> None:
    document = short_document(made_cursor(tables=_MANY), made_cursor(tables=_MANY))
    del document["of_cut"]
    with pytest.raises(CursorError, match="cannot be read"):
        _read(document)
