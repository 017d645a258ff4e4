"""The journals that a run keeps of a server's log, if `source.keep_journals` is set."""

from __future__ import annotations

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import SinkError
from cdc_pipeline.lake.long_operations import consumers_beside, unfinished
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.position.cursor import CursorState
from cdc_pipeline.position.failback import consumers_of
from cdc_pipeline.source.kept_journals import prune
from cdc_pipeline.source.protocol import Source


def keep_journals(config: PipelineConfig, source: Source) -> None:
    if config.keep_journals is not None and not config.keep_journals.is_read_only:
        from cdc_pipeline.source.live.live import LiveSource  # late: an archive never needs it

        assert isinstance(source, LiveSource)
        source.keep_journals()


def check_kept(source: Source) -> None:
    failure: Exception | None = getattr(source, "keep_failure", None)
    if failure is not None:
        raise failure


def prune_journals(
    config: PipelineConfig, cursor: CursorState | None, cut: Cut | None
) -> SinkError | None:
    """What failed: the run may have worse to tell, and full places need it most."""
    keep = config.keep_journals
    if keep is None or keep.is_read_only or keep.retention is None or cursor is None:
        return None
    if any(not operation.targets for _, operation in unfinished(config, cut)):
        return None  # it reads a range of its own
    consumers = [*consumers_of(cursor), *consumers_beside(config, cut)]
    if all(consumer.epoch == cursor.epoch for consumer in consumers):
        try:
            prune(keep, cursor.identity, needed=consumers)
        except SinkError as error:
            return error
    return None
