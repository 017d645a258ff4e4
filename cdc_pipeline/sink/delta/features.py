"""Which Delta features may be switched on, and who can read a table that has them.

Rules:
- A reader refuses a table with a reader feature that it does not know. So each is switched on only
  when a table needs it, and only if ``sink.reader_features`` permits it. A feature that is needed
  and not permitted stops that table by name.
- A value is never stored as another type to get around a feature: DATETIME without permission for
  ``timestampNtz`` stops the table (a timestamp with a zone would be another moment for another
  reader). To store it otherwise, use a type override in the targets' rules.
- Writer-only features (clustering, change data feed ...) exclude no reader and are always
  permitted.

Names are those of the Delta protocol. The features that each preset knows, with sources and dates,
are in docs/lake/readers.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cdc_pipeline.config.pipeline_config import READER_FEATURES, READER_PRESETS, SinkConfig
from cdc_pipeline.errors import FeatureNotAllowedError
from cdc_pipeline.schema.types import features_of_type

_SETTING: Final = "sink.reader_features"

# Feature -> the table property that switches it on, for features that have one.
PROPERTIES: Final = {
    "deletionVectors": ("delta.enableDeletionVectors", "true"),
    "columnMapping": ("delta.columnMapping.mode", "name"),
    "typeWidening": ("delta.enableTypeWidening", "true"),
    "timestampNtz": ("delta.feature.timestampNtz", "supported"),
}


@dataclass(frozen=True, slots=True)
class Allowed:
    """The reader features that may be switched on; None for all."""

    features: frozenset[str] | None = None

    def permits(self, feature: str) -> bool:
        return self.features is None or feature not in READER_FEATURES or feature in self.features

    def require(
        self, feature: str, why: str, *, table: str | None = None, way_out: str = ""
    ) -> None:
        """`why`: what needs it, as the beginning of a sentence: ``column `at` is a DATETIME``;
        `way_out`: the alternative, as an imperative. Raises FeatureNotAllowedError.
        """
        if self.permits(feature):
            return
        raise FeatureNotAllowedError(
            f"{why}, which needs the Delta feature {feature}",
            table=table,
            setting=_SETTING,
            expected=f"{feature} among {', '.join(sorted(self.features or ())) or 'no features'}",
            got=f"tables with {feature} cannot be read by "
            f"{', '.join(excluded(feature)) or 'readers without it'}",
            next_step=f"add {feature} to {_SETTING} if all of your readers support it"
            + (f", or {way_out}" if way_out else ""),
        )

    def check_types(self, columns: Iterable[tuple[str, str]], *, table: str) -> None:
        """For columns (name, Delta type as DDL text). Raises FeatureNotAllowedError."""
        for name, delta_type in columns:
            for feature in features_of_type(delta_type):
                self.require(
                    feature,
                    f"column `{name}` is stored as {delta_type}",
                    table=table,
                    way_out="give the column another type by a type override, or exclude the table",
                )


ALL_ALLOWED: Final = Allowed()


def allowed(config: SinkConfig) -> Allowed:
    """Everything, or what all readers of the presets know and what is named."""
    if config.reader_features == "all":
        return ALL_ALLOWED
    presets = [READER_PRESETS[name] for name in config.reader_features if name in READER_PRESETS]
    named = {name for name in config.reader_features if name not in READER_PRESETS}
    return Allowed((frozenset.intersection(*presets) if presets else frozenset()) | named)


def excluded(*features: str) -> tuple[str, ...]:
    needed = READER_FEATURES.intersection(features)
    return tuple(name for name, known in READER_PRESETS.items() if not needed <= known)


def creation_properties(permitted: Allowed) -> dict[str, str]:
    """Deletion vectors, if permitted: rows change without rewriting files."""
    return dict([PROPERTIES["deletionVectors"]]) if permitted.permits("deletionVectors") else {}


def features_of_table(delta_types: Iterable[str], permitted: Allowed) -> tuple[str, ...]:
    features = {feature for text in delta_types for feature in features_of_type(text)}
    if permitted.permits("deletionVectors"):
        features.add("deletionVectors")
    return tuple(sorted(features))
