"""``cdc-pipeline rehearse``: what statements would do to the lake."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

import click

from cdc_pipeline.cli.common.output import notes, results, show_result, table
from cdc_pipeline.cli.common.settings import Settings, source_argument, with_json
from cdc_pipeline.cli.common.source_access import open_source

if TYPE_CHECKING:
    from cdc_pipeline.operations.rehearse.rehearse import Rehearsal, RehearsedStatement

_WORDS = {
    "rows": "rows",
    "not_logged": "not logged",
    "suspends": "suspends a table",
    "stops": "stops the run",
    "not_reached": "not reached",
}


@click.command("rehearse")
@source_argument()
@click.argument("script", type=click.File(encoding="utf-8"), default="-", metavar="[FILE]")
@click.option("--database", default="", metavar="NAME", help="The default one, as USE sets it.")
@with_json
def command(settings: Settings, *, source: str, script: IO[str], database: str) -> None:
    """Show what the SQL statements of FILE, or of standard input, would do to the tables of SOURCE
    in the lake if they were run at its server now.

    Runs none of them and writes nothing. The outcome is what the next run would decide, on the
    tables of the last cut.

    Exit codes: 0 the run would go on with every table; 1 a statement would suspend a table or stop
    the run, or its outcome is uncertain; 2 wrong usage or configuration.
    """
    config = settings.config_of(source)
    from cdc_pipeline.operations.rehearse.rehearse import rehearse

    with open_source(settings, config) as access:
        rehearsal = rehearse(config, script.read(), cursors=access.cursors, database=database)
    show_result(settings, rehearsal, _show, code=0 if rehearsal.is_harmless else 1)


def _show(rehearsal: Rehearsal) -> None:
    rows = table(
        f"Rehearsed for {rehearsal.source}", "line", "statement", "outcome", "", numbers=("line",)
    )
    for statement in rehearsal.statements:
        rows.add_row(
            str(statement.line),
            _shortened(statement.sql),
            _WORDS.get(statement.outcome, statement.outcome),
            "\n".join(_lines(statement)),
        )
    results().print(rows)
    for warning in rehearsal.warnings:
        notes().print(f"warning: {warning}")


def _lines(statement: RehearsedStatement) -> list[str]:
    lines = [statement.reason + (f" ({statement.policy})" if statement.policy else "")]
    for change in statement.changes:
        lines += [f"{change.target}: {step}" for step in change.steps]
        if change.features:
            excluded = f"; {', '.join(change.excludes)} cannot read that" if change.excludes else ""
            lines.append(f"{change.target}: needs {', '.join(change.features)}{excluded}")
    if statement.next_step:
        lines.append(f"next: {statement.next_step}")
    return lines


def _shortened(sql: str) -> str:
    text = " ".join(sql.split())
    return text if len(text) <= 60 else text[:57] + "..."
