"""What an erasure and new masks have in common, when rows or values left the newest versions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any, Generic, TypeVar

from cdc_pipeline.binlog.decoded import DecodedRows
from cdc_pipeline.clock import now_us
from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.fault_points import reach
from cdc_pipeline.lake.cut_retention import prune_cuts
from cdc_pipeline.lake.erasures import Held, Requests, Searched
from cdc_pipeline.lake.proofs import proof_file
from cdc_pipeline.lake.quarantine import erase_entries
from cdc_pipeline.lake.storage.lock import writer_lock
from cdc_pipeline.operations.erase.search import Search, Sought
from cdc_pipeline.sink.delta_sink import DeltaSink

C = TypeVar("C", bound=Searched)


@contextmanager
def alone(sink: DeltaSink, *, at_once: bool) -> Iterator[None]:
    """Beside no maintenance, which would have files that no commit names yet."""
    if not at_once:
        yield
        return
    with writer_lock(sink.paths.state / "maintenance.lock"):
        yield


@dataclass(frozen=True)
class Certifying(ABC, Generic[C]):
    """`before`: the batch number of entries in quarantine that may be new."""

    config: PipelineConfig
    sink: DeltaSink
    requests: Requests[Any, C]
    request_id: str
    before: int

    @cached_property
    def known(self) -> C | None:
        return self.requests.certificate_of(self.request_id)

    @property
    @abstractmethod
    def sources(self) -> Collection[str]:
        """Source tables by each name that they had."""

    @abstractmethod
    def is_gone(self, rows: DecodedRows) -> bool:
        """Whether a row in quarantine goes."""

    @abstractmethod
    def sought(self) -> Sought: ...

    @abstractmethod
    def certificate(self, searched: dict[str, Any]) -> C:
        """`searched`: the fields of `Searched` but for the table."""

    def since(self) -> dict[str, Any]:
        """When what is sought had left the newest versions, and which these were."""
        known = self.known
        if known is None:
            return {"since_us": now_us(), "versions": {}}
        since_us = known.since_us if known.since_us >= 0 else known.checked_at_us
        return {"since_us": since_us, "versions": dict(known.versions)}

    def clean(self, targets: Collection[str]) -> tuple[int, int]:
        """Also what the rolling proof has of targets: how far it has come is a key."""
        file = proof_file(self.sink.paths)
        proofs = file.read()
        if not proofs.tables.keys().isdisjoint(targets):
            left = {name: one for name, one in proofs.tables.items() if name not in targets}
            file.write(proofs.model_copy(update={"tables": left}))
        return erase_entries(
            self.sink.paths, self.sources, before=self.before, is_erased=self.is_gone
        )

    def certify(self, found: Sought, removed: int, unread: int) -> C:
        """It is written when it is known what files say now."""
        held, known = [*found.held, *_journals(self.config)], self.known
        if unread:
            why = f"{unread:,} events that could not be decoded, whole: discard and remove them"
            held.append(Held(what="quarantine", where="quarantine", why=why))
        certificate = self.certificate(
            {
                "source": self.config.name,
                "quarantine": removed if known is None else known.quarantine,
                "versions": found.versions,
                "since_us": found.since_us,
                "held": tuple(held),
                "files_read": found.files_read,
                "checked_at_us": now_us(),
            }
        )
        self.requests.certify(self.request_id, certificate)
        return certificate


def certified(
    config: PipelineConfig,
    sink: DeltaSink,
    certifying: Sequence[Certifying[C]],
    *,
    at_once: bool = False,
) -> list[C]:
    """One search for all. CdcError: views still read what `at_once` would remove."""
    found = [one.sought() for one in certifying]
    cleaned = [one.clean(of.targets) for one, of in zip(certifying, found, strict=True)]
    reach("old_values_cleaned")
    retention_us = round(config.sink.cut_retention.total_seconds() * 1e6)
    searching = Search(sink.paths, found, retention_us).run()
    if at_once and (cut := sink.last_cut()) is not None:
        sink.cleanup(cut)  # another process may have made it
        if sink.unpublished is not None:
            raise sink.unpublished  # views still read what would be removed
        prune_cuts(sink.paths, retention=timedelta(0))
        searching.remove_now()
        searching.run()
    parts = zip(certifying, found, cleaned, strict=True)
    return [one.certify(of_one, *counts) for one, of_one, counts in parts]


def _journals(config: PipelineConfig) -> list[Held]:
    keep = config.keep_journals
    if keep is None:
        return []
    kept_us = 0 if keep.retention is None else round(keep.retention.total_seconds() * 1e6)
    why = "journals hold the changes of all tables; reading them does not bring the rows back"
    until_us = now_us() + kept_us if kept_us else -1
    return [Held(what="journals", where=str(keep.path), why=why, until_us=until_us)]
