"""Progress of a capture on the terminal, or as a few lines if there is none."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Self, TextIO

from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from cdc_pipeline.cli.common.activity import replaced
from cdc_pipeline.cli.common.output import notes, print_log_with
from cdc_pipeline.lake.long_operations import Operation
from cdc_pipeline.lake.long_operations import Progress as ReadSoFar
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.run.observer import RunObserver
from cdc_pipeline.run.report import CapturePlan
from cdc_pipeline.text.wording import count_of


def _holders_text(holders: list[str]) -> str:
    """Run ids are shortened; other texts stay as they are."""
    return ", ".join(one if " " in one else one[:8] for one in holders)


class Bars:
    """If the console is a terminal; `columns` stand between the bar and the counts."""

    def __init__(self, stream: TextIO, *columns: ProgressColumn) -> None:
        self._console, self._replaced = notes(stream), ExitStack()
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            *columns,
            TextColumn("{task.fields[counts]}", markup=False),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal or self._console.quiet,
        )

    def __enter__(self) -> Self:
        self._replaced.enter_context(replaced())
        self._progress.start()
        print_log_with(self._console.print)
        return self

    def __exit__(self, *_: object) -> None:
        print_log_with(None)
        self._progress.stop()
        self._replaced.close()


class ProgressObserver(Bars, RunObserver):
    """Shows the plan, a bar of bytes read, and each cut."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream, DownloadColumn())
        self._task = self._progress.add_task("reading", total=None, counts="")

    def waiting(self, run_ids: list[str]) -> None:
        self._console.print(
            f"another capture of this source is running ({_holders_text(run_ids)}): "
            "waiting for it to end"
        )

    def planned(self, plan: CapturePlan) -> None:
        self._progress.update(self._task, total=plan.bytes_between)
        stops = f"stops {plan.limit}; at most " if plan.limit else ""
        self._console.print(
            f"{plan.source}: {plan.start} to {plan.end}, {stops}{plan.bytes_between:,} bytes"
        )
        for warning in plan.warnings:
            self._console.print(f"  note: {warning}")

    def progressed(
        self, *, bytes_done: int, bytes_total: int, transactions: int, rows: int
    ) -> None:
        counts = f"{count_of(transactions, 'transaction')}, {count_of(rows, 'row')}"
        self._progress.update(self._task, completed=bytes_done, total=bytes_total, counts=counts)

    def merging(self) -> None:
        self._progress.update(self._task, description="merging")

    def merged(self, tables: int, of: int) -> None:
        self._progress.update(self._task, description=f"merged {tables:,} of {of:,} tables")

    def published(self, cut: Cut) -> None:
        self._progress.update(self._task, description="reading")
        interval = cut.interval
        self._console.print(
            f"  batch {cut.batch_number}: {count_of(interval.transactions_applied, 'transaction')} "
            f"up to {interval.end}"
        )


class OperationProgress(Bars, RunObserver):
    """Shows steps as lines, and rows as bars relative to the catalog's estimate."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._step = self._progress.add_task("", total=None, counts="")  # it moves all the time
        self._tasks: dict[str, TaskID] = {}
        self._first: dict[str, tuple[float, int]] = {}
        self._last_step = ""

    def waiting(self, run_ids: list[str]) -> None:
        self.step(f"waiting for another run of this source ({_holders_text(run_ids)})")

    def operation_began(self, state: Operation, *, resumed: bool) -> None:
        for task in self._tasks.values():
            self._progress.remove_task(task)
        self._tasks, self._first = {}, {}
        goes_on = "continues" if resumed else "begins"
        self._console.print(
            f"{state.kind} {state.operation_id} {goes_on}: {', '.join(state.sources)}"
        )

    def step(self, text: str) -> None:
        self._progress.update(self._step, description=text[:40])
        if text != self._last_step:
            self._console.print(f"  {text}")
        self._last_step = text

    def operation_progressed(self, state: Operation, progress: ReadSoFar) -> None:
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
