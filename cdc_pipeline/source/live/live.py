"""Read a running server as a source: checks by a control connection, events by a dump.

Rules:
- The end is fixed before the dump starts; the dump is non-blocking and is cut there. An end of the
  stream before that is an error, never "nothing new": success is reaching the position.
- A connection that breaks ends the iterator with a retryable error after everything before it was
  delivered; a reconnection is a new run, which begins at its cursor and delivers no event twice.
- By offset, the journal is the one that the position was taken from: its creation time is compared
  before its first event is delivered. By GTID set, journals and offsets of the start are not
  compared: they may be another server's.
- A dump by GTID set may deliver marks of the journal (format description, list of GTIDs) from
  before the start.
- Bytes are moved once, from the socket into memory that the chunk refers to; their checksums are
  computed while they are in the processor's cache. That memory is reused when no chunk refers to it
  any more.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Final

import numpy as np

from cdc_pipeline.binlog.chunk import Chunk, Chunks, JournalFormat
from cdc_pipeline.binlog.event_types import IN_TRANSACTIONS, EventType
from cdc_pipeline.binlog.framing.framing import EventFramer
from cdc_pipeline.binlog.framing.framing_kernel import PREFIX_BYTES
from cdc_pipeline.binlog.framing.packets import PacketBuffer, PacketEnd
from cdc_pipeline.binlog.framing.receiving import Received
from cdc_pipeline.binlog.native.block_pool import BlockPool
from cdc_pipeline.binlog.seq import journal_number
from cdc_pipeline.config.pipeline_config import LiveSourceConfig
from cdc_pipeline.errors import (
    CdcError,
    DamagedJournalError,
    MissingGrantError,
    PositionError,
    ReplicaIdError,
    SinkError,
    SourceError,
)
from cdc_pipeline.position.position import Position, ServerIdentity
from cdc_pipeline.position.start.context import JournalInfo
from cdc_pipeline.schema.programs import StoredPrograms
from cdc_pipeline.source.kept_journals import KeptJournals, place_named
from cdc_pipeline.source.live import log_positions, server_errors
from cdc_pipeline.source.live.cascades import cascade_findings
from cdc_pipeline.source.live.catalog import placed_catalog
from cdc_pipeline.source.live.connection import ServerConnection
from cdc_pipeline.source.live.handover import DumpRequest, DumpSocket, ReplicaName, open_dump
from cdc_pipeline.source.live.journal_keeper import JournalKeeper, Tee
from cdc_pipeline.source.live.programs import placed_programs
from cdc_pipeline.source.live.replica_id import check_replica_id, thrown_out
from cdc_pipeline.source.live.server_checks import check_server, setting_notes
from cdc_pipeline.source.protocol import PlacedCatalog, Source
from cdc_pipeline.text.table_names import NameRule, split_table_name

# at once: what the processor's cache holds beside the kernel's copy of it
_READ_BYTES: Final = 256 << 10
_CHUNK_BYTES: Final = 8 << 20  # no chunk is larger, except one with a larger event
_IN_TRANSACTIONS: Final = np.array(sorted(IN_TRANSACTIONS), np.uint8)
_GOAL_BYTES_MIN: Final = 64 << 10
# Shared by the process, whose streams follow each other (captures of a snapshot, catch-ups), so
# that memory is reused.
_POOL: Final = BlockPool(_CHUNK_BYTES, spare_blocks_max=5)
_HOST_BYTES_MAX: Final = 60
_UUID_NAMESPACE: Final = uuid.UUID("6f1c1fd2-0a9e-5c2c-8f5e-3a0b7c1d9e42")


CapturedBy = Callable[[NameRule], Callable[[str, str], bool]]


def all_captured(_names: NameRule) -> Callable[[str, str], bool]:
    return lambda _database, _table: True


class LiveSource(Source):
    """`Source` over a MySQL or MariaDB server.

    Args:
        pipeline_name: names the capture to the server and decides its replica server id, unless
            configured.
        captured: whether a table is captured on a server that compares names so; `check` asks it.
    """

    def __init__(
        self, config: LiveSourceConfig, *, pipeline_name: str, captured: CapturedBy = all_captured
    ) -> None:
        self.config = config
        self._captured = captured
        self.server = ServerConnection(config, pipeline_name=pipeline_name)
        self.replica = replica_name(config, pipeline_name)
        self._dump: DumpSocket | None = None
        self._keeper: JournalKeeper | None = None
        self._unkept: SinkError | None = None
        self._closed = False
        self._lock = threading.Lock()

    @property
    def identity(self) -> ServerIdentity:
        return self.server.identity

    @property
    def uses_gtids(self) -> bool:
        return self.server.uses_gtids

    @property
    def is_archive(self) -> bool:
        return False

    @property
    def begin_again(self) -> str:
        return self.server.begin_again

    def journal_format(self, journal: str) -> JournalFormat:
        """By a dump that is ended after its first chunk. Raises JournalMissingError,
        ServerUnreachableError, MissingGrantError, BinlogError.
        """
        with contextlib.closing(self.dumped(Position(journal), Position(journal, 1 << 40))) as dump:
            found: JournalFormat = next(dump).journal_format
            return found

    def journal_created_s(self, journal: str) -> int:
        return self.journal_format(journal).created_s

    def check(self) -> None:
        """Check whether the log is whole, grants, and whether our replica id is free. Raises
        ServerUnreachableError, ServerSettingError, MissingGrantError, SourceError.
        """
        check_replica_id(self.server, self.replica)
        check_server(self.server, self.captured_tables, replica=self.replica)

    def journals(self, *, since: Position | None = None) -> list[JournalInfo]:  # noqa: ARG002
        return self.server.journals()

    def end_position(self) -> Position:
        return self.server.end_position()

    def earliest_position(self) -> Position:
        return log_positions.earliest(self.server)

    def validate_position(self, position: Position) -> None:
        """By its GTID set if it has one and the server uses GTIDs, else by journal and offset."""
        if self._by_gtid(position):
            log_positions.validate_gtid_set(self.server, position)
        else:
            log_positions.validate_offset(self.server, position, first_offset=self._first_offset)

    def tables(self) -> list[str] | None:
        return self.server.tables()

    def captured_tables(self) -> list[str]:
        captured = self._captured(self.server.identity.names)
        return [name for name in self.server.tables() if captured(*split_table_name(name))]

    def catalog(
        self, captured: Callable[[str, str], bool], *, since: Position
    ) -> PlacedCatalog | None:
        """Over separate connections: a running dump continues."""
        with self._second("catalog") as second:
            return placed_catalog(second.server, second, captured, since=since)

    def programs(self, *, since: Position) -> StoredPrograms | None:
        with self._second("programs") as second:
            return placed_programs(second.server, second, since=since)

    def _second(self, purpose: str) -> contextlib.closing[LiveSource]:
        # Another name means another replica server id: with ours the server would end our own dump.
        # A configured id distinguishes two readers of one pipeline, so their second readers must
        # differ too.
        own = "" if self.config.replica_server_id is None else f"/{self.config.replica_server_id}"
        config = self.config.model_copy(update={"replica_server_id": None})
        name = f"{self.server.pipeline_name}/{purpose}{own}"
        return contextlib.closing(type(self)(config, pipeline_name=name))

    def prepared_xids(self) -> frozenset[str] | None:
        """None if the account may not ask."""
        return self.server.prepared_xids()

    def warnings(self, tables: Sequence[str]) -> tuple[str, ...]:
        cascades = tuple(finding.note for finding in cascade_findings(self.server, tables))
        return cascades + setting_notes(self.server, self.captured_tables)

    def chunks(self, start: Position, end: Position) -> Chunks:
        """See the protocol. Raises JournalMissingError, PositionError, SourceIdentityError,
        ServerUnreachableError, MissingGrantError, BinlogError: with journal and offset; everything
        before was delivered.
        """
        if self._keeper is None:
            yield from self.dumped(start, end)
            return
        take = functools.partial(self._keeper.take, by_gtid=self._by_gtid(start))
        try:
            yield from self.dumped(start, end, take)
        finally:
            self._keeper.flush()
        self._keeper.complete_before(end.journal)

    def keep_journals(self) -> None:
        """Keep what `chunks` reads from now on, if `source.keep_journals` says so."""
        keep = self.config.keep_journals
        if keep is None:
            return
        try:
            with place_named(keep.path):
                self._keeper = JournalKeeper(
                    KeptJournals.newest(keep, self.identity),
                    on_server=self.server.journals,
                    beside=lambda: self._second("journals"),
                )
        except SinkError as error:
            self._unkept = error

    @property
    def keep_failure(self) -> SinkError | None:
        """Why what was read could not be kept."""
        return self._unkept if self._keeper is None else self._keeper.failure

    def dumped(self, start: Position, end: Position, tee: Tee | None = None) -> Chunks:
        """As `chunks`, by a dump alone; `tee` receives what comes."""
        by_gtid = self._by_gtid(start)
        if by_gtid:
            if log_positions.contains(self.server.flavor, start.gtid_set, end.gtid_set):
                return
        elif start.order >= end.order:
            return
        check_replica_id(self.server, self.replica)
        dump = open_dump(self.config, self._request(start, by_gtid), self.replica)
        with self._lock:
            self._dump = dump
        try:
            if self._closed:
                raise self._closed_error()
            stream = _Stream(self, dump, start=start, end=end, by_gtid=by_gtid)
            stream.tee = tee
            yield from stream.chunks()
        finally:
            with self._lock:
                self._dump = None
            dump.close()

    def ends_closed(self, position: Position) -> bool:
        return log_positions.ends_closed(self.server, position)

    def close(self) -> None:
        """A running `chunks` ends with an error. May be called twice, and from any thread."""
        self._closed = True
        with self._lock:
            if self._dump is not None:
                self._dump.stop()
        self.server.close()

    @property
    def closed(self) -> bool:
        return self._closed

    def _closed_error(self) -> SourceError:
        return SourceError(
            "the source was closed while its log was being read", next_step="start the run again"
        )

    def _by_gtid(self, start: Position) -> bool:
        return bool(start.gtid_set) and self.server.uses_gtids

    def _request(self, start: Position, by_gtid: bool) -> DumpRequest:
        flavor = self.server.flavor
        gtid_set, gtid_bytes = (
            log_positions.dump_set(flavor, start.gtid_set) if by_gtid else ("", b"")
        )
        return DumpRequest(flavor, start.journal, start.offset, gtid_set, gtid_bytes)

    def _first_offset(self, start: Position, end: Position) -> int:
        """Of the first event that a dump by offset delivers; that of `end` if there is none."""
        dump = self.dumped(dataclasses.replace(start, gtid_set=""), end)
        with contextlib.closing(dump):  # which ends it
            chunk = next(dump, None)
        return end.offset if chunk is None else int(chunk.events["offset"][0])


class _Stream:
    """One dump from its first byte to the fixed end."""

    tee: Tee | None = None

    def __init__(
        self, source: LiveSource, dump: DumpSocket, *, start: Position, end: Position, by_gtid: bool
    ) -> None:
        self._source = source
        self._dump = dump
        self._start = start
        self._end = end
        self._end_number = journal_number(end.journal)
        self._by_gtid = by_gtid
        self._framer = EventFramer(
            start.journal,
            offset=start.offset,
            dump=True,
            by_gtid=by_gtid,
            prefix_bytes=PREFIX_BYTES,
            unpacked_bytes_max=source.config.unpacked_bytes_max,
        )
        self._packets = PacketBuffer(
            _POOL, room_bytes=_READ_BYTES, packet_bytes_max=source.config.packet_bytes_max
        )
        self._must_check_journal = not by_gtid
        self._next = (start.journal, start.offset)
        self._last_type = -1  # of the event before it
        # The last place that was passed, and how much of an event had arrived there.
        self._furthest = ((0, 0), 0)
        self._still_s = 0.0  # of receiving and framing, since then
        self._framing_s = 0.0  # of framing, since the last receiving

    def chunks(self) -> Iterator[Chunk]:
        """Yield the chunks, then the error that kept the end from being reached, if one did."""
        # The first chunk is small, so that a journal's head arrives quickly.
        most_bytes = _READ_BYTES
        stop: PacketEnd | CdcError | str | None = None
        while stop is None:
            began_s = time.monotonic()
            stop = self._fill(min(most_bytes, self._left_bytes()))
            took_s = time.monotonic() - began_s
            self._framing_s = 0.0
            # Also after a failure: what came before it counts, and the error names the place after
            # it.
            reached = yield from self._frame()
            if reached:
                return
            if stop is None and not self._moves(took_s + self._framing_s):
                stop = f"nothing but heartbeats came for {self._still_s:.0f} s"
            most_bytes = min(2 * most_bytes, _CHUNK_BYTES)
        if isinstance(stop, PacketEnd):
            raise self._end_early(stop)
        if isinstance(stop, str):
            raise self._lost(stop)
        # packets know no journals
        stop.journal, stop.offset = self._framer.journal, self._framer.offset
        raise stop

    def _moves(self, took_s: float) -> bool:
        """Whether the server has passed a new place, or sent more of an event, within the read
        timeout.

        A server that only sends heartbeats would keep a run running forever (K25). What it takes
        to read them counts too: they may come faster than they can be read.
        """
        place = (journal_number(self._framer.journal), self._passed_offset())
        partial_bytes = self._packets.partial_bytes
        if place > self._furthest[0]:
            self._furthest, self._still_s = (place, partial_bytes), 0.0
        elif partial_bytes > self._furthest[1]:
            self._furthest, self._still_s = (self._furthest[0], partial_bytes), 0.0
        else:
            self._still_s += took_s
        return self._still_s < self._source.config.read_timeout_s

    def _left_bytes(self) -> int:
        """The most bytes to read: a server whose log grows continues to send after the end."""
        if journal_number(self._framer.journal) != self._end_number:
            return _CHUNK_BYTES
        return max(self._end.offset - self._framer.offset, _GOAL_BYTES_MIN)

    def _fill(self, goal_bytes: int) -> PacketEnd | CdcError | str | None:
        """Read until there is enough for a chunk and return None, else why nothing more comes (a
        text: the connection broke).
        """
        packets, dump, ahead = self._packets, self._dump, self._framer.ahead()
        journal_format = self._framer.journal_format
        packets.expect_checksums(journal_format is None or journal_format.checksum_bytes > 0)
        timeout_s = self._source.config.read_timeout_s
        late_s = time.monotonic() + timeout_s
        try:
            while True:
                ended, received = None, Received.FAILED
                if dump.descriptor is not None:
                    ended, received = packets.receive(
                        dump.descriptor, goal_bytes, timeout_s=timeout_s, ahead=ahead
                    )
                if received is Received.FAILED:
                    count = dump.read(packets.room())
                    if count:
                        ended, received = packets.commit(count), Received.ENOUGH
                    else:
                        received = Received.CLOSED
                if ended is not None:
                    return ended
                if received is Received.CLOSED:
                    return "the server closed the connection"
                if received is Received.TIMEOUT:
                    raise TimeoutError
                if (
                    packets.event_bytes >= goal_bytes
                    or ahead.is_enough
                    or packets.is_full
                    or time.monotonic() >= late_s
                ):
                    return None
        except CdcError as error:
            return error
        except TimeoutError:
            return f"nothing came for {timeout_s:g} s"
        except OSError as error:
            return error.strerror or str(error)

    def _frame(self) -> Generator[Chunk, None, bool]:
        """Deliver the whole events that were received; True once the end is reached."""
        while True:
            began_s = time.monotonic()
            packets = self._packets.events
            chunk, used = self._framer.feed(packets)
            self._framing_s += time.monotonic() - began_s
            self._check_journal(chunk)
            if chunk is not None:
                if not self._is_plainly_contiguous(chunk, used):
                    self._check_contiguous(chunk)
                delivered = self._cut(chunk)
                if delivered is not None:
                    if self.tee is not None:
                        self.tee(delivered, packets[:used])
                    yield delivered
                if self._reached(chunk.journal, chunk.end_offset):
                    self._check_boundary(chunk)
                    return True
            self._packets.consume(used)
            if self._reached(self._framer.journal, self._passed_offset()):
                return True
            if used == 0 or not self._packets.event_bytes:
                return False

    def _reached(self, journal: str, offset: int) -> bool:
        # Until the server has announced where it starts, the framer is at our own start.
        if self._framer.journal_format is None:
            return False
        return (journal_number(journal), offset) >= (self._end_number, self._end.offset)

    def _passed_offset(self) -> int:
        """The offset that the server has passed in the framer's journal, by sending or skipping.

        MySQL sends a heartbeat, which the framer follows. MariaDB sends an artificial list of
        GTIDs where it stops skipping.
        """
        offset = self._framer.offset
        for header in self._framer.artificial:
            if header.event_type == EventType.ROTATE:
                offset = self._framer.offset
            elif header.event_type == EventType.MARIADB_GTID_LIST:
                ahead = (header.log_position - self._framer.offset) & 0xFFFFFFFF
                if header.log_position and ahead < 1 << 31:
                    offset = self._framer.offset + ahead
        return offset

    def _cut(self, chunk: Chunk) -> Chunk | None:
        number = journal_number(chunk.journal)
        if number < self._end_number:
            return chunk
        if number == self._end_number and chunk.end_offset <= self._end.offset:
            return chunk
        stop = 0
        if number == self._end_number:
            stop = int(np.searchsorted(chunk.events["next_offset"], self._end.offset, side="right"))
        if stop == 0:
            return None
        if stop == len(chunk.events):
            return dataclasses.replace(chunk, end_offset=min(chunk.end_offset, self._end.offset))
        return dataclasses.replace(chunk, events=chunk.events[:stop], end_offset=self._end.offset)

    def _check_boundary(self, chunk: Chunk) -> None:
        if journal_number(chunk.journal) != self._end_number:
            return
        offsets, ends = chunk.events["offset"], chunk.events["next_offset"]
        inside = np.flatnonzero((offsets < self._end.offset) & (ends > self._end.offset))
        if len(inside):
            row = int(inside[0])
            raise PositionError(
                "the end lies inside an event",
                at=(chunk.journal, self._end.offset),
                expected=f"{int(offsets[row])} or {int(ends[row])}",
                next_step="choose an offset that SHOW BINLOG EVENTS lists for that journal",
            )

    def _check_journal(self, chunk: Chunk | None) -> None:
        """By offset: check that the server sends the journal that the start was taken from."""
        if not self._must_check_journal:
            return
        created_s = next(
            (
                header.timestamp_s
                for header in self._framer.artificial
                if header.event_type == EventType.FORMAT_DESCRIPTION
            ),
            None,
        )
        if created_s is None:
            if chunk is None:
                return
            created_s = chunk.journal_format.created_s
        self._must_check_journal = False
        if self._start.journal_created_s not in (0, created_s):
            raise log_positions.renumbered(self._source.server, self._start, created_s)

    def _is_plainly_contiguous(self, chunk: Chunk, used_bytes: int) -> bool:
        """Whether the chunk directly follows the last one, as nearly always."""
        journal, expected = self._next
        first, following = int(chunk.events["offset"][0]), int(chunk.events["next_offset"][-1])
        if (chunk.journal, first) != (journal, expected):
            return False
        if used_bytes != following - first + PREFIX_BYTES * len(chunk.events):
            return False  # something was skipped or made up, or events were unpacked
        self._next = journal, following
        self._last_type = int(chunk.events["event_type"][-1])
        return True

    def _check_contiguous(self, chunk: Chunk) -> None:
        """Check that nothing is skipped: by GTID set, nothing but whole transactions."""
        journal, expected = self._next
        first = 4 if chunk.journal != journal else expected
        ends = np.concatenate([[first], chunk.events["next_offset"][:-1]])
        gaps = np.flatnonzero((chunk.events["offset"] != ends) & (chunk.events["parent"] < 0))
        # The event after a format description may say how MariaDB keeps the file; it is no row.
        types = chunk.events["event_type"]
        types_before = np.concatenate([[self._last_type], types[:-1]])
        gaps = gaps[types_before[gaps] != EventType.FORMAT_DESCRIPTION]
        if self._by_gtid:
            gaps = gaps[np.isin(types[gaps], _IN_TRANSACTIONS)]
        if len(gaps):
            row = int(gaps[0])
            raise DamagedJournalError(
                "the server omitted a part of the journal",
                at=(chunk.journal, int(ends[row])),
                expected=f"an event at {int(ends[row])}",
                got=f"the next one is at {int(chunk.events['offset'][row])}",
                next_step="run again; if the error stays, read this journal from a "
                "copy of its file",
            )
        self._next = (chunk.journal, int(chunk.events["next_offset"][-1]))
        self._last_type = int(types[-1])

    def _end_early(self, ended: PacketEnd) -> CdcError:
        at = self._framer
        if ended.code:
            error = server_errors.stream_error(
                ended.code,
                ended.message,
                at=at,
                address=self._dump.address,
                has_moved=(at.journal, at.offset) != (self._start.journal, self._start.offset),
                begin_again=self._source.server.begin_again,
            )
            if isinstance(error, MissingGrantError):
                error = self._source.server.grant_error("REPLICATION SLAVE", error.got)
            elif isinstance(error, ReplicaIdError):
                source = self._source
                got = str(error.got)
                error = thrown_out(source.server, source.replica, got=got, at=at)
            return error
        if self._source.server.end_position().order >= self._end.order:
            # Its log continues: a MariaDB that is shutting down, or whose dump was killed, also
            # sends EOF.
            return self._lost("the server ended the dump early")
        return PositionError(
            "the server's log ends before this run's end",
            at=at,
            expected=f"{self._end}",
            got=f"{at.journal}:{at.offset}",
            next_step="check that the end was taken from this server, and that its log has not "
            "been reset since",
        )

    def _lost(self, got: str) -> CdcError:
        if self._source.closed:
            return self._source._closed_error()
        return server_errors.lost_connection(self._dump.address, got, at=self._framer)


def replica_name(config: LiveSourceConfig, pipeline_name: str) -> ReplicaName:
    """The same for each run of a pipeline on one machine. The server id is the configured one,
    or derived from the pipeline's name into 2**31 .. 2**32 - 2.
    """
    server_id = config.replica_server_id
    if server_id is None:
        digest = hashlib.sha256(pipeline_name.encode()).digest()
        server_id = (1 << 31) + int.from_bytes(digest[:8], "big") % ((1 << 31) - 1)
    machine = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname())
    host = f"cdc-{pipeline_name}@{machine}".encode()[:_HOST_BYTES_MAX].decode(errors="ignore")
    return ReplicaName(server_id, str(uuid.uuid5(_UUID_NAMESPACE, f"{host}:{server_id}")), host)
