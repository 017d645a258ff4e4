"""Sizes and durations as people write them: ``512k``, ``16 MiB``, ``30s``, ``2 h``.

Rules, the same for every setting, the command line included:
- A number without a unit is in the unit of the setting's name: ``get_bytes: 16777216``,
  ``lock_wait_s: 3600``, ``vacuum_hours: 24``. A setting whose name has no unit needs one.
- A size may have one: k, M, G, T and KiB, MiB, GiB, TiB are powers of 1024; KB, MB, GB, TB are
  powers of 1000. Upper and lower case do not matter.
- So may a duration: ms, s, m or min, h, d, w, or the word. ``m`` is minutes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field

from cdc_pipeline.config.section import Takes

_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([kmgt])(i?b)?|b|bytes)?", re.IGNORECASE)
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)", re.IGNORECASE)
_POWER: Final = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_SECONDS: Final = {
    0.001: ("ms", "millisecond", "milliseconds"),
    1.0: ("s", "sec", "second", "seconds"),
    60.0: ("m", "min", "minute", "minutes"),
    3600.0: ("h", "hour", "hours"),
    86400.0: ("d", "day", "days"),
    7 * 86400.0: ("w", "week", "weeks"),
}
_SECONDS_OF: Final = {name: seconds for seconds, names in _SECONDS.items() for name in names}

SIZE_HELP: Final = "a size in bytes, such as 16777216, 16 MiB, 16 MB or 512k"
DURATION_HELP: Final = "a duration such as 7 days, 36 h or 90 min"
_SIZE_DESCRIPTION: Final = (
    "A number of bytes, or a text with a unit: k, M, G, T, KiB, MiB, GiB and TiB are powers of "
    "1024, KB, MB, GB and TB powers of 1000 (`512k`, `16 MiB`, `16 MB`)."
)


def size_bytes(text: str) -> int:
    """Raises ValueError: the text is no size."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not {SIZE_HELP}")
    base: int = 1000 if (match[3] or "").lower() == "b" else 1024
    power: int = _POWER[(match[2] or "").lower()]
    return round(float(match[1]) * float(base**power))


def duration_s(text: str, *, unit: str = "") -> float:
    """Seconds; a number alone is in `unit`, if there is one. Raises ValueError: the text is no
    duration.
    """
    match = _DURATION.fullmatch(text.strip())
    seconds = None if match is None else _SECONDS_OF.get(match[2].lower() or unit)
    if match is None or seconds is None:
        raise ValueError(f"{text!r} is not {_duration_help(unit) if unit else DURATION_HELP}")
    return float(match[1]) * seconds


def spark_size(value: Any) -> Any:
    """A size as Spark reads it, such as ``2g``; what Spark reads already is unchanged."""
    if isinstance(value, int):
        value = str(value)
    if not isinstance(value, str) or re.fullmatch(r"\d+[kmgt]b?", value, re.IGNORECASE):
        return value
    size = size_bytes(value) if not value.strip().isdecimal() else 0
    if size < 1 << 20:
        raise ValueError(f"{value!r} is not a size with its unit, of 1 MiB or more, such as 2g")
    return f"{size >> 20}m"


def _duration_help(unit: str) -> str:
    word = _SECONDS[_SECONDS_OF[unit]][-1]
    return f"a number of {word}, or a duration such as 30s, 5m or 7 days"


def _size(value: Any) -> Any:
    return size_bytes(value) if isinstance(value, str) else _not_a_bool(value, SIZE_HELP)


def _duration_in(unit: str) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if isinstance(value, str):
            return duration_s(value, unit=unit) / _SECONDS_OF[unit]
        return _not_a_bool(value, _duration_help(unit))

    return read


def _not_a_bool(value: Any, expected: str) -> Any:
    if isinstance(value, bool):
        raise ValueError(f"{str(value).lower()} is not {expected}")
    return value


def _timedelta(value: Any) -> Any:
    if value is None or isinstance(value, timedelta):
        return value
    seconds = duration_s(value) if isinstance(value, str) else 0.0
    if seconds < 1 or seconds >= 1e6 * 7 * 86400:
        raise ValueError(f"{value!r} is not {DURATION_HELP}")
    return timedelta(seconds=seconds)


def _described(unit: str) -> str:
    word = _SECONDS[_SECONDS_OF[unit]][-1]
    return (
        f"A number of {word}, or a text with a unit: ms, s, m (minutes), h, d, w or the word "
        "(`30s`, `5m`, `2 h`, `7 days`)."
    )


def _number_in(unit: str) -> tuple[Any, ...]:
    return (
        BeforeValidator(_duration_in(unit), json_schema_input_type=float | str),
        Takes(_duration_help(unit), f" {unit}" if unit in ("s", "h", "d") else ""),
        Field(description=_described(unit), allow_inf_nan=False),
    )


Bytes = Annotated[
    int,
    BeforeValidator(_size, json_schema_input_type=int | str),
    Takes(SIZE_HELP, "bytes"),
    Field(description=_SIZE_DESCRIPTION),
]
_S, _H, _D = _number_in("s"), _number_in("h"), _number_in("d")
Seconds = Annotated[float, _S[0], _S[1], _S[2]]
Hours = Annotated[float, _H[0], _H[1], _H[2]]
Days = Annotated[float, _D[0], _D[1], _D[2]]
Duration = Annotated[
    timedelta,
    BeforeValidator(_timedelta, json_schema_input_type=str),
    Takes(DURATION_HELP),
    Field(
        description="A duration with its unit: s, m (minutes), h, d, w or the word (`90 min`, "
        "`36 h`, `7 days`)."
    ),
]
