"""What an erasure and new masks have in common when rows or values have left the newest versions:
what is cleaned beside the tables, how files that hold them are removed, and what a certificate says
of a search.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NamedTuple

from cdc_pipeline.binlog.decoded import DecodedRows
from cdc_pipeline.clock import now_us
from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.lake.cut_retention import prune_cuts
from cdc_pipeline.lake.erasures import Held, Searched
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.proofs import proof_file
from cdc_pipeline.lake.quarantine import erase_entries
from cdc_pipeline.lake.storage.lock import writer_lock
from cdc_pipeline.operations.erase.search import Search, Sought
from cdc_pipeline.sink.delta_sink import DeltaSink


class Cleaned(NamedTuple):
    """Of the quarantine: entries whose values were removed, and events that are bytes alone."""

    entries: int
    unread: int


def cleaned(
    paths: LakePaths,
    sources: Collection[str],
    targets: Collection[str],
    *,
    before: int,
    is_gone: Callable[[DecodedRows], bool],
) -> Cleaned:
    """Remove what the quarantine has of source tables, and what the rolling proof has of targets:
    how far it has come is a key, which may be one of those.
    """
    file = proof_file(paths)
    proofs = file.read()
    if targets & proofs.tables.keys():
        left = {name: one for name, one in proofs.tables.items() if name not in targets}
        file.write(proofs.model_copy(update={"tables": left}))
    return Cleaned(*erase_entries(paths, sources, before=before, is_erased=is_gone))


@contextmanager
def alone(sink: DeltaSink, *, at_once: bool) -> Iterator[None]:
    """Beside no maintenance, which would have files that no commit names yet."""
    if not at_once:
        yield
        return
    with writer_lock(sink.paths.state / "maintenance.lock"):
        yield


def search(
    config: PipelineConfig, sink: DeltaSink, sought: Sequence[Sought], *, at_once: bool = False
) -> None:
    """Once for all; with `at_once` older cuts and all files that no newest version needs are
    removed, under the lock of the source and `alone`. Raises CdcError: views still read them.
    """
    retention_us = round(config.sink.cut_retention.total_seconds() * 1e6)
    searching = Search(sink.paths, sought, retention_us).run()
    if at_once and (cut := sink.last_cut()) is not None:
        sink.cleanup(cut)  # another process may have made it
        if sink.unpublished is not None:
            raise sink.unpublished  # views still read what would be removed
        prune_cuts(sink.paths, retention=timedelta(0))
        searching.remove_now()
        searching.run()


def since_us(known: Searched | None) -> int:
    """When what is sought had left the newest versions."""
    if known is None:
        return now_us()
    return known.since_us if known.since_us >= 0 else known.checked_at_us


def searched(
    config: PipelineConfig,
    table: str,
    found: Sought,
    clean: Cleaned,
    known: Searched | None,
) -> Mapping[str, Any]:
    """The fields of `Searched`."""
    held = [*found.held, *_journals(config)]
    if clean.unread:
        why = f"{clean.unread:,} events that could not be decoded, whole: discard and remove them"
        held.append(Held(what="quarantine", where="quarantine", why=why))
    return {
        "source": config.name,
        "table": table,
        "quarantine": clean.entries if known is None else known.quarantine,
        "versions": found.versions,
        "since_us": found.since_us,
        "held": tuple(held),
        "files_read": found.files_read,
        "checked_at_us": now_us(),
    }


def _journals(config: PipelineConfig) -> list[Held]:
    keep = config.keep_journals
    if keep is None:
        return []
    kept_us = 0 if keep.retention is None else round(keep.retention.total_seconds() * 1e6)
    why = "journals hold the changes of all tables; reading them does not bring the rows back"
    until_us = now_us() + kept_us if kept_us else -1
    return [Held(what="journals", where=str(keep.path), why=why, until_us=until_us)]
