"""Map source tables to their targets, as the configuration says.

Rules:
- `Routes` works by names alone: it queries neither the source nor the lake.
- A recorded target is followed while one of its source tables is captured and still leads to it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache

from cdc_pipeline.config.modes import MODES
from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.config.schema_policy import SchemaChangePolicy
from cdc_pipeline.config.target_config import TargetRule
from cdc_pipeline.errors import ConfigError
from cdc_pipeline.position.cursor import TargetState
from cdc_pipeline.targets.table_filter import TableFilter, pattern_names
from cdc_pipeline.text.table_names import (
    NameRule,
    TablePattern,
    matches_any,
    split_table_name,
)


@dataclass(frozen=True, slots=True)
class Route:
    """`policy`: the rule's own or the pipeline's; `number`: of the rule, -1 for the default."""

    source: str
    target: str
    rule: TargetRule
    policy: SchemaChangePolicy
    number: int = -1

    @property
    def setting(self) -> str:
        return "sink" if self.number < 0 else f"targets.{self.number}"

    @property
    def shard(self) -> str:
        return self.rule.shard_of(*split_table_name(self.source))


def rule_keys(routes: Iterable[Route]) -> frozenset[str]:
    rules = (route.rule for route in routes)
    return frozenset(name for rule in rules if MODES[rule.mode].has_key for name in rule.key)


class Routes:
    def __init__(self, config: PipelineConfig) -> None:
        self.tables = TableFilter(config)
        properties = config.sink.properties
        self._default = TargetRule(mode=config.sink.mode, properties=properties)
        self.policy = config.schema_changes
        names = pattern_names(config)
        self._rules = [
            (
                _patterns(rule.tables, names),
                _patterns(rule.except_, names),
                rule.model_copy(update={"properties": _both(properties, rule.properties)}),
            )
            for rule in config.targets
        ]
        self.of_table = lru_cache(maxsize=65536)(self._of_table)

    def _of_table(self, name: str) -> tuple[Route, ...]:
        """ConfigError: two rules give the table the same target."""
        schema, table = split_table_name(name)
        rules = [
            (number, rule)
            for number, (among, without, rule) in enumerate(self._rules)
            if matches_any(among, name) and not matches_any(without, name)
        ] or [(-1, self._default)]
        routes = tuple(
            Route(
                name,
                rule.target_name(schema, table),
                rule,
                rule.schema_changes or self.policy,
                number,
            )
            for number, rule in rules
        )
        names = [route.target for route in routes]
        twice = next((target for target in names if names.count(target) > 1), None)
        if twice is not None:
            raise ConfigError(
                f"two rules keep {name} as the same target {twice}",
                setting="targets",
                expected="a different name for each target of a table",
                next_step="give one of the rules another `name`, or exclude the table from "
                "one with `except`",
            )
        return routes

    def found_by(self, name: str) -> frozenset[str]:
        """The columns by which rules find rows of a table."""
        return rule_keys(self.of_table(name))

    def sources_of(self, target: str, names: Collection[str]) -> list[str]:
        """Those source tables of `names` that are captured and lead to a target."""
        return sorted(
            name
            for name in names
            if self.tables.captured(*split_table_name(name))
            and any(route.target == target for route in self.of_table(name))
        )

    def is_followed(self, state: TargetState) -> bool:
        """Whether a recorded target still follows the source."""
        if state.origin is not None:
            source, target = state.origin
            return bool(self.sources_of(target, [source]))
        return bool(self.sources_of(state.table, state.source_names))


def _patterns(patterns: Collection[str], names: NameRule) -> tuple[TablePattern, ...]:
    return tuple(TablePattern.parse(text, names) for text in patterns)


def _both(of_source: dict[str, str], of_rule: dict[str, str]) -> dict[str, str]:
    """A rule's property replaces the source's, whatever its case."""
    replaced = {name.lower() for name in of_rule}
    kept = {name: text for name, text in of_source.items() if name.lower() not in replaced}
    return kept | of_rule
