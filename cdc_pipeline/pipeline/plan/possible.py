"""Decide which settings cannot be carried out by any source: known before one is asked (K31).

Rules:
- `validate` names all of them; `plan`, and so `run`, `doctor` and Dagster, refuse those that the
  run would need.
- A start in the future is none: a run would begin at the log's end and save that as its cursor.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from cdc_pipeline.config.pipeline_config import (
    GtidConfig,
    LiveSourceConfig,
    PipelineConfig,
    TimeConfig,
)
from cdc_pipeline.errors import ConfigError, PositionError
from cdc_pipeline.position.position import Flavor


def impossible_settings(
    config: PipelineConfig, *, now: datetime | None = None
) -> list[ConfigError]:
    """An error for each start that no source can have."""
    source = config.source
    starts = [("start", config.start)]
    flavors: tuple[Flavor, ...] = ("mysql", "mariadb")
    if isinstance(source, LiveSourceConfig):
        if source.flavor != "auto":
            flavors = (source.flavor,)
        if source.standby is not None and source.standby.start is not None:
            starts.append(("source.standby.start", source.standby.start))
    return [
        error
        for setting, start in starts
        for error in _impossible(setting, start, flavors, now or datetime.now(UTC))
    ]


def check_start(config: PipelineConfig) -> None:
    """Raise the first of `impossible_settings`."""
    for error in impossible_settings(config):
        raise error


def _impossible(
    setting: str, start: object, flavors: tuple[Flavor, ...], now: datetime
) -> Iterator[ConfigError]:
    if isinstance(start, TimeConfig) and start.time > now:
        yield ConfigError(
            "the start is in the future",
            setting=f"{setting}.time",
            expected=f"a time before now, {now.isoformat(timespec='seconds')}",
            got=start.time.isoformat(),
            next_step="give a time that has passed, or `latest` to begin at the end of the log",
        )
    if isinstance(start, GtidConfig) and not any(_is_set(start.gtid_set, one) for one in flavors):
        yield ConfigError(
            "the start is not a GTID set",
            setting=f"{setting}.gtid_set",
            expected="a GTID set such as 3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5 (MySQL) or "
            "0-1-5 (MariaDB)",
            got=start.gtid_set,
            next_step="copy it from gtid_executed (MySQL) or gtid_binlog_pos (MariaDB)",
        )


def _is_set(text: str, flavor: Flavor) -> bool:
    from cdc_pipeline.position.gtid.sets import parse_gtid_set  # late: it brings numpy

    try:
        return bool(parse_gtid_set(text, flavor))
    except PositionError:
        return False
