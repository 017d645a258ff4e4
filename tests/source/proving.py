"""A source read as the pipeline's reader does it: every journal's end is proved (K5)."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from cdc_pipeline.binlog.chunk import Chunk
from cdc_pipeline.binlog.transactions.grouping import TransactionPass
from cdc_pipeline.position.position import Position
from cdc_pipeline.source.journal_ends import AcceptedEnd, JournalEndProof
from cdc_pipeline.source.protocol import Source


def proved(
    source: Source,
    start: Position,
    end: Position,
    *,
    accepted: Collection[str] = (),
    acceptances: list[AcceptedEnd] | None = None,
) -> Iterator[Chunk]:
    """Chunks from `start` to `end`; acceptances that were used are added to `acceptances`."""
    transactions = TransactionPass()
    proof = JournalEndProof(
        start,
        open_offset=lambda: transactions.open_offset,
        ends_closed=source.ends_closed,
        accepted=accepted,
        on_accepted=(acceptances if acceptances is not None else []).append,
    )
    for chunk in proof.over(source.chunks(start, end)):
        transactions.apply(chunk)
        yield chunk
