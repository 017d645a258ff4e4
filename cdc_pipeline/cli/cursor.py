"""``cdc-pipeline cursor show|history|set|rebuild``: look at a source's cursor, and move it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal

import click

from cdc_pipeline.cli.common.output import (
    confirm,
    emit_json,
    facts,
    notes,
    operator,
    results,
    show_result,
    table,
)
from cdc_pipeline.cli.common.ranges import POSITION
from cdc_pipeline.cli.common.report import needed_text
from cdc_pipeline.cli.common.settings import (
    CommandGroup,
    Settings,
    limit_option,
    reason_option,
    source_argument,
    with_json,
    yes_option,
)
from cdc_pipeline.cli.common.source_access import open_source, operate_in
from cdc_pipeline.clock import time_of
from cdc_pipeline.text.wording import moment_text

if TYPE_CHECKING:
    from cdc_pipeline.config.pipeline_config import PipelineConfig
    from cdc_pipeline.operations.cursor.cursor_change import CursorChange
    from cdc_pipeline.operations.cursor.cursor_view import CursorView
    from cdc_pipeline.position.cursor import CursorEntry, CursorStore
    from cdc_pipeline.run.observer import OperationRun


@click.group("cursor", cls=CommandGroup)
def command() -> None:
    """Show a source's cursor, or move it. Each command takes --json.

    Exit codes: 0 done, or nothing to do; 1 failed, or the cursor would stop the next run; 2 wrong
    usage, or a change that was not confirmed.
    """


# -- show, history ---------------------------------------------------------------------------------


@command.command("show")
@source_argument()
@with_json
def show(settings: Settings, *, source: str) -> None:
    """Show the cursor of SOURCE, the last cut, whether they agree, and what the next run would do
    about it.

    Asks no server and starts no JVM. Exit code 1 if the cursor would stop the next run.
    """
    config = settings.config_of(source)
    from cdc_pipeline.operations.cursor.cursor_view import view_cursor

    with open_source(settings, config) as access:
        view = view_cursor(config, cursors=access.cursors)
        skipped = access.skipped
    show_result(
        settings,
        view,
        lambda of: results().print(facts(f"Cursor of {source}", _facts_of(of, skipped))),
        code=int(view.stops),
        events_passed_over=skipped,
    )


@command.command("history")
@source_argument()
@limit_option()
@with_json
def history(settings: Settings, *, source: str, limit: int) -> None:
    """Show the newest cursors of SOURCE: when and by which run each was written, what it covered,
    and what was done by hand.
    """
    with open_source(settings, settings.config_of(source)) as access:
        entries = access.cursors.history(limit)
    if settings.as_json:
        emit_json([entry.model_dump(mode="json") for entry in entries])
    else:
        _show_history(source, entries)


# -- set, rebuild ----------------------------------------------------------------------------------


@command.command("set")
@source_argument()
@click.option(
    "--from",
    "begin",
    required=True,
    metavar=POSITION,
    help="Continue at JOURNAL:OFFSET, which lies between two transactions; after the transactions "
    "of a GTID set; at the first transaction committed at or after a time with a zone; at the "
    "earliest journal; or at the latest end of the log.",
)
@reason_option
@yes_option
@with_json
def set_cursor(settings: Settings, *, source: str, begin: str, reason: str, yes: bool) -> None:
    """Move the cursor of SOURCE to another position of its log.

    Backwards: transactions are read again. Forwards: what lies between is never applied, which is
    recorded, and every table is labelled partial. The position is checked against the source, the
    consequences are shown, and you confirm the move.
    """
    config = settings.config_of(source)
    from cdc_pipeline.operations.cursor.cursor_change import apply_set, plan_set
    from cdc_pipeline.run.bounds import start_of

    to = start_of(begin)

    def plan(cursors: CursorStore) -> CursorChange:
        return plan_set(config, cursors=cursors, to=to, who=operator(), why=reason)

    def work(cursors: CursorStore, change: CursorChange, run_id: str) -> None:
        apply_set(config, cursors=cursors, change=change, run_id=run_id)

    _change(settings, config, kind="set", plan=plan, work=work, yes=yes)


@command.command("rebuild")
@source_argument()
@yes_option
@with_json
def rebuild(settings: Settings, *, source: str, yes: bool) -> None:
    """Rewrite a lost or wrong cursor of SOURCE from the lake's last cut.

    A run does this by itself if the cursor is lost or behind. A cursor that is ahead of the lake
    stops runs; only this command, or wiping the cursor asset, continues from the lake as it is,
    after you confirm it.
    """
    config = settings.config_of(source)
    from cdc_pipeline.operations.cursor.cursor_change import apply_rebuild, plan_rebuild

    def plan(cursors: CursorStore) -> CursorChange:
        return plan_rebuild(config, cursors=cursors, who=operator())

    def work(cursors: CursorStore, change: CursorChange, _run_id: str) -> None:
        apply_rebuild(config, cursors=cursors, change=change)

    _change(settings, config, kind="rebuild", plan=plan, work=work, yes=yes)


def _change(
    settings: Settings,
    config: PipelineConfig,
    *,
    kind: Literal["set", "rebuild"],
    plan: Callable[[CursorStore], CursorChange],
    work: Callable[[CursorStore, CursorChange, str], None],
    yes: bool,
) -> None:
    with open_source(settings, config) as access:
        change = plan(access.cursors)
        if change.nothing_to_do:
            _report(settings, change, run_id="")
            return
        if not settings.as_json:
            _show_change(change)
        if kind == "set" or change.direction == "back":
            confirm(settings, f"the cursor of {change.source}", "move", yes=yes)

        def applied(run: OperationRun) -> str:
            work(run["cursors"], change, run["run_id"])
            return run["run_id"]

        run_id = operate_in(
            access, settings, "cursor_set" if kind == "set" else "cursor_rebuild", applied
        )
    _report(settings, change, run_id=run_id)


# -- output ----------------------------------------------------------------------------------------


def _report(settings: Settings, change: CursorChange, *, run_id: str) -> None:
    if settings.as_json:
        emit_json({"changed": bool(run_id), "run_id": run_id, **change.model_dump(mode="json")})
        return
    from cdc_pipeline.position.cursor import cursor_text

    out = results()
    if not run_id:
        out.print(f"nothing to do: {'; '.join(change.reasons)}")
    elif change.new is not None:
        out.print(f"the cursor of {change.source} is now {cursor_text(change.new)} (run {run_id})")


def _show_change(change: CursorChange) -> None:
    from cdc_pipeline.position.cursor import cursor_text

    rows = [
        ("now", cursor_text(change.old)),
        ("then", cursor_text(change.new)),
        *(("because", reason) for reason in change.reasons),
        *(("it means", text) for text in change.consequences),
    ]
    notes().print(facts(f"{change.kind} the cursor of {change.source}", rows))


def _facts_of(view: CursorView, skipped: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    from cdc_pipeline.position.cursor import cursor_text

    yield "cursor", cursor_text(view.cursor)
    if view.cursor is not None:
        yield "server", str(view.cursor.identity)
        if view.cursor.gtid_set:
            yield "executed", view.cursor.gtid_set
        yield "from", view.where
    cut = view.last_cut
    if cut is None:
        yield "last cut", "none"
    else:
        yield "last cut", f"{cut.batch_number} at {cut.place}, {_when(cut.published_at_us)}"
        for note in cut.notes:
            yield "last cut", f"{note.kind}: {note.text}"
    yield "they agree", "yes" if view.agrees else "no"
    yield "next run", f"stops: {view.next_run}" if view.stops else view.next_run
    if view.oldest_needed is not None:
        yield "needed", needed_text(view.oldest_needed)
    for event in skipped:
        yield "ignored", event


def _show_history(source: str, entries: list[CursorEntry]) -> None:
    rows = table(
        f"Cursors of {source}", "written", "batch", "interval", "run", "notes", numbers=("batch",)
    )
    for entry in entries:
        interval = entry.metadata.get("interval", f"at {entry.cursor.position}")
        rows.add_row(
            _when(entry.at_us),
            str(entry.cursor.batch_number),
            str(interval),
            entry.run_id[:8],
            _notes_of(entry),
        )
    if not entries:
        notes().print(f"{source} has no cursor yet")
    results().print(rows)


def _notes_of(entry: CursorEntry) -> str:
    said: list[str] = []
    entries: Any = entry.metadata.get("notes", [])
    said += [
        f"{note.get('kind')}: {note.get('text')}" for note in entries if isinstance(note, dict)
    ]
    reason = entry.metadata.get("cursor_reason")
    if reason:
        said.append(f"recovered: {reason}")
    return "\n".join(said)


def _when(at_us: int) -> str:
    return moment_text(time_of(at_us))
