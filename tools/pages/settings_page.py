"""docs/reference/settings.md, from the models of the configuration and their texts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.config.section import sections_in, setting_name, type_text
from cdc_pipeline.config.settings import meaning, plain_value, text_of
from cdc_pipeline.config.units import DURATION_HELP, SIZE_HELP
from tools.pages.markdown import as_markdown, code, made_from

INTRO = """\
# Settings

Every setting of a pipeline's file, with its values, its default and what it does.
[Configuration](configuration.md) shows a file and explains how the settings work together.
What is required is so where its section is used. `${NAME}` in any text is replaced from the
environment. A *size* is a number of bytes or has a unit: `16777216`, `16 MiB`, `16 MB`, `512k`. A
*duration* is a number, of the unit in the setting's name (`_s`: seconds), or has a unit: `30s`,
`5m`, `2 h`, `7 days`. Times have a zone: `2026-01-31T08:00:00+00:00`.
"""
_DEFINED = {
    **{
        f"a number of {unit}, or a duration such as 30s, 5m or 7 days": "duration"
        for unit in ("seconds", "hours", "days")
    },
    DURATION_HELP: "duration with a unit",
    SIZE_HELP: "size",
    "; a time needs a zone, as in 2026-01-31T08:00:00+00:00": "",
    "best from the environment: ${NAME}": "best ${NAME}",
    "a list, each item a text": "list of texts",
    "a list, each item a section": "list of sections",
    "a list, each item": "list of",
    "a section whose values are each a text": "section of texts",
    "a section whose values are each a section": "section of sections",
    "a section whose values are each any value": "section of any values",
    "a section whose values are each": "section with values",
    "a whole number": "integer",
    "a section": "section",
    "a path": "path",
    "a text": "text",
    "a duration": "duration",
    "a size": "size",
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
        below = sections_in(field.annotation)
        where = f"{path}.{field.alias or name}".lstrip(".")
        if name in _IN_PLACE or (model.__name__, name) in _ELSEWHERE:
            continue
        for one in below:
            kind = one.model_fields.get("kind")
            of_kind = get_args(kind.annotation) if kind else ()
            yield from _sections(one, f"{where} ({of_kind[0]})" if len(of_kind) == 1 else where)


def _section(model: type[BaseModel]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        if (model, name) != (PipelineConfig, "name"):
            facts = ", ".join(filter(None, (_values(field), _default(field))))
            said = " ".join(as_markdown(meaning(model, name)).split())
            yield f"- {code(setting_name(name, field))} ({facts}): {said}"
    yield ""


def _values(field: FieldInfo) -> str:
    text = type_text(field.annotation, field.metadata)
    for long, short in _DEFINED.items():
        text = text.replace(long, short)
    return text


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "**required**"
    value = field.get_default(call_default_factory=True)
    has_text = not isinstance(value, BaseModel) and value not in (None, "", (), {})
    return f"default {code(text_of(plain_value(value)))}" if has_text else ""
