"""``cdc-pipeline history``: past runs of a source, and what they published."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cdc_pipeline.cli.common.output import emit_json, notes, results, table
from cdc_pipeline.cli.common.settings import Settings, limit_option, source_argument, with_json
from cdc_pipeline.cli.common.source_access import check_dagster
from cdc_pipeline.text.wording import count_of, listed, moment_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cdc_pipeline.operations.history import PastBatch
    from cdc_pipeline.orchestration.runs.source_runs import PastRun


@click.command("history")
@source_argument()
@limit_option("How many runs and how many batches, newest first.")
@with_json
def command(settings: Settings, *, source: str, limit: int) -> None:
    """Show past runs of SOURCE, as Dagster keeps them, and the batches that they published, as the
    lake does. With --cursor lake, which has no runs of Dagster, the batches alone.

    Asks no server and starts no JVM. The lake names batches for sink.cut_retention.

    Exit codes: 0 shown; 1 the lake's records are damaged; 2 wrong usage or configuration.
    """
    config = settings.config_of(source)
    from cdc_pipeline.operations.history import past_batches

    batches = past_batches(config, limit=limit)
    runs = _runs(source, limit) if settings.cursor == "dagster" else None
    if settings.as_json:
        of_dagster = None if runs is None else [run.model_dump(mode="json") for run in runs]
        emit_json(
            {"runs": of_dagster, "batches": [batch.model_dump(mode="json") for batch in batches]}
        )
        return
    if runs is not None:
        _show_runs(source, runs, batches)
    _show_batches(source, batches)


def _runs(source: str, limit: int) -> list[PastRun]:
    check_dagster("past runs are in Dagster")
    from cdc_pipeline.orchestration.runs.execute import open_instance
    from cdc_pipeline.orchestration.runs.source_runs import past_runs

    with open_instance() as instance:
        return past_runs(instance, source=source, limit=limit)


def _show_runs(source: str, runs: Sequence[PastRun], batches: Sequence[PastBatch]) -> None:
    if not runs:
        notes().print(f"Dagster has no run of {source}")
        return
    rows = table(
        f"Runs of {source}", "began", "job", "status", "seconds", "batches", "run",
        numbers=("seconds",),
    )  # fmt: skip
    for run in runs:
        seconds = "" if run.seconds is None else f"{run.seconds:,.1f}"
        began = moment_text(run.started_at or run.created_at)
        rows.add_row(began, run.job, run.status, seconds, _published(run, batches), run.run_id[:8])
    out = results()
    out.print(rows)
    out.print()


def _published(run: PastRun, batches: Sequence[PastBatch]) -> str:
    if run.started_at is None:
        return ""
    numbers = sorted(
        batch.number
        for batch in batches
        if run.started_at <= batch.published_at
        and (run.ended_at is None or batch.published_at <= run.ended_at)
    )
    if not numbers:
        return ""
    first, last = numbers[0], numbers[-1]
    return str(first) if first == last else f"{first} to {last}"


def _show_batches(source: str, batches: Sequence[PastBatch]) -> None:
    if not batches:
        notes().print(f"the lake has no batch of {source} yet")
        return
    numbers = ("batch", "transactions", "changes")
    rows = table(
        f"Batches of {source}",
        *("batch", "published", "what", "up to", "transactions", "changes", "of"),
        numbers=numbers,
    )
    for batch in batches:
        said = [*batch.notes]
        if batch.changed:
            said.insert(0, listed(sorted(batch.changed), most=5))
        if batch.suspended:
            said.append(f"{count_of(len(batch.suspended), 'table')} suspended")
        rows.add_row(
            str(batch.number),
            moment_text(batch.published_at),
            batch.what,
            batch.end,
            f"{batch.transactions:,}",
            f"{sum(batch.changed.values()):,}",
            "\n".join(said),
        )
    results().print(rows)
