"""``--from`` and ``--until``, the same in every command: a journal with or without an offset, a
time with a zone, or a GTID (`run/bounds.py`)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final, Literal

import click

from cdc_pipeline.clock import microseconds_of
from cdc_pipeline.errors import ConfigError
from cdc_pipeline.position.position import Position

POSITION: Final = "POSITION"
_OTHER_PLACES: Final = {
    "from": "a place in these journals",
    "until": "a position or a time; a set of transactions is for --gtid",
}


class Quantity(click.ParamType):  # type: ignore[type-arg]
    """A size or a duration, as the configuration takes them; `unit`: of a number alone, "" if it
    must have one.
    """

    name = "quantity"

    def __init__(self, unit: str) -> None:
        self._unit = unit

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        from cdc_pipeline.config.units import duration_s, size_bytes

        try:
            return (
                size_bytes(value) if self._unit == "bytes" else duration_s(value, unit=self._unit)
            )
        except ValueError as error:
            self.fail(str(error), param, ctx)


def with_bound(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a command: add the options for where a run stops, and pass their meaning as
    `bound`."""

    @click.option(
        "--until",
        metavar=POSITION,
        help="Stop there: at JOURNAL:OFFSET (binlog.000007:4); after the transaction of a GTID; "
        "before the first transaction committed after a time with a zone; or at end_of_log.",
    )
    @click.option(
        "--until-transactions", type=int, metavar="N", help="Stop after this many transactions."
    )
    @click.option(
        "--until-bytes",
        type=Quantity("bytes"),
        metavar="SIZE",
        help="Stop at the first transaction end after this many bytes, or such as 512k or 1 GiB.",
    )
    @click.option(
        "--until-seconds",
        type=Quantity("s"),
        metavar="TIME",
        help="Stop at the first transaction end after this many seconds, or such as 5m or 2 h.",
    )
    @functools.wraps(function)
    def wrapped(
        *args: Any,
        until: str | None,
        until_transactions: int | None,
        until_bytes: int | None,
        until_seconds: float | None,
        **kwargs: Any,
    ) -> Any:
        parts = {
            "--until": until,
            "--until-transactions": until_transactions,
            "--until-bytes": until_bytes,
            "--until-seconds": until_seconds,
        }
        names = [name for name, value in parts.items() if value is not None]
        if len(names) > 1:
            raise click.UsageError(f"{' and '.join(names)} exclude each other: a run has one bound")
        if not names:
            return function(*args, bound=None, **kwargs)
        from cdc_pipeline.run.bounds import bound_of, end_of

        if until is not None:
            return function(*args, bound=end_of(until), **kwargs)
        try:
            bound = bound_of(
                transactions=until_transactions, size_bytes=until_bytes, seconds=until_seconds
            )
        except ConfigError as error:
            raise click.UsageError(
                f"the run's bound is {error.got}; expected {error.expected}"
            ) from None
        return function(*args, bound=bound, **kwargs)

    return wrapped


def conditions_of(option: Literal["from", "until"], values: tuple[str, ...]) -> dict[str, Any]:
    """The conditions of ``--from`` or ``--until``, each as the selection takes it.

    Raises ConfigError: one of them cannot be understood.
    """
    if not values:
        return {}  # without loading what a configuration is
    from cdc_pipeline.config.pipeline_config import (
        GtidConfig,
        PositionConfig,
        TimeBoundConfig,
        TimeConfig,
    )
    from cdc_pipeline.run.bounds import end_of, not_understood, start_of

    conditions: list[tuple[str, Any]] = []
    for text in values:
        place = start_of(text) if option == "from" else end_of(text)
        if isinstance(place, PositionConfig):
            name = "from_position" if option == "from" else "to_position"
            conditions.append((name, Position(place.journal, place.offset)))
        elif isinstance(place, TimeConfig):
            conditions.append(("from_us", microseconds_of(place.time)))
        elif isinstance(place, TimeBoundConfig):
            conditions.append(("to_us", microseconds_of(place.time) + 1))
        elif isinstance(place, GtidConfig):
            conditions.append(("exclude_gtids", place.gtid_set))
        elif place not in ("earliest", "end_of_log"):
            raise not_understood(text, option, expected=_OTHER_PLACES[option])
    if len(dict(conditions)) < len(conditions):
        raise click.UsageError(f"--{option} was given twice for the same kind of position")
    return dict(conditions)
