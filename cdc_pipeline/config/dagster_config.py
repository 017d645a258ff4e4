"""The section `dagster` of a pipeline's YAML: what Dagster shows of its assets, and when it acts.

Rules:
- The section's own settings are for every Delta table and the cursor. A rule under `rules` adds to
  them for the tables that it matches, by their names in the lake; `cursor` does so for the cursor.
- Tags are merged. Every other setting replaces an earlier one; the last rule that has it decides.
- A method of the project's translator that is overridden wins over all of it.
"""

from __future__ import annotations

import re
from datetime import date, timedelta
from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Field, ValidationInfo, field_validator, model_validator

from cdc_pipeline.config.schedules import Cron, Scheduled, Zone, is_accepted
from cdc_pipeline.config.section import Forms, Section, Takes
from cdc_pipeline.config.target_config import Patterns
from cdc_pipeline.config.units import Bytes, Duration, Seconds
from cdc_pipeline.text.table_names import TablePattern, matches_any

CheckName = Literal[
    "follows",
    "proved",
    "count",
    "checksum",
    "key_uniqueness",
    "interval_continuity",
    "intervals_join",
    "lag",
    "retention",
]
# What Dagster accepts. It refuses anything else with a traceback.
_OWNER: Final = r"^([A-Za-z0-9_][A-Za-z0-9._%+-]*@[A-Za-z0-9.-]+\.[A-Za-z]{2,7}|team:.+)$"
_TAG_NAME: Final = re.compile(r"([A-Za-z0-9_.-]{1,63}/)?[A-Za-z0-9_.-]{1,63}")
_TAG_VALUE: Final = re.compile(r"[A-Za-z0-9_.-]{0,63}")
# Whose tags these are, and how to set what they say.
_RESERVED_TAGS: Final = {
    "cdc/": "the pipeline's own tags: choose another prefix",
    "dagster/kind/": "kinds: override CdcTranslator.kinds",
}
_WINDOW_MIN: Final = timedelta(minutes=1)


Owner = Annotated[str, Field(pattern=_OWNER), Takes("an email address or team:name")]


class FreshnessConfig(Section):
    """When an asset counts as late."""

    fail_window: Duration | None = None
    warn_window: Duration | None = None
    deadline_cron: Cron | None = None
    lower_bound_delta: Duration | None = None
    timezone: Zone = "UTC"

    @model_validator(mode="after")
    def _one_kind(self, info: ValidationInfo) -> FreshnessConfig:
        by_window = self.fail_window is not None
        by_cron = self.deadline_cron is not None and self.lower_bound_delta is not None
        is_mixed = by_window and (self.deadline_cron or self.lower_bound_delta)
        if by_window == by_cron or is_mixed or (self.warn_window and not by_window):
            raise ValueError(
                "expected fail_window with or without warn_window, or deadline_cron with "
                "lower_bound_delta"
            )
        for name in ("fail_window", "warn_window", "lower_bound_delta"):
            window = getattr(self, name)
            if window is not None and window < _WINDOW_MIN:
                raise ValueError(f"{name}: expected at least 1 minute")
        if self.fail_window and self.warn_window and self.warn_window >= self.fail_window:
            raise ValueError("warn_window: expected less than fail_window")
        if by_cron and not is_accepted(
            info,
            cron=self.deadline_cron,
            timezone=self.timezone,
            lower_bound=self.lower_bound_delta,
        ):
            raise ValueError(
                "lower_bound_delta: is longer than the shortest time between two ticks of "
                "deadline_cron: expected at most that"
            )
        return self


class OnCronConfig(Section):
    """Materialize after each tick of a schedule."""

    on_cron: Cron
    timezone: Zone = "UTC"


class AssetSettings(Section):
    """What Dagster is told of an asset. None or empty: nothing."""

    description: str | None = None
    owners: tuple[Owner, ...] | None = None
    tags: dict[str, str] = Field(default_factory=dict)
    freshness: FreshnessConfig | None = None
    automation: (
        Annotated[
            Literal["eager"] | OnCronConfig,
            Forms("eager, or {on_cron: '0 * * * *'} with or without a timezone"),
        ]
        | None
    ) = None

    @field_validator("tags")
    @classmethod
    def _tags(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            for prefix, whose in _RESERVED_TAGS.items():
                if name.startswith(prefix):
                    raise ValueError(f"{name}: tags that begin with {prefix} are {whose}")
            if not _TAG_NAME.fullmatch(name):
                raise ValueError(
                    f"{name!r} is not a tag's name: expected at most 63 letters, digits, _, - "
                    "and ., with or without such a prefix and /, as in team/region"
                )
            if not _TAG_VALUE.fullmatch(text):
                raise ValueError(
                    f"{name}: {text!r} is not a tag's value: expected at most 63 letters, digits, "
                    "_, - and ."
                )
        return value

    def with_more(self, more: AssetSettings) -> AssetSettings:
        """These settings, replaced by those that `more` has; tags are merged."""
        replaced = {
            name: value
            for name in AssetSettings.model_fields
            if (value := getattr(more, name)) is not None
        }
        return self.model_copy(update={**replaced, "tags": {**self.tags, **more.tags}})


class AssetRule(AssetSettings):
    """Settings of some Delta tables."""

    model_config = ConfigDict(populate_by_name=True, defer_build=True)

    tables: Patterns
    except_: Patterns = Field(default=(), alias="except")

    def matches(self, table: str) -> bool:
        patterns, without = (
            map(TablePattern.parse, texts) for texts in (self.tables, self.except_)
        )
        return matches_any(patterns, table) and not matches_any(without, table)


class GrowthSensorConfig(Section):
    """When the sensor of a live source starts a capture."""

    unread_bytes: Bytes = Field(default=64 << 20, ge=1)
    headroom: Duration = timedelta(hours=24)
    interval_s: Seconds = Field(default=60, ge=10)
    enabled: bool = False


class ChecksConfig(Scheduled):
    """The checks that the job ``<source>_checks`` executes, and its schedule."""

    names: tuple[CheckName, ...] = ("intervals_join", "lag", "retention")


class DagsterConfig(AssetSettings):
    """Settings of all assets, of some tables, and of the cursor; and of the runs."""

    rules: tuple[AssetRule, ...] = ()
    cursor: AssetSettings = AssetSettings()
    fail_on_suspended: bool = True
    observed_tables_max: int = Field(default=25, ge=0)
    backfill_from: date | None = None
    sensor: GrowthSensorConfig = GrowthSensorConfig()
    checks: ChecksConfig = ChecksConfig()

    def of_table(self, table: str | None) -> AssetSettings:
        """Settings of a Delta table; of the cursor if `table` is None."""
        settings = AssetSettings(
            **{name: getattr(self, name) for name in AssetSettings.model_fields}
        )
        if table is None:
            return settings.with_more(self.cursor)
        for rule in self.rules:
            if rule.matches(table):
                settings = settings.with_more(rule)
        return settings
