"""A capture's report as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_pipeline.cli.common.output import facts, results, table
from cdc_pipeline.text.wording import count_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.table import Table

    from cdc_pipeline.lake.proofs import TableProof
    from cdc_pipeline.position.failback import Consumer
    from cdc_pipeline.run.report import CaptureReport, TableReport
    from cdc_pipeline.schema.evolution.steps import DdlDecision


def show_report(report: CaptureReport, *, run_id: str = "") -> None:
    """What the run did, in a few small tables on standard output."""
    from cdc_pipeline.lake.suspensions import sentence

    out = results()
    out.print(
        facts(f"{report.source}: {report.outcome.replace('_', ' ')}", _facts_of(report, run_id))
    )
    out.print()
    if report.tables:
        show_tables(report.tables)
    for name, number in sorted(report.quarantine.items()):
        out.print(f"{name}: {count_of(number, 'row')} in quarantine")
    for name, suspension in sorted(report.suspended.items()):
        out.print(sentence(name, suspension))
    proof = report.proof
    for warning in () if proof is None else proof.warnings:
        out.print(warning, markup=False)
    show_differing({} if proof is None else proof.tables)
    if report.ddl:
        out.print(ddl_table(report.ddl))
        out.print()


def _facts_of(report: CaptureReport, run_id: str) -> Iterator[tuple[str, str]]:
    interval, proof, needed = report.interval, report.proof, report.oldest_needed
    yield "reason", report.reason
    yield "interval", f"{interval.start} - {interval.end}"
    applied = f"{interval.transactions_applied:,} with captured changes"
    yield "transactions", f"{interval.transactions_seen:,} seen, {applied}"
    if report.recovered_batch is not None:
        text = f"batch {report.recovered_batch} of an earlier run was finished first"
        yield "recovered", text
    yield "batches", f"{report.batches:,}"
    if report.parallel is not None:
        yield "decoded by", str(report.parallel)
    yield "time", f"{report.seconds:.1f} s, {report.cpu_seconds:.1f} s of CPU apart from Spark"
    if proof is not None:
        failure = f"; {proof.failure}" if proof.failure else ""
        yield "proof", f"{proof.rows:,} rows compared in {proof.seconds:.1f} s{failure}"
    if report.read_up_to is not None:
        yield "read up to", str(report.read_up_to)
    if report.applied_up_to is not None:
        yield "applied up to", str(report.applied_up_to)
    if needed is not None and needed.name != "cursor":
        yield "needed", needed_text(needed)
    if report.cursor is not None:
        yield "cursor", f"{report.cursor.position}, batch {report.cursor.batch_number}"
    if run_id:
        yield "Dagster run", run_id


def needed_text(needed: Consumer) -> str:
    return f"the log from {needed.position} on, by {needed.name}"


def show_differing(proofs: Mapping[str, TableProof]) -> None:
    out = results()
    for name, proof in sorted(proofs.items()):
        for key in () if proof.differing is None else proof.differing.keys:
            out.print(f"  {name}: {key}", markup=False)


def ddl_table(ddl: Sequence[DdlDecision]) -> Table:
    """Of three columns, so that position and table fit unbroken in 80 columns."""
    rows = table("DDL", "at", "table", "decision")
    for one in ddl:
        what = f"{one.kind.replace('_', ' ')}, {one.decision}: {one.reason}"
        rows.add_row(f"{one.journal}:{one.offset}", "\n".join(one.tables), what)
    return rows


def show_tables(tables: Mapping[str, TableReport]) -> None:
    numbers = ("inserted", "updated", "deleted", "Delta version")
    rows = table("Rows", "table", *numbers, "engine", "", numbers=numbers)
    for name, of_table in sorted(tables.items()):
        rows.add_row(
            name,
            f"{of_table.rows_inserted:,}",
            f"{of_table.rows_updated:,}",
            f"{of_table.rows_deleted:,}",
            str(of_table.delta_version),
            of_table.engine,
            "partial" if of_table.partial else "",
        )
    out = results()
    out.print(rows)
    for name, of_table in sorted(tables.items()):
        if of_table.rescued:
            text = (
                f"{name}: rescued in {of_table.rescued_rows:,} rows: "
                f"{rescued_text(of_table.rescued)}"
            )
            out.print(text)
    out.print()


def rescued_text(rescued: Mapping[str, int]) -> str:
    """About values that were put into ``_cdc_rescued`` or left NULL, by column."""
    return ", ".join(f"{column} {count:,}" for column, count in sorted(rescued.items()))
