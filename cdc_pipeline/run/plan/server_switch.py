"""Switch to another server without GTIDs: applied content is recognized by hash (K7).

Rules:
- The history holds the ordered content hashes of the transactions of the last fallback interval
  (twice that, so that a search by time begins inside it), up to a place that it names. It is
  written durably before the record or the cursor that refers to it: it may be ahead of the cursor,
  never behind; entries after the cursor are ignored.
- It is kept only while the log has no GTIDs.
- The new server's transactions from the found position on are compared with it; a prefix that
  agrees is skipped.
- If part of the history is not found there, no cut is published before a transaction that is later
  than all of it (`capture/capture_session.py`). A run that ends before that publishes nothing and
  says so. A DDL in there that the targets already have is recorded, not run again.
- A log that goes on, but has none of the last transactions, may lack others, too: a server that did
  not log what it replicated has changes that its log does not show. Such a start is refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cdc_pipeline.binlog.chunk import Chunk, EventSlice, SliceKind
from cdc_pipeline.binlog.seq import journal_number
from cdc_pipeline.binlog.transactions.content_hash import ContentHasher
from cdc_pipeline.binlog.transactions.grouping import TransactionPass
from cdc_pipeline.config.pipeline_config import LiveSourceConfig, PipelineConfig
from cdc_pipeline.errors import LakeStateError, SourceIdentityError
from cdc_pipeline.lake.paths import LakePaths, replace_file
from cdc_pipeline.position.cursor import CursorState
from cdc_pipeline.position.overlap import Transactions, match_overlap
from cdc_pipeline.position.position import Flavor, Position
from cdc_pipeline.position.start.context import OverlapResult
from cdc_pipeline.position.start.lookup import place_of
from cdc_pipeline.position.start.same_log import begin_again
from cdc_pipeline.run.plan.limits import transaction_end_rows
from cdc_pipeline.source.protocol import Source

ENTRY_DTYPE: Final = np.dtype(
    [("commit_us", "<i8"), ("journal", "<i8"), ("offset", "<i8"), ("high", "<u8"), ("low", "<u8")]
)
_MAGIC: Final = b"cdc-overlap-1\n"
_FILE: Final = "overlap"


@dataclass(frozen=True, slots=True)
class History:
    """`entries`: ENTRY_DTYPE (n,), in the order of the log: commit time, number of the journal and
    offset behind the transaction's last event, content hash.
    """

    entries: np.ndarray
    journal: int = 0
    offset: int = 0

    def up_to(self, journal: int, offset: int) -> History:
        """Without what comes after a place."""
        entries = self.entries
        before = (entries["journal"] < journal) | (
            (entries["journal"] == journal) & (entries["offset"] <= offset)
        )
        return History(entries[before], *min((self.journal, self.offset), (journal, offset)))

    @property
    def transactions(self) -> Transactions:
        return Transactions(
            np.stack([self.entries["high"], self.entries["low"]], axis=1), self.entries["commit_us"]
        )


def history_path(config: PipelineConfig) -> Path:
    return LakePaths.of(config).state / _FILE


def read_history(path: Path) -> History:
    """An empty one if there is none; raises LakeStateError if the file is damaged."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return History(np.empty(0, dtype=ENTRY_DTYPE))
    head, _, body = content.removeprefix(_MAGIC).partition(b"\n")
    try:
        fields = json.loads(head) if content.startswith(_MAGIC) else {}
    except ValueError:
        fields = {}
    if fields.get("sha256") != hashlib.sha256(body).hexdigest():
        raise LakeStateError(
            f"a file of the lake's own records is damaged: {path}",
            expected="the history of the last transactions, as the pipeline wrote it",
            got=f"{len(content)} bytes that do not match their checksum",
            next_step="remove this file: a switch to another server then applies the last "
            "transactions again",
        )
    return History(
        np.frombuffer(body, dtype=ENTRY_DTYPE), int(fields["journal"]), int(fields["offset"])
    )


def _write_history(path: Path, history: History) -> None:
    body = history.entries.tobytes()
    fields = {
        "journal": history.journal,
        "offset": history.offset,
        "sha256": hashlib.sha256(body).hexdigest(),
    }
    replace_file(path, _MAGIC + json.dumps(fields).encode() + b"\n" + body)


class HistoryWriter:
    """Writer in the drain's thread; what the file holds behind `start` is dropped."""

    def __init__(self, path: Path, *, interval_us: int, start: Position) -> None:
        self._path = path
        self._interval_us = interval_us
        self._hasher = ContentHasher()
        kept = read_history(path).up_to(*start.order)
        # Of another log, or with a gap before the start: it is useless for what comes.
        self._entries = [kept.entries] if (kept.journal, kept.offset) == start.order else []

    def add(self, slices: Sequence[EventSlice]) -> None:
        for piece in slices:
            if piece.kind is SliceKind.ABANDONED:
                self._hasher.reset()
                continue
            hashed = self._hasher.feed(
                piece.chunk, piece.first, piece.stop, transaction_end_rows(piece) + piece.first
            )
            if len(hashed.rows):
                self._entries.append(_entries(piece.chunk, hashed.rows, hashed.hashes))

    def save(self, position: Position) -> None:
        """Write additions, complete up to `position`."""
        entries = np.concatenate([np.empty(0, dtype=ENTRY_DTYPE), *self._entries])
        if len(entries):
            entries = entries[
                entries["commit_us"]
                >= int(entries["commit_us"].max()) - 2 * self._interval_us - 1_000_000
            ]
        self._entries = [entries]
        _write_history(self._path, History(entries, *position.order))


def history_writer(
    config: PipelineConfig, *, start: Position, end: Position, flavor: Flavor
) -> HistoryWriter | None:
    """None if the log has GTIDs, or has no server to switch."""
    source = config.source
    if (
        flavor != "mysql"
        or start.gtid_set
        or end.gtid_set
        or not isinstance(source, LiveSourceConfig)
    ):
        return None
    interval_us = int(source.fallback_interval_s * 1_000_000)
    return HistoryWriter(history_path(config), interval_us=interval_us, start=start)


def build_overlap(
    config: PipelineConfig, source: Source, cursor: CursorState | None
) -> Callable[[Position, int], OverlapResult] | None:
    """None: no server can be switched. LakeStateError: damaged; SourceIdentityError: none of it."""
    if cursor is None or not isinstance(config.source, LiveSourceConfig):
        return None
    interval_us = int(config.source.fallback_interval_s * 1_000_000)

    def overlap(found: Position, since_us: int) -> OverlapResult:
        history = read_history(history_path(config)).up_to(*cursor.position.order)
        is_complete = (history.journal, history.offset) == cursor.position.order
        # Header timestamps have whole seconds; a history that reaches the cursor is more precise.
        until_us = cursor.timestamp_s * 1_000_000 + 999_999
        if not len(history.entries):
            reason = (
                f"no history of the last transactions: everything from {found} on is applied again"
            )
            return OverlapResult(found, until_us, reason)
        last_us = int(history.entries["commit_us"].max())
        until_us = last_us if is_complete else max(until_us, last_us)
        stream, places = _stream(source, found, stop_us=until_us + interval_us)
        match = match_overlap(history.transactions, stream)
        position = places[match.skipped - 1] if match.skipped else found
        reason = f"{match.skipped} transactions from {found} on were applied already"
        recent = history.transactions.since(since_us)
        lost = _lost(recent, stream)
        if len(stream) and 0 < lost == len(recent):
            raise _unrelated(config, source, found, lost)
        if lost:
            reason += (
                f"; {lost} others that were applied are not in its log: what only they changed "
                f"stays in the lake until `cdc-pipeline verify {config.name} --repair`"
            )
        if match.is_whole and is_complete:
            return OverlapResult(
                position, None, f"{reason}: all up to the cursor {cursor.position}"
            )
        return OverlapResult(
            position,
            until_us,
            f"{reason}; everything after {position} is applied again, up to a transaction after "
            f"{until_us / 1e6:.6f}",
        )

    return overlap


def _lost(history: Transactions, stream: Transactions) -> int:
    stream_hashes = set(map(tuple, stream.hashes.tolist()))
    return sum(tuple(hashed) not in stream_hashes for hashed in history.hashes.tolist())


def _unrelated(
    config: PipelineConfig, source: Source, found: Position, count: int
) -> SourceIdentityError:
    return SourceIdentityError(
        f"the log of {source.identity} has none of the last transactions that were applied: it may "
        "lack later ones of the old server, too",
        at=found,
        expected=f"at least one of the last {count}, which a replica logs with "
        "log_replica_updates = ON (MariaDB: log_slave_updates)",
        got=f"only others from {found} on",
        next_step="if it is a replica that lags, run again when it has caught up; if the last "
        "transactions never reached it, double source.fallback_interval_s, so that earlier ones "
        f"are compared. Otherwise {begin_again(config.name)}",
    )


class _Positions:
    """Positions behind transactions, each computed at its first use."""

    def __init__(self) -> None:
        self._parts: list[tuple[int, Chunk]] = []
        self._count = 0

    def add(self, chunk: Chunk, rows: NDArray[np.int64]) -> None:
        # Only the events of the chunk are kept, not its bytes.
        slim = replace(chunk, data=np.empty(0, dtype=np.uint8), events=chunk.events[rows])
        self._parts.append((self._count, slim))
        self._count += len(rows)

    def __getitem__(self, index: int) -> Position:
        first, chunk = next(part for part in reversed(self._parts) if part[0] <= index)
        return place_of(chunk, index - first, "next_offset")


def _stream(source: Source, found: Position, *, stop_us: int) -> tuple[Transactions, _Positions]:
    transactions, hasher, places = TransactionPass(), ContentHasher(), _Positions()
    hashes: list[NDArray[np.uint64]] = []
    times: list[NDArray[np.int64]] = []
    with closing(source.chunks(found, source.end_position())) as chunks:
        for chunk in chunks:
            was_abandoned = transactions.abandoned
            bounds = transactions.apply(chunk)
            if transactions.abandoned > was_abandoned:
                hasher.reset()
            hashed = hasher.feed(chunk, 0, len(chunk.events), bounds.ends)
            if not len(hashed.rows):
                continue
            hashes.append(hashed.hashes)
            times.append(chunk.events["commit_ts_us"][hashed.rows])
            places.add(chunk, hashed.rows)
            if int(times[-1].min()) > stop_us:
                break
    return (
        Transactions(
            np.concatenate([np.empty((0, 2), dtype=np.uint64), *hashes]),
            np.concatenate([np.empty(0, dtype=np.int64), *times]),
        ),
        places,
    )


def _entries(chunk: Chunk, rows: NDArray[np.int64], hashes: NDArray[np.uint64]) -> np.ndarray:
    entries = np.empty(len(rows), dtype=ENTRY_DTYPE)
    entries["commit_us"] = chunk.events["commit_ts_us"][rows]
    entries["journal"] = journal_number(chunk.journal)
    entries["offset"] = chunk.events["next_offset"][rows]
    entries["high"], entries["low"] = hashes[:, 0], hashes[:, 1]
    return entries
