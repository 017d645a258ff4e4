"""docs/reference/settings.md, from the models of the configuration.

What a setting does is said by `cdc_pipeline/config/descriptions.py`.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import annotated_types
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from cdc_pipeline.config.descriptions import meaning, models_of, setting
from cdc_pipeline.config.pipeline_config import PipelineConfig
from tools.pages.markdown import as_markdown, code, made_from, table

INTRO = """\
# Settings

Every setting of a pipeline's file, with its values, its default and what it does.
[Configuration](configuration.md) shows a whole file and explains how the settings work together.
A setting without a default is required where its section is used. `${NAME}` in any text is replaced
from the environment.
"""
_TEXTS = {
    int: "number",
    float: "number",
    str: "text",
    bool: "true or false",
    Path: "path",
    SecretStr: "text, from the environment",
    timedelta: "duration such as `7 days`",
    type(None): "",
}
# Alternatives that are written in place; their settings' texts explain them.
_IN_PLACE = {"start", "bound", "masks", "automation"}

# Sections that stand under another path.
_ELSEWHERE = {
    ("TargetRule", "schema_changes"),
    ("AssetRule", "freshness"),
    ("AssetSettings", "freshness"),
}


def settings_page() -> str:
    """Return the whole page."""
    parts = [INTRO, made_from("cdc_pipeline/config")]
    for path, model in sections(PipelineConfig):
        parts += [f"## {path or 'The file'}\n", *_section(model)]
    return "\n".join(parts)


def sections(model: type[BaseModel], path: str = "") -> Iterator[tuple[str, type[BaseModel]]]:
    """Return a section and those below it, each once under the first path that it has."""
    seen: set[type[BaseModel]] = set()
    for where, one in _sections(model, path):
        if one not in seen:
            seen.add(one)
            yield where, one


def _sections(model: type[BaseModel], path: str) -> Iterator[tuple[str, type[BaseModel]]]:
    yield path, model
    for name, field in model.model_fields.items():
        below = models_of(field.annotation)
        where = f"{path}.{field.alias or name}".lstrip(".")
        if name in _IN_PLACE or (model.__name__, name) in _ELSEWHERE:
            continue
        for one in below:
            kind = one.model_fields.get("kind")
            of_kind = get_args(kind.annotation) if kind else ()
            yield from _sections(one, f"{where} ({of_kind[0]})" if len(of_kind) == 1 else where)


def _section(model: type[BaseModel]) -> Iterator[str]:
    yield table(
        ("setting", "values", "default", "what it does"),
        (
            (
                code(setting(name, field)),
                _values(field),
                _default(field),
                as_markdown(meaning(model, name)),
            )
            for name, field in model.model_fields.items()
            if (model, name) != (PipelineConfig, "name")
        ),
    )


def _values(field: FieldInfo) -> str:
    """Return the values of a setting as people write them."""
    return ", ".join(filter(None, (_type(field.annotation), *_limits(field))))


def _type(annotation: Any) -> str:
    origin = get_origin(annotation)
    if origin is typing.Annotated:
        return _type(get_args(annotation)[0])
    if origin is Literal:
        return ", ".join(code(str(one)) for one in get_args(annotation))
    if origin in {typing.Union, types.UnionType}:
        parts = dict.fromkeys(filter(None, (_type(one) for one in get_args(annotation))))
        return " or ".join(parts)
    if origin in {tuple, list}:
        inner = get_args(annotation)[0]
        return "list of sections" if models_of(inner) else f"list of {_type(inner)}"
    if origin is dict:
        return f"mapping of names to {_type(get_args(annotation)[1])}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return _inline(annotation)
    return _TEXTS.get(annotation, getattr(annotation, "__name__", str(annotation)))


def _inline(model: type[BaseModel]) -> str:
    """Return a small section as it is written in place, any other as the word."""
    if model.__name__.endswith(
        ("PositionConfig", "TimeConfig", "GtidConfig", "BoundConfig", "OnCronConfig")
    ):
        return code("{" + ", ".join(f"{name}: ..." for name in model.model_fields) + "}")
    return "section"


def _limits(field: FieldInfo) -> Iterator[str]:
    for one in field.metadata:
        if isinstance(one, annotated_types.Ge):
            yield f"at least {one.ge:,}"
        if isinstance(one, annotated_types.Gt):
            yield f"above {one.gt:,}"
        if isinstance(one, annotated_types.Le):
            yield f"at most {one.le:,}"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, BaseModel) or value is None:
        return ""
    if isinstance(value, timedelta):
        return code(f"{value.days} day" + "s" * (value.days != 1))
    if isinstance(value, bool):
        return code(str(value).lower())
    if isinstance(value, int | float):
        return code(f"{value:g}" if isinstance(value, float) else str(value))
    if isinstance(value, tuple | list):
        return code("[" + ", ".join(f'"{one}"' for one in value) + "]")
    return code("{}" if value == {} else str(value))
