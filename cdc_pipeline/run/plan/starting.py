"""Prepare a start: the server, its rules, the count of failed dumps.

Rules:
- The count is kept beside the lake's state, for runs alone: planning reads it and writes nothing
  (SPEC P5).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from cdc_pipeline.config.pipeline_config import ArchiveSourceConfig, GtidConfig, PipelineConfig
from cdc_pipeline.errors import CdcError, ServerChangedError, SourceIdentityError
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.lake.run_notes import (
    NoteFile,
    changed_start,
    dump_error_file,
    first_start_file,
)
from cdc_pipeline.position.cursor import CursorState, Suspension, resume_fields
from cdc_pipeline.position.dump_errors import DumpErrors
from cdc_pipeline.position.position import ServerIdentity
from cdc_pipeline.position.start.context import SECOND_US, StartDecision, StartRules
from cdc_pipeline.position.start.start import resolve_start
from cdc_pipeline.run.plan.possible import check_start
from cdc_pipeline.run.plan.server_switch import build_overlap
from cdc_pipeline.source.protocol import Source


class ChosenServer(NamedTuple):
    """A configuration with the server to read, and why it was chosen ("" without a choice)."""

    config: PipelineConfig
    reason: str


def choose(config: PipelineConfig) -> ChosenServer:
    """The standby if the primary is unreachable; raises ServerUnreachableError if both are."""
    if isinstance(config.source, ArchiveSourceConfig) or config.source.standby is None:
        return ChosenServer(config, "")
    # late: it brings pymysql, which an archive never needs
    from cdc_pipeline.source.live.standby import choose_server

    server, reason = choose_server(config.source)
    return ChosenServer(config.model_copy(update={"source": server}), reason)


def start_rules(config: PipelineConfig, *, cut: Cut | None, dump_errors: DumpErrors) -> StartRules:
    """Beside cursor and source; `config` as written, before a server was chosen."""
    last_commit_us = cut.source_time_us if cut is not None else -1
    source = config.source
    if isinstance(source, ArchiveSourceConfig):
        return StartRules(dump_errors=dump_errors, last_commit_us=last_commit_us)
    return StartRules(
        addresses=source.addresses,
        standby_start=None if source.standby is None else source.standby.start,
        fallback_interval_us=round(source.fallback_interval_s * SECOND_US),
        dump_errors_max=source.dump_errors_max,
        dump_errors=dump_errors,
        last_commit_us=last_commit_us,
    )


def start_of(
    config: PipelineConfig,
    *,
    source: Source,
    cursor: CursorState | None,
    cursor_reason: str,
    cut: Cut | None,
) -> tuple[StartDecision, tuple[str, ...], tuple[str, ...]]:
    """With its reasons, and warnings."""
    if cursor is None:
        check_start(config)
    decision = resolve_start(
        cursor=cursor,
        start=config.start,
        source=source,
        rules=start_rules(
            config, cut=cut, dump_errors=dump_error_file(LakePaths.of(config)).read()
        ),
        overlap=build_overlap(config, source, cursor),
    )
    reasons = (*decision.reasons, *source.reasons(decision.read_from))
    if cursor is None:
        return decision, reasons, ()
    reasons = (cursor_reason, *check_names(source.identity, cursor), *reasons)
    kept = first_start_file(LakePaths.of(config)).read()
    return decision, reasons, changed_start(kept, config.start, pipeline_name=config.name)


def start_of_suspended(
    config: PipelineConfig, held: Suspension, source: Source, *, cursor: CursorState, cut: Cut
) -> StartDecision:
    """Where a target that was left behind goes on, before the source's cursor (K4)."""
    if held.epoch == cursor.epoch:
        unknown = {"timestamp_s": 0, "event_server_id": 0, "last_event": None}
        there_at = cursor.model_copy(update=resume_fields(held.position) | unknown)
        rules = start_rules(config, cut=cut, dump_errors=DumpErrors())
        decision = resolve_start(cursor=there_at, start=config.start, source=source, rules=rules)
        if decision.epoch_grows:
            raise ServerChangedError(
                "the server is not the one that the cursor belongs to",
                expected=str(cursor.identity),
                got=str(source.identity),
                next_step="run the whole source first: its cursor moves to the new "
                "server, and this table then follows",
            )
        return decision
    if held.gtid_set:
        start = GtidConfig(gtid_set=held.gtid_set)
        return resolve_start(cursor=None, start=start, source=source)
    raise SourceIdentityError(
        "the target is at a position of another server's log, and there are no GTIDs to find "
        "that position here",
        at=held,
        expected=f"epoch {cursor.epoch}",
        got=f"epoch {held.epoch}",
    )


def check_names(identity: ServerIdentity, cursor: CursorState) -> tuple[str, ...]:
    """Of another name comparison than the cursor's (K30); SourceIdentityError if it cannot be."""
    before = cursor.lower_case_table_names
    if identity.names.same_as(before):
        return ()
    known = {name for state in cursor.targets.values() for name in state.source_names}
    differing = sorted(name for name in known if identity.names.fold(name) != name)
    change = f"lower_case_table_names was {before:d} and is {identity.names:d} now"
    if not differing:
        return (f"{change}: the names of all tables are in lower case, and stay",)
    raise SourceIdentityError(
        f"the server compares names of tables otherwise than before: {change}",
        table=differing[0],
        setting="source.lower_case_table_names",
        expected=f"{before:d}, under which the lake has {', '.join(differing[:5])}",
        got=f"{identity.names:d}, under which no table has such a name",
        next_step="read a server whose lower_case_table_names is as before (an archive: set "
        "source.lower_case_table_names), or give this one a lake of its own (sink.lake_path) and "
        "take a snapshot",
    )


def remember_start(
    config: PipelineConfig, decision: StartDecision | None, *, is_first: bool
) -> None:
    """Write down what a run decided about its start; planning alone writes nothing."""
    if decision is not None and decision.resets_dump_errors:
        dump_error_file(LakePaths.of(config)).write(DumpErrors())
    if is_first:
        first_start_file(LakePaths.of(config)).write(config.start)


@contextmanager
def counted(store: NoteFile[DumpErrors]) -> Iterator[None]:
    """Count a run: a dump error adds one, reaching the end resets the count."""
    try:
        yield
    except CdcError as error:
        with suppress(CdcError, OSError):  # a lake that is away must not hide what ended the run
            store.write(store.read().after(error))
        raise
    store.write(DumpErrors())
