"""Erase the rows of keys of one source table from the lake, for good.

    lock -> gone at the source? -> record (`lake/erasures.py`) -> batch -> quarantine -> search ->
    certificate

Rules:
- The record comes before the batch: whoever reads the log afterwards leaves the keys out. Its bound
  is taken when the rows were seen to be gone, and never moves.
- The batch is an admin batch like any other (K2): its staged files hold the keys until its cut.
- The same request ends what a killed process left, by what its record says; only an erasure whose
  batch has a cut gets a certificate.
- A row that is still at the source would come back: it is refused, unless a person knows that.
- No erasure while something is under way that has read the rows and will write them: a snapshot, a
  rebuild or backfill of the table, a suspended target, a prepared XA transaction.
- Kept journals are bytes of all tables: they stay, and the certificate names them.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from pydantic import Field

from cdc_pipeline.binlog.decoded import DecodedRows
from cdc_pipeline.binlog.seq import seq_of_place
from cdc_pipeline.clock import now_us
from cdc_pipeline.config.pipeline_config import LiveSourceConfig, PipelineConfig
from cdc_pipeline.errors import ConfigError, LakeStateError
from cdc_pipeline.fault_points import reach
from cdc_pipeline.frozen_model import FrozenModel
from cdc_pipeline.lake import erasures
from cdc_pipeline.lake.erasures import Certificate, Erasure, NameBound
from cdc_pipeline.lake.long_operations import new_operation_id, unfinished
from cdc_pipeline.lake.paths import list_numbers
from cdc_pipeline.lake.quarantine import read_entries
from cdc_pipeline.lake.records import BatchRecord, Note
from cdc_pipeline.lake.schema_history import SchemaHistoryFile
from cdc_pipeline.lake.state import read_record
from cdc_pipeline.operations.erase.certify import Certifying, alone, certified
from cdc_pipeline.operations.erase.keys import (
    KEYS_MAX,
    Key,
    TableKeys,
    earlier_keys,
    earlier_names,
    key_now,
)
from cdc_pipeline.operations.erase.search import Sought
from cdc_pipeline.operations.snapshot.server import SnapshotSource
from cdc_pipeline.position.cursor import CursorStore
from cdc_pipeline.position.position import Position, ServerIdentity
from cdc_pipeline.position.start.lookup import with_created
from cdc_pipeline.run.admin_batch import AdminBatch, admin_batch
from cdc_pipeline.run.observer import RunObserver
from cdc_pipeline.run.wiring import build_sink, build_source
from cdc_pipeline.schema.history.history import SchemaHistory
from cdc_pipeline.sink.delta.replay import readable_state
from cdc_pipeline.sink.delta_sink import DeltaSink
from cdc_pipeline.sink.read.rows import open_rows
from cdc_pipeline.source.live.connection import ServerConnection
from cdc_pipeline.targets.table_filter import tables_named
from cdc_pipeline.targets.targets import Targets, targets_at
from cdc_pipeline.text.table_names import quoted, split_table_name
from cdc_pipeline.text.wording import count_of

_ERASED_NOTE: Final = "erased"
_NOT_SEARCHED: Final = (
    "the source, its journals, and their copies elsewhere",
    "separate lakes of backfills (--into), copies of cuts, and backups of the lake",
    "earlier versions that a bucket, or snapshots of a file system, keep of files",
    "what Dagster keeps: reports of verifications name keys of rows that differed",
    "rows whose key was masked by another mask, and journals from before a rename that the schema "
    "history has forgotten (--formerly)",
)


class EraseRequest(FrozenModel):
    """`where`: one condition; `keys`: whole keys; `formerly`: names that the table had; `at_once`:
    no older version or cut is kept; `is_known`: the rows may still be at the source.
    """

    table: str
    where: dict[str, str] = Field(default_factory=dict)
    keys: tuple[dict[str, str], ...] = ()
    formerly: tuple[str, ...] = ()
    at_once: bool = False
    is_known: bool = False
    who: str = ""
    why: str = ""

    def digest(self, salt: str) -> str:
        asked = self.model_dump_json(include={"table", "where", "keys"})
        return hmac.new(bytes.fromhex(salt), asked.encode(), hashlib.sha256).hexdigest()


class ErasePreview(FrozenModel):
    """`rows`: by target; `at_source`: keys that the source still has; None: it cannot be asked."""

    source: str
    table: str
    names: tuple[str, ...]
    keys: int
    rows: dict[str, int]
    at_source: int | None


@dataclass(frozen=True, slots=True)
class _End:
    """Of the log, as a run would number it."""

    bound: NameBound
    position: Position
    epoch: int
    identity: ServerIdentity


@dataclass
class _Erasing:
    config: PipelineConfig
    asked: EraseRequest
    batch: AdminBatch
    sink: DeltaSink

    def __post_init__(self) -> None:
        (self.table,) = tables_named(self.config, [self.asked.table])
        self.paths = self.sink.paths
        self.targets: Targets = targets_at(self.config, self.batch.last_cut(), self.batch.cursor)
        end = self.end()
        self.is_behind = end.position.order > self.batch.cursor.position.order
        file = SchemaHistoryFile(self.paths.schema_history)
        self.history = file.read().up_to(self.batch.cursor.seq)
        self.names = self._names(end)
        self.keys = self._table_keys(self.names)

    def end(self) -> _End:
        cursor = self.batch.cursor
        source = build_source(self.config)
        try:
            source.check()
            at, identity = with_created(source, source.end_position()), source.identity
        finally:
            source.close()
        epoch = cursor.epoch + (not cursor.identity.same_server(identity))
        seq, created_s = seq_of_place(epoch, at.journal, at.offset), at.journal_created_s
        if seq < cursor.seq:  # of a log that was reset, or of an archive that lacks files
            seq, created_s = cursor.seq, cursor.journal_created_s or -1
        bound = NameBound(seq=str(seq), time_us=self._time_us(), created_s=created_s)
        return _End(bound, at, epoch, identity)

    def _time_us(self) -> int:
        """The source's clock, by which commits are dated."""
        if not isinstance(self.config.source, LiveSourceConfig):
            return now_us()
        with SnapshotSource(self.config, role="erase") as source:
            return int(float(source.server.value("SELECT UNIX_TIMESTAMP(NOW(6))")) * 1e6)

    def _names(self, end: _End) -> dict[str, NameBound]:
        return earlier_names(self.history, self.table, until=end.bound, given=self.asked.formerly)

    def _table_keys(self, names: Mapping[str, NameBound]) -> TableKeys:
        cursor = self.batch.cursor
        time_us = cursor.timestamp_s * 1_000_000 or names[self.table].time_us
        at = NameBound(seq=str(cursor.seq), time_us=time_us)
        return TableKeys(
            self.targets,
            self.table,
            names,
            earlier=lambda key: earlier_keys(self.history, self.table, key, at=at),
        )

    def found(self) -> list[Key]:
        keys = self.keys.parsed(self.asked.keys)
        if set(self.asked.where) == set(self.keys.source.key):
            keys += self.keys.parsed([self.asked.where])
        elif self.asked.where:
            if self.is_behind:
                raise LakeStateError(
                    "a condition finds keys up to the cursor alone, and the log has more",
                    table=self.table,
                    setting="where",
                    got=f"a cursor at {self.batch.cursor.position}",
                    next_step=f"run `cdc-pipeline run {self.config.name}` first, or give the keys",
                )
            keys += self.keys.found(self.paths, self.asked.where)
        keys = sorted(set(keys))
        if len(keys) > KEYS_MAX:
            raise ConfigError(
                "too many keys for one erasure",
                table=self.table,
                expected=f"at most {KEYS_MAX:,}",
                got=f"{len(keys):,}",
                next_step="erase them in parts",
            )
        return keys

    def rows(self, erasure: Erasure) -> dict[str, int]:
        counts = dict.fromkeys((place.target.name for place in self.keys.places), 0)
        for name in counts:
            path, columns = self.paths.table(name), self.keys.columns(name)
            for rows in open_rows(path, readable_state(path), columns=columns).batches():
                counts[name] += self.keys.count(name, rows, erasure.has)
        return counts

    def at_source(self, keys: Sequence[Key]) -> int | None:
        """None: it cannot be asked. LakeStateError: a prepared transaction may have some."""
        if not isinstance(self.config.source, LiveSourceConfig):
            return None
        arrays = self.keys.arrays(keys)
        values = [tuple(array[at].as_py() for array in arrays) for at in range(len(keys))]
        with SnapshotSource(self.config, role="erase") as source:
            if source.server.prepared_xids():
                raise _under_way(self.table, "the server has a prepared XA transaction")
            key = self._key_now(source)
            return sum(_is_there(source.server, self.table, key, one) for one in values)

    def _key_now(self, source: SnapshotSource) -> Sequence[str]:
        schema = source.schemas([self.table]).get(self.table)
        if schema is None or schema.key_names != self.keys.source.key:
            raise ConfigError(
                f"the source shows no table {self.table} with this key",
                table=self.table,
                setting="table",
                expected=", ".join(self.keys.source.key),
                next_step="run the source first, so that the lake knows the table as it is now",
            )
        return self.keys.source.key

    def check_rest(self) -> None:
        """Raises LakeStateError: something under way could write the rows again."""
        cursor, why = self.batch.cursor, ""
        names = [place.target.name for place in self.keys.places]
        left = [name for name in names if name in self.targets.suspended]
        if left:
            why = f"{left[0]} is suspended, and has to be caught up first"
        for _, operation in unfinished(self.config, self.batch.cut):
            if set(operation.sources) & self.names.keys():
                why = f"{operation.command} is not finished"
        parking = self.sink.parking(epoch=cursor.epoch, open_xa=cursor.open_xa)
        if any(map(parking.holds_rows_of, self.names)):
            why = "a prepared XA transaction that changed the table is open"
        if why:
            raise _under_way(self.table, why)

    # -- the erasure -------------------------------------------------------------------------------

    def begun(self) -> Erasure | None:
        for one in erasures.unfinished(self.paths):
            if one.table == self.table and one.request == self.asked.digest(one.salt):
                return one
        return None

    def is_same(self, erasure: Erasure, keys: Sequence[Key]) -> bool:
        return self.keys.digests(self.keys.arrays(keys), erasure.salt) == erasure.digests

    def drafted(self, keys: Sequence[Key]) -> Erasure:
        arrays, end = self.keys.arrays(keys), self.end()
        salt = erasures.salt_of(erasures.erasures_of(self.paths).read())
        return Erasure(
            erasure_id=new_operation_id(),
            source=self.paths.source,
            table=self.table,
            request=self.asked.digest(salt),
            names=self._names(end),
            key=self.keys.source.key,
            keys=self.keys.earlier,
            salt=salt,
            digests=self.keys.digests(arrays, salt),
            masked=self.keys.digests(self.keys.masked(arrays), salt),
            position=end.position,
            epoch=end.epoch,
            flavor=end.identity.flavor,
            server_id=end.identity.server_id,
            server_uuid=end.identity.server_uuid,
            who=self.asked.who,
            why=self.asked.why,
        )

    def record(self, keys: Sequence[Key]) -> Erasure:
        """A new one; the rows were just seen to be gone."""
        if not keys:
            raise ConfigError(
                f"no row of {self.table} has these values",
                table=self.table,
                setting="where",
                next_step="give the key itself: it is then left out of the log, too",
            )
        new = self.drafted(keys)
        # One that was inserted again before its end would be left out for ever.
        if not self.asked.is_known and (present := self.at_source(keys)):
            raise _present(self.table, present)
        erasures.record(self.paths, new)
        return new

    def remove(self, erasure: Erasure, keys: Sequence[Key]) -> None:
        """In one batch; rows that came since it was recorded stay."""
        self.keys = self._table_keys(erasure.names)
        rows = self.rows(erasure)
        for target, of_target in self.keys.by_target(keys):
            self.batch.rows.erase(target, of_target, rows=rows[target.name])
        why = f"erasure {erasure.erasure_id}"
        marks = [
            one.settled("discarded", who=self.asked.who, why=why)
            for one in read_entries(
                self.paths, before=self.batch.number, tables=self.names, only_open=True
            )
            if (entry := one.rows()) is not None and _is_erased(erasure, entry)
        ]
        note = Note(kind=_ERASED_NOTE, text=_note(erasure), table=self.table)
        self.batch.publish(kind="erase", notes=[note], marks=marks)


def _note(erasure: Erasure) -> str:
    return f"{count_of(len(erasure.digests), 'key')} erased: {erasure.erasure_id}"


@dataclass(frozen=True)
class _Certifying(Certifying[Certificate]):
    erasure: Erasure
    keys: TableKeys
    batch: BatchRecord | None  # None if its record is gone; then there is a certificate

    @property
    def sources(self) -> Collection[str]:
        return self.erasure.names

    def is_gone(self, rows: DecodedRows) -> bool:
        return _is_erased(self.erasure, rows)

    def sought(self) -> Sought:
        return Sought(
            what="erased rows",
            columns=self.keys.columns,
            count=lambda target, rows: self.keys.count(target, rows, self.erasure.has),
            targets={place.target.name for place in self.keys.places},
            names=self.erasure.names,
            advice="has left the pipeline: remove its folder",
            **self.since(),
        )

    def certificate(self, searched: dict[str, Any]) -> Certificate:
        erasure, known = self.erasure, self.known
        targets = () if self.batch is None else self.batch.targets
        removed = {one.table: one.rows_deleted for one in targets}
        return Certificate(
            erasure_id=erasure.erasure_id,
            table=erasure.table,
            keys=len(erasure.digests),
            until=erasure.position,
            removed=removed if known is None else known.removed,
            not_searched=_NOT_SEARCHED,
            **searched,
        )


def _batch_of(sink: DeltaSink, erasure: Erasure) -> BatchRecord | None:
    done = sink.last_cut()
    for number in reversed(list_numbers(sink.paths.batches)):
        if done is not None and number <= done.batch_number:
            record = read_record(sink.paths, number)
            if any((one.kind, one.text) == (_ERASED_NOTE, _note(erasure)) for one in record.notes):
                return record
    return None


def preview(config: PipelineConfig, asked: EraseRequest, *, cursors: CursorStore) -> ErasePreview:
    """What `erase` would do; writes nothing. Raises as it does, but for rows at the source."""
    sink = build_sink(config)
    with admin_batch(sink, cursors=cursors, doing="erase the rows") as batch:
        erasing = _Erasing(config, asked, batch, sink)
        keys = erasing.found()
        return ErasePreview(
            source=config.name,
            table=erasing.table,
            names=tuple(erasing.names),
            keys=len(keys),
            rows=erasing.rows(erasing.drafted(keys)) if keys else {},
            at_source=erasing.at_source(keys),
        )


def erase(
    config: PipelineConfig,
    asked: EraseRequest,
    *,
    cursors: CursorStore,
    observer: RunObserver | None = None,
    run_id: str = "",
) -> Certificate:
    """Erase rows and return the certificate; the same request ends what was left.

    Raises ConfigError: no such table, key or value; LakeStateError: the rows are still at the
    source, or something is under way; LockError: a run or, with `at_once`, a maintenance is at
    work; SinkError as every batch.
    """
    sink = build_sink(config)
    with (
        admin_batch(
            sink,
            cursors=cursors,
            doing="erase the rows",
            observer=observer,
            run_id=run_id,
            wait_s=config.snapshot.lock_wait_s,
        ) as batch,
        alone(sink, at_once=asked.at_once),
    ):
        erasing = _Erasing(config, asked, batch, sink)
        erasing.check_rest()
        erasure = erasing.begun()
        done = None if erasure is None else _batch_of(sink, erasure)
        if done is None:
            keys = erasing.found()
            present = erasing.at_source(keys)
            if present != 0 and not asked.is_known:
                raise _present(erasing.table, present)
            if erasure is not None and not erasing.is_same(erasure, keys):
                erasures.erasures_of(erasing.paths).withdraw(erasure.erasure_id)
                erasure = None
            erasure = erasure or erasing.record(keys)
            reach("erasure_recorded")
            erasing.check_rest()  # what has begun since does not know the record
            erasing.remove(erasure, keys)
            reach("erasure_removed")
            done = _batch_of(sink, erasure)
        assert erasure is not None
        assert done is not None
        of_record = _keys_of(erasure, erasing.targets, erasing.history)
        requests, number = erasures.erasures_of(sink.paths), batch.number + 1
        one = _Certifying(
            config, sink, requests, erasure.erasure_id, number, erasure, of_record, done
        )
        return certified(config, sink, [one], at_once=asked.at_once)[0]


def check(config: PipelineConfig, *, cursors: CursorStore, table: str) -> list[Certificate]:
    """LakeStateError: an erasure is unfinished; ConfigError: the table is unknown."""
    sink, certifying = build_sink(config), []
    (table,) = tables_named(config, [table])
    with admin_batch(
        sink, cursors=cursors, doing="check the erasures", wait_s=config.snapshot.lock_wait_s
    ) as batch:
        targets = targets_at(config, batch.last_cut(), batch.cursor)
        history = SchemaHistoryFile(sink.paths.schema_history).read().up_to(batch.cursor.seq)
        known = erasures.erasures_of(sink.paths)
        for erasure in known.read():
            if table not in erasure.names:
                continue
            done = _batch_of(sink, erasure)
            if done is None and known.certificate_of(erasure.erasure_id) is None:
                raise LakeStateError(
                    f"the erasure {erasure.erasure_id} was stopped before rows were removed",
                    table=table,
                    next_step="give its command again",
                )
            keys = _keys_of(erasure, targets, history)
            request = known, erasure.erasure_id, batch.number
            certifying.append(_Certifying(config, sink, *request, erasure, keys, done))
        if not certifying and not any(
            table in one.spec.sources for one in targets.by_name.values()
        ):
            raise ConfigError(
                f"nothing was erased of {table}, and no target has it",
                table=table,
                setting="table",
                expected="a captured table, by its present name or one that it had",
                next_step="name a source table as schema.table",
            )
        return certified(config, sink, certifying)


def _keys_of(erasure: Erasure, targets: Targets, history: SchemaHistory) -> TableKeys:
    now = key_now(history, erasure)
    return TableKeys(targets, erasure.table, erasure.names, key=now, earlier=lambda _: erasure.keys)


def _present(table: str, number: int | None) -> LakeStateError:
    return LakeStateError(
        "the source still has rows that are to be erased"
        if number
        else "the source cannot be asked whether the rows are gone",
        table=table,
        expected="rows that were deleted at the source first",
        got=f"{count_of(number, 'row')} with these keys" if number else "an archive of journals",
        next_step="delete them there; or give --even-if-present: a new snapshot, a repair or a "
        "later change of them brings them back",
    )


def _under_way(table: str, why: str) -> LakeStateError:
    return LakeStateError(
        f"rows cannot be erased now: {why}",
        table=table,
        next_step="let it come to its end, run the source, and erase again",
    )


def _is_there(
    server: ServerConnection, table: str, key: Sequence[str], values: Sequence[Any]
) -> bool:
    # Backticks quote a name in both dialects; a percent sign begins a parameter here.
    where = " AND ".join(f"{quoted(name).replace('%', '%%')} = %s" for name in key)
    of = ".".join(quoted(part).replace("%", "%%") for part in split_table_name(table))
    return bool(server.rows(f"SELECT 1 AS found FROM {of} WHERE {where} LIMIT 1", values))  # noqa: S608


def _is_erased(erasure: Erasure, rows: DecodedRows) -> bool:
    """Whether any image of a quarantined change has an erased key, as far as columns tell."""
    names = [column.name for column in rows.schema.columns]
    seqs = np.array([int(one.as_py()) for one in rows.seq], object)
    for key, bound in erasure.stretches(rows.schema.full_name):
        is_there = (seqs >= int(bound.since)) & (seqs < bound.place)
        columns = key.among(names, rows.schema.key_names)
        for image in (rows.before, rows.after):
            of_key = [image.column(names.index(name)) for name in columns or ()]
            if of_key and (np.array(erasure.has(of_key)) & is_there.astype(bool)).any():
                return True
    return False
