"""K20: identity is the pair of schema and table, and each pair has one text, one target and one
folder (F27)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_pipeline.binlog.table_schema import Column, Kind, TableSchema
from cdc_pipeline.config.pipeline_config import TablesConfig
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.targets.confirmed import confirmed
from cdc_pipeline.targets.routes import Routes
from cdc_pipeline.targets.table_filter import TableFilter
from cdc_pipeline.targets.targets import targets_at
from cdc_pipeline.text.table_names import (
    TablePattern,
    TablePatterns,
    exact_pattern,
    quoted_table,
    split_table_name,
    table_name,
)
from tests.targets.test_exact import config

NAMES = st.text(st.sampled_from("ab.`*?[] \\$ä"), min_size=1, max_size=6)


@given(NAMES, NAMES)
def test_k20_a_pair_has_one_text_and_comes_back(schema: str, table: str) -> None:
    """K20: a dot or a backtick in either name makes no two pairs one."""
    assert split_table_name(table_name(schema, table)) == (schema, table)


@given(NAMES, NAMES, NAMES, NAMES)
def test_k20_an_exact_pattern_matches_its_own_table_alone(
    schema: str, table: str, other: str, another: str
) -> None:
    """K20: what is in backticks is a name, whatever it holds."""
    name = table_name(schema, table)
    pattern = TablePattern.parse(exact_pattern(name))
    assert pattern.exact == name
    assert pattern.matches(schema, table)
    assert pattern.matches(other, another) is ((other, another) == (schema, table))


def test_names_without_a_dot_in_the_schema_are_written_as_ever() -> None:
    assert table_name("shop", "orders") == "shop.orders"
    assert table_name("shop", "a.b `c`") == "shop.a.b `c`"
    assert table_name("a.b", "c") == "`a.b`.c"
    assert quoted_table("`a.b`.c") == "`a.b`.`c`"
    assert quoted_table("shop.b.c") == "`shop`.`b.c`"


def test_k20_two_pairs_with_one_joined_text_are_two_targets() -> None:
    """K20, F27: table `b.c` of schema `a`, and table `c` of schema `a.b`."""
    targets = targets_at(config(tables={"include": ["*.*"]}), None)
    columns = (Column("x", Kind.INT32, -1, 0, False),)
    made = [
        target
        for pair in (("a", "b.c"), ("a.b", "c"))
        for target in confirmed(targets, TableSchema(*pair, columns, (0,)))[1]
    ]
    assert [target.name for target in made] == ["a.b.c", "`a.b`.c"]
    paths = LakePaths(Path("/lake"), "shop")
    assert [paths.table(target.name).relative_to("/lake") for target in made] == [
        Path("a/b~2ec"),
        Path("a~2eb/c"),
    ]


@pytest.mark.parametrize(
    ("pattern", "captured"),
    [
        ("a.b.c", ["a.b.c"]),
        ("`a.b`.c", ["`a.b`.c"]),
        ("`a.b`.*", ["`a.b`.c"]),
        ("a.`b.c`", ["a.b.c"]),
        ("*.c", ["`a.b`.c"]),
        ("a?b.*", ["`a.b`.c"]),
        ("shop.`two words`", ["shop.two words"]),
        ("shop.`a*`", ["shop.a*"]),
        ("shop.a*", ["shop.a*", "shop.abc"]),
    ],
)
def test_k20_patterns_are_of_pairs(pattern: str, captured: list[str]) -> None:
    """K20: what tables.include can say of such names."""
    names = ["a.b.c", "`a.b`.c", "shop.two words", "shop.a*", "shop.abc"]
    assert TableFilter(config(tables={"include": [pattern]})).captured_names(names) == sorted(
        captured
    )
    rule = {"tables": [pattern], "mode": "history"}
    routes = Routes(config(tables={"include": ["*.*"]}, targets=[rule]))
    led = [name for name in names if routes.of_table(name)[0].rule.mode == "history"]
    assert sorted(led) == sorted(captured)


@pytest.mark.parametrize(
    "text", ["orders", "shop.", ".orders", "shop.a b", "`shop.orders", "`a`b.c"]
)
def test_what_is_no_pattern_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="backticks"):
        TablesConfig(include=(text,))


def test_a_rule_names_the_parts_of_its_target() -> None:
    """Templates are filled part by part."""
    rules = [
        {"tables": ["*.*"], "name": "lake.{schema}_{table}"},
        {"tables": ["*.*"], "mode": "changelog"},
    ]
    routes = Routes(config(tables={"include": ["*.*"]}, targets=rules))
    assert [route.target for route in routes.of_table(table_name("a.b", "c.d"))] == [
        "lake.a.b_c.d",
        "`a.b`.c.d_changelog",
    ]


def test_k20_names_are_split_and_joined_in_one_place() -> None:
    """K20: whoever splits a name at its first dot by himself takes a dotted schema for another
    one."""
    joins = re.compile(
        r"""\.split\("\.", 1\)|"\.".join\((?:table|name)s?\)"""
        r"""|f"\{[^}"]*(?:database|schema)\}\.\{[^}"]*(?:table|name)\}\""""
    )
    package = Path(__file__).resolve().parents[3] / "cdc_pipeline"
    found = [
        f"{file.relative_to(package)}: {line.strip()}"
        for file in sorted(package.rglob("*.py"))
        for line in file.read_text(encoding="utf-8").splitlines()
        if joins.search(line) and file.name != "table_names.py"
    ]
    assert not found, "\n".join(found)


def test_many_patterns_match_what_each_of_them_does() -> None:
    texts = ["a.b", "a.c*", "`a.b`.`c d`", "x?.y", "`*`.z", "a.[bc]"]
    parsed = [TablePattern.parse(text) for text in texts]
    names = [
        ("a", "b"),
        ("a", "cc"),
        ("a.b", "c d"),
        ("xx", "y"),
        ("*", "z"),
        ("q", "z"),
        ("A", "b"),
    ]
    for chosen in (parsed, parsed[:1], parsed[2:3], []):
        patterns = TablePatterns(chosen)
        for name in names:
            assert patterns.match(*name) == any(one.matches(*name) for one in chosen), name
