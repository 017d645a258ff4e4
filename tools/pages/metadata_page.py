"""docs/reference/metadata.md, from the code that gives events in Dagster their entries."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import yaml

import cdc_pipeline
from cdc_pipeline.lake.records import Interval
from cdc_pipeline.orchestration.metadata import is_plotted
from tools.pages.markdown import code, made_from

ORCHESTRATION = Path(cdc_pipeline.__file__).parent / "orchestration"
MEANINGS: dict[str, str] = yaml.safe_load(
    Path(__file__).with_name("metadata.yaml").read_text(encoding="utf-8")
)
# Fields of an interval that one entry, `interval`, shows together.
_TOGETHER = {"start", "end"}
INTRO = """\
# Metadata in Dagster

Every entry of the events of [Dagster's assets](../dagster.md). A table's event has the rows of its
batch and the table's version, path and columns; the cursor's has positions and figures of the
batch, `notes` of decisions other than DDL (`suspended`, `caught_up`, `dropped`) and `shortened`,
the entries of which only the beginning is there, so that an event stays below 20 KB: `cuts show`
has all. Dagster plots entries of the kinds int and float.
"""


def metadata_page() -> str:
    lines = [
        f"- {code(name)}{'' if kind == 'text' else f' ({kind})'}: {MEANINGS[name]}"
        for name, kind in sorted(entries().items())
    ]
    return "\n".join([INTRO, made_from("cdc_pipeline/orchestration"), *lines]) + "\n"


def entries() -> dict[str, str]:
    found = {
        name: "int" if is_plotted(name) else "text"
        for name in Interval.model_fields
        if name not in _TOGETHER
    }
    found["ignorable_events"] = "json"
    for file in sorted(ORCHESTRATION.rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        texts = {
            target.id: node.value.value
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for key, value in _pairs(tree):
            name = texts.get(key.id) if isinstance(key, ast.Name) else getattr(key, "value", None)
            if isinstance(name, str) and (kind := _kind(value)):
                found[name] = kind
    return found


def _pairs(tree: ast.AST) -> Iterator[tuple[ast.expr | None, ast.expr]]:
    """Return keys and values of all mappings that are written out, and of assignments to a key."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            yield from zip(node.keys, node.values, strict=True)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            yield node.targets[0].slice, node.value


def _kind(value: ast.expr) -> str:
    """Return the kind of a metadata value; "" for anything else."""
    made = value.func if isinstance(value, ast.Call) else None
    if not isinstance(made, ast.Attribute) or not isinstance(made.value, ast.Attribute):
        return ""
    return made.attr if made.value.attr == "MetadataValue" else ""
