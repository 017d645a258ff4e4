"""Random documents and random JSON_SET, JSON_REPLACE and JSON_REMOVE on them, as SQL."""

from __future__ import annotations

import json
import random
from typing import Any

KEYS = [
    "a", "b", "k", "key with space", 'q"uote', "back\\slash", "ü", "é.x", "", "😀", "a[0]", "\t",
    "long" * 20, "Z", "$",
    "last",
]  # fmt: skip
OPAQUE = [
    "CAST('-100:01:02.5' AS TIME(6))", "CAST('2024-01-02' AS DATE)",
    "TIMESTAMP'2024-01-02 03:04:05.678'",
    "CAST(12.340 AS DECIMAL(10,3))", "CAST(x'00ff' AS JSON)", "JSON_ARRAY(b'1011')",
    "ST_GeomFromText('POINT(1 2)')",
]  # fmt: skip


def quoted(text: str) -> str:
    """A text as a literal of SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


class Updates:
    """A source of documents and of expressions that change them."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def value(self, depth: int = 0) -> Any:
        source = self._random
        kind = source.random()
        if depth < 4 and kind < 0.25:
            return {source.choice(KEYS): self.value(depth + 1) for _ in range(source.randint(0, 5))}
        if depth < 4 and kind < 0.5:
            return [self.value(depth + 1) for _ in range(source.randint(0, 6))]
        return source.choice(
            [
                None, True, False, source.randint(-5, 5), source.randint(-(10**6), 10**6),
                source.randint(-(2**63), 2**64 - 1),
                round(source.uniform(-1e6, 1e6), source.randint(0, 6)),
                source.uniform(-1, 1) * 10 ** source.randint(-300, 300),
                "s" * source.randint(0, 300), 'é\n"\x01\\',
            ]
        )  # fmt: skip

    def document(self) -> Any:
        """A document that is long enough for the server to log differences of it."""
        source = self._random
        if source.random() < 0.3:
            return [self.value(1) for _ in range(8)] + ["p" * 500]
        padding = "p" * source.choice([200, 2000, 70_000])
        return {**{key: self.value(1) for key in source.sample(KEYS, 6)}, "pad": padding}

    def expression(self, column: str, text: str) -> str:
        """One to two calls that change the document `text` in `column`."""
        source = self._random
        current = json.loads(text)
        changed = column
        for _ in range(source.randint(1, 2)):
            function = source.choice(["JSON_SET", "JSON_SET", "JSON_REPLACE", "JSON_REMOVE"])
            arguments = []
            for _ in range(source.randint(1, 3)):
                arguments.append(quoted(self._path(current)))
                if function != "JSON_REMOVE":
                    arguments.append(self._operand())
            changed = f"{function}({changed}, {', '.join(arguments)})"
        return changed

    def choice(self, count: int) -> int:
        return self._random.randrange(count)

    def _operand(self) -> str:
        if self._random.random() < 0.1:
            return self._random.choice(OPAQUE)
        text = json.dumps(self.value(2), ensure_ascii=self._random.random() < 0.5)
        return f"CAST({quoted(text)} AS JSON)"

    def _path(self, current: Any) -> str:
        source = self._random
        path = "$"
        for _ in range(source.randint(1, 4)):
            there = source.random() < 0.7
            if isinstance(current, dict):
                key = source.choice(list(current)) if current and there else source.choice(KEYS)
                path += "." + json.dumps(key, ensure_ascii=source.random() < 0.5)
                current = current.get(key)
            elif isinstance(current, list) and current and there:
                index = source.randrange(len(current))
                back = len(current) - 1 - index
                path += source.choice([f"[{index}]", f"[last-{back}]" if back else "[last]"])
                current = current[index]
            elif isinstance(current, list):
                path += source.choice([f"[{len(current)}]", f"[{len(current) + 3}]", "[last-20]"])
                current = None
            else:
                if path == "$" or source.random() < 0.3:
                    path += source.choice(["[0]", "[1]", "[last]", ".x"])
                break
        return path
