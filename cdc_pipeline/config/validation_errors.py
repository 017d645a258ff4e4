"""The mistakes of a configuration file: where each stands, what it is, and what is accepted.

Rules:
- All mistakes of a file are reported at once, in the order of its lines.
- A mistake shows a value as the file writes it, so that nothing from the environment appears (K26),
  and no value at all of a setting that is a secret.
- No text of a library is shown: what pydantic found is said in the words of `type_text`.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args, get_origin

from pydantic import BaseModel, SecretStr, ValidationError

from cdc_pipeline.config.section import kinds_of, names_of, one_of, setting_name, type_text
from cdc_pipeline.config.yaml_text import WHOLE_FILE, Mistake, YamlText
from cdc_pipeline.errors import ConfigError

# Dagster's own name for a component's file; it may lie beside pipelines.
COMPONENT_FILE: Final = "defs.yaml"
_SHOWN_CHARACTERS: Final = 60
# Sections whose values may be secrets, whatever the names in them are.
_SECRET_SECTIONS: Final = {"masks", "settings", "transport"}
_NO_TEXT: Final = {int: "a number", float: "a number", bool: "true or false", type(None): "nothing"}


Problem = dict[str, Any]  # as pydantic describes it


class ConfigMistakes(ConfigError):
    """A configuration file has mistakes: all of them are listed, each with its line. A setting does
    not exist, is missing or has a value that is not accepted, a variable of the environment is not
    set, or the text is no YAML.

    Fix: Correct what is listed; `cdc-pipeline validate` lists the rest, without a server.
    """

    def __init__(self, file: Path, mistakes: list[Mistake]) -> None:
        listing = "\n".join(f"  {mistake}" for mistake in mistakes)
        count = f"{len(mistakes)} mistake" + ("s" if len(mistakes) != 1 else "")
        super().__init__(f"{count} in {file}:\n{listing}", next_step=_next_step(file, mistakes))
        self.file = file
        self.mistakes = mistakes


def _next_step(file: Path, mistakes: list[Mistake]) -> str:
    unset = dict.fromkeys(mistake.unset_variable for mistake in mistakes)
    if unset and all(unset):
        return (
            f"export {' and '.join(unset)} where the program starts (Dagster also reads a file "
            ".env), and start it again"
        )
    return f"correct the file and run `{_check(file)}`"


def _check(file: Path) -> str:
    """The command that looks at a file again."""
    if file.name == COMPONENT_FILE:
        return "dg check defs"
    if file.parent.resolve() == Path("jobs").resolve():
        return f"cdc-pipeline validate {file.stem}"
    return f"cdc-pipeline --jobs {shlex.quote(str(file.parent))} validate {file.stem}"


def located(mistakes: Iterable[Mistake], text: YamlText) -> list[Mistake]:
    """The mistakes with their places in the file, in the order of its lines."""
    placed = [mistake.at(text.place_of(mistake.path)) for mistake in mistakes]
    return sorted(placed, key=lambda mistake: (mistake.line or 0, mistake.column or 0))


def validation_errors(
    error: ValidationError,
    root: type[BaseModel],
    text: YamlText,
    written: Callable[[Sequence[str]], list[str]] = list,
) -> list[Mistake]:
    """What pydantic found, one mistake for each setting. `written`: the path in the file of one in
    the document that pydantic read.
    """
    mistakes: dict[str, Mistake] = {}
    for details in error.errors(include_url=False):
        problem: Problem = dict(details)
        setting = _setting_at(root, details["loc"])
        setting = setting._replace(path=written(setting.path))
        mistake = _mistake(problem, setting, root, text)
        mistakes.setdefault(mistake.path, mistake)
    return list(mistakes.values())


class _Setting(NamedTuple):
    """A setting that a mistake is about.

    Attributes:
        path: in the file, without what pydantic adds to tell the forms of a setting apart.
        annotation, metadata: what it takes; an annotation of None for an unknown one.
        section: the models that the last name was looked for in.
    """

    path: list[str]
    annotation: Any
    metadata: Sequence[Any]
    section: list[type[BaseModel]]

    @property
    def dotted(self) -> str:
        return ".".join(self.path) or WHOLE_FILE

    @property
    def is_secret(self) -> bool:
        return bool(_SECRET_SECTIONS & set(self.path)) or SecretStr in kinds_of(self.annotation)

    @property
    def accepted(self) -> str:
        return type_text(self.annotation, self.metadata)


def _setting_at(root: type[BaseModel], location: Sequence[str | int]) -> _Setting:
    """The setting at a location of pydantic."""
    path: list[str] = []
    annotation: Any = root
    metadata: Sequence[Any] = ()
    section: list[type[BaseModel]] = []
    for part in location:
        if part == "[key]":  # the name itself is wrong
            continue
        kinds = kinds_of(annotation)
        models = [kind for kind in kinds if _is_section(kind)]
        fields = [
            field
            for model in models
            for name, field in model.model_fields.items()
            if part in (name, field.alias)
        ]
        items = [
            get_args(kind)[1 if get_origin(kind) is dict else 0]
            for kind in kinds
            if get_origin(kind) is dict
            or (get_origin(kind) in (tuple, list) and isinstance(part, int))
        ]
        forms = [model for model in models if part in (model.__name__, _kind_of(model))]
        if fields:
            section, annotation, metadata = models, fields[0].annotation, fields[0].metadata
        elif items:
            annotation, metadata = items[0], ()
        elif forms or len(kinds) > 1:
            if forms:
                annotation, metadata = forms[0], ()
            continue
        else:
            section, annotation, metadata = models, None, ()
        path.append(str(part))
    return _Setting(path, annotation, metadata, section)


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _kind_of(model: type[BaseModel]) -> str:
    """The value of `kind` that makes a section this one; "" if it has none."""
    field = model.model_fields.get("kind")
    return "" if field is None else str(get_args(field.annotation)[0])


def _mistake(problem: Problem, setting: _Setting, root: type[BaseModel], text: YamlText) -> Mistake:
    kind, path = problem["type"], setting.dotted
    if kind in ("extra_forbidden", "invalid_key"):
        message = "no such setting" + _meant(setting, root, text)
        message += "".join(getattr(section, "of_unknown", "") for section in setting.section)
        return Mistake(path=path, message=message).at(text.keys.get(path))
    if kind.startswith("union_tag") and problem["ctx"]["discriminator"] == "'kind'":
        kinds = one_of([_kind_of(section) for section in kinds_of(setting.annotation)])
        inner = f"{path}.kind"
        if kind == "union_tag_invalid":
            got = _as_written(text, inner, problem["ctx"]["tag"], is_secret=False)
            return Mistake(path=inner, message=f"got {got}; expected {kinds}")
        return Mistake(path=inner, message=f"is missing; expected {kinds}")
    if kind == "missing":
        return Mistake(path=path, message=f"is missing; expected {setting.accepted}")
    if kind in ("value_error", "assertion_error"):
        message = problem["msg"].partition(", ")[2]
        named, _, rest = message.partition(": ")  # a mistake of a section that names its setting
        inner = named if path == WHOLE_FILE else f"{path}.{named}"
        if inner in text.values and rest:
            return Mistake(path=inner, message=rest)
        return Mistake(path=path, message=message)
    got = _as_written(text, path, problem["input"], is_secret=setting.is_secret)
    return Mistake(path=path, message=_unaccepted(problem, setting, got))


def _unaccepted(problem: Problem, setting: _Setting, got: str) -> str:
    kind, value = problem["type"], problem["input"]
    if kind in ("model_type", "dict_type", "model_attributes_type") and value is None:
        return (
            f"is empty; expected {setting.accepted}: indent its settings below it, or remove "
            "the line"
        )
    if kind in ("tuple_type", "list_type") and isinstance(value, str | int | float):
        return f"got {got}; expected a list: write [{got}]"
    if kind == "string_type" and type(value) in (int, float, bool):
        quoted = "" if setting.is_secret else f", as in '{got}'"
        return f"got {got}; expected a text: put it in quotes{quoted}"
    message = f"got {got}; expected {setting.accepted}"
    if kind == "literal_error" and isinstance(value, str):
        options = [str(option) for option in get_args(kinds_of(setting.annotation)[0])]
        close = get_close_matches(value.lower(), options, n=1)
        message += f"; did you mean {close[0]!r}?" if close else ""
    return message


def _as_written(text: YamlText, path: str, value: object, *, is_secret: bool) -> str:
    """A value as the file writes it; only its kind if it may be a secret."""
    if isinstance(value, Mapping):
        return "a section"
    if isinstance(value, list | tuple):
        return "a list"
    if is_secret or value is None:
        return "a text" if isinstance(value, str) else _NO_TEXT.get(type(value), "another value")
    place = text.values.get(path)
    if place is None or not place.text:
        return repr(value) if value == "" else "another value"
    written = place.text
    if "@" in written and "://" in written:
        return "an address with credentials"
    if len(written) > _SHOWN_CHARACTERS:
        written = written[: _SHOWN_CHARACTERS - 3] + "..."
    return repr(written) if isinstance(value, str) else written


def _meant(setting: _Setting, root: type[BaseModel], text: YamlText) -> str:
    """The setting that an unknown name probably means, as the end of its message.

    A name of another section belongs to the empty ones of the file if there are such, otherwise to
    those that lie least deep.
    """
    name = setting.path[-1]
    here = {known for section in setting.section for known in names_of(section)}
    here -= {"name"} if setting.section == [root] else set()
    elsewhere = sorted({path for path, known in _all_names(root) if known == name})
    close = get_close_matches(name, sorted(here), n=1)
    if elsewhere and not close:
        empty = [
            path
            for path in elsewhere
            if path in text.values
            and not text.values[path].text
            and not any(key.startswith(f"{path}.") for key in text.keys)
        ]
        depth = min(path.count(".") for path in elsewhere)
        nearest = empty or [path for path in elsewhere if path.count(".") == depth]
        places = one_of(
            [(path and f"under {path}") or "in the first column" for path in nearest[:3]]
        )
        return f" here; it belongs {places}: check the indentation"
    return f"; did you mean {close[0]!r}?" if close else f"; expected {one_of(sorted(here))}"


def _all_names(section: type[BaseModel], at: str = "") -> list[tuple[str, str]]:
    """Every setting below a section, with the path of the section that it is in."""
    names = []
    for name, field in section.model_fields.items():
        names.append((at, setting_name(name, field)))
        inner = f"{at}.{name}" if at else name
        kinds = kinds_of(field.annotation)
        items = [get_args(kind)[0] for kind in kinds if get_origin(kind) is tuple]
        for kind in (*kinds, *items):
            if _is_section(kind):
                names += _all_names(kind, inner)
    return names
