"""References such as ``${NAME}`` in a pipeline's file, replaced by variables.

Rules:
- Variables that the caller gives come before those of the process.
- An outline is for definitions: it keeps references of secrets that only runs need, and those to
  variables that are unset.
- No value of a variable is in a mistake, since any may be a secret (K26).
- A text is Unicode: a pair of surrogates, as JSON writes a character, is that character; half of
  one is a mistake, as are bytes of a variable that are not UTF-8.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, Final

from cdc_pipeline.config.yaml_text import Mistake
from cdc_pipeline.text.hide import hide

VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
# Secrets that only runs need: an outline never has them.
_SECRETS_OF_RUNS: Final = {"password", "salt"}
_RECORDED: Final = {"filter", "expression"}

Path = tuple[str, ...]


class Variables(Mapping[str, str]):
    """Variables by the names that a file uses, each looked up when it is asked for.

    Args:
        lookups: return a variable's value; None if it is unset.
        names: what the process calls them, for messages.
    """

    def __init__(
        self, lookups: Mapping[str, Callable[[], str | None]], names: Mapping[str, str]
    ) -> None:
        self._lookups = lookups
        self.names = names

    def __getitem__(self, name: str) -> str:
        value = self._lookups[name]()
        if value is None:
            raise KeyError(name)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._lookups)

    def __len__(self) -> int:
        return len(self._lookups)


class References:
    """Replaces the references in a document.

    Args:
        environments: variables that come before those of the process, the first ones first.
        keep: make an outline.

    Attributes:
        mistakes: references where none may be, and texts that are none.
        unset: the paths of texts that stay references, with their unset variables.
    """

    def __init__(self, *environments: Mapping[str, str] | None, keep: bool = False) -> None:
        self.keep = keep
        self.mistakes: list[Mistake] = []
        self.unset: dict[Path, str] = {}
        self._left: dict[Path, list[int]] = {}  # of a list, the items in the replaced document
        self._used: dict[str, str] = {}
        self._environments = [*filter(None, environments), os.environ]

    def replaced(self, content: dict[str, Any]) -> dict[str, Any]:
        made: dict[str, Any] = self._of(content, ())
        return made

    def unset_mistakes(self) -> list[Mistake]:
        known = [one.names for one in self._environments if isinstance(one, Variables)]
        mistakes = []
        for path, name in self.unset.items():
            called = next(filter(None, (names.get(name) for names in known)), name)
            message = f"the environment variable {called} is not set: export it first"
            mistake = Mistake(path=".".join(path), message=message, unset_variable=called)
            mistakes.append(mistake)
        return mistakes

    def written(self, path: Sequence[str]) -> list[str]:
        """The path in the file of a place in the replaced document, whose lists may be shorter."""
        places: list[str] = []
        for part in path:
            left = self._left.get(tuple(places))
            places.append(str(left[int(part)]) if left else part)
        return places

    def explained(self, mistakes: list[Mistake]) -> list[Mistake]:
        """The mistakes with references in place of variables' values (K26), without those of
        settings that an unset variable is part of: what is wrong with them is known when it is set.
        """
        unset = [f"{'.'.join(path)}." for path in self._missing()]
        named = {value: f"${{{name}}}" for value, name in self._used.items()}
        return [
            mistake.model_copy(update={"message": hide(mistake.message, named)})
            for mistake in mistakes
            if not any(path.startswith(f"{mistake.path}.") for path in unset)
        ]

    def drop_unset(self, content: dict[str, Any], mistakes: list[Mistake]) -> bool:
        """Remove settings that are wrong because their variable is unset; return whether there
        were any."""
        wrong = {mistake.path for mistake in mistakes}
        dropped = False
        for path in self._missing():
            around = {".".join(path[:length]) for length in range(1, len(path) + 1)}
            if wrong & around:
                dropped = self._removed(content, path) or dropped
        return dropped

    def _missing(self) -> list[Path]:
        """Of `unset`, what may make a setting wrong: an item that a list lacks does so only if the
        list has no other.
        """
        return [path for path in self.unset if not self._left.get(path[:-1])]

    def _removed(self, content: Any, path: Path) -> bool:
        """Remove a setting, or the list that it is an item of; return whether it was there."""
        for length in (len(path) - 1, len(path) - 2):
            around = self._at(content, path[:length])
            if isinstance(around, dict):
                return around.pop(path[length], None) is not None
        return False

    def _at(self, content: Any, path: Path) -> Any:
        for length, part in enumerate(path):
            if isinstance(content, list):
                content = content[self._left[path[:length]].index(int(part))]
            elif isinstance(content, dict):
                content = content.get(part)
            else:
                return None
        return content

    def _of(self, node: Any, path: Path) -> Any:
        if isinstance(node, dict):
            return {
                self._unicode(key, (*path, repr(key))): self._of(value, (*path, str(key)))
                for key, value in node.items()
            }
        if isinstance(node, list):
            items = [self._of(value, (*path, str(index))) for index, value in enumerate(node)]
            # An item of an unset variable would be taken for a name.
            left = [index for index in range(len(items)) if (*path, str(index)) not in self.unset]
            self._left[path] = left
            return [items[index] for index in left]
        if not isinstance(node, str) or VARIABLE.search(node) is None:
            return self._unicode(deepcopy(node), path)
        if path and path[0] == "targets" and path[-1] in _RECORDED:
            message = (
                "an expression is recorded with every batch, so it must not use "
                "environment variables"
            )
            self.mistakes.append(Mistake(path=".".join(path), message=message))
            return "true"
        if self.keep and path[-1] in _SECRETS_OF_RUNS:
            return node
        return self._unicode(VARIABLE.sub(lambda match: self._value(match[1], path), node), path)

    def _unicode(self, value: Any, path: Path) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return value.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            message = (
                'is no Unicode text: it has half of a surrogate pair (as in "\\ud83d"), or a '
                "variable whose bytes are not UTF-8; write the character itself"
            )
            self.mistakes.append(Mistake(path=".".join(path), message=message))
            return "unreadable"

    def _value(self, name: str, path: Path) -> str:
        value = next(
            (variables[name] for variables in self._environments if name in variables), None
        )
        if value is None:
            self.unset[path] = name
            # A lake's path cannot have braces.
            return f"${name}" if path == ("sink", "lake_path") else f"${{{name}}}"
        self._used[value] = name
        return value
