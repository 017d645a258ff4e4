"""What a pipeline does about schema changes: a word, and switches for single kinds (K13).

Rules:
- What the log leaves uncertain suspends the table under every policy: it needs a new snapshot.
- A policy states an intent. If the lake may not do it (`sink.reader_features`), the next best thing
  is done and its reason recorded, or the table is suspended and the setting named.
- A switch that is not set has the policy's value, so that readers need the switches alone.
- These are plain values: `cdc_pipeline.schema` interprets them for a statement.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Final, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, model_validator

from cdc_pipeline.config.section import Section, Takes
from cdc_pipeline.text.table_names import NameRule

# Names used by gh-ost and pt-online-schema-change.
SHADOW_TABLES: Final = (
    "_{table}_gho",
    "_{table}_ghc",
    "_{table}_del",
    "_{table}_new",
    "_{table}_old",
)


_Word = Literal["evolve", "careful", "stop"]
_CAREFUL: Final = dict.fromkeys(("drop_column", "drop_table", "truncate", "rename_table"), "stop")
_SWITCHES: Final = {"careful": _CAREFUL, "stop": {**_CAREFUL, "change_key": "stop"}}
_EFFECTS: Final = {
    "apply": "are removed",
    "keep": "are kept",
    "stop": "suspend the table",
}


class SchemaChangePolicy(Section):
    """The policy of a pipeline, or of the targets of one rule; `stop` suspends the table."""

    of_unknown: ClassVar = " (policy decides about other changes: evolve, careful or stop)"

    policy: _Word = "evolve"
    drop_column: Literal["keep", "apply", "stop"] = "keep"
    drop_table: Literal["keep", "apply", "stop"] = "keep"
    truncate: Literal["apply", "keep", "stop"] = "apply"
    rename_table: Literal["by_name", "follow", "keep", "stop"] = "by_name"
    change_key: Literal["certain", "apply", "stop"] = "certain"
    incompatible: Literal["stop", "new_column", "rewrite"] = "stop"

    @model_validator(mode="before")
    @classmethod
    def _switches(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {**_SWITCHES.get(str(value.get("policy")), {}), **value}

    @property
    def effect(self) -> str:
        """What becomes of each kind of change, for people."""
        effects: dict[str, list[str]] = {}
        for change, value in (
            ("added and wider columns", "stop" if self.policy == "stop" else "follow"),
            ("renamed columns", "follow" if self.policy == "evolve" else "stop"),
            ("renamed tables", self.rename_table),
            ("new keys", "follow" if self.change_key == "apply" else "stop"),
            ("rewritten values", self.incompatible),
            ("dropped columns", self.drop_column),
            ("dropped tables", self.drop_table),
            ("truncated rows", self.truncate),
        ):
            effects.setdefault(_EFFECTS.get(value, "are followed"), []).append(change)
        return f"{self.policy}: " + "; ".join(
            f"{', '.join(changes)} {effect}" for effect, changes in effects.items()
        )


def section_of(value: Any) -> Any:
    """The section that a word stands for; any other value as it is."""
    return {"policy": value} if value in get_args(_Word) else value


SchemaChanges = Annotated[
    SchemaChangePolicy,
    BeforeValidator(section_of, json_schema_input_type=_Word | SchemaChangePolicy),
    Takes("evolve, careful or stop, or a section with one of them as policy, and switches"),
]


class ShadowNames:
    """Templates for the shadow tables of online schema changes, such as ``_{table}_gho``."""

    def __init__(
        self,
        templates: tuple[str, ...] = SHADOW_TABLES,
        names: NameRule = NameRule.AS_GIVEN,
    ) -> None:
        # If a name is taken, each tool may add a time or further underscores.
        self._patterns = []
        for template in templates:
            before, after = (re.escape(names.fold(part)) for part in template.split("{table}"))
            self._patterns.append(
                re.compile(f"_*{before}(?P<table>.+?)(?:_\\d{{14}})?{after}", re.DOTALL)
            )

    def table_of(self, name: str) -> str:
        """The table that a shadow table's name belongs to; "" for any other name."""
        for pattern in self._patterns:
            match = pattern.fullmatch(name)
            if match is not None:
                return match["table"]
        return ""


def _checked_shadows(templates: tuple[str, ...]) -> tuple[str, ...]:
    """Raises ValueError unless each template contains ``{table}`` once, and other text."""
    for template in templates:
        if template.count("{table}") != 1 or template == "{table}":
            raise ValueError(
                f"{template!r} is not the name of a shadow table, which contains "
                f"{{table}} exactly once, as in '_{{table}}_gho'"
            )
    return templates


ShadowTemplates = Annotated[tuple[str, ...], AfterValidator(_checked_shadows)]
