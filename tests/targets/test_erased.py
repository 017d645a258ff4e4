"""What a reading of the log leaves out of rows whose keys were erased."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cdc_pipeline.binlog.decoded import DecodedRows, InvalidValue
from cdc_pipeline.binlog.table_schema import Kind, TableSchema
from cdc_pipeline.errors import IncompleteRowsError, SchemaError
from cdc_pipeline.lake.erasures import (
    Erasure,
    KeyBound,
    NameBound,
    copy_erasures,
    digests_of,
    erasures_of,
    read_erasures,
    record,
    unfinished,
)
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.position.position import Position, ServerIdentity
from cdc_pipeline.targets.erased import ErasedRows
from tests.support.sink_values import (
    Change,
    column,
    decoded,
    delete,
    insert,
    seq_of,
    table_schema,
    update,
)

SALT = "5a" * 32
CREATED_S = 5
ONE = table_schema("shop.person", [column("id", Kind.INT32), column("name", Kind.TEXT)], "id")
RENAMED = table_schema("shop.person", [column("no", Kind.INT64), column("name", Kind.TEXT)], "no")
TWO = table_schema(
    "shop.person", [column("b", Kind.TEXT), column("v", Kind.INT32), column("a", Kind.INT32)],
    "a", "b",
)  # fmt: skip


def bound(at: int, **given: Any) -> NameBound:
    return NameBound(seq=str(seq_of(at, **given)), time_us=at * 1_000_000, created_s=CREATED_S)


class Reading(ErasedRows):
    def without(
        self, rows: DecodedRows, journals: Collection[tuple[int, int]] = ((1, CREATED_S),)
    ) -> tuple[DecodedRows, int]:
        return super().without(rows, journals)


def reading(*erasures: Erasure, epoch: int = 1, server_id: int = 7) -> Reading:
    return Reading(erasures, identity=ServerIdentity("mysql", server_id), epoch=epoch)


def erasure(*keys: tuple[Any, ...], until: int = 50, **given: Any) -> Erasure:
    digests = [
        digests_of([pa.array([part]) for part in key], bytes.fromhex(SALT))[0].as_py()
        for key in keys
    ]
    fields: dict[str, Any] = {
        "erasure_id": f"e{until}",
        "source": "shop",
        "table": "shop.person",
        "names": {"shop.person": bound(until)},
        "key": ("id",),
        "salt": SALT,
        "digests": tuple(digests),
        "position": Position("binlog.000001", until),
        "epoch": 1,
        "flavor": "mysql",
        "server_id": 7,
        **given,
    }
    return Erasure(**fields)


def rows(schema: TableSchema, *changes: Change, at: int = 10) -> DecodedRows:
    return decoded(schema, changes, first_place=at)


def left(erased: Reading, given: DecodedRows) -> list[tuple[int, Any, Any]]:
    kept, _ = erased.without(given)
    key = given.schema.column_names[given.schema.primary_key[0]]
    images = (image.column(key).to_pylist() for image in (kept.before, kept.after))
    return list(zip(kept.op.tolist(), *images, strict=True))


def image(number: int, **more: Any) -> dict[str, Any]:
    return {"id": number, "name": f"n{number}", **more}


def test_k14_every_change_of_an_erased_key_is_left_out_and_all_others_stay() -> None:
    given = rows(ONE, insert(**image(1)), insert(**image(2)), update(image(1), image(1)),
                 update(image(2), image(2)), delete(**image(1)))  # fmt: skip
    kept, count = reading(erasure((1,))).without(given)
    assert (count, kept.after.column("id").to_pylist()) == (3, [2, 2])
    assert reading(erasure((9,))).without(given) == (given, 0)
    other = replace(given, schema=replace(ONE, table="other"))
    assert reading(erasure((1,))).without(other)[1] == 0, "an erasure is of one table"


def test_k14_a_change_of_the_key_from_or_to_an_erased_one_leaves_the_other_key_right() -> None:
    given = rows(
        ONE,
        update({"id": 1, "name": "x"}, {"id": 2, "name": "x"}),
        update({"id": 3, "name": "x"}, {"id": 1, "name": "x"}),
        update({"id": 1, "name": "x"}, {"id": 1, "name": "y"}),
    )
    given.invalid.extend(InvalidValue(0, side, 1, "bad", "text") for side in ("before", "after"))
    erased = reading(erasure((1,)))
    assert left(erased, given) == [(1, None, 2), (3, 3, None)]
    kept, count = erased.without(given)
    assert count == 3
    assert [value.image for value in kept.invalid] == ["after"]
    assert not kept.before_present[0].any()
    assert not kept.after_present[1].any()
    # A key that is erased with the other one leaves nothing.
    assert left(reading(erasure((1,), (2,), (3,))), given) == []


def test_k14_partial_images_are_completed_or_refused() -> None:
    erased = reading(erasure((1,)))
    completed, _ = erased.without(rows(ONE, update({"id": 1, "name": "x"}, {"id": 2})))
    assert completed.after.to_pylist() == [{"id": 2, "name": "x"}]
    assert left(erased, rows(ONE, update({"id": 1}, {"name": "y"}))) == []
    assert left(erased, rows(ONE, update({"id": 3}, {"id": 1}))) == [(3, 3, None)]
    with pytest.raises(IncompleteRowsError, match="not logged again"):
        erased.without(rows(ONE, update({"id": 1}, {"id": 2})))
    pair = reading(erasure((7, "x"), key=("a", "b")))
    kept, _ = pair.without(rows(TWO, update({"a": 7, "b": "x", "v": 1}, {"b": "y"})))
    assert kept.after.to_pylist() == [{"a": 7, "b": "y", "v": 1}]


@pytest.mark.parametrize(
    ("at", "expected"), [(49, []), (50, [(1, None, 1)])], ids=["before until", "from until on"]
)
def test_k14_the_bound_is_a_place_of_the_log(at: int, expected: list[Any]) -> None:
    erased = reading(erasure((1,)))
    assert left(erased, rows(ONE, insert(**image(1)), at=at)) == expected
    both = rows(ONE, insert(**image(1)), insert(**image(1)), at=49)
    assert left(erased, both) == [(1, None, 1)], "within rows that are decoded together, too"


@pytest.mark.parametrize(("epoch", "server_id"), [(2, 7), (1, 8)])
def test_k14_in_another_log_the_commit_time_decides(epoch: int, server_id: int) -> None:
    other = [(1, CREATED_S + 1)]
    given = rows(ONE, insert(**image(1)), insert(**image(1)), at=5)
    given = replace(given, commit_ts_us=np.array([50, 51]) * 10**6)
    kept, count = reading(erasure((1,)), epoch=epoch, server_id=server_id).without(given, other)
    assert (count, kept.commit_ts_us.tolist()) == (1, [51_000_000])
    # An earlier name counts up to its rename there, too.
    earlier = replace(given, schema=replace(ONE, table="human"))
    names = {"shop.person": bound(50), "shop.human": bound(20)}
    assert reading(erasure((1,), names=names), epoch=epoch, server_id=server_id).without(
        earlier, other
    ) == (earlier, 0)


BEFORE, AFTER = 49, 51  # commit times, of an erasure at 50


@pytest.mark.parametrize(
    ("number", "created_s", "committed_s", "place", "is_left_out"),
    [
        pytest.param(2, 5, AFTER, 49, True, id="its own journal, before"),
        pytest.param(2, 5, BEFORE, 50, False, id="its own journal, behind"),
        pytest.param(1, 4, AFTER, 70, True, id="a journal before"),
        pytest.param(3, 6, BEFORE, 4, False, id="a journal behind"),
        pytest.param(3, 4, BEFORE, 4, True, id="a higher number from before a reset"),
        pytest.param(2, 4, BEFORE, 70, True, id="its number from before a reset"),
        pytest.param(1, 6, AFTER, 4, False, id="a lower number from after a reset"),
        pytest.param(2, 6, AFTER, 4, False, id="its number from after a reset"),
        pytest.param(1, 5, AFTER, 4, False, id="a lower number, in one second"),
        pytest.param(3, 5, BEFORE, 4, True, id="a higher number, in one second"),
    ],
)
def test_k14_where_epochs_say_nothing_places_count_if_creation_times_have_their_order(
    number: int, created_s: int, committed_s: int, place: int, is_left_out: bool
) -> None:
    of_reset = erasure((1,), epoch=0, names={"shop.person": bound(50, journal=2)})
    given = rows(ONE, insert(**image(1)), insert(**image(2)))
    seqs = [Decimal(seq_of(place, journal=number, after=True))] * 2
    given = replace(
        given, seq=pa.array(seqs, given.seq.type), commit_ts_us=np.array([committed_s] * 2) * 10**6
    )
    kept, _ = reading(of_reset).without(given, [(number, created_s)])
    assert kept.after.column("id").to_pylist() == ([2] if is_left_out else [1, 2])
    # Journals that are decoded together are judged each by itself.
    kept, _ = reading(of_reset).without(given, [(number, created_s), (number + 4, created_s)])
    assert kept.after.column("id").to_pylist() == ([2] if is_left_out else [1, 2])
    without_creation = of_reset.model_copy(
        update={"names": {"shop.person": bound(50, journal=2).model_copy(update={"created_s": -1})}}
    )
    _, count = reading(without_creation).without(given, [(number, created_s)])
    assert count == (committed_s == BEFORE), "what is not known is judged by time"


def test_k14_a_renamed_or_widened_key_column_changes_nothing_and_nothing_grows() -> None:
    erased = reading(*[erasure((1,))] * 5)
    given = rows(RENAMED, insert(no=1, name="x"), insert(no=2, name="y"))
    assert left(erased, given) == [(1, None, 2)]
    assert len(erased._tables_of((1, CREATED_S))["shop.person"][0]._digests) == 1


def test_k14_a_composite_key_counts_in_the_order_of_the_key() -> None:
    erased = reading(erasure((7, "x"), key=("a", "b")))
    given = rows(TWO, insert(a=7, b="x", v=1), insert(a=7, b="y", v=1), insert(a=8, b="x", v=1))
    assert left(erased, given) == [(1, None, 7), (1, None, 8)]


def test_k14_another_key_of_old_is_no_reason_to_leave_other_rows_out() -> None:
    """Where columns are followed, names count."""
    mine = erasure((1,), keys=(KeyBound(key=("id",), seq=str(seq_of(50)), time_us=50_000_000),))
    erased = reading(mine)
    by_name = rows(replace(ONE, primary_key=(1,)), insert(id=1, name="2"), insert(id=2, name="1"))
    kept, _ = erased.without(by_name)
    assert kept.after.to_pylist() == [{"id": 2, "name": "1"}]
    followed = (KeyBound(key=("a", "b"), seq=str(seq_of(50)), time_us=50_000_000),)
    pair = reading(erasure((1, "2"), key=("a", "b"), keys=followed))
    turned = rows(
        replace(TWO, primary_key=(0, 2)), insert(a=1, b="2", v=0), insert(a=2, b="1", v=0)
    )
    assert pair.without(turned)[0].after.column("a").to_pylist() == [2]
    none = rows(replace(RENAMED, primary_key=()), insert(no=1, name="x"))
    with pytest.raises(SchemaError, match="another key"):
        erased.without(none)
    assert erased.without(rows(replace(RENAMED, primary_key=()), insert(no=1, name="x"), at=50))


def key_bound(at: int, *key: str, is_known: bool = True) -> KeyBound:
    return KeyBound(key=key, seq=str(seq_of(at)), time_us=at * 1_000_000, is_known=is_known)


@pytest.mark.parametrize("epoch", [1, 2], ids=["its log", "another log"])
def test_k14_f163_a_key_is_its_columns_whatever_they_are_called(epoch: int) -> None:
    """(a, b) was (b, a) up to 30, and (b, old) up to 20, in the order of the key."""
    keys = key_bound(45, "a", "b"), key_bound(30, "b", "a"), key_bound(20, "b", "old")
    erased = reading(erasure((7, 8), key=("a", "b"), keys=keys), epoch=epoch, server_id=6 + epoch)
    for at, first, second in ((40, "a", "b"), (25, "b", "a"), (10, "b", "old")):
        columns = [column(name, Kind.INT32) for name in sorted({"a", first, second})]
        schema = table_schema("shop.person", columns, first, second)
        rest = dict.fromkeys(schema.column_names, 0)
        given = rows(schema, *(insert(**rest | {first: one, second: 15 - one}) for one in (7, 8)),
                     at=at)  # fmt: skip
        given = replace(given, commit_ts_us=np.array([at] * 2) * 10**6)
        kept, _ = erased.without(given)
        assert kept.after.column(first).to_pylist() == [8], at


@pytest.mark.parametrize(
    ("key", "columns"),
    [
        pytest.param("b a", "a b", id="turned, or renamed"),
        pytest.param("b c", "b c", id="one has the other's name"),
        pytest.param("x b", "a b x", id="a name that was another column's"),
        pytest.param("a", "a b", id="part of it"),
        pytest.param("", "a b", id="no key"),
    ],
)
@pytest.mark.parametrize("is_old", [True, False], ids=["an older record", "before the history"])
def test_k14_f163_what_cannot_be_known_is_refused(key: str, columns: str, is_old: bool) -> None:
    keys = () if is_old else (key_bound(40, "a", "b"), key_bound(20, "a", "b", is_known=False))
    erased = reading(erasure((7, 8), key=("a", "b"), keys=keys))
    named = [column(name, Kind.INT32) for name in columns.split()]
    schema = table_schema("shop.person", named, *key.split())
    given = insert(**dict.fromkeys(columns.split(), 7))
    with pytest.raises(SchemaError, match="nothing shows which"):
        erased.without(rows(schema, given))
    assert erased.without(rows(schema, given, at=50))[1] == 0


def test_k14_an_earlier_name_counts_up_to_the_rename_and_a_key_erased_twice_to_the_last() -> None:
    earlier = replace(ONE, table="human")
    names = {"shop.person": bound(50), "shop.human": bound(20)}
    erased = reading(erasure((1,), names=names), erasure((1,), until=70))
    assert left(erased, rows(earlier, insert(**image(1)), at=19)) == []
    assert left(erased, rows(earlier, insert(**image(1)), at=20)) == [(1, None, 1)]
    assert left(erased, rows(ONE, insert(**image(1)), at=69)) == []


def test_k14_before_a_rename_gave_it_the_name_another_table_had_it() -> None:
    since = bound(50).model_copy(update={"since": str(seq_of(30)), "since_us": 30_000_000})
    mine = erasure((1,), names={"shop.person": since})
    for erased in (reading(mine), reading(mine, epoch=2, server_id=8)):
        assert left(erased, rows(ONE, insert(**image(1)), at=29)) == [(1, None, 1)]
        assert left(erased, rows(ONE, insert(**image(1)), at=30)) == []


def test_k14_f164_a_name_that_it_got_again_counts_for_both_times() -> None:
    since = {"since": str(seq_of(30)), "since_us": 30_000_000, "before": bound(20)}
    mine = erasure((1,), names={"shop.person": bound(50).model_copy(update=since)})
    for at, expected in ((10, []), (25, [(1, None, 1)]), (40, [])):
        assert left(reading(mine), rows(ONE, insert(**image(1)), at=at)) == expected


def test_k14_records_are_found_copied_once_and_unfinished_without_a_certificate(
    tmp_path: Path,
) -> None:
    lake, *others = (LakePaths(tmp_path / name, "shop") for name in ("lake", "side", "apart"))
    for is_apart, side in enumerate(others):
        copied = partial(copy_erasures, lake, side, is_numbered_apart=bool(is_apart))
        if not is_apart:
            copied()
            assert not erasures_of(side).folder.exists()
            record(lake, erasure((1,)))
        for _ in range(2):
            copied()
        (one,) = erasures_of(side).read()
        assert one == erasure((1,), epoch=0 if is_apart else 1)
    assert erasures_of(lake).read() == [erasure((1,))]
    assert list(unfinished(LakePaths(tmp_path / "lake", "shop"))) == [erasure((1,))]
    assert "1" not in {erasure((1,)).digests[0]}


def test_k14_a_reading_reads_no_record_of_its_own_log_that_it_begins_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths, read = LakePaths(tmp_path / "lake", "shop"), []
    for until in (40, 50):
        record(paths, erasure((1,), until=until))
    monkeypatch.setattr(
        "cdc_pipeline.lake.erasures.read_document",
        lambda path, parse: read.append(path.name) or parse(path.read_text()),
    )

    def met(at: int, *, epoch: int = 1, server_id: int = 7) -> list[str]:
        identity = ServerIdentity("mysql", server_id)
        found = read_erasures(paths, identity=identity, epoch=epoch, seq=seq_of(at))
        return [one.erasure_id for one in found]

    assert (met(50), read) == ([], []), "its requests do not grow with erasures"
    assert met(49) == met(40) == ["e50"]
    assert met(39) == met(90, epoch=2) == met(90, server_id=8) == ["e40", "e50"]
