"""Progress of a snapshot on the terminal: a bar for each table, and the current step."""

from __future__ import annotations

import time
from typing import TextIO

from rich.progress import TaskID

from cdc_pipeline.cli.common.output import count_of
from cdc_pipeline.cli.common.progress import Bars, holders_text
from cdc_pipeline.lake.loads import LoadState
from cdc_pipeline.lake.loads import Progress as LoadedSoFar
from cdc_pipeline.pipeline.observer import RunObserver


class LoadProgress(Bars, RunObserver):
    """Shows steps as lines, and rows as bars relative to the catalog's estimate."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._tasks: dict[str, TaskID] = {}
        self._first: dict[str, tuple[float, int]] = {}
        self._last_step = ""

    def waiting(self, run_ids: list[str]) -> None:
        self.load_stepped(f"waiting for another run of this source ({holders_text(run_ids)})")

    def load_began(self, state: LoadState, *, resumed: bool) -> None:
        for task in self._tasks.values():
            self._progress.remove_task(task)
        self._tasks, self._first = {}, {}
        goes_on = "continues" if resumed else "begins"
        self._console.print(
            f"snapshot {state.load_id} {goes_on}: {', '.join(state.sources)}", soft_wrap=True
        )

    def load_stepped(self, text: str) -> None:
        if text != self._last_step:
            self._console.print(f"  {text}", markup=False, soft_wrap=True)
        self._last_step = text

    def load_progressed(self, state: LoadState, progress: LoadedSoFar) -> None:
        for name in state.sources:
            table = progress.tables.get(name)
            rows = 0 if table is None else table.rows
            is_done = table is not None and table.is_done
            if name not in self._tasks:
                self._tasks[name] = self._progress.add_task(name, total=None, counts="")
                self._first[name] = time.monotonic(), rows
            began_s, before = self._first[name]
            a_second = (rows - before) / max(0.001, time.monotonic() - began_s)
            chunks = 0 if table is None else table.chunks
            self._progress.update(
                self._tasks[name],
                completed=rows,
                total=max(rows, 1) if is_done else max(rows + 1, state.rows_estimated.get(name, 0)),
                counts=f"{count_of(rows, 'row')}, {a_second:,.0f} per second, "
                f"{count_of(chunks, 'chunk')}",
            )
