"""Say in words what a setting takes, from its annotation: "a whole number from 1 to 65535".

Rules:
- A type whose annotation says too little carries a `Takes` with its own words.
- The words complete "expected ...": no full stop, and nothing about the value that was found.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic import AwareDatetime, BaseModel, SecretStr

_PLAIN: Final[dict[object, str]] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    SecretStr: "a text, best from the environment: ${NAME}",
    Path: "a path",
    AwareDatetime: "a time with its zone, such as 2026-01-31T08:00:00+00:00",
}


@dataclass(frozen=True, slots=True)
class Takes:
    """What a setting takes, for people; `unit` is appended to the limits of its range."""

    text: str
    unit: str = ""  # "bytes" are shown as KiB, MiB or GiB where they are whole ones


def one_of(words: Sequence[str]) -> str:
    """Join words: ``a``, ``a or b``, ``a, b or c``."""
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last


def accepted(annotation: Any, metadata: Iterable[Any] = ()) -> str:
    """Return what a setting with this annotation takes."""
    if get_origin(annotation) is Annotated and annotation not in _PLAIN:
        inner, *more = get_args(annotation)
        return accepted(inner, (*more, *metadata))
    metadata = tuple(metadata)
    takes = next((one for one in metadata if isinstance(one, Takes)), None)
    if takes is not None:
        limits = _range(metadata, takes.unit)
        return takes.text + (f",{limits}" if limits.startswith(" ") else limits)
    if annotation in _PLAIN:
        return _PLAIN[annotation] + _range(metadata)
    origin = get_origin(annotation)
    if origin is Literal:
        return one_of([str(value) for value in get_args(annotation)])
    if origin in (Union, types.UnionType):
        kinds = [one for one in get_args(annotation) if one is not type(None)]
        return one_of(list(dict.fromkeys(accepted(one, metadata) for one in kinds)))
    if origin in (tuple, list):
        return f"a list, each item {accepted(get_args(annotation)[0])}"
    if origin is dict:
        return f"a section whose values are each {accepted(get_args(annotation)[1])}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        needed = [
            field.alias or name
            for name, field in annotation.model_fields.items()
            if field.is_required()
        ]
        return f"a section with {', '.join(needed)}" if needed else "a section"
    return "another value"


def names_of(section: type[BaseModel]) -> list[str]:
    """Return the settings of a section as a file names them."""
    return [field.alias or name for name, field in section.model_fields.items()]


def _range(metadata: Iterable[Any], unit: str = "") -> str:
    """Return the limits as the end of a sentence: ``" from 1 to 65535"``."""
    limits = {
        name: getattr(one, name)
        for one in metadata
        for name in ("ge", "gt", "le", "lt", "min_length")
        if getattr(one, name, None) is not None
    }

    def shown(name: str) -> str:
        value = limits[name]
        if unit != "bytes":
            return f"{value:.15g}{unit}"
        for power, size in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
            if value and value % (1 << power) == 0:
                return f"{value >> power} {size}"
        return f"{value}"

    if limits.get("min_length"):
        return ", not empty"
    if "ge" in limits and "le" in limits:
        return f" from {shown('ge')} to {shown('le')}"
    parts = [
        words + shown(name)
        for name, words in (
            ("ge", "at least "),
            ("gt", "more than "),
            ("le", "at most "),
            ("lt", "less than "),
        )
        if name in limits
    ]
    return f", {' and '.join(parts)}" if parts else ""
