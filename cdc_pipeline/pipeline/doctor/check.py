"""A check: its name, its area, and its function."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cdc_pipeline.pipeline.doctor.context import Context
from cdc_pipeline.pipeline.doctor.diagnosis import Area, Verdict


@dataclass(frozen=True, slots=True)
class Check:
    """`run` may raise CdcError, which becomes a finding; `opens`: others use what it opens."""

    area: Area
    name: str
    run: Callable[[Context], Iterable[Verdict]]
    opens: bool = False


def checks(
    area: Area, *, opens: bool = False, **named: Callable[[Context], Iterable[Verdict]]
) -> tuple[Check, ...]:
    """An underscore in a name stands for a blank."""
    return tuple(Check(area, name.replace("_", " "), run, opens) for name, run in named.items())
