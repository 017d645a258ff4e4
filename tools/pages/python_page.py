"""docs/reference/python.md, from the public names of `cdc_pipeline` and their docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator
from types import FunctionType
from typing import Any, Final

import cdc_pipeline
from tools.pages.markdown import as_markdown, code, made_from

INTRO: Final = """\
# Python

What a program imports from `cdc_pipeline`, which is typed and loads neither Dagster nor Spark. By
any scheduler:

```python
import cdc_pipeline

report = cdc_pipeline.capture("jobs/sales.yaml")  # the cursor is kept in the lake
print(report.outcome, report.batches)
```

Errors are `CdcError` of `cdc_pipeline.errors` ([errors](errors.md)); `retryable`: the same call may
succeed.
"""
# Titles -> public names. Those of Dagster need the extra `dagster`.
SECTIONS: Final = {
    "Without Dagster": (
        "capture",
        "load_config",
        "bound_of",
        "changes",
        "cuts",
        "open_lake",
        "read",
    ),
    "With Dagster": (
        "build_definitions",
        "cdc_assets",
        "cdc_changes",
        "CdcResource",
        "CdcTranslator",
        "CdcComponent",
    ),
}
_HEAD: Final = re.compile(r"^(Args|Raises|Returns|Yields):$", re.MULTILINE)
_ITEM: Final = re.compile(r"^    (\S[^:]*): (.*?)(?=^    \S|\Z)", re.MULTILINE | re.DOTALL)
_TITLES: Final = {"Args": "Arguments", "Raises": "Errors", "Returns": "Result", "Yields": "Result"}


def python_page() -> str:
    parts = [INTRO, made_from("the docstrings of cdc_pipeline")]
    for title, names in SECTIONS.items():
        parts.append(f"## {title}\n")
        for name in names:
            parts += _described(name, getattr(cdc_pipeline, name))
    return "\n".join(parts)


def _described(name: str, value: Any) -> Iterator[str]:
    yield f"### {name}\n"
    if not isinstance(value, type):
        yield f"```python\n{_signature(name, value)}\n```\n"
    yield from _prose(inspect.getdoc(value) or "")
    if isinstance(value, type):
        fields = _fields(value)
        if fields:
            yield _list(fields)
        rows = [
            (code(of), as_markdown(_sentence(inspect.getdoc(member) or "")))
            for of, member in vars(value).items()
            if not of.startswith("_") and isinstance(member, FunctionType | property)
        ]
        yield _list(rows)


def _signature(name: str, function: Any) -> str:
    signature = inspect.signature(function)
    lines, has_star = [f"{name}("], False
    for argument in signature.parameters.values():
        if argument.kind is argument.KEYWORD_ONLY and not has_star:
            lines.append("    *,")
            has_star = True
        default = "" if argument.default is argument.empty else f" = {argument.default!r}"
        lines.append(f"    {argument.name}: {argument.annotation}{default},")
    return "\n".join([*lines, f") -> {signature.return_annotation}"])


def _fields(value: type) -> list[tuple[str, str]]:
    found = []
    for name, annotation in getattr(value, "__annotations__", {}).items():
        said = [getattr(one, "description", None) for one in _metadata(annotation)]
        text = next((one for one in said if one), "")
        if text:
            found.append((code(name), as_markdown(text)))
    return found


def _metadata(annotation: Any) -> Iterator[Any]:
    yield from getattr(annotation, "__metadata__", ())


def _prose(text: str) -> Iterator[str]:
    first, *sections = _HEAD.split(text)
    for paragraph in re.split(r"\n\s*\n", first.strip()):
        yield as_markdown(" ".join(paragraph.split())) + "\n"
    for head, content in zip(sections[::2], sections[1::2], strict=True):
        rows = [(code(name), as_markdown(said)) for name, said in _ITEM.findall(content + "\n")]
        yield f"{_TITLES[head]}:\n\n{_list(rows)}"


def _list(rows: Iterable[tuple[str, str]]) -> str:
    """What is returned is said without the verb."""
    texts = ((name, re.sub("^Return (the )?", "", " ".join(text.split()))) for name, text in rows)
    return "".join(f"- {name}: {text}\n" for name, text in texts)


def _sentence(text: str) -> str:
    return " ".join(re.split(r"\n\s*\n", text)[0].split())
