"""The configuration of a source as it is in force: every setting, with where its value is from.

Rules:
- What may be a secret is never shown: passwords, salts, keys, and settings of Spark that look like
  one by name or value (K26).
- Values are written as the file would have them. A setting that has no value and no default is left
  out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal

import yaml
from pydantic import BaseModel, SecretStr

from cdc_pipeline.config.descriptions import setting
from cdc_pipeline.config.pipeline_config import load_config, read_document
from cdc_pipeline.config.spark_config import is_secret
from cdc_pipeline.config.storage_config import StorageConfig
from cdc_pipeline.config.target_config import Mask

HIDDEN: Final = "**********"
Origin = Literal["file", "default", "environment"]
_MISSING: Final = object()


@dataclass(frozen=True)
class ShownSetting:
    """One setting in force.

    Attributes:
        path: names and numbers from the file's first level.
        value: plain, or `HIDDEN`.
        origin: the file, a reference to the environment in it, or the default.
    """

    path: tuple[str | int, ...]
    value: Any
    origin: Origin


def shown_settings(file: Path) -> list[ShownSetting]:
    """Return all settings of a file, in the order of the reference.

    Raises:
        ConfigMistakes: the file has mistakes.
    """
    config = load_config(file)
    written = read_document(file).content
    return [
        one
        for name, value in _items(config)
        if name != "name"
        for one in _shown((name,), value, written.get(name, _MISSING))
    ]


def as_document(settings: list[ShownSetting]) -> dict[str, Any]:
    """Return the settings as the nested values of a file."""
    made: dict[str, Any] = {}
    for one in settings:
        at: Any = made
        for part, after in zip(one.path[:-1], one.path[1:], strict=True):
            below: Any = [] if isinstance(after, int) else {}
            if isinstance(at, list):
                if part == len(at):
                    at.append(below)
                at = at[int(part)]
            else:
                at = at.setdefault(part, below)
        if isinstance(at, list):
            at.append(one.value)
        else:
            at[one.path[-1]] = one.value
    return made


def as_yaml(settings: list[ShownSetting]) -> str:
    """Return the settings as a YAML text, with a comment where a value is not the file's own."""
    tree: dict[Any, Any] = {}
    for one in settings:
        at = tree
        for part in one.path[:-1]:
            at = at.setdefault(part, {})
        at[one.path[-1]] = one
    return "\n".join(_lines(tree)) + "\n"


def _lines(tree: dict[Any, Any]) -> Iterator[str]:
    for part, node in tree.items():
        if isinstance(node, ShownSetting):
            note = "" if node.origin == "file" else f"  # {node.origin}"
            name = "- " if isinstance(part, int) else f"{_text(part)}: "
            yield f"{name}{_text(node.value)}{note}"
        elif isinstance(part, int):
            first, *more = _lines(node)
            yield f"- {first}"
            yield from (f"  {line}" for line in more)
        else:
            yield f"{_text(part)}:"
            yield from (f"  {line}" for line in _lines(node))


def _items(section: BaseModel) -> Iterator[tuple[str, Any]]:
    for name, field in type(section).model_fields.items():
        yield setting(name, field), getattr(section, name)


def _shown(
    path: tuple[str | int, ...], value: Any, written: Any, *, is_hidden: bool = False
) -> Iterator[ShownSetting]:
    if isinstance(value, Mask):  # written in forms of their own
        for below, one in _forms(value):
            yield ShownSetting((*path, *below), _plain(one), _origin(written))
        return
    if isinstance(value, StorageConfig) and written is _MISSING:
        return  # of a lake on a disk, which must not have this section
    if isinstance(value, BaseModel):
        known = written if isinstance(written, dict) else {}
        for name, one in _items(value):
            yield from _shown((*path, name), one, known.get(name, _MISSING))
        return
    if isinstance(value, dict) and value:
        known = written if isinstance(written, dict) else {}
        for name, one in value.items():
            secret = isinstance(one, str) and is_secret(str(name), one)
            yield from _shown((*path, name), one, known.get(name, _MISSING), is_hidden=secret)
        return
    if isinstance(value, list | tuple) and any(isinstance(one, BaseModel) for one in value):
        items = written if isinstance(written, list) else []
        for number, one in enumerate(value):
            of_item = items[number] if number < len(items) else _MISSING
            yield from _shown((*path, number), one, of_item)
        return
    if value is None and written is _MISSING:
        return
    yield ShownSetting(path, HIDDEN if is_hidden else _plain(value), _origin(written))


def _forms(value: Mask) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Return the plain values of what is written in a form of its own, with their paths in it."""
    form = value.as_written()
    if not isinstance(form, dict):
        yield (), form
        return
    for name, inner in form.items():
        if isinstance(inner, dict):
            yield from (((name, below), one) for below, one in inner.items())
        else:
            yield (name,), inner


def _origin(written: Any) -> Origin:
    if written is _MISSING or written is None:
        return "default"
    return "environment" if "${" in str(written) else "file"


def _plain(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return HIDDEN if value.get_secret_value() else ""
    if isinstance(value, timedelta):
        return _duration(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if value is None or isinstance(value, bool | int | float | str | dict):
        return value
    return str(value)


def _duration(value: timedelta) -> str:
    for seconds, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if value % timedelta(seconds=seconds) == timedelta():
            count = value // timedelta(seconds=seconds)
            return f"{count} {unit.removesuffix('s') if count == 1 else unit}"
    return f"{value.total_seconds():g} s"


def _text(value: Any) -> str:
    """Return a value as YAML on one line."""
    return (
        yaml.safe_dump(value, default_flow_style=True, width=1 << 30, allow_unicode=True)
        .removesuffix("\n")
        .removesuffix("...")
        .rstrip()
    )
