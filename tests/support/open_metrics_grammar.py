"""A strict reader of the text format of OpenMetrics 1.0, as far as gauges and counters go.

Source: OpenMetrics 1.0, "ABNF", "Text format" and "Data model". It shares no code with the writer.
"""

from __future__ import annotations

import re

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"'
_NUMBER = r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
_METADATA = re.compile(rf"# (TYPE|UNIT|HELP) ({_NAME}) (.+)")
_SAMPLE = re.compile(rf"({_NAME})(?:\{{((?:{_LABEL})(?:,(?:{_LABEL}))*)?\}})? ({_NUMBER})")
_UNESCAPED = {r"\\": "\\", r"\"": '"', r"\n": "\n"}

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def parse(text: str) -> Samples:
    assert text.endswith("\n# EOF\n") or text == "# EOF\n", "ends with # EOF and a line end"
    lines = text.split("\n")[:-2]
    families: dict[str, dict[str, str]] = {}
    found: Samples = {}
    current = ""
    for line in lines:
        about = _METADATA.fullmatch(line)
        if about is not None:
            what, name, value = about.groups()
            if name != current:
                assert name not in families, f"{name}: families do not interleave"
                families[name], current = {}, name
            assert what not in families[name], f"{name}: {what} twice"
            assert not any(key[0].startswith(name) for key in found), "metadata comes first"
            families[name][what] = value
            if what == "TYPE":
                assert value in ("gauge", "counter")
            if what == "UNIT":
                assert name.endswith(f"_{value}"), f"{name} does not end with its unit"
            continue
        sample = _SAMPLE.fullmatch(line)
        assert sample is not None, f"neither metadata nor a sample: {line!r}"
        name = sample[1]
        counted = families[current]["TYPE"] == "counter"
        assert name == (f"{current}_total" if counted else current), line
        pairs = re.findall(rf"({_LABEL})", sample[2] or "")
        labels = tuple(
            (one.partition("=")[0], _plain(one.partition("=")[2][1:-1])) for one in pairs
        )
        assert len({label for label, _ in labels}) == len(labels), "a label twice"
        key = name, labels
        assert key not in found, f"a sample twice: {line}"
        value_ = float(sample[3])
        assert not counted or value_ >= 0
        found[key] = value_
    return found


def _plain(text: str) -> str:
    return re.sub(r"\\.", lambda escape: _UNESCAPED[escape[0]], text)
