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


@dataclass(frozen=True, slots=True)
class Place:
    """A line and a column, both from 1, and the scalar there as it is written ("" for others)."""

    line: int
    column: int
    text: str = ""


@dataclass(frozen=True, slots=True)
class YamlProblem:
    """What is wrong, and where; `place` is None if it concerns the whole text."""

    message: str
    place: Place | None = None
    path: str = ""


@dataclass(slots=True)
class YamlText:
    """A document with the places of its parts.

    Attributes:
        document: the plain values; None if the text cannot be read.
        keys: where the name of each part stands, by its path (``targets.0.mode``).
        values: where its value stands.
        problems: what is wrong with the text as YAML.
    """

    document: Any = None
    keys: dict[str, Place] = field(default_factory=dict)
    values: dict[str, Place] = field(default_factory=dict)
    problems: list[YamlProblem] = field(default_factory=list)

    def below(self, path: str) -> YamlText:
        """Return the places of the section at `path`, by their paths in it."""
        begin = f"{path}."
        keys, values = (
            {at.removeprefix(begin): place for at, place in places.items() if at.startswith(begin)}
            for places in (self.keys, self.values)
        )
        return YamlText(keys=keys, values=values)

    def place_of(self, path: str) -> Place | None:
        """Return where the value at `path` stands; for a part that is missing, the name of the
        innermost section around it."""
        if path in self.values:
            return self.values[path]
        while "." in path:
            path = path.rpartition(".")[0]
            if path in self.keys:
                return self.keys[path]
        return None


def read_yaml(text: str) -> YamlText:
    """Return the document in `text` with its places and problems."""
    found = YamlText()
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        if root is not None:
            _walk(root, "", found, ())
            if not any(_CONTAINS_ITSELF in one.message for one in found.problems):
                found.document = loader.construct_document(root)
    except yaml.YAMLError as error:
        found.document = None
        found.problems.append(_problem(error, text))
    except (ValueError, OverflowError, RecursionError) as error:
        # A scalar such as the date 2026-02-31, or nested without an end.
        found.document = None
        found.problems.append(YamlProblem(f"a value cannot be read ({error})"))
    return found


_CONTAINS_ITSELF: Final = "contains itself"


def _walk(node: yaml.Node, path: str, found: YamlText, around: tuple[yaml.Node, ...]) -> None:
    if any(node is one for one in around):
        message = f"the value {_CONTAINS_ITSELF}: remove the reference"
        found.problems.append(YamlProblem(message, _place(node), path))
        return
    around = (*around, node)
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            inner = _below(path, str(index))
            found.values[inner] = _place(item)
            _walk(item, inner, found, around)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == "tag:yaml.org,2002:merge":
                continue
            inner = _below(path, key.value)
            first = found.keys.get(inner)
            if first is not None:
                message = f"{key.value!r} is given twice, first in line {first.line}; keep one"
                found.problems.append(YamlProblem(message, _place(key), inner))
                continue
            found.keys[inner], found.values[inner] = _place(key), _place(value)
            _walk(value, inner, found, around)


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _place(node: yaml.Node) -> Place:
    mark = node.start_mark
    text = node.value if isinstance(node, yaml.ScalarNode) else ""
    return Place(mark.line + 1, mark.column + 1, text)


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


def _problem(error: yaml.YAMLError, text: str) -> YamlProblem:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    said = getattr(error, "problem", None) or str(error).split("\n")[0]
    context = getattr(error, "context", None) or ""
    place = None if mark is None else Place(mark.line + 1, mark.column + 1)
    tab = _tab_in_indentation(text, 0 if place is None else place.line)
    if tab is not None:
        return YamlProblem("a tab in the indentation: YAML takes spaces only, two per level", tab)
    if "mapping values are not allowed" in said and place is not None:
        return YamlProblem(_odd_colon(text.splitlines(), place), place)
    opened = getattr(error, "context_mark", None)
    if "could not find expected ':'" in said and opened is not None:
        place = Place(opened.line + 1, opened.column + 1)
    for pattern, meaning in _MEANINGS.items():
        if re.search(pattern, f"{context} {said}"):
            if "not closed" in meaning and opened is not None and place is not None:
                at = f" (opened in line {opened.line + 1})" if opened.line + 1 != place.line else ""
                return YamlProblem(meaning + at, place)
            return YamlProblem(meaning, place)
    return YamlProblem(f"not valid YAML ({' '.join((*context.split(), *said.split()))})", place)


def _odd_colon(lines: list[str], at: Place) -> str:
    """Say why a colon cannot be where it is: a second one in its line, or a wrong indentation."""
    if ": " in lines[at.line - 1][: at.column - 1]:
        return "a second `: ` in one line: put the text that contains it in quotes"
    before = next((one for one in reversed(lines[: at.line - 1]) if one.strip()), "")
    if ":" not in before:
        return "the line before it is not `name: value`: add the colon there, or remove the line"
    return (
        "the line is indented deeper than the line before it, which has a value already: give "
        "all settings of a section the same number of spaces"
    )


def _tab_in_indentation(text: str, line: int) -> Place | None:
    """Return the first tab among the blanks that begin a line, up to the line of the problem."""
    for number, one in enumerate(text.splitlines()[: line + 1], start=1):
        blanks = one[: len(one) - len(one.lstrip(" \t"))]
        if "\t" in blanks and one.strip():
            return Place(number, blanks.index("\t") + 1)
    return None
