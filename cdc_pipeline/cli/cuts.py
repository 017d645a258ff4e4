"""``cdc-pipeline cuts list|show|sql|dbt|materialize``: the lake as of one source transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import click

from cdc_pipeline.cli.common.activity import ended
from cdc_pipeline.cli.common.output import (
    emit_json,
    facts,
    notes,
    quiet_streams,
    results,
    show_result,
    table,
)
from cdc_pipeline.cli.common.report import ddl_table
from cdc_pipeline.cli.common.settings import (
    CommandGroup,
    Settings,
    limit_option,
    source_argument,
    with_json,
)
from cdc_pipeline.cli.common.source_access import check_dagster
from cdc_pipeline.clock import time_of
from cdc_pipeline.text.printable import printable
from cdc_pipeline.text.wording import count_of, moment_text

if TYPE_CHECKING:
    from cdc_pipeline.config.pipeline_config import PipelineConfig
    from cdc_pipeline.lake.paths import LakePaths
    from cdc_pipeline.lake.records import Cut

_AS_OF = "A cut's number, a time with a zone, or a GTID set; default: the newest cut."


@click.group("cuts", cls=CommandGroup)
def command() -> None:
    """List the cuts of a source, show one, print views that read it, or copy it. Each command takes
    --json.

    A cut is all tables of a source at one of its transactions. Exit codes: 0 done; 1 no such cut,
    or it can no longer be read; 2 wrong usage.
    """


@command.command("list")
@source_argument()
@limit_option()
@with_json
def list_(settings: Settings, *, source: str, limit: int) -> None:
    """List the newest cuts of SOURCE. Asks no server and starts no JVM."""
    config = settings.config_of(source)
    from cdc_pipeline.sink.read.cuts import count_cuts, list_cuts

    shown = list_cuts(config.sink.lake_path, source, limit=limit)[::-1]
    if settings.as_json:
        emit_json([cut.model_dump(mode="json") for cut in shown])
        return
    rows = table(
        f"Cuts of {source}",
        "cut",
        "published",
        "source time",
        "place",
        "tables",
        "changes",
        "suspended",
        numbers=("cut", "tables", "changes"),
    )
    for cut in shown:
        rows.add_row(
            str(cut.number),
            moment_text(cut.published_at),
            moment_text(cut.source_time),
            f"{cut.journal}:{cut.offset}",
            f"{len(cut.tables):,}",
            f"{cut.row_changes:,}",
            ", ".join(cut.suspended) or "",
        )
    results().print(rows)
    count = count_cuts(config.sink.lake_path, source)
    if count > len(shown):
        notes().print(
            f"{count_of(count - len(shown), 'older cut')} not shown; to see all: --limit {count}"
        )


@command.command("show")
@source_argument()
@click.argument("cut", metavar="[CUT]", required=False)
@with_json
def show(settings: Settings, *, source: str, cut: str | None) -> None:
    """Show one cut of SOURCE: its position, and every table with its Delta version.

    CUT is a number, a time with a zone, or a GTID set; the newest cut by default.
    """
    _, found = _cut(settings.config_of(source), cut)
    show_result(settings, found, _show)


@command.command("sql")
@source_argument()
@click.option("--as-of", metavar="CUT", help=_AS_OF)
@click.option(
    "--schema",
    metavar="NAME",
    help="Create permanent views in this schema instead of temporary views.",
)
@click.option(
    "--plain",
    is_flag=True,
    help="Only the source's columns and present rows: without _cdc_ columns, deleted rows, earlier "
    "versions and changelogs.",
)
@click.option(
    "--dialect",
    type=click.Choice(["spark", "duckdb"]),
    default="spark",
    show_default=True,
    help="Whose SQL; DuckDB's reads with its extension `delta`.",
)
@with_json
def sql(
    settings: Settings,
    *,
    source: str,
    as_of: str | None,
    schema: str | None,
    plain: bool,
    dialect: Literal["spark", "duckdb"],
) -> None:
    """Print SQL that creates a view of every table of SOURCE as of one cut. Runs nothing."""
    paths, found = _cut(settings.config_of(source), as_of)
    from cdc_pipeline.sink.read.read import view_statements

    statements = view_statements(paths, found, schema=schema, plain=plain, dialect=dialect)
    if settings.as_json:
        emit_json(
            {
                "cut": found.batch_number,
                "statements": statements,
                "suspended": sorted(found.cursor.suspended),
            }
        )
        return
    ended()
    click.echo(f"-- cut {found.batch_number} of {source}, at {found.cursor.position}")
    for name in sorted(found.cursor.suspended):
        click.echo(f"-- left out because it is suspended: {printable(name)}")
    for statement in statements:
        click.echo(f"{statement};")


@command.command("dbt")
@source_argument()
@click.option("--schema", metavar="NAME", help="The views' schema; default: sink.publish.database.")
@with_json
def dbt(settings: Settings, *, source: str, schema: str | None) -> None:
    """Print dbt's sources.yml of the published views of SOURCE, with the keys of Dagster's assets,
    by which dagster-dbt joins the lineage."""
    config = settings.config_of(source)
    publish = config.sink.publish
    if schema is None and publish is None:
        raise click.UsageError("--schema is needed where the file has no sink.publish")
    check_dagster("the assets' keys are Dagster's")
    _, found = _cut(config, None)
    import yaml

    from cdc_pipeline.config.modes import MODES
    from cdc_pipeline.orchestration.runs.execute import load_source
    from cdc_pipeline.sink.read.read import view_names

    translator = load_source(settings.jobs_directory, source).translator
    views = view_names(list(found.tables))
    views = {name: view for name, view in views.items() if name not in found.cursor.suspended}
    if publish is not None and publish.plain:
        modes = {name: MODES[found.tables[name].spec.mode] for name in views}
        views = {name: view for name, view in views.items() if not modes[name].rows_are_changes}
    tables = [
        {
            "name": view,
            "description": f"{name} of {source}",
            "config": {
                "meta": {"dagster": {"asset_key": list(translator.table_key(source, name).path)}}
            },
        }
        for name, view in views.items()
    ]
    shown_schema = schema or (publish.database if publish is not None else "")
    document = {
        "version": 2,
        "sources": [{"name": source, "schema": shown_schema, "tables": tables}],
    }
    if settings.as_json:
        emit_json(document)
        return
    ended()
    click.echo(yaml.safe_dump(document, sort_keys=False, allow_unicode=True), nl=False)


@command.command("materialize")
@source_argument()
@click.argument("cut")
@click.option(
    "--into",
    metavar="FOLDER",
    required=True,
    help="Folder or object store URL of the copy, which is a lake of its own.",
)
@with_json
def materialize(settings: Settings, *, source: str, cut: str, into: str) -> None:
    """Copy all tables of SOURCE as of CUT, to keep them for longer than sink.cut_retention. Starts
    Spark."""
    config = settings.config_of(source)
    paths, found = _cut(config, cut)
    from cdc_pipeline.sink.maintain.materialize import materialize as copy_cut
    from cdc_pipeline.sink.maintain.materialize import provider_for

    spark = provider_for(config.sink, into)
    try:
        with quiet_streams(quiet=not settings.debug) as stream:
            progress = notes(stream)
            copy = copy_cut(
                spark.session(),
                paths,
                found,
                into,
                on_table=lambda name: progress.print(f"copying {name}"),
            )
    finally:
        spark.stop()
    if settings.as_json:
        emit_json({"cut": found.batch_number, "to": str(copy.lake), "tables": sorted(found.tables)})
    else:
        results().print(f"cut {found.batch_number} of {source} is in {copy.lake}")


def _cut(config: PipelineConfig, as_of: str | None) -> tuple[LakePaths, Cut]:
    from cdc_pipeline.sink.read.cuts import find_cut, paths_of

    paths = paths_of(config.sink.lake_path, config.name)
    return paths, find_cut(paths, as_of)


def _show(cut: Cut) -> None:

    place = f"{cut.cursor.journal}:{cut.cursor.offset}, epoch {cut.cursor.epoch}"
    committed = None if cut.source_time_us < 0 else time_of(cut.source_time_us)
    rows = [
        ("position", place),
        *([("executed", cut.cursor.gtid_set)] if cut.cursor.gtid_set else []),
        ("source time", moment_text(committed)),
        ("published", moment_text(time_of(cut.published_at_us))),
        ("kind", cut.kind),
        *(("note", f"{note.kind}: {note.text}") for note in cut.notes),
    ]
    out = results()
    out.print(facts(f"Cut {cut.batch_number} of {cut.source}", rows))
    numbers = ("version", "inserted", "updated", "deleted")
    listed = table("", "table", *numbers, "", numbers=numbers)
    suspended = cut.cursor.suspended
    for name in sorted({*cut.tables, *suspended}):
        state, held = cut.tables.get(name), suspended.get(name)
        counts = ["", "", "", ""]
        if state is not None:
            counts = [
                f"{n:,}"
                for n in (
                    state.table_version,
                    state.rows_inserted,
                    state.rows_updated,
                    state.rows_deleted,
                )
            ]
        listed.add_row(name, *counts, "" if held is None else f"suspended at {held.position}")
    out.print(listed)
    if cut.ddl:
        out.print()
        out.print(ddl_table(cut.ddl))
