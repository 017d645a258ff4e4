"""Prints a benchmark's figures against their targets: one row each, exit code 1 when one falls short."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Figure:
    """One measured figure. `at_most` is the target; None for a figure that is only reported."""

    name: str
    value: float
    unit: str
    at_most: float | None = None

    @property
    def is_met(self) -> bool:
        return self.at_most is None or self.value <= self.at_most


def report(title: str, figures: list[Figure], *, as_json: bool = "--json" in sys.argv) -> int:
    """Print the figures; the process's exit code."""
    if as_json:
        print(json.dumps([{**asdict(figure), "met": figure.is_met} for figure in figures]))
    else:
        table = Table(title=title)
        for heading in ("figure", "measured", "target", "verdict"):
            table.add_column(heading)
        for figure in figures:
            target = "" if figure.at_most is None else f"at most {figure.at_most:g} {figure.unit}"
            verdict = "" if figure.at_most is None else ("met" if figure.is_met else "MISSED")
            table.add_row(figure.name, f"{figure.value:.3g} {figure.unit}", target, verdict)
        Console().print(table)
    return 0 if all(figure.is_met for figure in figures) else 1
