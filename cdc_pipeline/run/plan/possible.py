"""Decide which settings cannot be carried out by any source: known before one is asked (K31).

Rules:
- `validate` names all of them; `plan`, and so `run`, `doctor` and Dagster, refuse those that the
  run would need.
- A start in the future is none: a run would begin at the log's end and save that as its cursor.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime

from cdc_pipeline.config.pipeline_config import (
    GtidBoundConfig,
    GtidConfig,
    LiveSourceConfig,
    PipelineConfig,
    TimeConfig,
)
from cdc_pipeline.errors import ConfigError, PositionError
from cdc_pipeline.position.position import Flavor


def impossible_settings(
    config: PipelineConfig, *, others: Sequence[PipelineConfig] | None = None
) -> list[ConfigError]:
    """An error for each start or bound that no source can have, and for a file of metrics or
    published views that another source of the folder writes; `others`: as in `shared_targets`."""
    source = config.source
    starts = [("start", config.start)]
    flavors: tuple[Flavor, ...] = ("mysql", "mariadb")
    if isinstance(source, LiveSourceConfig):
        if source.flavor != "auto":
            flavors = (source.flavor,)
        if source.standby is not None and source.standby.start is not None:
            starts.append(("source.standby.start", source.standby.start))
    errors = [error for setting, start in starts for error in _impossible(setting, start, flavors)]
    bound = config.bound
    if isinstance(bound, GtidBoundConfig) and not _is_gtid(bound.gtid, flavors, is_single=True):
        errors.append(
            ConfigError(
                "the bound is not the GTID of one transaction",
                setting="bound.gtid",
                expected="a GTID such as 3e11fa47-71ca-11e1-9e33-c80aa9429562:5 (MySQL) or 0-1-5 "
                "(MariaDB)",
                got=bound.gtid,
                next_step="take it from the log, as SHOW BINLOG EVENTS lists it",
            )
        )
    if others is None and (config.metrics is not None or config.sink.publish is not None):
        others = config.others()
    if config.sink.publish is not None:
        errors += _published_by_others(config, others or ())
    if config.metrics is not None and others is not None:
        also = [other.name for other in others if other.metrics == config.metrics]
        if also:
            errors.append(
                ConfigError(
                    f"{config.metrics} is also written by {', '.join(also)}",
                    setting="metrics",
                    expected="a file of its own for each source",
                    next_step="give each source a file of its own",
                )
            )
    return errors


def check_start(config: PipelineConfig) -> None:
    for error in impossible_settings(config):
        raise error


def _published_by_others(
    config: PipelineConfig, others: Sequence[PipelineConfig]
) -> Iterator[ConfigError]:
    asked = config.sink.publish
    assert asked is not None
    for other in others:
        of_other = other.sink.publish
        if of_other is None or other.name == config.name:
            continue
        if asked.duckdb is not None and asked.duckdb == of_other.duckdb:
            setting, same = "sink.publish.duckdb", str(asked.duckdb)
        elif (
            asked.catalog
            and of_other.catalog
            and asked.database.lower() == of_other.database.lower()
            and config.sink.spark == other.sink.spark
        ):
            setting, same = "sink.publish.database", asked.database
        else:
            continue
        yield ConfigError(
            f"the views in {same} are also published by {other.name}",
            setting=setting,
            expected="one source for each",
            next_step="name another one",
        )


def _impossible(setting: str, start: object, flavors: tuple[Flavor, ...]) -> Iterator[ConfigError]:
    now = datetime.now(UTC)
    if isinstance(start, TimeConfig) and start.time > now:
        yield ConfigError(
            "the start is in the future",
            setting=f"{setting}.time",
            expected=f"a time before now, {now.isoformat(timespec='seconds')}",
            got=start.time.isoformat(),
            next_step="give a time that has passed, or `latest` to begin at the end of the log",
        )
    if isinstance(start, GtidConfig) and not _is_gtid(start.gtid_set, flavors, is_single=False):
        yield ConfigError(
            "the start is not a GTID set",
            setting=f"{setting}.gtid_set",
            expected="a GTID set such as 3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5 (MySQL) or "
            "0-1-5 (MariaDB)",
            got=start.gtid_set,
            next_step="copy it from gtid_executed (MySQL) or gtid_binlog_pos (MariaDB)",
        )


def _is_gtid(text: str, flavors: tuple[Flavor, ...], *, is_single: bool) -> bool:
    # Late: it brings numpy.
    from cdc_pipeline.position.gtid.sets import parse_gtid_set, parse_single_gtid

    for flavor in flavors:
        with suppress(PositionError):
            if (parse_single_gtid if is_single else parse_gtid_set)(text, flavor):
                return True
    return False
