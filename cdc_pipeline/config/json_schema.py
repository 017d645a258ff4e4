"""The JSON Schema of a source's YAML file, for editors and for checks outside of this program.

Rules:
- It comes from the models that read the file, and knows less than they: rules that join several
  settings are checked by `cdc-pipeline validate` alone.
- Each setting says what it does. Where a number, true or false, or a word is expected, a reference
  to the environment (``${NAME}``) is accepted too, as when the file is read.
"""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel

from cdc_pipeline.config.descriptions import every_section, meaning, paragraphs, plain, setting
from cdc_pipeline.config.pipeline_config import PipelineConfig

_REFERENCE: Final = {"type": "string", "pattern": r"\$\{[A-Za-z_][A-Za-z0-9_]*\}"}
_NOT_TEXTS: Final = ("integer", "number", "boolean")


def json_schema() -> dict[str, Any]:
    """Return the schema, as plain values."""
    made = PipelineConfig.model_json_schema()
    sections = dict(made.pop("$defs"))
    for model in every_section(PipelineConfig):
        section = made if model is PipelineConfig else sections[model.__name__]
        forms = getattr(model, "forms", None)
        if forms is not None:  # it is written otherwise than it is kept
            sections[model.__name__] = {"anyOf": list(forms)}
            continue
        section["description"] = plain((paragraphs(model) or [""])[0])
        _describe(section, model)
    made["properties"].pop("name")  # the file's name
    made["required"].remove("name")
    made["title"] = "A source of cdc-pipeline"
    made["definitions"] = sections
    head = {"$schema": "http://json-schema.org/draft-07/schema#"}
    cleaned: dict[str, Any] = _cleaned({**head, **made})
    return cleaned


def _describe(section: dict[str, Any], model: type[BaseModel]) -> None:
    for name, field in model.model_fields.items():
        found = section["properties"][setting(name, field)]
        said = plain(meaning(model, name))
        # What a type says of itself, such as the units of a duration, follows.
        own = found.get("description", "")
        found["description"] = said if not own or own == said else f"{said}\n\n{own}"


def _cleaned(node: Any, *, is_mapping: bool = False) -> Any:
    """Return a part of the schema without what no editor needs, with references accepted."""
    if isinstance(node, list):
        return [_cleaned(one) for one in node]
    if not isinstance(node, dict):
        return node.replace("#/$defs/", "#/definitions/") if isinstance(node, str) else node
    if is_mapping:  # names of settings, whatever they are
        return {name: _cleaned(value) for name, value in node.items()}
    made = {
        name: _cleaned(value, is_mapping=name in ("properties", "definitions"))
        for name, value in node.items()
        if not _is_dropped(name, value, node)
    }
    if made.get("type") in _NOT_TEXTS or "enum" in made:
        outside = {key: made.pop(key) for key in ("description", "default") if key in made}
        return {**outside, "anyOf": [made, _REFERENCE]}
    return made


def _is_dropped(name: str, value: Any, node: dict[str, Any]) -> bool:
    if name == "title":
        return "$schema" not in node
    if name == "default":  # sections, durations of ISO 8601, and "not set" say nothing to people
        return value is None or isinstance(value, dict) or "duration" in str(node)
    return name == "discriminator" or (name == "format" and value in ("path", "duration"))
