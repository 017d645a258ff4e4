"""Prints a benchmark's figures against their targets: one row each, exit code 1 when one falls
short."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Figure:
    name: str
    value: float
    unit: str
    at_most: float | None = None
    at_least: float | None = None

    @property
    def is_met(self) -> bool:
        if self.at_least is not None and self.value < self.at_least:
            return False
        return self.at_most is None or self.value <= self.at_most

    @property
    def target(self) -> str:
        if self.at_least is not None:
            return f"at least {self.at_least:g} {self.unit}"
        return "" if self.at_most is None else f"at most {self.at_most:g} {self.unit}"


def report(title: str, figures: list[Figure], *, as_json: bool = "--json" in sys.argv) -> int:
    if as_json:
        print(json.dumps([{**asdict(figure), "met": figure.is_met} for figure in figures]))
    else:
        table = Table(title=title)
        for heading in ("figure", "measured", "target", "verdict"):
            table.add_column(heading)
        for figure in figures:
            verdict = "" if not figure.target else ("met" if figure.is_met else "MISSED")
            table.add_row(figure.name, f"{figure.value:.3g} {figure.unit}", figure.target, verdict)
        Console().print(table)
    return 0 if all(figure.is_met for figure in figures) else 1
