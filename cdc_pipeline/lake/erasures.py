"""What was erased on request, so that no later reading of the log brings it back.

    _cdc/<source>/erasures/<id>.<log>.<seq>.json   put once, before anything is removed; it leaves
                                                   out what this log has before `seq`
    _cdc/<source>/erasures/<id>.certificate.json   what was removed, and what still holds it until
                                                   when; without it the erasure is unfinished

Rules:
- A record names keys by their HMAC alone, of the values as the log has them: a mask that is added
  or changed later brings no row back. The salt lies beside them, and is one for all of a source's
  erasures: it keeps keys from being read, not from being tried.
- `until` is the end of the log at the erasure, and never moves. An event before it with an erased
  key is left out whoever reads it; a row that is inserted later is new.
- In another server's log, or another numbering, whose places say nothing about this one's, the
  commit time decides (`Erasure.reach`). A lake that is numbered for itself may read either: there a
  journal is of this numbering if numbers and times of creation have one order.
- A key is its values, of columns that are followed by what the schema history knows of their names
  (`Erasure.keys`). What lies before that is judged by name and place in the key, which must agree.
- An erasure is of one source table, under each name that it had, up to the rename.
- A lake beside the pipeline's own gets a copy when it is opened (`copy_erasures`).
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, Generic, Literal, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from cdc_pipeline.binlog.seq import epoch_of, journal_of, with_epoch
from cdc_pipeline.binlog.value_text import hashed
from cdc_pipeline.frozen_model import FrozenModel
from cdc_pipeline.lake.paths import LakePaths, put_if_absent, read_document, replace_file
from cdc_pipeline.lake.storage.storage import storage_of
from cdc_pipeline.position.cursor import Place
from cdc_pipeline.position.position import ServerIdentity

_RECORD: Final = ".json"
_CERTIFICATE: Final = ".certificate"
_SALT_BYTES: Final = 32
_Request = TypeVar("_Request", bound=FrozenModel)
_Proof = TypeVar("_Proof", bound=FrozenModel)


class NameBound(FrozenModel):
    """Before which a name was the table's, and since when: seqs, as text, and times at the
    source. `created_s`: of the journal of `seq`; 0: by then, -1: it is not known. `before`: an
    earlier time in which it was.
    """

    seq: str
    time_us: int
    created_s: int = 0
    since: str = "0"
    since_us: int = -1
    before: NameBound | None = None

    @property
    def place(self) -> int:
        return int(self.seq)


class KeyBound(FrozenModel):
    """The names of a key's columns right before a place, () of none; those of `is_known` hold since
    the bound before it, others as far as they say.
    """

    key: tuple[str, ...]
    seq: str
    time_us: int
    is_known: bool = True

    @property
    def place(self) -> int:
        return int(self.seq)


class KeyNames(NamedTuple):
    """Of a key's columns, in its order; `is_known`: of these columns and no others."""

    names: tuple[str, ...]
    is_known: bool

    def among(self, present: Sequence[str], primary: Sequence[str]) -> tuple[str, ...] | None:
        """The columns that are the key where a table has the columns `present` and the key
        `primary`. None: nothing shows them.
        """
        by_name = {name.lower(): name for name in present}
        found = [by_name.get(name.lower()) for name in self.names]
        if not self.is_known:
            wanted = {name.lower() for name in self.names}
            if len(primary) != len(found):
                return None
            for at, name in enumerate(primary):
                if found[at] is None and name.lower() not in wanted:
                    found[at] = name  # it was renamed since
                elif found[at] != name:
                    return None
        columns = tuple(name for name in found if name is not None)
        return columns if columns and len(columns) == len(found) else None


class ReadJournal(NamedTuple):
    """A journal of a reading; `epoch`: in which its rows have their seqs."""

    identity: ServerIdentity
    epoch: int
    number: int
    created_s: int

    def agrees(self, seq: int, created_s: int, time_us: int) -> bool:
        """Whether its number and its creation say the same of a place, which is in a journal that
        was created then, or by `time_us` (0). Only the log of the place can have it otherwise.
        """
        number, at_s = journal_of(seq), created_s or time_us // 1_000_000
        if self.number == number and created_s == 0:
            return self.created_s <= at_s
        return (self.number > number) - (self.number < number) == (self.created_s > at_s) - (
            self.created_s < at_s
        )


class Reach(NamedTuple):
    """Of an erasure in a journal: by seq, without `until`, or by commit time, up to `until_us`."""

    since: int = 0
    until: int = -1
    since_us: int = -1
    until_us: int = -1


class Erasure(FrozenModel):
    """Keys of one source table.

    Attributes:
        request: HMAC of what was asked for: the same command ends the erasure.
        names: each name that the table had; its own up to the end of the log.
        key: the names of its key columns now; `keys`: before each place, newest first.
        salt: in hex.
        digests: HMACs of the keys as the log has them; `masked`: as targets hold them.
        epoch, flavor, server_id, server_uuid: whose places `names` and `position` are; epoch 0:
            those of another lake.
    """

    version: Literal[1] = 1
    erasure_id: str
    source: str
    table: str
    request: str = ""
    names: dict[str, NameBound]
    key: tuple[str, ...]
    keys: tuple[KeyBound, ...] = ()
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

    @property
    def identity(self) -> ServerIdentity:
        return ServerIdentity(self.flavor, self.server_id, self.server_uuid)

    def reaches(self, name: str, journal: ReadJournal) -> list[tuple[KeyNames, Reach]]:
        """Which rows of a table of that name it leaves out of a journal, by names of the key."""
        parts = list(self.stretches(name))
        is_numbered = self._is_numbered_as([bound for _, bound in parts], journal)
        return [(key, self._reach(bound, journal, is_numbered)) for key, bound in parts]

    def stretches(self, name: str) -> Iterator[tuple[KeyNames, NameBound]]:
        bound: NameBound | None = self.names[name]
        while bound is not None:
            yield from stretches(bound, self.key, self.keys)
            bound = bound.before

    def _reach(self, bound: NameBound, journal: ReadJournal, is_numbered: bool) -> Reach:
        since, until = int(bound.since), bound.place
        if is_numbered:
            if journal.epoch != self.epoch:
                since, until = (with_epoch(seq, journal.epoch) for seq in (since, until))
            return Reach(since=since, until=until)
        return Reach(since_us=bound.since_us, until_us=bound.time_us)

    def _is_numbered_as(self, bounds: Sequence[NameBound], journal: ReadJournal) -> bool:
        """Whether places of a journal can be compared with bounds."""
        if not self.identity.same_server(journal.identity):
            return False
        if journal.epoch == self.epoch:
            return True
        places = [(one.place, one.created_s, one.time_us) for one in bounds]
        places += [(int(one.since), 0, one.since_us) for one in bounds if one.since_us >= 0]
        epoch = epoch_of(self.names[self.table].place)
        return all(one.created_s >= 0 for one in bounds) and all(
            epoch_of(place[0]) == epoch and journal.agrees(*place) for place in places
        )

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


class Searched(FrozenModel):
    """What a search says of what is to be gone.

    Attributes:
        quarantine: entries whose rows were removed.
        versions: of the targets' tables, the first without it.
        since_us: when it had left the newest versions; -1: when it was last checked.
        held: what still holds it.
        files_read: how many files were read to find that out.
        not_searched: what the pipeline does not reach, for people.
    """

    version: Literal[1] = 1
    source: str
    table: str
    quarantine: int = 0
    versions: dict[str, int] = Field(default_factory=dict)
    since_us: int = -1
    held: tuple[Held, ...] = ()
    files_read: int = 0
    not_searched: tuple[str, ...] = ()
    checked_at_us: int = -1

    @property
    def is_absent(self) -> bool:
        """But for kept journals, which are bytes of all tables."""
        return all(one.what == "journals" for one in self.held)


class Certificate(Searched):
    """What became of an erasure; `removed`: rows by target, of a changelog those that were changed,
    too.
    """

    erasure_id: str
    keys: int
    until: Place
    removed: dict[str, int]


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


def stretches(
    bound: NameBound, key: tuple[str, ...], keys: Sequence[KeyBound]
) -> Iterator[tuple[KeyNames, NameBound]]:
    """What `bound` spans, newest first, and the names that a key has there."""
    is_known = False  # what came after the newest place of `keys`
    for one in keys:
        if one.place <= int(bound.since):
            break
        if one.place < bound.place:
            begin = {"since": one.seq, "since_us": one.time_us}
            yield KeyNames(key, is_known), bound.model_copy(update=begin)
            end = {"seq": one.seq, "time_us": one.time_us, "created_s": 0}
            bound = bound.model_copy(update=end)
        key, is_known = one.key, one.is_known
    yield KeyNames(key, is_known), bound


class Requests(Generic[_Request, _Proof]):
    """The files of a folder: what was asked for, each put once, and the certificate of what is
    done. A name begins with the id, and ends at its first dot.
    """

    def __init__(self, folder: Path, request: type[_Request], proof: type[_Proof]) -> None:
        self.folder, self._request, self._proof = folder, request, proof

    def names(self) -> list[str]:
        """Of requests, oldest first."""
        return sorted(
            name
            for name in storage_of(self.folder).names(self.folder)
            if name.endswith(_RECORD) and not name.startswith(".") and _CERTIFICATE not in name
        )

    def read(self, *, wanted: Callable[[str], bool] = lambda _: True) -> list[_Request]:
        """Oldest first, of `wanted` names. Raises LakeStateError: one is damaged."""
        return [
            read_document(self.folder / name, self._request.model_validate_json)
            for name in self.names()
            if wanted(name)
        ]

    def put(self, name: str, request: _Request) -> None:
        put_if_absent(self.folder / f"{name}{_RECORD}", request.model_dump_json(indent=1))

    def withdraw(self, request_id: str) -> None:
        """One of which nothing was done."""
        for name in self.names():
            if name.split(".")[0] == request_id:
                storage_of(self.folder).remove(self.folder / name)

    def certify(self, request_id: str, proof: _Proof) -> None:
        replace_file(self._certificate(request_id), proof.model_dump_json(indent=1).encode())

    def certificate_of(self, request_id: str) -> _Proof | None:
        """None while it is unfinished. Raises as `read`."""
        place = self._certificate(request_id)
        if place.name not in storage_of(self.folder).names(self.folder):
            return None
        return read_document(place, self._proof.model_validate_json)

    def _certificate(self, request_id: str) -> Path:
        return self.folder / f"{request_id}{_CERTIFICATE}{_RECORD}"


def erasures_of(paths: LakePaths) -> Requests[Erasure, Certificate]:
    return Requests(paths.state / "erasures", Erasure, Certificate)


def read_erasures(
    paths: LakePaths, *, identity: ServerIdentity, epoch: int, seq: int
) -> list[Erasure]:
    """Those that a reading of this log from `seq` on can meet, oldest first. Raises LakeStateError:
    one is damaged.
    """
    log = _log_mark(identity, epoch)

    def is_ahead(name: str) -> bool:
        _, *of_log = name.removesuffix(_RECORD).split(".")
        return of_log[:1] != [log] or int(of_log[1]) > seq

    return erasures_of(paths).read(wanted=is_ahead)


def _log_mark(identity: ServerIdentity, epoch: int) -> str:
    """Equal for readings of one log alone; what differs may be one nevertheless."""
    return hashlib.sha256(f"{identity} {epoch}".encode()).hexdigest()[:16]


def salt_of(erasures: Sequence[Erasure]) -> str:
    """The one of a source."""
    return erasures[0].salt if erasures else secrets.token_hex(_SALT_BYTES)


def record(paths: LakePaths, erasure: Erasure) -> None:
    """Its name tells up to where its own log has what it leaves out: who reads what is behind that
    does not read it.
    """
    log = _log_mark(erasure.identity, erasure.epoch)
    bound = max(one.place for one in erasure.names.values())
    erasures_of(paths).put(f"{erasure.erasure_id}.{log}.{bound}", erasure)


def copy_erasures(paths: LakePaths, to: LakePaths, *, is_numbered_apart: bool) -> None:
    """Those that are not there yet."""
    names = erasures_of(paths).names()
    there = {name.split(".")[0] for name in erasures_of(to).names()} if names else set()
    for one in erasures_of(paths).read(wanted=lambda name: name.split(".")[0] not in there):
        record(to, one.model_copy(update={"epoch": 0}) if is_numbered_apart else one)


def unfinished(paths: LakePaths) -> Iterator[Erasure]:
    erasures = erasures_of(paths)
    return (one for one in erasures.read() if erasures.certificate_of(one.erasure_id) is None)
