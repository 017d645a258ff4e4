"""The settings of a pipeline's file: what each does, their JSON Schema, and those in force.

Rules:
- setting_texts.yaml beside this file says what a setting does, in Markdown with links relative to
  docs/reference; the schema and the page of settings come from it and from the models.
- The schema knows less than the models: rules that join several settings are checked by
  `cdc-pipeline validate` alone. Where a number, true or false, or a word is expected, it accepts a
  reference to the environment (``${NAME}``) too, as when the file is read.
- What may be a secret is never shown: passwords, salts, keys, and settings of Spark that look like
  one by name or value (K26).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import yaml
from pydantic import BaseModel, SecretStr

from cdc_pipeline.config.pipeline_config import PipelineConfig, load_config, read_document
from cdc_pipeline.config.schema_policy import SchemaChangePolicy, section_of
from cdc_pipeline.config.section import sections_in, setting_name
from cdc_pipeline.config.spark_config import is_secret
from cdc_pipeline.config.storage_config import StorageConfig

HIDDEN: Final = "**********"
_REFERENCE: Final = {"type": "string", "pattern": r"\$\{[A-Za-z_][A-Za-z0-9_]*\}"}
_NOT_TEXTS: Final = ("integer", "number", "boolean")
_MISSING: Final = object()


# -- what each does --------------------------------------------------------------------------------


@cache
def texts() -> dict[str, dict[str, str]]:
    """By model and setting, in Markdown."""
    file = Path(__file__).with_name("setting_texts.yaml")
    read: dict[str, dict[str, str]] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return read


def meaning(model: type[BaseModel], name: str) -> str:
    """What a model's field does, in Markdown; "" if nothing says so."""
    setting = setting_name(name, model.model_fields[name])
    of_model = (texts().get(parent.__name__, {}) for parent in model.__mro__)
    return next((said[setting] for said in of_model if setting in said), "")


def every_section(model: type[BaseModel]) -> list[type[BaseModel]]:
    """A section and all below it, each once."""
    known = {model.__name__: model}
    for field in model.model_fields.values():
        for below in sections_in(field.annotation):
            if below.__name__ not in known:
                known |= {section.__name__: section for section in every_section(below)}
    return list(known.values())


# -- the JSON Schema -------------------------------------------------------------------------------


def json_schema() -> dict[str, Any]:
    """The schema of a source's YAML file, for editors and for checks outside of this program."""
    schema = PipelineConfig.model_json_schema()
    sections = dict(schema.pop("$defs"))
    for model in every_section(PipelineConfig):
        section = schema if model is PipelineConfig else sections[model.__name__]
        section["description"] = " ".join(
            (inspect.getdoc(model) or "").partition("\n\n")[0].replace("``", "`").split()
        )
        for name, field in model.model_fields.items():
            described = section["properties"][setting_name(name, field)]
            of_type = described.get("description", "")  # such as the units of a duration
            said = _without_links(meaning(model, name))
            described["description"] = "\n\n".join(filter(None, (said, of_type)))
    schema["properties"].pop("name")  # the file's name
    schema["required"].remove("name")
    schema["title"] = "A source of cdc-pipeline"
    schema["definitions"] = sections
    head = {"$schema": "http://json-schema.org/draft-07/schema#"}
    cleaned: dict[str, Any] = _cleaned({**head, **schema})
    return cleaned


def _without_links(text: str) -> str:
    """Markdown without its links: one in brackets goes, of any other its words stay."""
    text = re.sub(r"\s*\(\[[^\]]*\]\([^)]*\)\)", "", text)
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)


def _cleaned(node: Any, *, is_mapping: bool = False) -> Any:
    """A part of the schema without what no editor needs, with references accepted."""
    if isinstance(node, list):
        return [_cleaned(item) for item in node]
    if not isinstance(node, dict):
        return node.replace("#/$defs/", "#/definitions/") if isinstance(node, str) else node
    if is_mapping:  # names of settings, whatever they are
        return {name: _cleaned(value) for name, value in node.items()}
    cleaned = {
        name: _cleaned(value, is_mapping=name in ("properties", "definitions"))
        for name, value in node.items()
        if not _is_dropped(name, value, node)
    }
    if cleaned.get("type") in _NOT_TEXTS or "enum" in cleaned:
        outside = {key: cleaned.pop(key) for key in ("description", "default") if key in cleaned}
        return {**outside, "anyOf": [cleaned, _REFERENCE]}
    return cleaned


def _is_dropped(name: str, value: Any, node: dict[str, Any]) -> bool:
    if name == "title":
        return "$schema" not in node
    if name == "default":  # sections, durations of ISO 8601, and "not set" say nothing to people
        return value is None or isinstance(value, dict) or "duration" in str(node)
    return name == "discriminator" or (name == "format" and value in ("path", "duration"))


# -- what is in force ------------------------------------------------------------------------------


class Setting(NamedTuple):
    """A value in force: plain, or `HIDDEN`; and where it is from."""

    value: Any
    origin: Literal["file", "default", "environment"]


def effective_config(file: Path) -> dict[str, Any]:
    """The sections of a file as it would write them, in the order of the reference, with a
    `Setting` in place of each value. What has no value and no default is left out.

    Raises ConfigMistakes: the file has mistakes.
    """
    tree: dict[str, Any] = _effective(load_config(file), read_document(file).content)
    tree.pop("name")
    return tree


def values_of(node: Any) -> Any:
    """The plain values of an effective configuration."""
    if isinstance(node, Setting):
        return node.value
    if isinstance(node, list):
        return [values_of(below) for below in node]
    return {name: values_of(below) for name, below in node.items()}


def origins_of(node: Any, path: str = "") -> dict[str, str]:
    """Where the values of an effective configuration are from, by path."""
    if isinstance(node, Setting):
        return {path: node.origin}
    return {
        place: origin
        for name, below in _items(node)
        for place, origin in origins_of(below, f"{path}.{name}".lstrip(".")).items()
    }


def as_yaml(node: Any) -> str:
    """An effective configuration as YAML, with a comment where a value is not the file's own."""
    return "\n".join(_lines(node)) + "\n"


def _items(node: Any) -> Any:
    return enumerate(node) if isinstance(node, list) else node.items()


def _lines(node: Any) -> Iterator[str]:
    for name, below in _items(node):
        if isinstance(below, Setting):
            note = "" if below.origin == "file" else f"  # {below.origin}"
            begin = "- " if isinstance(node, list) else f"{text_of(name)}: "
            yield f"{begin}{text_of(below.value)}{note}"
            continue
        lines = _lines(below)
        yield f"- {next(lines)}" if isinstance(node, list) else f"{text_of(name)}:"
        yield from (f"  {line}" for line in lines)


def _effective(value: Any, written: Any, *, name: str = "", is_hidden: bool = False) -> Any:
    """A value in force, in the file's form; `_MISSING` if nothing is to be shown. `name`: of its
    setting.
    """
    if isinstance(value, StorageConfig) and written is _MISSING:
        return _MISSING  # of a lake on a disk, which must not have this section
    below: dict[str, Any] | None = None
    if isinstance(value, BaseModel):
        fields = type(value).model_fields.items()
        below = {setting_name(name, field): getattr(value, name) for name, field in fields}
    elif isinstance(value, dict) and value:
        below = value
    if below is not None:
        if isinstance(value, SchemaChangePolicy):
            written = section_of(written)
        of_file = written if isinstance(written, dict) else {}
        tree = {
            key: _effective(
                inner,
                of_file.get(key, _MISSING),
                name=str(key),
                # Columns may have such names too.
                is_hidden=name in ("settings", "transport")
                and isinstance(inner, str)
                and is_secret(str(key), inner),
            )
            for key, inner in below.items()
        }
        return {name: node for name, node in tree.items() if node is not _MISSING} or _MISSING
    if isinstance(value, list | tuple) and any(isinstance(item, BaseModel) for item in value):
        items = written if isinstance(written, list) else []
        return [
            _effective(item, items[number] if number < len(items) else _MISSING)
            for number, item in enumerate(value)
        ]
    if value is None and written is _MISSING:
        return _MISSING
    return Setting(HIDDEN if is_hidden else plain_value(value), _origin(written))


def _origin(written: Any) -> Literal["file", "default", "environment"]:
    if written is _MISSING:
        return "default"
    return "environment" if "${" in str(written) else "file"


def plain_value(value: Any) -> Any:
    """A setting's value as a file would write it; a secret is hidden."""
    if isinstance(value, SecretStr):
        return HIDDEN if value.get_secret_value() else ""
    if isinstance(value, timedelta):
        return _duration(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, list | tuple):
        return [plain_value(item) for item in value]
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


def text_of(value: Any) -> str:
    """A value as YAML on one line."""
    text: str = yaml.safe_dump(value, default_flow_style=True, width=1 << 30, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("...").rstrip()
