"""Parse the range of a backfill as a person writes it.

Rules:
- A bound is ``JOURNAL`` or ``JOURNAL:OFFSET``, a GTID (set), or a time with its zone; its form
  decides which. Each part is then checked as the YAML file's is.
- Light: no compiled code is loaded here.
"""

from __future__ import annotations

import re
from typing import Final

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
from cdc_pipeline.errors import ConfigError

_EARLIEST: Final = "earliest"
_JOURNAL = re.compile(r"(?P<journal>[^\s:,]*\.\d{6,})(?::(?P<offset>\d+))?")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T ].*")
_FORMS: Final = (
    "a journal with or without an offset (binlog.000007:4), a GTID, or a time with a zone "
    "(2026-01-31T08:00:00+00:00)"
)


def start_of(text: str) -> Start:
    """Return where a backfill begins; "" is the oldest journal.

    A GTID set names what counts as executed before.

    Raises:
        ConfigError: it cannot be understood.
    """
    if text in ("", _EARLIEST):
        return _EARLIEST
    found: Start = _read(
        text,
        setting="from",
        position=PositionConfig,
        gtid=(GtidConfig, "gtid_set"),
        time=TimeConfig,
    )  # type: ignore[assignment]
    return found


def end_of(text: str) -> Bound:
    """Return where a backfill ends; "" is the end of the log when the backfill begins.

    A GTID names the last transaction.

    Raises:
        ConfigError: it cannot be understood.
    """
    if not text:
        return "end_of_log"
    found: Bound = _read(
        text,
        setting="to",
        position=PositionConfig,
        gtid=(GtidBoundConfig, "gtid"),
        time=TimeBoundConfig,
    )  # type: ignore[assignment]
    return found


def _read(
    text: str,
    *,
    setting: str,
    position: type[BaseModel],
    gtid: tuple[type[BaseModel], str],
    time: type[BaseModel],
) -> BaseModel:
    parts: dict[str, object]
    journal = _JOURNAL.fullmatch(text)
    if journal is not None:
        form = position
        parts = {name: value for name, value in journal.groupdict().items() if value is not None}
    elif _MOMENT.fullmatch(text):
        form, parts = time, {"time": text}
    else:
        form, parts = gtid[0], {gtid[1]: text}
        _check_gtid(text, setting=setting)
    try:
        return form.model_validate(parts)
    except ValidationError:
        raise _wrong(text, setting) from None


def _check_gtid(text: str, *, setting: str) -> None:
    from cdc_pipeline.errors import PositionError

    # late: it brings compiled code
    from cdc_pipeline.pipeline.inspect.selection import check_gtid_set

    try:
        check_gtid_set(text)
    except PositionError:
        raise _wrong(text, setting) from None


def _wrong(text: str, setting: str) -> ConfigError:
    return ConfigError(
        f"--{setting} cannot be understood",
        setting=setting,
        expected=_FORMS,
        got=text,
        next_step="take a position from `cdc-pipeline binlog JOURNAL`, or a cut from `cdc-pipeline "
        "cuts list SOURCE`",
    )
