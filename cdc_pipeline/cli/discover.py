"""``cdc-pipeline discover``: the tables of a server, before or after they are captured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from cdc_pipeline.cli.common.output import note, results, show_result, table
from cdc_pipeline.cli.common.settings import Settings, source_argument, with_json
from cdc_pipeline.text.wording import count_of

if TYPE_CHECKING:
    from cdc_pipeline.operations.discover import DiscoveredTable, Discovery

_SIGNS: Final = {"captured": "yes", "refused": "no: ", "left_out": "no: "}


@click.command("discover")
@source_argument()
@click.option(
    "--save",
    is_flag=True,
    help="Keep the names of those that are captured beside the pipeline's file: Dagster then has "
    "all tables before the first run.",
)
@with_json
def command(settings: Settings, *, source: str, save: bool) -> None:
    """List the tables of SOURCE's server that its account can see: key, estimated rows and size,
    columns whose type in the lake is another one, and whether and how a run captures them.

    Reads the server's catalog only. Rows and sizes are the server's own estimates. A file that
    --save has written does not change by itself: save again when the server has other tables.

    Exit codes: 0 listed; 1 the server cannot be read; 2 wrong usage or configuration.
    """
    config = settings.config_of(source)
    from cdc_pipeline.operations.discover import discover

    discovery = discover(config)
    if not save:
        show_result(settings, discovery, _show)
        return
    from cdc_pipeline.targets.known_tables import SavedSources, save_sources, saved_sources

    if not settings.as_json:
        _show(discovery)
    sources = SavedSources(
        lower_case_table_names=discovery.lower_case_table_names,
        tables=tuple(sorted(one.table for one in discovery.tables if one.verdict == "captured")),
    )
    before = len(saved_sources(config).tables)
    file = save_sources(config, sources) if sources.tables or not before else None
    if settings.as_json:
        show_result(settings, discovery, _show, saved=None if file is None else str(file))
    if file is None:
        note(f"nothing saved: no table is captured, so {count_of(before, 'saved name')} stayed")
        return
    refused = sum(one.verdict == "refused" for one in discovery.tables)
    note(
        f"{count_of(len(sources.tables), 'name')} saved in {file}"
        + (f", without those of {count_of(refused, 'refused table')}" if refused else "")
        + ": commit it, and reload the code location in Dagster"
    )


def _show(found: Discovery) -> None:
    from cdc_pipeline.text.wording import size

    out = results()
    numbers = ("rows, about", "size, about")
    rows = table(
        f"Tables of {found.server} that {found.account} can see",
        *("table", *numbers, "key", "captured"),
        numbers=numbers,
    )
    for one in found.tables:
        rows.add_row(
            one.table,
            "" if one.rows_estimated < 0 else f"{one.rows_estimated:,}",
            "" if one.bytes_estimated < 0 else size(one.bytes_estimated),
            ", ".join(one.key) or ("" if one.rows_estimated < 0 else "none"),
            _captured(one),
        )
    out.print(rows)
    notable = [one for one in found.tables if one.notable and one.verdict != "left_out"]
    if notable:
        out.print()
        types = table("Types that change on their way into the lake", "table", "columns")
        for one in notable:
            types.add_row(one.table, "\n".join(one.notable))
        out.print(types)
    out.print()
    captured = [one for one in found.tables if one.verdict == "captured"]
    rows_known = sum(max(0, one.rows_estimated) for one in captured)
    out.print(
        f"{found.source}: {len(captured):,} of {count_of(len(found.tables), 'table')} captured, "
        f"about {count_of(rows_known, 'row')}"
    )


def _captured(one: DiscoveredTable) -> str:
    sign = _SIGNS[one.verdict]
    return f"{sign}, as {one.how}" if one.verdict == "captured" else sign + one.how
