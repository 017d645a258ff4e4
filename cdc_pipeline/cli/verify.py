"""``cdc-pipeline verify``: proves that the lake's tables equal the source, and repairs
differences.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from cdc_pipeline.cli.common.activity import does
from cdc_pipeline.cli.common.output import (
    confirm,
    operator,
    quiet_streams,
    results,
    show_result,
    table,
)
from cdc_pipeline.cli.common.settings import Settings, source_argument, tables_option, with_json
from cdc_pipeline.cli.common.source_access import open_source
from cdc_pipeline.text.wording import count_of

if TYPE_CHECKING:
    from cdc_pipeline.operations.verify.read import VerifyOptions
    from cdc_pipeline.operations.verify.report import Difference, Step, TableVerified, VerifyReport

DIFFERENT: Final = 3
UNPROVED: Final = 4
_KIND_TEXTS: Final = {
    "missing": "missing in the lake",
    "extra": "only in the lake",
    "different": "different values",
    "duplicate": "twice in the lake",
    "ambiguous": "twice at the source",
}


@click.command("verify")
@source_argument()
@tables_option("Only this table; can be given more than once.")
@click.option(
    "--repair", is_flag=True, help="Replace what differs with the source's rows, then verify again."
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation of the repair.")
@click.option(
    "--sample",
    type=click.FloatRange(0, 100, min_open=True),
    metavar="PERCENT",
    help="Compare this share of the key ranges; rows that only the lake has are not searched for.",
)
@click.option(
    "--seed",
    type=int,
    default=0,
    metavar="N",
    help="With a sample: each number selects another sample.",
)
@click.option(
    "--rows-per-range", type=click.IntRange(min=1), default=200_000, show_default=True, metavar="N"
)
@click.option(
    "--show",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    metavar="N",
    help="How many keys to name.",
)
@with_json
def command(
    settings: Settings,
    *,
    source: str,
    tables: tuple[str, ...],
    repair: bool,
    yes: bool,
    sample: float | None,
    seed: int,
    rows_per_range: int,
    show: int,
) -> None:
    """Compare the tables of SOURCE in the lake with the server, at an exactly known position.

    Takes no lock and writes nothing at the source; captures continue meanwhile. Differing keys are
    named. If another program has written to a table, what that changed is shown, and --repair
    undoes it. Partial tables are compared only if --table names them.

    Exit codes: 0 equal, proved; 1 failed; 2 wrong usage; 3 some rows differ; 4 nothing differs, but
    something is not proved: keys that changed whenever they were read, or a table that could not be
    compared.
    """
    from cdc_pipeline.operations.verify.read import VerifyOptions

    settings.config_of(source)  # its mistakes first, before anything heavy is loaded
    if repair:
        what = "rows of the lake that differ"
        confirm(settings, what, "be replaced by those of the source", yes=yes)
    options = VerifyOptions(
        tables=tables,
        repair=repair,
        share=1.0 if sample is None else sample / 100,
        seed=seed,
        rows_per_range=rows_per_range,
        keys_shown=show,
        who=operator(),
    )
    report = _execute(settings, source, options)
    code = exit_code(report)
    show_result(settings, report, _show, code=code, status=report.status, exit_code=code)


def exit_code(report: VerifyReport) -> int:
    return {"equal": 0, "different": DIFFERENT}.get(report.status, UNPROVED)


def _execute(settings: Settings, source: str, options: VerifyOptions) -> VerifyReport:
    from cdc_pipeline.operations.verify.verify import verify

    config = settings.config_of(source)
    with open_source(settings, config) as access, quiet_streams(quiet=not settings.debug):

        def show(step: Step) -> None:
            rows = f" {count_of(step.rows, 'row')}" if step.rows else ""
            does(f"{step.target}: {step.what}{rows}")

        return access.operate(
            "repair" if options.repair else "verify",
            lambda how: verify(config, options=options, on_step=show, **how),
        )


def _show(report: VerifyReport) -> None:
    numbers = ("source", "lake", "equal", "differ", "unsettled")
    rows = table(
        f"{report.source}: {report.status.replace('_', ' ')}",
        "table",
        "",
        *numbers,
        "cut",
        numbers=numbers,
    )
    for name, verified in report.tables.items():
        differ = sum(verified.counts.values()) + verified.strays + verified.stale
        compared = verified.status != "not_compared" and verified.rounds
        figures = (
            verified.rows_source,
            verified.rows_lake,
            verified.rows_equal,
            differ,
            verified.unsettled,
        )
        cut = f"{verified.cut} at {verified.place}" if verified.place is not None else ""
        rows.add_row(
            name,
            verified.status.replace("_", " "),
            *(f"{n:,}" if compared else "" for n in figures),
            cut,
        )
    out = results()
    out.print(rows)
    for name, verified in report.tables.items():
        for line in lines_of(verified):
            out.print(f"{name}: {line}")
    out.print(f"{count_of(len(report.tables), 'table')} in {report.seconds:,.1f} s")


def lines_of(found: TableVerified) -> list[str]:
    """Notes about one table besides its figures."""
    lines = []
    if found.foreign is not None:
        change = found.foreign
        versions = ", ".join(f"{version} ({what})" for version, what in change.versions.items())
        lines.append(
            f"{change.what}" + (f"; versions written by others: {versions}" if versions else "")
        )
        lines += [_key_line(one, changed_by_hand=True) for one in change.differences]
        if change.restored:
            lines.append("restored to the last cut, and caught up from there")
        elif change.restorable:
            lines.append("--repair restores it to the last cut")
    for kind, number in found.counts.items():
        lines.append(f"{count_of(number, 'key')}: {_KIND_TEXTS[kind]}")
    lines += [_key_line(one) for one in found.differences]
    if found.strays:
        lines.append(
            f"{count_of(found.strays, 'row')} that belong to no source table of this target"
        )
    if found.intervals is not None and not found.intervals.is_continuous:
        wrong = found.intervals
        lines.append(
            f"{wrong.overlaps:,} versions overlap, {wrong.not_ended:,} do not end where "
            "the next one begins"
        )
    if found.unsettled:
        lines.append(f"{count_of(found.unsettled, 'key')} unsettled")
    if found.unreadable:
        lines.append(
            f"{count_of(found.unreadable, 'row')} of the source that the policies "
            "keep out of the lake"
        )
    if found.stale:
        lines.append(f"{count_of(found.stale, 'row')} of the lake hold older images of such rows")
    if found.repaired:
        done = ", ".join(f"{number:,} {what}" for what, number in found.repaired.items())
        batches = ", ".join(map(str, found.repair_batches))
        lines.append(f"repaired: {done} (batches {batches})")
        lines += [_key_line(one) for one in found.repaired_keys]
    if found.reason:
        lines.append(found.reason)
    if found.sampled and found.status == "equal":
        lines.append("a sample: rows that only the lake has were not searched for")
    return lines


def _key_line(one: Difference, *, changed_by_hand: bool = False) -> str:
    key = ", ".join(
        f"{name}={'NULL' if value is None else value}" for name, value in one.key.items()
    )
    texts = (
        {**_KIND_TEXTS, "missing": "was removed", "extra": "was added"}
        if changed_by_hand
        else _KIND_TEXTS
    )
    columns = f" ({', '.join(one.columns)})" if one.columns else ""
    return f"  {key}: {texts[one.kind]}{columns}" + (f", {one.rows:,} rows" if one.rows > 1 else "")
