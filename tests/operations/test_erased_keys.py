"""Keys to be erased: as text, as the log has them, and as each target holds them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from cdc_pipeline.binlog.table_schema import Kind, TableSchema
from cdc_pipeline.errors import ConfigError
from cdc_pipeline.lake.erasures import NameBound, digests_of
from cdc_pipeline.operations.erase.keys import TableKeys
from cdc_pipeline.targets.confirmed import confirmed
from cdc_pipeline.targets.targets import Targets, targets_at
from tests.support.sink_values import column, table_schema
from tests.targets.build import HASH, config_of

SALT = "5a" * 32
EU = table_schema("shop.person_eu", [column("id", Kind.INT64), column("n", Kind.TEXT)], "id")
US = replace(EU, table="person_us")


def named(*schemas: TableSchema) -> dict[str, NameBound]:
    return {schema.full_name: NameBound(seq="9", time_us=9) for schema in schemas}


def targets_of(*rules: dict[str, Any], schemas: tuple[TableSchema, ...] = (EU,)) -> Targets:
    targets = targets_at(config_of(*rules), None)
    for schema in schemas:
        targets, _ = confirmed(targets, targets.masks.schema(schema))
    return targets


def test_a_shard_gets_its_own_keys_alone() -> None:
    rule = {"tables": ["shop.person_*"], "name": "shop.person", "shard_column": "region"}
    targets = targets_of(rule, schemas=(EU, US))
    keys = TableKeys(targets, "shop.person_eu", named(EU))
    ((target, table),) = keys.by_target([("7",)])
    assert target.name == "shop.person"
    shard = targets.routes_of("shop.person_eu")[0].shard
    assert table.to_pylist() == [{"id": "7", "region": shard, "_cdc_until": "9"}]


def test_a_masked_key_is_looked_for_masked_and_kept_as_the_log_has_it() -> None:
    plain = TableKeys(targets_of(), EU.full_name, named(EU))
    hidden = TableKeys(
        targets_of({"tables": ["shop.*"], "masks": {"id": HASH}}), EU.full_name, named(EU)
    )
    arrays = hidden.arrays([("7",)])
    assert hidden.digests(arrays, SALT) == plain.digests(plain.arrays([("7",)]), SALT)
    ((_, table),) = hidden.by_target([("7",)])
    assert table.to_pylist()[0]["id"] == hidden.masked(arrays)[0][0].as_py() != "7"
    with pytest.raises(ConfigError, match="masked"):
        hidden.found(None, {"n": "x"})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "given", "logged"),
    [
        (Kind.INT32, "0", 0), (Kind.INT64, "-5", -5), (Kind.TEXT, "", ""),
        (Kind.BINARY, "00ff", b"\x00\xff"), (Kind.BINARY, "", b""),
    ],
)  # fmt: skip
def test_a_text_is_the_value_that_the_log_has(kind: Kind, given: str, logged: Any) -> None:
    charset = {"charset": "utf8mb4"} if kind is Kind.TEXT else {}
    schema = table_schema("shop.t", [column("id", kind, **charset)], "id")
    keys = TableKeys(targets_of(schemas=(schema,)), "shop.t", named(schema))
    of_log = digests_of([pa.array([logged])], bytes.fromhex(SALT)).to_pylist()
    assert list(keys.digests(keys.arrays([(given,)]), SALT)) == of_log
    with pytest.raises(ConfigError):
        keys.parsed([{"other": given}])
