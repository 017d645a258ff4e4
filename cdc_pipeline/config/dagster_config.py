"""The section `dagster` of a pipeline's YAML: what Dagster shows of its assets, and when it acts.

Rules:
- The section's own settings are for every Delta table and the cursor. A rule under `rules` adds to
  them for the tables that it matches, by their names in the lake; `cursor` does so for the cursor.
- Tags are merged. Every other setting replaces an earlier one; the last rule that has it decides.
- A method of the project's translator that is overridden wins over all of it.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import ConfigDict, Field, field_validator, model_validator

from cdc_pipeline.config.target_config import Section, checked_patterns
from cdc_pipeline.config.units import Duration
from cdc_pipeline.text.table_names import TablePattern, matches_any

_CONDITIONS: Final = "eager, or {on_cron: '0 * * * *'} with or without a timezone"


class FreshnessConfig(Section):
    """When an asset counts as late: if its last event is older than `fail_window` (`warn_window`:
    warned of), or if it has none in the `lower_bound_delta` before a tick of `deadline_cron`."""

    fail_window: Duration | None = None
    warn_window: Duration | None = None
    deadline_cron: str | None = None
    lower_bound_delta: Duration | None = None
    timezone: str = "UTC"

    @model_validator(mode="after")
    def _one_kind(self) -> FreshnessConfig:
        by_window = self.fail_window is not None
        by_cron = self.deadline_cron is not None and self.lower_bound_delta is not None
        is_mixed = by_window and (self.deadline_cron or self.lower_bound_delta)
        if by_window == by_cron or is_mixed or (self.warn_window and not by_window):
            raise ValueError(
                "expected fail_window with or without warn_window, or deadline_cron with "
                "lower_bound_delta"
            )
        if self.fail_window and self.warn_window and self.warn_window >= self.fail_window:
            raise ValueError("warn_window must be shorter than fail_window")
        return self


class AutomationConfig(Section):
    """A named automation condition; `cron` belongs to `on_cron`."""

    kind: Literal["eager", "on_cron"]
    cron: str = ""
    timezone: str = "UTC"

    @model_validator(mode="before")
    @classmethod
    def _written(cls, value: Any) -> Any:
        if isinstance(value, AutomationConfig) or (isinstance(value, dict) and "kind" in value):
            return value
        if value == "eager":
            return {"kind": "eager"}
        known = {"on_cron", "timezone"}
        if isinstance(value, dict) and "on_cron" in value and value.keys() <= known:
            return {
                "kind": "on_cron",
                "cron": value["on_cron"],
                "timezone": value.get("timezone", "UTC"),
            }
        raise ValueError(f"expected {_CONDITIONS}")


class AssetSettings(Section):
    """What Dagster is told of an asset. None or empty: nothing."""

    description: str | None = None
    owners: tuple[str, ...] | None = None
    tags: dict[str, str] = Field(default_factory=dict)
    freshness: FreshnessConfig | None = None
    automation: AutomationConfig | None = None

    def with_more(self, more: AssetSettings) -> AssetSettings:
        """Return these settings, replaced by those that `more` has."""
        given = {
            name: value
            for name in AssetSettings.model_fields
            if (value := getattr(more, name)) is not None
        }
        return self.model_copy(update={**given, "tags": {**self.tags, **more.tags}})


class AssetRule(AssetSettings):
    """Settings of some Delta tables: shell patterns over ``schema.table``, the names in the
    lake."""

    model_config = ConfigDict(populate_by_name=True, defer_build=True)

    tables: tuple[str, ...]
    except_: tuple[str, ...] = Field(default=(), alias="except")

    @field_validator("tables", "except_")
    @classmethod
    def _patterns(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return checked_patterns(value)

    def matches(self, table: str) -> bool:
        """Return whether the rule is for a Delta table."""
        patterns, without = (
            map(TablePattern.parse, found) for found in (self.tables, self.except_)
        )
        return matches_any(patterns, table) and not matches_any(without, table)


class DagsterConfig(AssetSettings):
    """Settings of all assets, of some tables, and of the cursor."""

    rules: tuple[AssetRule, ...] = ()
    cursor: AssetSettings = AssetSettings()

    def of_table(self, table: str | None) -> AssetSettings:
        """Return the settings of a Delta table; of the cursor if `table` is None."""
        found = AssetSettings(**{name: getattr(self, name) for name in AssetSettings.model_fields})
        if table is None:
            return found.with_more(self.cursor)
        for rule in self.rules:
            if rule.matches(table):
                found = found.with_more(rule)
        return found
