"""The table of `README.md`: what is taken out of each rule that keeps the data right."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.mutations.places import Edit

_SPAN: Final = r"(?<!`)(`+)(?!`)(.+?)(?<!`)\{group}(?!`)"
_EDIT: Final = re.compile(
    rf"{_SPAN.format(group=1)}(?: #(\d+))? → (?:nothing|{_SPAN.format(group=4)})(?:; |$)"
)


@dataclass(frozen=True)
class Mutation:
    """A rule taken out.

    Attributes:
        rule: ``K1`` ...
        what: what is not done any more, in words.
        path: of the file, below ``cdc_pipeline/``; `scope` is a function or class in it.
        test: pytest's name of the test that must fail, below ``tests/``.
        spark: whether that test starts Spark.
    """

    rule: str
    what: str
    path: str
    scope: str
    edits: tuple[Edit, ...]
    test: str
    spark: bool


def _mutations() -> Iterator[Mutation]:
    for line in Path(__file__).with_name("README.md").read_text(encoding="utf-8").splitlines():
        if not line.startswith("| K"):
            continue
        cells = [cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", line)]
        _, rule, what, place, change, test, _ = cells
        path, _, scope = place.strip("`").partition("::")
        edits = tuple(
            Edit(_code(old), _code(new or ""), int(number or 0))
            for _, old, number, _, new in _EDIT.findall(change)
        )
        assert _EDIT.sub("", change) == "", f"not a change: {change}"
        yield Mutation(
            rule, what, path, scope, edits, test.split("`")[1], spark=test.endswith("*S*")
        )


def _code(span: str) -> str:
    padded = span.startswith(" ") and span.endswith(" ") and "`" in span
    return (span[1:-1] if padded else span).replace("⏎", "\n")


MUTATIONS: Final = tuple(_mutations())
