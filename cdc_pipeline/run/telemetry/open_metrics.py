"""The text format of OpenMetrics: metrics in, text out, and the values of such a text again.

It is shorter than what prometheus_client would need around it, and no further dependency.

Source: OpenMetrics 1.0, "ABNF" and "Text format".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

_ESCAPES: Final = {"\\": r"\\", '"': r"\"", "\n": r"\n"}
_SAMPLE: Final = re.compile(r"(?P<name>[a-zA-Z_:][\w:]*)(?P<labels>\{.*\}) (?P<value>\S+)")


@dataclass(frozen=True, slots=True)
class Metric:
    """`name` ends with the unit, if there is one; `samples`: by their labels (`labelled`)."""

    name: str
    kind: Literal["gauge", "counter"]
    help: str
    samples: Mapping[str, float]
    unit: str = ""


def labelled(labels: Mapping[str, str]) -> str:
    inside = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{inside}}}"


def as_text(metrics: Iterable[Metric]) -> str:
    """The exposition; metrics without samples are left out."""
    lines: list[str] = []
    for metric in metrics:
        if not metric.samples:
            continue
        lines.append(f"# TYPE {metric.name} {metric.kind}")
        if metric.unit:
            lines.append(f"# UNIT {metric.name} {metric.unit}")
        lines.append(f"# HELP {metric.name} {_escaped(metric.help)}")
        suffix = "_total" if metric.kind == "counter" else ""
        for labels, value in metric.samples.items():
            lines.append(f"{metric.name}{suffix}{labels} {_number(value)}")
    return "\n".join([*lines, "# EOF"]) + "\n"


def values_of(text: str) -> dict[str, dict[str, float]]:
    """Samples of a text that `as_text` made, by name, then by labels; {} if it is none."""
    values: dict[str, dict[str, float]] = {}
    if not text.endswith("# EOF\n"):
        return values
    for line in text.splitlines():
        sample = _SAMPLE.fullmatch(line)
        if sample is not None:
            values.setdefault(sample["name"], {})[sample["labels"]] = float(sample["value"])
    return values


def _escaped(text: str) -> str:
    """Other line ends would end the line too."""
    one_line = re.sub("[\r\v\f\x1c-\x1e\x85\u2028\u2029]", " ", text)
    return "".join(_ESCAPES.get(character, character) for character in one_line)


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
