"""A section of a pipeline's file, its paths, and in words what a setting takes: "a whole number, at
least 1".

Rules:
- A type whose annotation says too little carries a `Takes` with its own words.
- The words complete "expected ...": no full stop, and nothing about the value that was found.
"""

from __future__ import annotations

import os
import types
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, Union, get_args, get_origin

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Discriminator,
    GetCoreSchemaHandler,
    SecretStr,
    Tag,
    ValidationInfo,
)
from pydantic.fields import FieldInfo

from cdc_pipeline.frozen_model import FrozenModel

_WORDS: Final[dict[object, str]] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    SecretStr: "a text, best from the environment: ${NAME}",
    Path: "a path",
    AwareDatetime: "a time with its zone, such as 2026-01-31T08:00:00+00:00",
    Any: "any value",
}


class Section(FrozenModel):
    """A section of the YAML: nothing unknown in it, and no value shown in an error."""

    model_config = ConfigDict(hide_input_in_errors=True)
    of_unknown: ClassVar[str] = ""  # the end of a mistake about a name that it does not have


@dataclass(frozen=True, slots=True)
class FileContext:
    """What the settings of a file are checked with, besides their values.

    Attributes:
        folder: where relative paths begin.
        accepts: whether Dagster accepts a `cron`, a `timezone` and a `lower_bound`; None if it is
            not asked.
    """

    folder: Path
    accepts: Callable[..., bool] | None = None


def absolute(path: Path, info: ValidationInfo) -> Path:
    context: FileContext | None = info.context
    return path if context is None else Path(os.path.normpath(context.folder / path.expanduser()))


def absolute_folder(path: Path, info: ValidationInfo) -> Path:
    """Raises ValueError: a file is there."""
    path = absolute(path, info)
    if info.context is not None and os.path.isfile(path):
        raise ValueError(f"{path} is a file; expected a folder")
    return path


LocalPath = Annotated[Path, AfterValidator(absolute)]
Folder = Annotated[Path, AfterValidator(absolute_folder)]


@dataclass(frozen=True, slots=True)
class Takes:
    """What a setting takes, for people; `unit` is appended to the limits of its range."""

    text: str
    unit: str = ""  # "bytes" are shown as KiB, MiB or GiB where they are whole ones


class Forms(Takes):
    """What a setting takes that has several forms, of which some are sections. A section is
    meant to be the form that has most of the names in it, and none if some are of another.
    """

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> Any:
        sections = {kind.__name__: kind for kind in sections_in(source)}
        names_by_form = {name: set(names_of(kind)) for name, kind in sections.items()}
        needed = {name: _needed_by(kind).keys() for name, kind in sections.items()}
        word = next(kind for kind in get_args(source) if get_origin(kind) is Literal)

        def form_of(value: Any) -> str | None:
            if not isinstance(value, dict):
                return type(value).__name__ if isinstance(value, BaseModel) else "word"
            lacks = {
                name: (len(value.keys() - names), len(needed[name] - value.keys()))
                for name, names in names_by_form.items()
            }
            best = min(lacks, key=lambda name: lacks[name])
            strange = value.keys() - names_by_form[best]
            of_others = set().union(*names_by_form.values())
            return None if len(strange) == len(value) or strange & of_others else best

        forms = [Annotated[kind, Tag(name)] for name, kind in {"word": word, **sections}.items()]
        return handler.generate_schema(Annotated[reduce(or_, forms), Discriminator(form_of)])


def setting_name(name: str, field: FieldInfo) -> str:
    return field.alias or name


def names_of(section: type[BaseModel]) -> list[str]:
    return [setting_name(*item) for item in section.model_fields.items()]


def _needed_by(section: type[BaseModel]) -> dict[str, None]:
    """The settings that a section cannot do without."""
    fields = section.model_fields.items()
    return {setting_name(name, field): None for name, field in fields if field.is_required()}


def kinds_of(annotation: Any) -> list[Any]:
    """The members of a union without None; a single type is one."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return kinds_of(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return [kind for inner in get_args(annotation) for kind in kinds_of(inner)]
    return [] if annotation is type(None) else [annotation]


def sections_in(annotation: Any) -> list[type[BaseModel]]:
    """The sections that a setting's type holds, in its order."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [section for part in get_args(annotation) for section in sections_in(part)]


def one_of(words: Sequence[str]) -> str:
    """``a``, ``a or b``, ``a, b or c``."""
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last


def type_text(annotation: Any, metadata: Iterable[Any] = ()) -> str:
    """What a setting with this annotation takes."""
    if get_origin(annotation) is Annotated and annotation not in _WORDS:
        inner, *more = get_args(annotation)
        return type_text(inner, (*more, *metadata))
    metadata = tuple(metadata)
    takes = next((item for item in metadata if isinstance(item, Takes)), None)
    if takes is not None:
        limits = _range(metadata, takes.unit)
        return takes.text + (f",{limits}" if limits.startswith(" ") else limits)
    if annotation in _WORDS:
        return _WORDS[annotation] + _range(metadata)
    origin = get_origin(annotation)
    if origin is Literal:
        return one_of([str(value) for value in get_args(annotation)])
    if origin in (Union, types.UnionType):
        kinds = [kind for kind in get_args(annotation) if kind is not type(None)]
        return one_of(list(dict.fromkeys(type_text(kind, metadata) for kind in kinds)))
    if origin in (tuple, list):
        return f"a list, each item {type_text(get_args(annotation)[0])}"
    if origin is dict:
        return f"a section whose values are each {type_text(get_args(annotation)[1])}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        needed = _needed_by(annotation)
        return f"a section with {', '.join(needed)}" if needed else "a section"
    return "another value"


def _range(metadata: Iterable[Any], unit: str = "") -> str:
    """The limits as the end of a sentence: ``" from 1 to 65535"``."""
    limits = {
        name: getattr(item, name)
        for item in metadata
        for name in ("ge", "gt", "le", "lt", "min_length")
        if getattr(item, name, None) is not None
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
    words = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
    parts = [f"{word} {shown(name)}" for name, word in words.items() if name in limits]
    return f", {' and '.join(parts)}" if parts else ""
