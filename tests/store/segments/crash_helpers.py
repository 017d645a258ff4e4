"""What a dead process leaves: its files, and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from cdc_pipeline.store.segments.file import FileEventStore


def die(store: Any) -> None:
    """Close the store's descriptors and its lock as the system does for a killed process; the files stay."""
    log = store._log if isinstance(store, FileEventStore) else store._mixed_keeper.log
    log._reset()
    log.folder.give_back()


def copied(directory: Path, name: str) -> Path:
    """A copy of a dead store's directory, beside it."""
    target = directory.parent / name
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(directory, target)
    return target
