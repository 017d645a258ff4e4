"""GTID sets of both flavors against Python's sets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_pipeline.binlog.event_types import EventType
from cdc_pipeline.binlog.events import gtid
from cdc_pipeline.errors import PositionError
from cdc_pipeline.position.gtid.mysql import MysqlGtidSet
from cdc_pipeline.position.gtid.sets import (
    MariadbGtidSet,
    encode_mysql_binary,
    executed_set,
    parse_gtid_set,
    parse_mariadb,
    parse_single_gtid,
)
from cdc_pipeline.position.position import Flavor

A = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
B = "91ba6d0a-45f6-11ef-8dfe-00155d2a1e10"
KEYS = [A, B, f"{A}:batch", f"{A}:_x1", f"{B}:batch"]

MODEL = st.dictionaries(st.sampled_from(KEYS), st.sets(st.integers(1, 40), min_size=1), max_size=5)


def built(model: dict[str, set[int]]) -> MysqlGtidSet:
    found = parse_gtid_set("", "mysql")
    for key, numbers in model.items():
        found = found.add_many(key, np.array(list(numbers), dtype=np.int64))
    return found


def flat(model: dict[str, set[int]]) -> set[tuple[str, int]]:
    return {(key, number) for key, numbers in model.items() for number in numbers}


def members(found: MysqlGtidSet) -> set[tuple[str, int]]:
    return {
        (key, n)
        for key, pairs in found.intervals.items()
        for a, b in pairs.tolist()
        for n in range(a, b)
    }


@settings(max_examples=200)
@given(MODEL, MODEL)
def test_mysql_sets_agree_with_python_sets(
    one: dict[str, set[int]], two: dict[str, set[int]]
) -> None:
    left, right = built(one), built(two)
    before = str(left), str(right)
    assert members(left) == flat(one)
    assert left.count() == len(flat(one))
    assert bool(left) == bool(one)
    assert members(left.union(right)) == flat(one) | flat(two)
    assert members(left.subtract(right)) == flat(one) - flat(two)
    assert left.contains(right) == (flat(one) >= flat(two))
    assert (str(left), str(right)) == before
    assert (left == right) == (flat(one) == flat(two))


@settings(max_examples=150)
@given(MODEL)
def test_mysql_text_and_binary_read_back_the_same(model: dict[str, set[int]]) -> None:
    found = built(model)
    assert parse_gtid_set(str(found), "mysql") == found
    body = encode_mysql_binary(found)
    text = gtid.previous_set(body, EventType.PREVIOUS_GTIDS, journal="binlog.000001", offset=4)
    assert parse_gtid_set(text, "mysql") == found
    assert body[:1] == (b"\x01" if found.is_tagged else bytes([len(found.intervals)]))


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("", ""),
        (f"{A}:1", f"{A}:1"),
        (f"{A.upper()}:5:1-3:4", f"{A}:1-5"),
        (f"{A}:1-3:7-9,\n{B}:1", f"{A}:1-3:7-9,{B}:1"),
        (f" {B}:2 ,{A}:1-2,{A}:2-4, ", f"{A}:1-4,{B}:2"),
        (f"{A}:1-3:tag:1-5:9", f"{A}:1-3:tag:1-5:9"),
        (f"{A}:TAG:4:b:1:1-3", f"{A}:b:1-3:tag:4"),
        (f"{{{A.replace('-', '')}}}:1", f"{A}:1"),
        (f"{A}:1-9223372036854775806", f"{A}:1-9223372036854775806"),
    ],
)
def test_mysql_canonical_text(text: str, canonical: str) -> None:
    assert str(parse_gtid_set(text, "mysql")) == canonical


@pytest.mark.parametrize(
    "text",
    [
        "x", A, f"{A}:", f"{A}:0", f"{A}:3-2", f"{A}:1-", f"{A}:-1", f"{A}:tag", f"{A}:tag:tag2:1",
        f"{A}:1:tag",
        f"{A}:9223372036854775807", f"{A}:1tag:1", f"{A[:-1]}:1", f"{A}:{'t' * 33}:1", "0-1-100",
        f"{A}::1",
    ],
)  # fmt: skip
def test_mysql_texts_that_are_no_set_are_refused_with_the_right_form(text: str) -> None:
    with pytest.raises(PositionError, match="3e11fa47"):
        parse_gtid_set(text, "mysql")


def test_mysql_binary_form_by_hand() -> None:
    found = parse_gtid_set(f"{A}:1-3:7", "mysql")
    raw = bytes.fromhex(A.replace("-", ""))
    pairs = np.array([1, 4, 7, 8], dtype="<i8").tobytes()
    assert (
        encode_mysql_binary(found)
        == (1).to_bytes(8, "little") + raw + (2).to_bytes(8, "little") + pairs
    )
    tagged = parse_gtid_set(f"{A}:ab:7", "mysql")
    head = b"\x01" + (1).to_bytes(6, "little") + b"\x01"
    pairs = np.array([7, 8], dtype="<i8").tobytes()
    assert encode_mysql_binary(tagged) == head + raw + b"\x04ab" + (1).to_bytes(8, "little") + pairs
    assert encode_mysql_binary(parse_gtid_set("", "mysql")) == bytes(8)


def test_mysql_many_numbers_at_once() -> None:
    numbers = np.random.default_rng(1).permutation(np.arange(1, 200_001, dtype=np.int64))
    assert str(parse_gtid_set("", "mysql").add_many(A, numbers)) == f"{A}:1-200000"
    assert str(parse_gtid_set("", "mysql").add_many(A, np.arange(1, 10, 2))) == f"{A}:1:3:5:7:9"


def test_mysql_numbers_and_keys_that_cannot_be_are_refused() -> None:
    empty = parse_gtid_set("", "mysql")
    for key, number in ((A, 0), (A, 2**63 - 1), ("", 1), ("ANONYMOUS", 1), (f"{A}:9x", 1)):
        with pytest.raises(PositionError):
            empty.add_many(key, np.array([number], dtype=np.int64))
    assert empty.add_many(A, np.array([], dtype=np.int64)) is empty


@pytest.mark.parametrize(
    ("text", "canonical", "is_state"),
    [
        ("", "", False),
        ("1-5-7, 0-1-100", "0-1-100,1-5-7", False),
        ("0-2-9,0-1-12", "0-2-9,0-1-12", True),
    ],
)
def test_mariadb_text(text: str, canonical: str, is_state: bool) -> None:
    found = parse_gtid_set(text, "mariadb")
    assert (str(found), found.is_state) == (canonical, is_state)


@pytest.mark.parametrize(
    "text",
    [
        "0-1",
        "a-b-c",
        "0-1-2-3",
        "0-4294967296-1",
        f"{A}:1",
        "0-1-5,0-1-6",
        "0-1-18446744073709551616",
    ],
)
def test_mariadb_texts_that_are_no_position_are_refused(text: str) -> None:
    with pytest.raises(PositionError, match="0-1-100"):
        parse_gtid_set(text, "mariadb")


def test_mariadb_a_position_keeps_the_last_of_each_domain_whatever_the_server() -> None:
    found = parse_gtid_set("0-1-100,1-1-5", "mariadb").add_many("0-2", np.array([101, 103, 102]))
    assert str(found) == "0-2-102,1-1-5"
    assert found.count() == 107
    back = found.add_many("0-1", np.array([50]))
    assert (str(back), str(back.union(found))) == ("0-1-50,1-1-5", "0-2-102,1-1-5")


def test_mariadb_a_state_keeps_every_server_and_gives_its_position() -> None:
    state = parse_gtid_set("0-1-100,0-2-103", "mariadb").add_many("0-1", np.array([104, 102]))
    assert str(state) == "0-2-103,0-1-104"
    assert str(state.position()) == "0-1-104"
    lower = state.add_many("0-3", np.array([7]))
    assert (str(lower.position()), str(lower.highest())) == ("0-3-7", "0-1-104")


def test_mariadb_containment() -> None:
    position = parse_gtid_set("0-2-103,1-1-5", "mariadb")
    assert position.contains(parse_gtid_set("0-1-100", "mariadb"))
    assert not position.contains(parse_gtid_set("0-1-104", "mariadb"))
    assert not position.contains(parse_gtid_set("2-1-1", "mariadb"))
    assert str(position.subtract(parse_gtid_set("0-9-200", "mariadb"))) == "1-1-5"
    assert str(position.union(parse_gtid_set("0-3-110,2-1-1", "mariadb"))) == "0-3-110,1-1-5,2-1-1"
    state = parse_gtid_set("0-1-100,0-2-103", "mariadb")
    assert not state.contains(parse_gtid_set("0-1-101", "mariadb"))
    assert state.contains(parse_gtid_set("0-2-103", "mariadb"))


# Last transaction of each domain, and which server wrote it.
POSITION = st.dictionaries(
    st.integers(0, 3), st.tuples(st.integers(1, 3), st.integers(1, 30)), max_size=4
)
# All transactions of a state: the last number of each server in each domain, no number twice in a
# domain.
STATE = st.dictionaries(
    st.integers(0, 3),
    st.lists(st.integers(1, 30), min_size=1, max_size=3, unique=True),
    max_size=4,
)


def position_of(model: dict[int, tuple[int, int]]) -> MariadbGtidSet:
    return parse_mariadb(
        ",".join(f"{domain}-{server}-{number}" for domain, (server, number) in model.items())
    )


def reach(model: dict[int, tuple[int, int]]) -> dict[int, int]:
    return {domain: number for domain, (_, number) in model.items()}


@settings(max_examples=200)
@given(POSITION, POSITION)
def test_mariadb_positions_agree_with_their_domains_numbers(
    one: dict[int, tuple[int, int]], two: dict[int, tuple[int, int]]
) -> None:
    left, right = position_of(one), position_of(two)
    before = str(left), str(right)
    assert parse_mariadb(str(left)) == left
    assert left.contains(right) == all(
        reach(one).get(domain, 0) >= n for domain, n in reach(two).items()
    )
    union = left.union(right)
    assert {domain: n for (domain, _), n in union.last.items()} == reach(one) | reach(two)
    assert union.contains(right)
    rest = left.subtract(right)
    assert {domain for domain, _ in rest.last} == {
        d for d, n in reach(one).items() if n > reach(two).get(d, 0)
    }
    assert not right.contains(left) or not rest
    assert (str(left), str(right)) == before


@settings(max_examples=150)
@given(STATE)
def test_mariadb_a_states_position_is_the_last_number_of_each_domain(
    model: dict[int, list[int]],
) -> None:
    entries = [
        f"{d}-{server}-{n}"
        for d, numbers in model.items()
        for server, n in enumerate(numbers, start=1)
    ]
    state = parse_mariadb(",".join(entries))
    assert parse_mariadb(str(state)) == state
    assert state.is_state == any(len(numbers) > 1 for numbers in model.values())
    for position, number_of in ((state.position(), lambda n: n[-1]), (state.highest(), max)):
        assert {domain: n for (domain, _), n in position.last.items()} == {
            d: number_of(n) for d, n in model.items()
        }
    assert state.count() == sum(numbers[-1] for numbers in model.values())
    for entry in entries:
        assert state.contains(parse_mariadb(entry))
        assert state.highest().contains(parse_mariadb(entry))


@pytest.mark.parametrize(
    ("text", "flavor", "key", "number", "canonical"),
    [
        (f" {A.upper()}:7 ", "mysql", A, 7, f"{A}:7"),
        (f"{A}:7-7:7", "mysql", A, 7, f"{A}:7"),
        (f"{A}:TAG:7", "mysql", f"{A}:tag", 7, f"{A}:tag:7"),
        ("3-2-100", "mariadb", "3-2", 100, "3-2-100"),
    ],
)
def test_a_single_gtid(text: str, flavor: Flavor, key: str, number: int, canonical: str) -> None:
    found = parse_single_gtid(text, flavor)
    assert (found.key, found.number, found.text) == (key, number, canonical)
    assert found.is_in(canonical)
    assert not found.is_in("")


@pytest.mark.parametrize(
    ("text", "flavor"),
    [
        ("", "mysql"),
        ("", "mariadb"),
        (f"{A}:1-2", "mysql"),
        (f"{A}:1:t:1", "mysql"),
        ("0-1-1,0-2-2", "mariadb"),
    ],
)
def test_more_or_less_than_one_gtid_is_refused_with_the_right_form(
    text: str, flavor: Flavor
) -> None:
    with pytest.raises(PositionError, match="one GTID of M"):
        parse_single_gtid(text, flavor)


def test_flavors_are_never_compared() -> None:
    mysql, mariadb = parse_gtid_set(f"{A}:1", "mysql"), parse_gtid_set("0-1-1", "mariadb")
    for one, other in ((mysql, mariadb), (mariadb, mysql)):
        for operation in ("contains", "union", "subtract"):
            with pytest.raises(PositionError, match="cannot be compared"):
                getattr(one, operation)(other)


def test_executed_transactions_are_a_set() -> None:
    executed = {A: np.array([4, 5]), f"{A}:t": np.array([1])}
    assert str(executed_set(executed, flavor="mysql")) == f"{A}:4-5:t:1"
    with pytest.raises(PositionError):
        executed_set({"": np.array([1])}, flavor="mysql")
