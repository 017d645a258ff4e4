"""``cdc-pipeline doctor``: what would keep a pipeline from working, or will bite later."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from cdc_pipeline.cli.common.output import quiet_streams, results, show_result, styled
from cdc_pipeline.cli.common.ranges import Quantity
from cdc_pipeline.cli.common.settings import Settings, source_argument, with_json
from cdc_pipeline.cli.common.source_access import check_dagster, open_source
from cdc_pipeline.text.wording import count_of

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from cdc_pipeline.config.pipeline_config import PipelineConfig
    from cdc_pipeline.operations.doctor.diagnosis import Area, Diagnosis, Finding

# Copied from `operations.doctor.diagnosis`, which is not loaded for --help.
_AREAS: Final[tuple[Area, ...]] = (
    *("server", "grants", "retention", "tables"),
    *("state", "lake", "local"),
)
_SIGNS: Final = {
    "ok": ("✓", "green"),
    "note": ("·", "cyan"),
    "warning": ("!", "yellow"),
    "error": ("✗", "red"),
}
_SHORT: Final = 90


@click.command("doctor")
@source_argument()
@click.option(
    "--spark",
    "with_spark",
    is_flag=True,
    help="Also start Spark, and write and read a scratch table in the lake.",
)
@click.option(
    "--every",
    "every_s",
    type=Quantity(""),  # hours are meant: a number alone would be seconds
    metavar="TIME",
    help="Longest time between two runs, such as 6h.",
)
@click.option(
    "--area",
    "areas",
    multiple=True,
    type=click.Choice(_AREAS),
    help="Only this area; can be given more than once.",
)
@click.option("--all", "show_all", is_flag=True, help="Also list what is fine, line by line.")
@with_json
def command(
    settings: Settings,
    *,
    source: str,
    with_spark: bool,
    every_s: float | None,
    areas: tuple[Area, ...],
    show_all: bool,
) -> None:
    """Examine SOURCE: server, grants, retention, tables, state, lake and this machine.

    Each finding says what was expected, what was found, and the statement or command that fixes it.
    Nothing is changed; no JVM is started without --spark. How long journals must be kept follows
    from the schedule, or from --every.

    Exit codes: 0 everything is fine (notes do not count); 1 warnings: it works now, but will cause
    trouble; 2 errors: it does not work, or will soon stop working (as everywhere, wrong usage and a
    wrong configuration file are 2 as well).
    """
    if every_s == 0:
        raise click.UsageError("--every is the time between two runs: more than 0")
    config = settings.config_of(source)
    with quiet_streams(quiet=not settings.debug):
        diagnosis = _diagnose(settings, config, every_s, with_spark, areas or _AREAS)
    shown = ("Spark",) if with_spark else ()
    show_result(
        settings,
        diagnosis,
        lambda made: _show(made, show_all=show_all, shown=shown),
        code=diagnosis.exit_code,
        worst=diagnosis.worst,
        exit_code=diagnosis.exit_code,
    )


def _diagnose(
    settings: Settings,
    config: PipelineConfig,
    every_s: float | None,
    with_spark: bool,
    areas: tuple[Area, ...],
) -> Diagnosis:
    if settings.cursor == "dagster":
        check_dagster("the cursor and the schedule are in Dagster")
        from cdc_pipeline.orchestration.runs.doctor import diagnose

        return diagnose(
            settings.jobs_directory, config, every_s=every_s, with_spark=with_spark, areas=areas
        )
    from cdc_pipeline.operations.doctor import examine

    with open_source(settings, config) as access:
        return examine(
            config,
            cursors=access.cursors,
            every_s=every_s,
            every_reason="" if every_s is None else "--every",
            with_spark=with_spark,
            areas=areas,
        )


def _show(made: Diagnosis, *, show_all: bool, shown: Sequence[str] = ()) -> None:
    out = results()
    for area in _AREAS:
        of_area = [finding for finding in made.findings if finding.area == area]
        if not of_area:
            continue
        rows = _empty_table()
        for finding in of_area:
            if finding.severity != "ok" or show_all or finding.check in shown:
                _add(rows, finding)
        fine = list(dict.fromkeys(finding.check for finding in of_area if finding.severity == "ok"))
        if fine and not show_all:
            troubled = {finding.check for finding in of_area if finding.severity != "ok"}
            names = [name for name in fine if name not in troubled and name not in shown]
            if names:
                rows.add_row(
                    styled(("✓", "green")), "", styled((f"fine: {', '.join(names)}", "dim"))
                )
        if rows.row_count:
            out.print(styled("\n", (area, "bold")))
            out.print(rows)
    out.print()
    out.print(_summary(made))


def _empty_table() -> Table:
    from rich.table import Table

    rows = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1))
    rows.add_column(width=1, no_wrap=True)
    rows.add_column(width=17, overflow="fold")
    rows.add_column(overflow="fold")
    return rows


def _add(rows: Table, finding: Finding) -> None:
    from rich.text import Text

    sign, color = _SIGNS[finding.severity]
    text = Text()
    text.append(finding.what, style="bold" if finding.severity == "error" else "")
    if finding.severity != "ok":
        lines = [
            f"{title}: {part}"
            for title, part in (("expected", finding.expected), ("got", finding.got))
            if part
        ]
        between = (
            "; "
            if sum(map(len, lines)) <= _SHORT and not any("; " in part for part in lines)
            else "\n"
        )
        if lines:
            text.append("\n" + between.join(lines), style="dim")
        if finding.next_step:
            text.append("\nfix: ", style="dim")
            text.append(finding.next_step, style="cyan")
    rows.add_row(Text(sign, style=color), Text(finding.check, style=color), text)


def _summary(made: Diagnosis) -> Text:
    counts = {
        severity: len(made.with_severity(severity))
        for severity in ("error", "warning", "note", "ok")
    }
    parts: list[str | tuple[str, str]] = []
    for severity, count in counts.items():
        if count and severity != "ok":
            parts += [(count_of(count, severity), _SIGNS[severity][1]), ", "]
    return styled(
        f"{made.source}: ", *parts, f"{counts['ok']} fine; examined in {made.seconds:.1f} s"
    )
