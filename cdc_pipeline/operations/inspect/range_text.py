"""Parse the ends of a range as a person writes them: ``--from`` and ``--until`` of all commands.

Rules:
- An end is ``JOURNAL`` or ``JOURNAL:OFFSET``, a GTID (set), a time with its zone, or a word of the
  YAML file; its form decides which. Each part is then checked as the YAML file's is.
- Light: no compiled code is loaded here.
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal

from pydantic import BaseModel, ValidationError

from cdc_pipeline.config.pipeline_config import (
    Bound,
    GtidBoundConfig,
    GtidConfig,
    PositionConfig,
    Start,
    TimeBoundConfig,
    TimeConfig,
)
from cdc_pipeline.errors import ConfigError, PositionError

_JOURNAL = re.compile(r"(?P<journal>[^\s:,]*\.\d{6,})(?::(?P<offset>\d+))?")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T ].*")
_FORMS: Final = (
    "a journal with or without an offset (binlog.000007:4), a GTID, or a time with a zone "
    "(2026-01-31T08:00:00+00:00)"
)


_MODELS: Final[dict[str, tuple[type[BaseModel], type[BaseModel], type[BaseModel], str]]] = {
    "from": (PositionConfig, TimeConfig, GtidConfig, "gtid_set"),
    "until": (PositionConfig, TimeBoundConfig, GtidBoundConfig, "gtid"),
}


def start_of(text: str | None) -> Start:
    """The oldest journal by default and for ``earliest``; ``latest``: the log's end; a GTID set
    counts as executed before the start. Raises ConfigError.
    """
    if text is None or text == "earliest":
        return "earliest"
    start: Start = "latest" if text == "latest" else _read(text, "from")
    return start


def end_of(text: str | None) -> Bound:
    """Where to end: by default and for ``end_of_log``, where the log ends when the command
    begins. A GTID names the last transaction. Raises ConfigError if it cannot be understood.
    """
    end: Bound = "end_of_log" if text is None or text == "end_of_log" else _read(text, "until")
    return end


def _read(text: str, setting: Literal["from", "until"]) -> Any:
    position, time, gtid, gtid_field = _MODELS[setting]
    journal = _JOURNAL.fullmatch(text)
    try:
        if journal is not None:
            parts = {
                name: value for name, value in journal.groupdict().items() if value is not None
            }
            return position.model_validate(parts)
        if _MOMENT.fullmatch(text):
            return time.model_validate({"time": text})
        # late: it brings compiled code
        from cdc_pipeline.operations.inspect.selection import check_gtid_set

        check_gtid_set(text)
        if text.strip():
            return gtid.model_validate({gtid_field: text})
    except (ValidationError, PositionError):
        pass
    raise not_understood(text, setting)


def not_understood(
    text: str, setting: Literal["from", "until"], *, expected: str = _FORMS
) -> ConfigError:
    """For an end that cannot be understood, or that a command does not take."""
    return ConfigError(
        f"--{setting} cannot be understood",
        setting=setting,
        expected=expected,
        got=text or "an empty text",
        next_step="take a position from `cdc-pipeline binlog JOURNAL`, or a cut from `cdc-pipeline "
        "cuts list SOURCE`",
    )
