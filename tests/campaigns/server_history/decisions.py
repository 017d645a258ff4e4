"""What a run may decide after something happened to its server.

Each has the reason in a sentence, in Markdown, for the page that is generated from the matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cdc_pipeline.errors import CdcError

WayOut = Literal[
    "again", "snapshot", "rebuild", "accept", "file", "purge", "verify", "cut", "live", "setting"
]


@dataclass(frozen=True)
class Decision:
    """What a run does; `reason` is a sentence."""

    reason: str


@dataclass(frozen=True)
class GoesOn(Decision):
    """It reads on, and the lake has the server's rows."""


@dataclass(frozen=True)
class Waits(Decision):
    """It finds nothing new and changes nothing."""


@dataclass(frozen=True)
class Unseen(Decision):
    """It reads on, though the lake lacks something: the log holds no trace of it."""


@dataclass(frozen=True)
class Told(Decision):
    """It reads on, though the lake lacks something, and says so. `says`: part of a reason of its
    start.
    """

    says: str


@dataclass(frozen=True)
class Refused(Decision):
    """It stops with an error. `error`: its class; `ways_out`: what the error says to do: one after
    the other, until the lake has the server's rows.
    """

    error: type[CdcError]
    ways_out: tuple[WayOut, ...]


@dataclass(frozen=True)
class OneOf(Decision):
    """One of several, as chance has it. `decisions`: the reason of each stands with it."""

    decisions: tuple[Decision, ...]


@dataclass(frozen=True)
class Impossible(Decision):
    """There is no such cell."""
