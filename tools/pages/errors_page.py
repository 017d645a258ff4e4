"""docs/reference/errors.md, from the classes of errors and the places that raise them."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

from cdc_pipeline import errors
from cdc_pipeline.errors import CdcError, ConfigError
from tools.pages.markdown import as_markdown, made_from, paragraphs, table

PACKAGE = Path(errors.__file__).parent
INTRO = """\
# Errors

Search this page for the words of an error. Each class has its cause, then every message with the
next step that it gives; `…` stands for names and values of the moment. With `--json` an error is an
object with `error` (the class), `what`, `journal`, `offset`, `table`, `setting`, `expected`, `got`,
`next_step` and `retryable`.

- *retryable*: the same run, started again unchanged, can succeed. Dagster does so by itself.
- *needs a snapshot*: reading the log again cannot help, but
  `cdc-pipeline snapshot SOURCE --table NAME` can.
- *exit code 2*: the configuration or the command is wrong. Every other error exits with 1.
"""


def errors_page() -> str:
    """Return the whole page."""
    raised = _raised()
    parts = [INTRO, made_from("cdc_pipeline/errors.py and the messages of cdc_pipeline")]
    for one in classes():
        parts += [f"## {one.__name__}\n", *(f"{text}\n" for text in _described(one))]
        if one.__name__ in raised:
            parts.append(table(("message", "next step"), raised[one.__name__]))
    return "\n".join(parts)


def classes() -> list[type[CdcError]]:
    """Return all classes of errors.py, in the order of that file."""
    found = [
        one
        for _, one in inspect.getmembers(errors, inspect.isclass)
        if issubclass(one, CdcError) and one is not CdcError
    ]
    return sorted(found, key=lambda one: inspect.getsourcelines(one)[1])


def _described(one: type[CdcError]) -> Iterator[str]:
    for text in paragraphs(one):
        label, colon, rest = text.partition(": ")
        if colon and label in ("Cause", "Fix"):
            yield f"**{label}:** {rest}"
        elif label != "Attributes":
            yield text
    facts = []
    if one.retryable:
        facts.append("retryable")
    if one.needs_reload:
        facts.append("needs a snapshot")
    if issubclass(one, ConfigError):
        facts.append("exit code 2")
    base = one.__bases__[0]
    if base is not CdcError:
        facts.append(f"a kind of [{base.__name__}](#{base.__name__.lower()})")
    if facts:
        yield f"*{', '.join(facts)}*"


def _raised() -> dict[str, list[tuple[str, str]]]:
    """Return the messages of each class, with their next steps, each pair once."""
    found: dict[str, dict[tuple[str, str], None]] = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
                what = _text(node.args[0])
                steps = [_text(one.value) for one in node.keywords if one.arg == "next_step"]
                if node.func.id.endswith("Error") and what.strip("… "):
                    found.setdefault(node.func.id, {})[(what, "".join(steps))] = None
    return {name: sorted(pairs) for name, pairs in found.items()}


def _text(node: ast.expr) -> str:
    """Return a text of the code, with … for what is filled in."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return as_markdown(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(one) for one in node.values)
    if isinstance(node, ast.IfExp):
        return " or: ".join(filter(None, (_text(node.body), _text(node.orelse))))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _text(node.left) + _text(node.right)
    return "" if isinstance(node, ast.Constant) else "…"
