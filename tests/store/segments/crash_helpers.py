"""What a dead process leaves: its files, and nothing else."""

from __future__ import annotations

from cdc_pipeline.store.segments.mixed import MixedEventStore


def die(store: MixedEventStore) -> None:
    """Close the store's descriptors and its lock as the system does for a killed process; the files
    stay."""
    log = store._mixed_keeper.log
    log._reset()
    log.folder.give_back()
