"""The base of all plain values that are stored, compared or shown as JSON."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class FrozenModel(BaseModel):
    """A value that never changes and takes no unknown field. Its validator is built on first use,
    because a command needs few of them."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)
