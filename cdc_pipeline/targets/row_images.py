"""Check that a target can find the rows that change."""

from __future__ import annotations

from cdc_pipeline.binlog.decoded import DecodedRows
from cdc_pipeline.config.modes import MODES
from cdc_pipeline.errors import IncompleteRowsError, StagingError
from cdc_pipeline.sink.modes.expand import check_images
from cdc_pipeline.sink.target import Target
from cdc_pipeline.targets.shape import shard_key


def check_rows(target: Target, rows: DecodedRows) -> None:
    """IncompleteRowsError: images or table lack columns that the target finds rows by."""
    if not MODES[target.spec.mode].has_key:
        return
    recorded = target.spec.sources.get(rows.schema.full_name)
    names = dict(recorded.names) if recorded is not None else {}
    here = {names.get(name, name): name for name in rows.schema.column_names}
    key = [name for name in target.spec.key if name not in shard_key(target.spec.shape)]
    gone = [name for name in key if name not in here]
    if gone:
        raise IncompleteRowsError(
            f"the table no longer has the columns of the target's key: {', '.join(gone)}",
            table=rows.schema.full_name,
            setting="targets.key",
            expected=f"the key ({', '.join(key)})",
            next_step="give the target's rule another `key` and another `name`",
        )
    try:
        check_images(rows, tuple(here[name] for name in key))
    except StagingError as error:
        raise IncompleteRowsError(
            error.what,
            table=error.table,
            setting="binlog_row_image",
            expected=error.expected,
            got=error.got,
            next_step=error.next_step,
        ) from None
