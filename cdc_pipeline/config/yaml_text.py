"""Read a YAML text and remember the line and column of everything in it.

Rules:
- What YAML would take in silence and nobody means is a mistake: a name that is given twice, a tab.
- A text that YAML cannot read gives one mistake, in words for people; the library's own are a
  detail in parentheses only if there are no better ones.
- A node that a reference (``*name``) repeats has the place where it is written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import yaml
from pydantic import Field

from cdc_pipeline.config.section import Section

WHOLE_FILE: Final = "(file)"


@dataclass(frozen=True, slots=True)
class Place:
    """A line and a column, both from 1, and the scalar there as it is written ("" for others)."""

    line: int
    column: int
    text: str = ""


class Mistake(Section):
    """One mistake in a file: where, what, and the right form.

    `line` and `column` begin at 1; they are None if the mistake is about the file as a whole.
    `unset_variable` is the variable of the environment whose absence is the mistake.
    """

    path: str
    message: str
    line: int | None = None
    column: int | None = None
    unset_variable: str = Field(default="", exclude=True)

    def __str__(self) -> str:
        place = "" if self.line is None else f"line {self.line}, column {self.column}: "
        path = "" if self.path == WHOLE_FILE else f"{self.path}: "
        return f"{place}{path}{self.message}"

    def at(self, place: Place | None) -> Mistake:
        """The mistake with its place; unchanged if it has one, or if there is none."""
        if place is None or self.line is not None:
            return self
        return self.model_copy(update={"line": place.line, "column": place.column})


@dataclass(slots=True)
class YamlText:
    """A document with the places of its parts, by their paths (``targets.0.mode``).

    Attributes:
        document: the plain values; None if the text cannot be read.
        keys: where the name of each part stands.
        values: where its value stands.
        mistakes: what is wrong with the text as YAML.
    """

    document: Any = None
    keys: dict[str, Place] = field(default_factory=dict)
    values: dict[str, Place] = field(default_factory=dict)
    mistakes: list[Mistake] = field(default_factory=list)

    def below(self, path: str) -> YamlText:
        """The places of the section at `path`, by their paths in it."""
        begin = f"{path}."
        keys, values = (
            {at.removeprefix(begin): place for at, place in places.items() if at.startswith(begin)}
            for places in (self.keys, self.values)
        )
        return YamlText(keys=keys, values=values)

    def place_of(self, path: str) -> Place | None:
        """Where the value at `path` stands; for a part that is missing, the name of the
        innermost section around it."""
        if path in self.values:
            return self.values[path]
        while "." in path:
            path = path.rpartition(".")[0]
            if path in self.keys:
                return self.keys[path]
        return None


def read_yaml(text: str) -> YamlText:
    read = YamlText()
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        if root is not None:
            _walk(root, "", read, ())
            if not any(_CONTAINS_ITSELF in mistake.message for mistake in read.mistakes):
                read.document = loader.construct_document(root)
    except yaml.YAMLError as error:
        read.document = None
        message, place = _meaning(error, text)
        read.mistakes.append(Mistake(path=WHOLE_FILE, message=message).at(place))
    except (ValueError, OverflowError, RecursionError) as error:
        # A scalar such as the date 2026-02-31, or nested without an end.
        read.document = None
        message = f"a value cannot be read ({error})"
        read.mistakes.append(Mistake(path=WHOLE_FILE, message=message))
    return read


_CONTAINS_ITSELF: Final = "contains itself"


def _walk(node: yaml.Node, path: str, read: YamlText, around: tuple[yaml.Node, ...]) -> None:
    if any(node is outer for outer in around):
        message = f"the value {_CONTAINS_ITSELF}: remove the reference"
        read.mistakes.append(Mistake(path=path or WHOLE_FILE, message=message).at(_place(node)))
        return
    around = (*around, node)
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            inner = f"{path}.{index}" if path else str(index)
            read.values[inner] = _place(item)
            _walk(item, inner, read, around)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == "tag:yaml.org,2002:merge":
                continue
            inner = f"{path}.{key.value}" if path else key.value
            first = read.keys.get(inner)
            if first is not None:
                message = f"{key.value!r} is given twice, first in line {first.line}; keep one"
                read.mistakes.append(Mistake(path=inner, message=message).at(_place(key)))
                continue
            read.keys[inner], read.values[inner] = _place(key), _place(value)
            _walk(value, inner, read, around)


def _place(node: yaml.Node) -> Place:
    text = node.value if isinstance(node, yaml.ScalarNode) else ""
    return Place(node.start_mark.line + 1, node.start_mark.column + 1, text)


# What the library says -> what it means, in the order in which they are tried.
_MEANINGS: Final[Mapping[str, str]] = {
    r"could not find expected ':'": (
        "the line is not `name: value`: add the colon, or indent the line like its neighbours"
    ),
    r"expected <block end>, but found": (
        "the line is indented differently from the lines of its section: give all settings of a "
        "section the same number of spaces"
    ),
    r"expected ',' or '[\]}]'": "a bracket is not closed, or a comma is missing",
    r"unexpected end of stream": "a quote is not closed",
    r"expected the node content|did not find expected": "a bracket is not closed",
    r"undefined alias|expected alphabetic or numeric character": (
        "a value that begins with * or & must be in quotes, as in '*.*' or '*/15 * * * *'"
    ),
    r"cannot start any token": (
        "a value that begins with this character must be in quotes, as in '@daily'"
    ),
    r"could not determine a constructor": "a value that begins with ! must be in quotes",
    r"expected a single document": "a file has one document: remove the line `---`",
    r"unknown escape character": (
        "a backslash in \"...\" must be doubled; in '...' it needs nothing"
    ),
    r"special characters are not allowed": "a character that no text can contain: remove it",
    r"unhashable|found unacceptable key": "a name must be a plain text: remove its brackets",
}


def _meaning(error: yaml.YAMLError, text: str) -> tuple[str, Place | None]:
    """What is wrong, and where."""
    opened = getattr(error, "context_mark", None)
    mark = getattr(error, "problem_mark", None) or opened
    said = getattr(error, "problem", None) or str(error).split("\n")[0]
    context = getattr(error, "context", None) or ""
    place = None if mark is None else Place(mark.line + 1, mark.column + 1)
    tab = _tab_in_indentation(text, 0 if place is None else place.line)
    if tab is not None:
        return "a tab in the indentation: YAML takes spaces only, two per level", tab
    if "mapping values are not allowed" in said and place is not None:
        return _odd_colon(text.splitlines(), place), place
    if "could not find expected ':'" in said and opened is not None:
        place = Place(opened.line + 1, opened.column + 1)
    for pattern, meaning in _MEANINGS.items():
        if re.search(pattern, f"{context} {said}"):
            if "not closed" in meaning and opened is not None and place is not None:
                elsewhere = opened.line + 1 != place.line
                opening = f" (opened in line {opened.line + 1})" if elsewhere else ""
                return meaning + opening, place
            return meaning, place
    return f"not valid YAML ({' '.join((*context.split(), *said.split()))})", place


def _odd_colon(lines: list[str], place: Place) -> str:
    """Say why a colon cannot be where it is: a second one in its line, or a wrong indentation."""
    if ": " in lines[place.line - 1][: place.column - 1]:
        return "a second `: ` in one line: put the text that contains it in quotes"
    before = next((line for line in reversed(lines[: place.line - 1]) if line.strip()), "")
    if ":" not in before:
        return "the line before it is not `name: value`: add the colon there, or remove the line"
    return (
        "the line is indented deeper than the line before it, which has a value already: give "
        "all settings of a section the same number of spaces"
    )


def _tab_in_indentation(text: str, line: int) -> Place | None:
    """The first tab among the blanks that begin a line, up to the line of the problem."""
    for number, written in enumerate(text.splitlines()[: line + 1], start=1):
        blanks = written[: len(written) - len(written.lstrip(" \t"))]
        if "\t" in blanks and written.strip():
            return Place(number, blanks.index("\t") + 1)
    return None
