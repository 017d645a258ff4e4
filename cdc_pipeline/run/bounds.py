"""Where a range begins and ends, and where a run stops, as a person writes it: in all commands, in
Dagster's launchpad, in programs.

Rules:
- An end is ``JOURNAL`` or ``JOURNAL:OFFSET``, a GTID (set), a time with its zone, or a word of the
  YAML file; its form decides which. Each part is then checked as the YAML file's is.
- Light: no compiled code is loaded here.
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal

from pydantic import BaseModel, ValidationError

from cdc_pipeline.clock import LOOKS_LIKE_TIME
from cdc_pipeline.config.pipeline_config import (
    Bound,
    BytesBoundConfig,
    GtidBoundConfig,
    GtidConfig,
    PositionConfig,
    SecondsBoundConfig,
    Start,
    TimeBoundConfig,
    TimeConfig,
    TransactionsBoundConfig,
)
from cdc_pipeline.errors import ConfigError, PositionError
from cdc_pipeline.text.wording import count_of

_JOURNAL = re.compile(r"(?P<journal>[^\s:,]*\.\d{6,})(?::(?P<offset>\d+))?")
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
    start: Start = "latest" if text == "latest" else _read(text, "from", name="--from")
    return start


def end_of(text: str | None, *, name: str = "--until") -> Bound:
    """Where to end: by default and for ``end_of_log``, where the log ends when the command
    begins. A GTID names the last transaction. Raises ConfigError if what was written under `name`
    cannot be understood.
    """
    if text is None or text == "end_of_log":
        return "end_of_log"
    end: Bound = _read(text, "until", name=name)
    return end


def _read(text: str, setting: Literal["from", "until"], *, name: str) -> Any:
    position, time, gtid, gtid_field = _MODELS[setting]
    journal = _JOURNAL.fullmatch(text)
    try:
        if journal is not None:
            parts = journal.groupdict().items()
            return position.model_validate({part: value for part, value in parts if value})
        if LOOKS_LIKE_TIME.fullmatch(text):
            return time.model_validate({"time": text})
        # late: it brings compiled code
        from cdc_pipeline.position.gtid.sets import check_gtid_set

        check_gtid_set(text)
        if text.strip():
            return gtid.model_validate({gtid_field: text})
    except (ValidationError, PositionError):
        pass
    raise not_understood(text, setting, name=name)


def not_understood(
    text: str, setting: Literal["from", "until"], *, expected: str = _FORMS, name: str = ""
) -> ConfigError:
    """Or that a command does not take; `name`: under which it was written."""
    return ConfigError(
        f"{name or '--' + setting} cannot be understood",
        setting=setting,
        expected=expected,
        got=text or "an empty text",
        next_step="take a position from `cdc-pipeline binlog JOURNAL`, or a cut from `cdc-pipeline "
        "cuts list SOURCE`",
    )


def bound_of(
    until: str | None = None,
    *,
    transactions: int | None = None,
    size_bytes: int | None = None,
    seconds: float | None = None,
) -> Bound | None:
    """Return the one bound that is given, `until` as ``--until`` takes it; None if none is.

    Raises:
        ConfigError: two bounds, or one that cannot be understood.
    """
    amounts: tuple[tuple[type[BaseModel], str, float | None], ...] = (
        (TransactionsBoundConfig, "transactions", transactions),
        (BytesBoundConfig, "bytes", size_bytes),
        (SecondsBoundConfig, "seconds", seconds),
    )
    given = [(form, name, value) for form, name, value in amounts if value is not None]
    if len(given) + (until is not None) > 1:
        raise _wrong(
            "more than one bound",
            "one of: a place, a number of transactions, of bytes or of seconds",
        )
    if not given:
        return None if until is None else end_of(until, name="until")
    ((form, name, value),) = given
    try:
        bound: Bound = form.model_validate({name: value})  # type: ignore[assignment]
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False)[0]
        raise _wrong(f"{name} {value}", problem["msg"]) from None
    return bound


def parts_of(bound: Bound) -> dict[str, Any]:
    """What `bound_of` makes it of."""
    match bound:
        case TransactionsBoundConfig():
            return {"transactions": bound.transactions}
        case BytesBoundConfig():
            return {"size_bytes": bound.bytes}
        case SecondsBoundConfig():
            return {"seconds": bound.seconds}
        case PositionConfig():
            return {"until": f"{bound.journal}:{bound.offset}"}
        case GtidBoundConfig():
            return {"until": bound.gtid}
        case TimeBoundConfig():
            return {"until": bound.time.isoformat()}
    return {"until": bound}


def bound_text(bound: Bound) -> str:
    """Where a run with this bound stops; the text follows "stops"."""
    match bound:
        case PositionConfig():
            return f"at {bound.journal}:{bound.offset}"
        case GtidBoundConfig():
            return f"after the transaction {bound.gtid}"
        case TimeBoundConfig():
            return f"before the first transaction committed after {bound.time.isoformat()}"
        case TransactionsBoundConfig():
            return f"after {count_of(bound.transactions, 'transaction')}"
        case BytesBoundConfig():
            return f"at the first transaction end after {bound.bytes:,} bytes of the log"
        case SecondsBoundConfig():
            return f"at the first transaction end after {bound.seconds:g} s"
    return "at the end of the log when the run is planned"


def _wrong(got: str, expected: str) -> ConfigError:
    return ConfigError(
        "the run's bound cannot be understood",
        setting="bound",
        expected=expected,
        got=got,
        next_step="give one bound, or none to use the YAML file's",
    )
