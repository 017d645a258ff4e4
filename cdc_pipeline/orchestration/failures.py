"""How an error ends a step of Dagster: with words that may be kept, and no cause that Dagster would record (K26)."""

from __future__ import annotations

import traceback

import dagster as dg

from cdc_pipeline.text.server_messages import said_by


def unexpected(error: Exception) -> dg.Failure:
    """Return the failure for an error without a name of its own: what it is, and where this package met it.

    Raise it `from None`: the words of a library may quote values, and its traceback would be kept with them.
    """
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "cdc_pipeline" in frame.filename]
    places = [f"{frame.filename.rpartition('cdc_pipeline')[2].lstrip('/')}:{frame.lineno}" for frame in frames[-3:]]
    return dg.Failure(description=f"{said_by(error)} (at {', '.join(places)})", allow_retries=True)
