"""A run as everybody starts it: the capture, and behind it the rolling proof if `verify` is set.

Rules:
- A source without `verify` imports nothing of it.
- A run that leaves tables suspended is followed by the proof of the others, and then fails. Runs of
  chosen tables or with a bound are not: the proof would capture what they leave out.
- If the state behind the proof cannot be read, that is a warning; what the proof is known to have
  suspended fails the run even so.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from cdc_pipeline.config.pipeline_config import Bound, PipelineConfig
from cdc_pipeline.errors import CdcError, TargetSuspendedError
from cdc_pipeline.position.cursor import CursorStore
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.run.observer import RunObserver
from cdc_pipeline.run.report import CaptureReport


def capture_and_prove(
    config: PipelineConfig,
    *,
    cursors: CursorStore,
    bound: Bound | None = None,
    observer: RunObserver | None = None,
    run_id: str = "",
    tables: Sequence[str] | None = None,
) -> CaptureReport:
    """Raises what `capture` does; TargetSuspendedError, too, if the proof suspends a table."""
    asked = partial(
        capture, config, cursors=cursors, bound=bound, observer=observer, run_id=run_id,
        tables=tables,
    )  # fmt: skip
    if config.verify is None or tables is not None or (bound or config.bound) != "end_of_log":
        return asked()
    from cdc_pipeline.operations.snapshot.main import MainLake
    from cdc_pipeline.operations.verify.rolling import prove
    from cdc_pipeline.run.capture.suspension import check_suspended

    try:
        report, error = asked(), None
    except TargetSuspendedError as suspended:  # the others go on, and are proved
        report, error = None, suspended
    proof = prove(config, cursors=cursors, observer=observer, run_id=run_id)
    cursor = None if report is None else report.cursor
    unread: tuple[str, ...] = ()
    try:  # by the proof, or by a capture of its own
        cursor, _ = MainLake(config, cursors, observer or RunObserver(), run_id).state()
    except Exception as failure:  # what comes behind a capture never fails it
        what = str(failure) if isinstance(failure, CdcError) else type(failure).__name__
        warning = f"whether the proof has left tables suspended cannot be read: {what}"
        update = {"failure": proof.failure or what, "warnings": (*proof.warnings, warning)}
        proof, unread = proof.model_copy(update=update), proof.suspended
    if observer is not None:
        observer.proved(proof)
    check_suspended(cursor)
    if unread:
        raise TargetSuspendedError(
            f"rows differ, and these tables are suspended: {', '.join(unread)}",
            next_step="run the source again: it names each with its way out",
        )
    if report is None:
        assert error is not None
        raise error
    return report.model_copy(update={"proof": proof, "cursor": cursor})
