"""Build a run's bound from the parts given on the command line or in Dagster's launchpad.

Rules:
- At most one bound; each part is checked as the YAML file's is. Light: no compiled code is loaded
  here.
"""

from __future__ import annotations

from pydantic import BaseModel, ValidationError

from cdc_pipeline.config.pipeline_config import (
    Bound,
    BytesBoundConfig,
    GtidBoundConfig,
    PositionConfig,
    SecondsBoundConfig,
    TimeBoundConfig,
    TransactionsBoundConfig,
)
from cdc_pipeline.errors import ConfigError


def bound_of(
    *,
    journal: str | None = None,
    offset: int | None = None,
    gtid: str | None = None,
    time: str | None = None,
    transactions: int | None = None,
    size_bytes: int | None = None,
    seconds: float | None = None,
    end_of_log: bool = False,
) -> Bound | None:
    """Return one bound from its parts; None if none is given. `time` is ISO 8601 with its zone.

    Raises:
        ConfigError: parts of two bounds, an offset without a journal, or an invalid part.
    """
    if offset is not None and journal is None:
        raise _wrong("an offset without a journal", "both, such as binlog.000007 and 4")
    position = {"journal": journal} if offset is None else {"journal": journal, "offset": offset}
    given: list[tuple[type[BaseModel], dict[str, object]]] = [
        (form, dict(parts))
        for form, parts, value in (
            (PositionConfig, position, journal),
            (GtidBoundConfig, {"gtid": gtid}, gtid),
            (TimeBoundConfig, {"time": time}, time),
            (TransactionsBoundConfig, {"transactions": transactions}, transactions),
            (BytesBoundConfig, {"bytes": size_bytes}, size_bytes),
            (SecondsBoundConfig, {"seconds": seconds}, seconds),
        )
        if value is not None
    ]
    if len(given) + end_of_log > 1:
        raise _wrong(
            "more than one bound",
            "one of: a journal with an offset, a GTID, a time, a number of transactions, of bytes "
            "or of seconds, or the end of the log",
        )
    if not given:
        return "end_of_log" if end_of_log else None
    form, parts = given[0]
    try:
        bound: Bound = form.model_validate(parts)  # type: ignore[assignment]
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False)[0]
        name = str(problem["loc"][0])
        expected = (
            "a time with a zone, such as 2026-01-31T08:00:00+00:00"
            if name == "time"
            else problem["msg"]
        )
        raise _wrong(f"{name} {parts[name]}", expected) from None
    return bound


def bound_text(bound: Bound) -> str:
    """Where a run with this bound stops; the text follows "stops"."""
    if isinstance(bound, PositionConfig):
        return f"at {bound.journal}:{bound.offset}"
    if isinstance(bound, GtidBoundConfig):
        return f"after the transaction {bound.gtid}"
    if isinstance(bound, TimeBoundConfig):
        return f"before the first transaction committed after {bound.time.isoformat()}"
    if isinstance(bound, TransactionsBoundConfig):
        return f"after {bound.transactions:,} transaction{'s' if bound.transactions != 1 else ''}"
    if isinstance(bound, BytesBoundConfig):
        return f"at the first transaction end after {bound.bytes:,} bytes of the log"
    if isinstance(bound, SecondsBoundConfig):
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
