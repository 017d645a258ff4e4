"""What was erased on request, so that no later reading of the log brings it back.

    _cdc/<source>/erasures/<id>.json               put once, before anything is removed
    _cdc/<source>/erasures/<id>.certificate.json   what was removed, and what still holds it until
                                                   when; without it the erasure is unfinished

Rules:
- A record names keys by their HMAC alone, of the values as the log has them: a mask that is added
  or changed later brings no row back. The salt lies beside them, and is one for all of a source's
  erasures: it keeps keys from being read, not from being tried.
- `until` is the end of the log at the erasure, and never moves. An event before it with an erased
  key is left out whoever reads it; a row that is inserted later is new.
- In another server's log, or another numbering, whose places say nothing about this one's, the
  commit time decides.
- A key is its values: a column is found by its name, or if it was renamed since by its place in the
  key. An erasure is of one source table, under each name that it had, up to the rename.
- A lake beside the pipeline's own gets a copy when it is opened.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from cdc_pipeline.binlog.value_text import hashed
from cdc_pipeline.frozen_model import FrozenModel
from cdc_pipeline.lake.paths import LakePaths, put_if_absent, read_document, replace_file
from cdc_pipeline.lake.storage.storage import storage_of
from cdc_pipeline.position.cursor import Place
from cdc_pipeline.position.position import ServerIdentity

_RECORD: Final = ".json"
_CERTIFICATE: Final = ".certificate.json"
_SALT_BYTES: Final = 32


class NameBound(FrozenModel):
    """Before which a name was the table's, and since when: seqs, as text, and times at the
    source.
    """

    seq: str
    time_us: int
    since: str = "0"
    since_us: int = -1

    @property
    def place(self) -> int:
        return int(self.seq)


class Erasure(FrozenModel):
    """Keys of one source table.

    Attributes:
        request: HMAC of what was asked for: the same command ends the erasure.
        names: each name that the table had; its own up to the end of the log.
        key: the names of its key columns now.
        salt: in hex.
        digests: HMACs of the keys as the log has them; `masked`: as targets hold them.
        epoch, flavor, server_id, server_uuid: whose places `names` and `position` are.
    """

    version: Literal[1] = 1
    erasure_id: str
    source: str
    table: str
    request: str = ""
    names: dict[str, NameBound]
    key: tuple[str, ...]
    salt: str
    digests: tuple[str, ...]
    masked: tuple[str, ...] = ()
    position: Place
    epoch: int
    flavor: Literal["mysql", "mariadb"]
    server_id: int
    server_uuid: str = ""
    who: str = ""
    why: str = ""

    def is_of_log(self, identity: ServerIdentity, epoch: int) -> bool:
        """Whether places of this log can be compared with those of `names`."""
        own = ServerIdentity(self.flavor, self.server_id, self.server_uuid)
        return epoch == self.epoch and own.same_server(identity)

    def has(self, keys: Sequence[pa.Array]) -> pa.Array:
        """Which keys, given by their columns, are among those of the targets."""
        found = digests_of(keys, bytes.fromhex(self.salt))
        return pc.is_in(found, pa.array({*self.digests, *self.masked}, pa.string()))


class Held(FrozenModel):
    """A place that still holds what was erased, or may; `until_us`: -1 if nothing removes it."""

    what: str
    where: str
    why: str
    until_us: int = -1


class Certificate(FrozenModel):
    """What became of an erasure.

    Attributes:
        removed: rows by target; of a changelog those that were changed, too.
        quarantine: entries whose rows were removed.
        versions: of the targets' tables, the first without the rows.
        held: what still holds the rows.
        files_read: how many files were read to find that out.
        not_searched: what the pipeline does not reach, for people.
    """

    version: Literal[1] = 1
    erasure_id: str
    source: str
    table: str
    keys: int
    until: Place
    removed: dict[str, int]
    quarantine: int = 0
    versions: dict[str, int] = Field(default_factory=dict)
    held: tuple[Held, ...] = ()
    files_read: int = 0
    not_searched: tuple[str, ...] = ()
    checked_at_us: int = -1

    @property
    def is_absent(self) -> bool:
        """But for kept journals, which are bytes of all tables."""
        return all(one.what == "journals" for one in self.held)


def digests_of(keys: Sequence[pa.Array], salt: bytes) -> pa.Array:
    """Of n keys, given by their columns; NULL where one has no value."""
    parts = [_hashed(column, salt) for column in keys]
    if len(parts) == 1:
        return parts[0]
    return hashed(pc.binary_join_element_wise(*parts, "/"), salt)


def _hashed(values: pa.Array, salt: bytes) -> pa.Array:
    """Each distinct value once: changes of a row share its key."""
    distinct = values.dictionary_encode()
    return hashed(distinct.dictionary, salt).take(distinct.indices)


def key_columns(
    key: Sequence[str], present: Sequence[str], primary: Sequence[str]
) -> tuple[str, ...] | None:
    """The columns that are the key where a table has the columns `present`, by their names; those
    that had another name by their places in its key. None: neither tells.
    """
    by_name = {name.lower(): name for name in present}
    wanted = {name.lower() for name in key}
    rest = [name for name in primary if name.lower() not in wanted]
    missing = [name for name in key if name.lower() not in by_name]
    if missing and len(missing) != len(rest):
        return None
    return tuple(by_name[name.lower()] if name.lower() in by_name else rest.pop(0) for name in key)


def folder_of(paths: LakePaths) -> Path:
    return paths.state / "erasures"


def read_erasures(paths: LakePaths) -> list[Erasure]:
    """Oldest first. Raises LakeStateError: one is damaged."""
    return [
        read_document(folder_of(paths) / name, Erasure.model_validate_json)
        for name in _records(paths)
    ]


def _records(paths: LakePaths) -> list[str]:
    names = storage_of(paths.state).names(folder_of(paths))
    return sorted(
        name
        for name in names
        if name.endswith(_RECORD) and not name.startswith(".") and not name.endswith(_CERTIFICATE)
    )


def salt_of(erasures: Sequence[Erasure]) -> str:
    """The one of a source."""
    return erasures[0].salt if erasures else secrets.token_hex(_SALT_BYTES)


def record(paths: LakePaths, erasure: Erasure) -> None:
    place = folder_of(paths) / f"{erasure.erasure_id}{_RECORD}"
    put_if_absent(place, erasure.model_dump_json(indent=1))


def withdraw(paths: LakePaths, erasure: Erasure) -> None:
    """One whose batch was never recorded."""
    place = folder_of(paths) / f"{erasure.erasure_id}{_RECORD}"
    storage_of(place).remove(place)


def certify(paths: LakePaths, certificate: Certificate) -> None:
    place = folder_of(paths) / f"{certificate.erasure_id}{_CERTIFICATE}"
    replace_file(place, certificate.model_dump_json(indent=1).encode())


def certificate_of(paths: LakePaths, erasure: Erasure) -> Certificate | None:
    """None while it is unfinished. Raises as `read_erasures`."""
    place = folder_of(paths) / f"{erasure.erasure_id}{_CERTIFICATE}"
    if place.name not in storage_of(paths.state).names(folder_of(paths)):
        return None
    return read_document(place, Certificate.model_validate_json)


def unfinished(paths: LakePaths) -> Iterator[Erasure]:
    return (one for one in read_erasures(paths) if certificate_of(paths, one) is None)


def copy_erasures(paths: LakePaths, beside: LakePaths) -> None:
    """To a lake whose readings begin."""
    known = set(_records(beside)) if (names := _records(paths)) else set()
    for name in names:
        if name not in known:
            content = storage_of(paths.state).read(folder_of(paths) / name)
            put_if_absent(folder_of(beside) / name, content.decode())
