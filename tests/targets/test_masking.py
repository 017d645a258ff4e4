"""Masks at decode (K14): every value of a masked column is replaced, in both images, errors
included."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from cdc_pipeline.binlog.arrow_types import arrow_schema
from cdc_pipeline.binlog.decoded import DecodedRows, InvalidValue
from cdc_pipeline.config.target_config import HashMask
from cdc_pipeline.errors import ConfigError, StagingError
from cdc_pipeline.schema.types import target_columns
from cdc_pipeline.targets.masks import HIDDEN, Masks, fingerprint
from tests.support.sink_values import decoded, delete, insert, update
from tests.targets.build import HASH, PERSON, SALT, routes_of


def person(number: int, **other: Any) -> dict[str, Any]:
    values = {
        "id": number,
        "Email": f"{number}@x",
        "amount": Decimal("1.50"),
        "raw": b"abcdef",
        "born": None,
    }
    return {**values, **other}


ROWS = decoded(
    PERSON,
    [insert(**person(1)), update(person(1), person(2, Email=None)), delete(**person(2))],
    first_place=10,
)


def masked(*rules: dict[str, Any], rows: DecodedRows = ROWS) -> DecodedRows:
    return Masks(routes_of(*rules).of_table).apply(rows)


def digest(text: str) -> str:
    return hmac.new(SALT.encode(), text.encode(), hashlib.sha256).hexdigest()


def test_k14_each_mask_in_both_images() -> None:
    rows = masked(
        {
            "masks": {
                "EMAIL": HASH,
                "raw": {"truncate": 2},
                "amount": {"fixed": 0},
                "born": "drop",
                "id": HASH,
            }
        }
    )
    assert rows.after.to_pydict() == {
        "id": [digest("1"), digest("2"), None],
        "Email": [digest("1@x"), None, None],
        "amount": [Decimal("0.00"), Decimal("0.00"), None],
        "raw": [b"ab", b"ab", None],
        "born": [None, None, None],
    }
    assert rows.before.column("Email").to_pylist() == [None, digest("1@x"), digest("2@x")]
    assert rows.before.column("amount").to_pylist() == [None, Decimal("0.00"), Decimal("0.00")]
    assert rows.after.schema.types == arrow_schema(rows.schema).types, (
        "parked rows are written by this schema"
    )
    assert target_columns(rows.schema) == target_columns(PERSON), (
        "table maps are confirmed by the source's types (K13)"
    )
    assert (rows.before_present == ROWS.before_present).all()


def test_k14_a_column_that_no_target_takes_is_emptied() -> None:
    rows = masked(
        {"columns": {"exclude": ["raw"]}}, {"columns": {"include": ["id", "em*"]}, "name": "a.b"}
    )
    assert rows.after.column("raw").null_count == 3
    assert rows.after.column("amount").to_pylist()[0] == Decimal("1.50")


def test_k14_invalid_values_are_not_told() -> None:
    bad = [
        InvalidValue(0, "after", 1, "bytes are not valid utf8", "a secret"),
        InvalidValue(0, "after", 3, "too long", "another"),
        InvalidValue(0, "after", 2, "too wide", "12345"),
    ]
    rows = masked({"masks": {"email": HASH, "raw": "drop"}}, rows=replace(ROWS, invalid=bad))
    assert [(value.column, value.text) for value in rows.invalid] == [(1, HIDDEN), (2, "12345")]
    assert [value.reason for value in rows.invalid] == ["bytes are not valid utf8", "too wide"]


def test_rows_without_masks_are_passed_on() -> None:
    assert masked({"filter": "id > 1"}) is ROWS


@pytest.mark.parametrize(
    ("rules", "setting"),
    [
        ([{"masks": {"email": HASH}}, {"name": "a.b"}], r"targets\.1\.masks\.Email"),
        (
            [{"masks": {"email": HASH}}, {"name": "a.b", "masks": {"email": {"truncate": 1}}}],
            r"targets\.1\.masks\.Email",
        ),
        ([{"masks": {"id": {"truncate": 1}}}], r"targets\.0\.masks\.id"),
        ([{"masks": {"amount": {"fixed": "much"}}}], r"targets\.0\.masks\.amount"),
        ([{"masks": {"amount": {"fixed": "123456789"}}}], r"targets\.0\.masks\.amount"),
    ],
)
def test_k14_masks_that_contradict_each_other_or_the_column(
    rules: list[dict[str, Any]], setting: str
) -> None:
    with pytest.raises(ConfigError, match=setting):
        masked(*rules)


def test_k14_a_target_that_excludes_the_column_has_no_say() -> None:
    rows = masked({"masks": {"email": HASH}}, {"name": "a.b", "columns": {"exclude": ["email"]}})
    assert rows.after.column("Email").to_pylist()[0] == digest("1@x")


def test_k8_parked_rows_need_the_masks_of_now() -> None:
    rule = {"masks": {"email": HASH}}
    parked = masked(rule).schema
    Masks(routes_of(rule).of_table).check_parked(parked)
    for other in (
        {},
        {"masks": {"email": {"hash": {"salt": SALT + "2"}}}},
        {"masks": {"email": HASH, "raw": "drop"}},
    ):
        with pytest.raises(StagingError, match="parked with masks"):
            Masks(routes_of(other).of_table).check_parked(parked)


def test_k14_a_fingerprint_tells_salts_apart_and_no_salt() -> None:
    made = [
        fingerprint(HashMask.model_validate({"hash": {"salt": salt}}))
        for salt in (SALT, SALT + "2", SALT)
    ]
    assert made[0] == made[2] != made[1]
    assert SALT not in made[0]
