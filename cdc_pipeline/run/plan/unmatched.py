"""Find patterns of `tables.include` without a table: a typo, or a missing SELECT (K22).

Rules:
- A pattern has matched if a table of the source's catalog, of its log or of the lake's state
  matches it. Captured tables in the log are in the cursor, so that after a run the cursor stands
  for the log.
- The run does everything else first, and then fails: an exit code of 0 would hide the mistake. Only
  a run that has read the log to its end can decide; `tables.allow_empty` permits tables that come
  later.
"""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches
from typing import Final

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import NothingMatchedError
from cdc_pipeline.position.cursor import CursorState
from cdc_pipeline.targets.table_filter import TableFilter
from cdc_pipeline.text.table_names import TablePattern, split_table_name

_NEAR_MAX: Final = 5


def unmatched(
    tables: TableFilter, known: Collection[str], cursor: CursorState | None
) -> tuple[str, ...]:
    """Patterns that match no table of the source or of the cursor."""
    names = {split_table_name(name) for name in {*known, *_names_of(cursor)}}

    def matches(pattern: TablePattern) -> bool:
        if pattern.exact_schema is not None and pattern.exact_table is not None:
            return (pattern.exact_schema, pattern.exact_table) in names
        return any(pattern.matches(*name) for name in names)

    return tuple(pattern.text for pattern in tables.include if not matches(pattern))


def nothing_matched(
    config: PipelineConfig, known: Collection[str] | None, cursor: CursorState | None
) -> NothingMatchedError | None:
    """`known`: the source's tables; None if it cannot tell. `cursor`: at the log's end."""
    missing = (
        () if config.tables.allow_empty else unmatched(TableFilter(config), known or (), cursor)
    )
    if not missing:
        return None
    names = sorted({*(known or ()), *_names_of(cursor)})
    near = [name for pattern in missing for name in _near(pattern, names)]
    got = f"{len(names)} other tables" if names else "none"
    if near:
        got = f"similar names: {', '.join(dict.fromkeys(near))}"
    seen = grant = then = ""
    if known is not None:
        seen = ", or one that the account sees"
        grant = "GRANT SELECT on its tables to the account, "
        then = f"; `cdc-pipeline snapshot {config.name}` reads their existing rows"
    return NothingMatchedError(
        f"no table matches {', '.join(missing)}",
        setting="tables.include",
        expected=f"a table in the log for each pattern{seen}",
        got=got,
        next_step=f"correct the pattern, {grant}or set tables: {{allow_empty: true}} if its "
        f"tables will be created later, or left this lake by another configuration{then}",
    )


def _names_of(cursor: CursorState | None) -> set[str]:
    states = () if cursor is None else cursor.targets.values()
    began_with = {state.origin[0] for state in states if state.origin is not None}
    return began_with | {name for state in states for name in state.source_names}


def _near(pattern: str, names: Collection[str]) -> list[str]:
    plain = pattern.replace("`", "").lower()
    of_text = {name.lower(): name for name in names}
    if "*" in plain or "?" in plain or "[" in plain:
        schema, _ = split_table_name(plain)
        schemas = {split_table_name(name)[0].lower() for name in names}
        close = set(get_close_matches(schema, sorted(schemas), n=2, cutoff=0.6))
        return [name for name in names if split_table_name(name)[0].lower() in close][:_NEAR_MAX]
    return [
        of_text[text] for text in get_close_matches(plain, list(of_text), n=_NEAR_MAX, cutoff=0.6)
    ]
