"""Prepare a start: the server, its rules, the count of failed dumps.

Rules:
- The count is kept beside the lake's state, for runs alone: planning reads it and writes nothing
  (SPEC P5).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from cdc_pipeline.config.pipeline_config import ArchiveSourceConfig, PipelineConfig
from cdc_pipeline.errors import CdcError
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.lake.run_notes import NoteFile
from cdc_pipeline.position.dump_errors import DumpErrors
from cdc_pipeline.position.start.context import SECOND_US, StartDecision, StartRules
from cdc_pipeline.run.wiring import build_dump_errors, build_first_start


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

    choice = choose_server(config.source)
    return ChosenServer(config.model_copy(update={"source": choice.config}), choice.reason)


def start_rules(config: PipelineConfig, *, cut: Cut | None, dump_errors: DumpErrors) -> StartRules:
    """Beside cursor and source; `config` as written, before a server was chosen."""
    last_commit_us = cut.source_time_us if cut is not None else -1
    source = config.source
    if isinstance(source, ArchiveSourceConfig):
        return StartRules(dump_errors=dump_errors, last_commit_us=last_commit_us)
    from cdc_pipeline.source.live.standby import addresses

    return StartRules(
        addresses=addresses(source),
        standby_start=None if source.standby is None else source.standby.start,
        fallback_interval_us=round(source.fallback_interval_s * SECOND_US),
        dump_errors_max=source.dump_errors_max,
        dump_errors=dump_errors,
        last_commit_us=last_commit_us,
    )


def remember_start(
    config: PipelineConfig, decision: StartDecision | None, *, is_first: bool
) -> None:
    """Write down what a run decided about its start; planning alone writes nothing."""
    if decision is not None and decision.resets_dump_errors:
        build_dump_errors(config).write(DumpErrors())
    if is_first:
        build_first_start(config).write(config.start)


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
