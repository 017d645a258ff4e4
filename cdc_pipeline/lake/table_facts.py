"""Write cuts as files, with repeated facts of tables kept once (K25).

Rules:
- A cut's file holds versions and counts of each table, and a reference to its `TableFacts`
  (columns, key, mode ...), so that it grows by some hundred bytes a table and not by its columns.
- The facts that a cut needs and its predecessor did not have are written before it, as one file:
  ``_cdc/<source>/tables/<number of the cut>-<hash of the content>.json``, a list. A reference is
  ``<file>:<place>``.
- Such a file never changes, and its name depends on its content: writing it again after a crash is
  harmless.
- A cut refers to files of its own number, or to those that the cut before it refers to. So a file
  is unused if neither the oldest kept cut nor an exception below it refers to it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from cdc_pipeline.errors import LakeStateError
from cdc_pipeline.lake.paths import NUMBER_DIGITS, LakePaths, put_if_absent, read_json
from cdc_pipeline.lake.records import Cut, CutTable, TableFacts
from cdc_pipeline.lake.storage.storage import storage_of
from cdc_pipeline.position.cursor import cursor_document

_FIELDS: Final = frozenset(TableFacts.model_fields)
_LISTED: Final = TypeAdapter(tuple[TableFacts, ...])
_FILES_CACHED: Final = 256
_FILE: Final = re.compile(rf"(\d{{{NUMBER_DIGITS}}})-[0-9a-f]{{32}}\.json")


def put_cut(paths: LakePaths, cut: Cut, previous: Cut | None = None) -> Cut | None:
    """Write a cut durably as a new file, after what it refers to.

    Args:
        paths: of the lake that the cut is written to.
        cut: with the facts of each table in place; a table that has a reference keeps it.
        previous: the cut before it in the same lake: facts that are the same there are referred to
            where they are.

    Returns:
        The cut as it will be read again; None, and nothing was changed, if there is such a cut
        already.
    """
    before = {} if previous is None else previous.tables
    references = {
        name: table.facts or _same(table, before.get(name)) for name, table in cut.tables.items()
    }
    new = {
        name: _content(cut.tables[name]) for name, reference in references.items() if not reference
    }
    if new:
        places = {text: place for place, text in enumerate(dict.fromkeys(new.values()))}
        content = f"[{','.join(places)}]"
        digest = hashlib.sha256(content.encode()).hexdigest()[:32]
        file = f"{cut.batch_number:0{NUMBER_DIGITS}d}-{digest}.json"
        put_if_absent(paths.tables / file, content)
        references |= {name: f"{file}:{places[text]}" for name, text in new.items()}
    if not put_if_absent(paths.cut(cut.batch_number), _cut_text(cut, references)):
        return None
    tables = {
        name: table.model_copy(update={"facts": references[name]})
        for name, table in cut.tables.items()
    }
    return cut.model_copy(update={"tables": tables})


def with_facts(paths: LakePaths, cut: Cut) -> Cut:
    """Return a cut as it was read from its file, with the facts of its tables in place.

    Raises:
        LakeStateError: a file that it refers to is gone or damaged.
    """
    if not any(table.facts for table in cut.tables.values()):
        return cut
    tables = {
        name: table.model_copy(update=dict(_facts_at(paths, table.facts))) if table.facts else table
        for name, table in cut.tables.items()
    }
    return cut.model_copy(update={"tables": tables})


def prune_facts(paths: LakePaths, kept: Iterable[Cut]) -> int:
    """Remove the files that no cut refers to any more.

    Args:
        kept: the oldest cut of those without a gap up to the newest, and all that are older.

    Returns:
        How many files were removed.
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


def _same(table: CutTable, before: CutTable | None) -> str:
    """Return the reference of the table before, if it has the same facts."""
    if before is None or not before.facts:
        return ""
    return (
        before.facts
        if all(getattr(table, name) == getattr(before, name) for name in _FIELDS)
        else ""
    )


def _content(table: CutTable) -> str:
    return _json(table.model_dump(mode="json", include=set(_FIELDS), exclude_defaults=True))


def _cut_text(cut: Cut, references: dict[str, str]) -> str:
    document = cut.model_dump(mode="json", exclude={"tables", "cursor"})
    document["cursor"] = cursor_document(cut.cursor)
    document["tables"] = {
        name: {
            **table.model_dump(mode="json", exclude={*_FIELDS, "facts"}, exclude_defaults=True),
            "facts": references[name],
        }
        for name, table in cut.tables.items()
    }
    return _json(document)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _facts_at(paths: LakePaths, reference: str) -> TableFacts:
    name, _, place = reference.rpartition(":")
    path = paths.tables / name
    try:
        return _read(path)[int(place)]
    except (ValueError, IndexError):
        raise LakeStateError(
            f"a file of the lake's own records contradicts a cut: {path}",
            expected=f"an entry {place}",
            next_step="restore the file from a backup of the lake",
        ) from None


@lru_cache(maxsize=_FILES_CACHED)
def _read(path: Path) -> tuple[TableFacts, ...]:
    """Return the entries of one file, shared by all cuts of a process: it never changes."""
    try:
        return _LISTED.validate_json(read_json(path))
    except ValidationError as error:
        raise LakeStateError(
            f"a file of the lake's own records cannot be read: {path}",
            expected="a format that this version of the program knows",
            got=f"{error.error_count()} mistakes, the first: {error.errors()[0]['msg']}",
            next_step="use the version of the program that wrote it, or restore the file from a "
            "backup of the lake",
        ) from None
