"""What runs have kept of the log (`source.keep_journals`).

Rules:
- Verifying reads every event of what is kept, with its checksum if it has one. A journal without
  checksums shows only that its events follow each other.
- A hole is a journal that is missing between two others, or that is open though a later one
  exists. The next run closes it if the server still has that journal.
"""

from __future__ import annotations

import tempfile
from itertools import zip_longest
from pathlib import Path

from cdc_pipeline.binlog.seq import journal_number
from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import CdcError, ConfigError
from cdc_pipeline.frozen_model import FrozenModel
from cdc_pipeline.source.archive.files import read_journal
from cdc_pipeline.source.kept_journals import KeptJournal, KeptJournals, logs_of, place_named


class ListedJournal(FrozenModel):
    """`bytes_kept`: of the journal, from its beginning. `damage`: what verifying found; None if it
    was not verified. `is_hole`: nothing after `bytes_kept` is kept, but a later journal is.
    """

    log: str
    journal: str
    bytes_kept: int
    is_sealed: bool
    is_hole: bool = False
    damage: str | None = None


class KeptLogs(FrozenModel):
    source: str
    folder: str
    journals: tuple[ListedJournal, ...]

    @property
    def is_whole(self) -> bool:
        return not any(journal.is_hole or journal.damage for journal in self.journals)


def kept_logs(config: PipelineConfig, *, verify: bool = False) -> KeptLogs:
    """Raises ConfigError: the source keeps no journals; SinkError, LakeUnreachableError."""
    keep = config.keep_journals
    if keep is None:
        raise ConfigError(
            "the source keeps no journals",
            setting="source.keep_journals",
            expected="{path: FOLDER}",
            next_step="set it, and run the source",
        )
    listed: list[ListedJournal] = []
    with place_named(keep.path):
        folders = logs_of(keep.path)
    for folder in folders:
        kept = KeptJournals(folder)
        journals = kept.journals()
        for journal, following in zip_longest(journals, journals[1:]):
            listed.append(
                ListedJournal(
                    log=folder.name,
                    journal=journal.name,
                    bytes_kept=journal.size_bytes,
                    is_sealed=journal.is_sealed,
                    is_hole=following is not None and not journal.is_sealed,
                    damage=_damage(kept, journal, config) if verify else None,
                )
            )
            number = journal.number if following is None else following.number
            base = journal.name.rpartition(".")[0]
            listed.extend(
                ListedJournal(
                    log=folder.name,
                    journal=f"{base}.{missing:06d}",
                    bytes_kept=0,
                    is_sealed=False,
                    is_hole=True,
                )
                for missing in range(journal_number(journal.name) + 1, number)
            )
    return KeptLogs(source=config.name, folder=str(keep.path), journals=tuple(listed))


def _damage(kept: KeptJournals, journal: KeptJournal, config: PipelineConfig) -> str:
    with tempfile.TemporaryDirectory(prefix="cdc-journals-") as folder:
        try:
            file = kept.copy(journal, Path(folder))
            if journal.size_bytes:
                for _ in read_journal(file, unpacked_bytes_max=config.source.unpacked_bytes_max):
                    pass
        except CdcError as error:
            return f"{error.what}, at offset {error.offset}"
        except OSError as error:  # of zstd
            return f"it cannot be unpacked: {error}"
    return ""
