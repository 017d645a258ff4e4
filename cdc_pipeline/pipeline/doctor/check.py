"""A check: a name, what it looks at, and the function that does."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cdc_pipeline.pipeline.doctor.context import Context
from cdc_pipeline.pipeline.doctor.diagnosis import Area, Told


@dataclass(frozen=True, slots=True)
class Check:
    """See the module. `run` may raise CdcError, which becomes a finding.

    Attributes:
        opens: others use what it opens: it is always made.
    """

    area: Area
    name: str
    run: Callable[[Context], Iterable[Told]]
    opens: bool = False


def checks(area: Area, *, opens: bool = False, **named: Callable[[Context], Iterable[Told]]) -> tuple[Check, ...]:
    """Checks of one area, in the order that they are named in; an underscore in a name is a blank."""
    return tuple(Check(area, name.replace("_", " "), run, opens) for name, run in named.items())
