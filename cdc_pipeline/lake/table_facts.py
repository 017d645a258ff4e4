"""Write cuts as files, with repeated facts of tables kept once (K25).

Rules:
- A cut's file holds versions and counts of each table, and a reference to its `TableFacts`
  (columns, key, mode ...) and to what seldom changes of its state in the cursor (application id,
  exactness ...), so that it grows by about a hundred bytes a table and not by its columns.
- The state of a suspended target, and of one without a table, is in the cursor as a whole.
- The facts that a cut needs and its predecessor did not have are written before it, as one file:
  ``_cdc/<source>/tables/<number of the cut>-<hash of the content>.json``, a list. A reference is
  ``<number in the cut's list of files>:<place>``; in memory it is ``<file>:<place>``.
- Such a file never changes, and its name depends on its content: writing it again after a crash is
  harmless.
- A cut refers to files of its own number, or to those that the cut before it refers to. So a file
  is unused if neither the oldest kept cut nor an exception below it refers to it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter

from cdc_pipeline.errors import LakeStateError
from cdc_pipeline.frozen_model import FrozenModel
from cdc_pipeline.lake.paths import NUMBER_DIGITS, LakePaths, put_if_absent, read_document
from cdc_pipeline.lake.records import Cut, CutTable, TableFacts
from cdc_pipeline.lake.storage.storage import storage_of
from cdc_pipeline.position.cursor import TargetState, cursor_document


class _StateFacts(FrozenModel):
    app_id: str
    partial: bool = False
    sources: tuple[str, ...] = ()
    exact: bool = False
    origin: tuple[str, str] | None = None


class _Entry(TableFacts):
    state: _StateFacts | None = None  # None: the cursor holds all of it


_FIELDS: Final = frozenset(TableFacts.model_fields)
_STATE_FIELDS: Final = frozenset(_StateFacts.model_fields)
_LISTED: Final = TypeAdapter(tuple[_Entry, ...])
_FILES_CACHED: Final = 256
_FILE: Final = re.compile(rf"(\d{{{NUMBER_DIGITS}}})-[0-9a-f]{{32}}\.json")


def put_cut(paths: LakePaths, cut: Cut, previous: Cut | None = None) -> Cut | None:
    """Write a cut durably as a new file, after what it refers to: a table keeps its reference, and
    facts that `previous`, the cut before it in the same lake, has too are referred to where they
    are. The cut as it will be read again; None, and nothing was changed, if there is one already.
    """
    before = {} if previous is None else previous.tables
    states = {name: _state_facts(cut, name) for name in cut.tables}
    folder = paths.tables
    references = {
        name: _reference(folder, cut, name, before.get(name), states[name]) for name in cut.tables
    }
    new = {
        name: _content(cut.tables[name], states[name])
        for name, reference in references.items()
        if not reference
    }
    if new:
        places = {text: place for place, text in enumerate(dict.fromkeys(new.values()))}
        content = f"[{','.join(places)}]"
        digest = hashlib.sha256(content.encode()).hexdigest()[:32]
        file = f"{cut.batch_number:0{NUMBER_DIGITS}d}-{digest}.json"
        put_if_absent(folder / file, content)
        references |= {name: f"{file}:{places[text]}" for name, text in new.items()}
    if not put_if_absent(paths.cut(cut.batch_number), _cut_text(cut, references, states)):
        return None
    tables = {
        name: table.model_copy(update={"facts": references[name]})
        for name, table in cut.tables.items()
    }
    return cut.model_copy(update={"tables": tables})


def with_facts(paths: LakePaths, cut: Cut) -> Cut:
    """A cut as it was read from its file, with the facts of its tables in place. Raises
    LakeStateError: a file that it refers to is gone or damaged.
    """
    tables, targets, folder = {}, dict(cut.cursor.targets), paths.tables
    for name, table in cut.tables.items():
        number, _, place = table.facts.partition(":")
        try:
            reference = f"{cut.facts_files[int(number)]}:{place}"
        except (ValueError, IndexError):
            raise LakeStateError(
                f"a cut does not say where the facts of a table are: {paths.cut(cut.batch_number)}",
                table=name,
                expected="facts: the number of one of its files, and a place in it",
                got=table.facts,
                next_step="restore the cut from a backup of the lake",
            ) from None
        entry = _facts_at(folder, reference)
        facts = {field: getattr(entry, field) for field in _FIELDS}
        tables[name] = table.model_copy(update={**facts, "facts": reference, "applied_batch": -1})
        if entry.state is not None and name not in targets:
            targets[name] = TargetState(
                table=name,
                table_version=table.table_version,
                applied_batch=table.applied_batch,
                **dict(entry.state),
            )
    cursor = cut.cursor.model_copy(update={"targets": dict(sorted(targets.items()))})
    return cut.model_copy(update={"tables": tables, "cursor": cursor, "facts_files": ()})


def prune_facts(paths: LakePaths, kept: Iterable[Cut]) -> int:
    """Remove the files that no cut refers to any more; return how many. `kept`: the oldest cut of
    those without a gap up to the newest, and all that are older.
    """
    cuts = list(kept)
    oldest = max(cut.batch_number for cut in cuts)
    needed = {table.facts.partition(":")[0] for cut in cuts for table in cut.tables.values()}
    removed = 0
    for name in storage_of(paths.tables).names(paths.tables):
        match = _FILE.fullmatch(name)
        if match is not None and int(match[1]) < oldest and name not in needed:
            (paths.tables / name).unlink(missing_ok=True)
            removed += 1
    return removed


def _state_facts(cut: Cut, name: str) -> _StateFacts | None:
    """What seldom changes of a target's state; None if the cursor must hold all of it."""
    state = cut.cursor.targets.get(name)
    if (
        state is None
        or state.suspended is not None
        or (state.table, state.table_version) != (name, cut.tables[name].table_version)
    ):
        return None
    return _StateFacts(**{field: getattr(state, field) for field in _STATE_FIELDS})


def _reference(
    folder: Path, cut: Cut, name: str, before: CutTable | None, state: _StateFacts | None
) -> str:
    """The reference of a table, or of the table before, if it says the same; "" if not."""
    table = cut.tables[name]
    reference = table.facts or ("" if before is None else before.facts)
    if not reference or (
        not table.facts
        and any(getattr(table, field) != getattr(before, field) for field in _FIELDS)
    ):
        return ""
    # A state that the cursor holds as a whole overrides the entry's.
    is_whole = state is None and name in cut.cursor.targets
    return reference if is_whole or _facts_at(folder, reference).state == state else ""


def _content(table: CutTable, state: _StateFacts | None) -> str:
    document = table.model_dump(mode="json", include=set(_FIELDS), exclude_defaults=True)
    if state is not None:
        document["state"] = state.model_dump(mode="json", exclude_defaults=True)
    return _json(document)


def _cut_text(
    cut: Cut, references: dict[str, str], states: Mapping[str, _StateFacts | None]
) -> str:
    document = cut.model_dump(mode="json", exclude={"tables", "cursor", "facts_files"})
    files = {name: at for at, name in enumerate(sorted({_file_of(r) for r in references.values()}))}
    whole = {name: state for name, state in cut.cursor.targets.items() if states.get(name) is None}
    document["version"] = Cut.model_fields["version"].default
    document["cursor"] = cursor_document(cut.cursor.model_copy(update={"targets": whole}))
    document["facts_files"] = list(files)
    document["tables"] = {
        name: {
            **table.model_dump(
                mode="json", exclude={*_FIELDS, "facts", "applied_batch"}, exclude_defaults=True
            ),
            **({} if name in whole else {"applied_batch": cut.cursor.targets[name].applied_batch}),
            "facts": f"{files[_file_of(references[name])]}:{references[name].rpartition(':')[2]}",
        }
        for name, table in cut.tables.items()
    }
    return _json(document)


def _file_of(reference: str) -> str:
    return reference.rpartition(":")[0]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _facts_at(folder: Path, reference: str) -> _Entry:
    name, _, place = reference.rpartition(":")
    try:
        return _read(folder, name)[int(place)]
    except (ValueError, IndexError):
        raise LakeStateError(
            f"a file of the lake's own records contradicts a cut: {folder / name}",
            expected=f"an entry {place}",
            next_step="restore the file from a backup of the lake",
        ) from None


@lru_cache(maxsize=_FILES_CACHED)
def _read(folder: Path, name: str) -> tuple[_Entry, ...]:
    """The entries of one file, shared by all cuts of a process: it never changes."""
    return read_document(folder / name, _LISTED.validate_json)
