"""Say what each setting does: for the JSON Schema, and for the reference of settings.

Rules:
- The text is in setting_texts.yaml beside this file; else it is the field's own description, else
  what the section ``Attributes:`` of the model's docstring says.
- Texts are Markdown with links relative to docs/reference; `plain` takes the links out.
"""

from __future__ import annotations

import inspect
import re
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo


@cache
def texts() -> dict[str, dict[str, str]]:
    """Return the texts by model and setting, as they are written."""
    file = Path(__file__).with_name("setting_texts.yaml")
    found: dict[str, dict[str, str]] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return found


def setting(name: str, field: FieldInfo) -> str:
    """Return a setting's name in the file."""
    return field.alias or name


def meaning(model: type[BaseModel], name: str) -> str:
    """Return what a setting does, in Markdown; "" if nothing says so.

    Args:
        name: of the model's field.
    """
    field = model.model_fields[name]
    said = texts().get(model.__name__, {}).get(setting(name, field), "")
    return said or _single(field.description or "") or _attribute(model, name)


def plain(text: str) -> str:
    """Return Markdown without its links: one in brackets goes, of any other its words stay."""
    text = re.sub(r"\s*\(\[[^\]]*\]\([^)]*\)\)", "", text)
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)


def models_of(annotation: Any) -> list[type[BaseModel]]:
    """Return the sections that a setting's type holds, in its order."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [one for part in get_args(annotation) for one in models_of(part)]


def every_section(model: type[BaseModel]) -> list[type[BaseModel]]:
    """Return a section and all below it, each once."""
    found = {model.__name__: model}
    for field in model.model_fields.values():
        for below in models_of(field.annotation):
            if below.__name__ not in found:
                found |= {one.__name__: one for one in every_section(below)}
    return list(found.values())


def paragraphs(model: type[BaseModel]) -> list[str]:
    """Return a model's docstring as paragraphs of one line each, with single backticks."""
    text = inspect.getdoc(model) or ""
    return [_single(" ".join(one.split())) for one in re.split(r"\n\s*\n", text) if one.strip()]


def _single(text: str) -> str:
    return re.sub(r"``([^`]+)``", r"`\1`", text)


def _attribute(model: type[BaseModel], name: str) -> str:
    """Return what the section ``Attributes:`` of a model's docstring says of a setting."""
    for paragraph in paragraphs(model):
        if not paragraph.startswith("Attributes: "):
            continue
        places = sorted(
            (found.start(), one)
            for one in model.model_fields
            if (found := re.search(rf"(?<= ){one}: ", paragraph))
        )
        ends = {one: end for (_, one), (end, _) in pairwise([*places, (len(paragraph), "")])}
        for place, one in places:
            if one == name:
                return paragraph[place + len(name) + 2 : ends[one]].strip()
    return ""
