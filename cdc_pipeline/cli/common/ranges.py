"""``--from`` and ``--until``, the same in every command, and the names that options had before.

Rules:
- A range begins at ``--from`` and ends at ``--until``. Each takes a journal with or without an
  offset, a time with a zone, or a GTID (`pipeline/range_text.py`).
- An option that was renamed is still taken under its old names for one version. They are not shown
  in the help, and whoever uses one is told the new name.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from cdc_pipeline.cli.common.output import note
from cdc_pipeline.errors import ConfigError

if TYPE_CHECKING:
    from cdc_pipeline.config.pipeline_config import Bound

POSITION: Final = "POSITION"
_FLAG: Final = "given"


class RenamedOption(click.Option):
    """An option that is also taken under its old names.

    Args:
        old_names: each with whether it takes a value.
        from_old: returns the option's value from those of the old names that were given, by name;
            the only one's value by default.
    """

    def __init__(
        self,
        *arguments: Any,
        old_names: Mapping[str, bool],
        from_old: Callable[[dict[str, str]], str] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(*arguments, **settings)
        self.old_names = old_names
        self._from_old = from_old or _only_value

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Make the parser take the old names too."""
        super().add_to_parser(parser, ctx)
        for name, takes_value in self.old_names.items():
            parser.add_option(
                obj=self,
                opts=[name],
                dest=name,
                action="store" if takes_value else "store_const",
                nargs=1,
                const=_FLAG,
            )

    def consume_value(
        self, ctx: click.Context, opts: Mapping[str, Any]
    ) -> tuple[Any, ParameterSource]:
        """Return the value, from the old names if one of them was given."""
        given = {name: str(opts[name]) for name in self.old_names if opts.get(name) is not None}
        value, source = super().consume_value(ctx, opts)
        if not given:
            return value, source
        new = self.opts[0]
        if source is ParameterSource.COMMANDLINE and not self.multiple:
            raise click.UsageError(
                f"{', '.join(given)} and {new} exclude each other: {new} is the new name", ctx
            )
        translated = self._from_old(given)
        note(
            f"note: {', '.join(given)} will go with the next version: give "
            f"{new} {translated if translated else 'instead'}"
        )
        if self.multiple:
            value = (*(value if isinstance(value, tuple | list) else ()), translated)
        else:
            value = translated
        return value, ParameterSource.COMMANDLINE


def old_names(command: click.Command) -> set[str]:
    """Return the old names of a command's options."""
    renamed = (one for one in command.params if isinstance(one, RenamedOption))
    return {name for one in renamed for name in one.old_names}


def _only_value(given: dict[str, str]) -> str:
    if len(given) > 1:
        raise click.UsageError(f"{' and '.join(given)} exclude each other")
    return next(iter(given.values()))


def joined_place(journal: str, offset: str) -> Callable[[dict[str, str]], str]:
    """Return what reads ``JOURNAL:OFFSET`` from the two options that it was given by before.

    Args:
        journal, offset: their names; of any other old names, only one may be given.
    """

    def read(given: dict[str, str]) -> str:
        given = dict(given)
        at = given.pop(offset, None)
        if at is not None and journal not in given:
            raise click.UsageError(f"{offset} needs {journal}")
        value = _only_value(given)
        return value if at is None else f"{value}:{at}"

    return read


class Quantity(click.ParamType):  # type: ignore[type-arg]
    """A size or a duration, as the configuration takes them."""

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
        cls=RenamedOption,
        old_names=dict.fromkeys(
            ("--until-journal", "--until-offset", "--until-gtid", "--until-time"), True
        ),
        from_old=joined_place("--until-journal", "--until-offset"),
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
        amounts = {
            "--until-transactions": until_transactions,
            "--until-bytes": until_bytes,
            "--until-seconds": until_seconds,
        }
        given = [name for name, value in amounts.items() if value is not None]
        if len(given) + (until is not None) > 1:
            names = ["--until"] * (until is not None) + given
            raise click.UsageError(f"{' and '.join(names)} exclude each other: a run has one bound")
        bound: Bound | None = None
        if until is not None:
            from cdc_pipeline.pipeline.range_text import end_of

            bound = end_of(until)
        elif given:
            bound = _amount(until_transactions, until_bytes, until_seconds)
        return function(*args, bound=bound, **kwargs)

    return wrapped


def _amount(transactions: int | None, size_bytes: int | None, seconds: float | None) -> Bound:
    from cdc_pipeline.pipeline.bounds import bound_of

    try:
        bound = bound_of(transactions=transactions, size_bytes=size_bytes, seconds=seconds)
    except ConfigError as error:
        raise click.UsageError(
            f"the run's bound is {error.got}; expected {error.expected}"
        ) from None
    assert bound is not None
    return bound
