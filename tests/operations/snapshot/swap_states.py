"""What a process that is killed inside a swap leaves behind, moment by moment, from one load.

A killed process leaves what is in its files at that moment. So a load is played once, and at each
fault point of its swap, and at a few moments more, the lake and the cursor are copied; each copy is
then gone on with as if its process had died there. `make campaign NAME=snapshot` kills processes at
the same fault points with SIGKILL.

Rules:
- Tables are put in place one after the other, and nobody writes while a copy is made: each copy is
  of one moment.
- Fault points count from `snapshot_swapping` on: those of the side lake and of captures have the
  same names.
"""

from __future__ import annotations

import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from cdc_pipeline.fault_points import listening
from cdc_pipeline.lake import long_operations
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.storage.storage import LocalStorage
from cdc_pipeline.sink import delta_sink

_WAIT_S = 300


class States:
    """Copies of `root` (lake and cursors) below `into`, one for each moment; `moments` tells their
    order.

    Besides the fault points: `file_shared` (the first file of a table has its name in the target's
    folder), `cut_published`, `cursor_written`, `snapshot_over` (the load is marked as over),
    `half_removed` (some of the side lake's files are gone), `side_removed`.
    """

    def __init__(self, root: Path, into: Path) -> None:
        self._root, self._into = root, into
        self._is_swapping = False
        self._guard = threading.Lock()
        self._turn = threading.Semaphore(1)
        self._is_shared = False
        self._met: Counter[str] = Counter()
        self.moments: dict[str, Path] = {}

    def _reached(self, point: str) -> None:
        self._is_swapping |= point == "snapshot_swapping"
        if not self._is_swapping:
            if point == "between_merges":
                self._turn.release()
            return
        self._keep(
            {"before_ack": "cursor_written", "before_cursor": "cut_published"}.get(point, point)
        )
        if point == "between_merges":
            self._turn.release()

    def _keep(self, moment: str) -> Path:
        with self._guard:
            self._met[moment] += 1
            name = moment if self._met[moment] == 1 else f"{moment}_{self._met[moment]}"
            at = self._into / name
            shutil.copytree(self._root, at)
            self.moments[name] = at
            return at

    @contextmanager
    def kept(self) -> Iterator[None]:
        """While the load is played."""
        apply_target, share, remove_tree = (
            delta_sink.apply_target,
            LocalStorage.share,
            long_operations.remove_tree,
        )

        def in_turn(*args: Any, **named: Any) -> Any:
            assert self._turn.acquire(timeout=_WAIT_S)
            return apply_target(*args, **named)

        def shared(storage: LocalStorage, path: Path, target: Path) -> None:
            with self._guard:
                is_first, self._is_shared = not self._is_shared, True
                share(storage, path, target)
            if is_first:
                self._keep("file_shared")

        def removed(folder: Path) -> int:
            self._keep("snapshot_over")
            at = self._keep("half_removed") / folder.relative_to(self._root)
            files = sorted(file for file in at.rglob("*") if file.is_file())
            assert len(files) > 20
            for file in files[::2]:
                file.unlink()
            found = remove_tree(folder)
            self._keep("side_removed")
            return found

        with ExitStack() as stack:
            stack.enter_context(patch.object(delta_sink, "apply_target", in_turn))
            stack.enter_context(patch.object(LocalStorage, "share", shared))
            stack.enter_context(patch.object(long_operations, "remove_tree", removed))
            stack.enter_context(listening(self._reached))
            yield


def left_of_operations(paths: LakePaths) -> list[str]:
    """What lies in the folder of a source's loads."""
    return sorted(at.name for at in (paths.state / long_operations.OPERATIONS_FOLDER).iterdir())
