"""What Dagster kept of a failed run."""

from __future__ import annotations

from typing import Any

import dagster as dg


def failure_of(result: dg.ExecuteInProcessResult) -> Any:
    """The failure of the run's one failed step, with its description and metadata."""
    (failed,) = [event for event in result.all_events if event.is_step_failure]
    failure = failed.step_failure_data.user_failure_data
    assert failure is not None, failed.step_failure_data
    return failure
