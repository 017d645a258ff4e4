"""The exception hierarchy of the project.

Rules:
- Every failure that a user can see is a `CdcError`. It says what happened, where (journal, offset,
  table, setting), what was expected, what was found instead, and what to do next.
- `retryable` is a property of the class: True if the same run, started again unchanged, can
  succeed. Only for suspended targets does it depend on the causes.
- `needs_snapshot` is one as well: True if reading the log again cannot help and only a snapshot of
  the table can.
- Messages never contain secrets: no passwords, no connection strings, no row values of masked
  columns.
- The docstring of each class says what happened and why, then how to put it right in a paragraph
  that begins with ``Fix:``. The error reference (docs/reference/errors.md) is made of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol

from cdc_pipeline.text.printable import printable_lines

LABEL_WIDTH: Final = 10  # of the longest label, and two blanks


class HasPlace(Protocol):
    """A position, an event, or anything else that is somewhere in the log."""

    @property
    def journal(self) -> str | None: ...

    @property
    def offset(self) -> int | None: ...


_At = HasPlace | tuple[str | None, int | None]


class CdcError(Exception):
    """Root of all errors of this project.

    Args:
        what: one sentence, without a full stop at its end.
        at: the place in the log, if the error concerns one: what has it, or journal and offset.
        table: source table as ``schema.table``.
        setting: the server variable, grant, configuration path or environment variable at fault.
        expected: what should have been found.
        got: what was found.
        next_step: what the user can do now.
    """

    retryable: bool = False
    needs_snapshot: bool = False
    setting_word: str = "setting"  # what `setting` is, before its name
    usual_step: str | None = None  # the next step of an error that names no other

    def __init__(
        self,
        what: str,
        *,
        at: _At = (None, None),
        table: str | None = None,
        setting: str | None = None,
        expected: object | None = None,
        got: object | None = None,
        next_step: str | None = None,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.journal, self.offset = _place(at)
        self.table = table
        self.setting = setting
        self.expected = expected
        self.got = got
        self.next_step = next_step or self.usual_step

    @classmethod
    def code(cls) -> str:
        """The stable name in documents: ``missing-grant`` for `MissingGrantError`."""
        words = cls.__name__.lstrip("_").removesuffix("Error")
        return re.sub(r"(?<!^)(?=[A-Z])", "-", words).lower()

    def as_dict(self) -> dict[str, object]:
        """Plain values for ``--json`` and run metadata, without absent parts."""
        parts: dict[str, object | None] = {
            "error": type(self).__name__,
            "code": self.code(),
            "what": self.what,
            "journal": self.journal,
            "offset": self.offset,
            "table": self.table,
            "setting": self.setting,
            "expected": None if self.expected is None else str(self.expected),
            "got": None if self.got is None else str(self.got),
            "next_step": self.next_step,
            "retryable": self.retryable,
        }
        return {name: value for name, value in parts.items() if value is not None}

    def details(self) -> list[tuple[str, str]]:
        """What follows the sentence, each part with its label: where, expected, got, next."""
        where = []
        if self.journal is not None:
            at = self.journal if self.offset is None else f"{self.journal} at offset {self.offset}"
            where.append(f"journal {at}")
        elif self.offset is not None:
            where.append(f"offset {self.offset}")
        if self.table is not None:
            where.append(f"table {self.table}")
        if self.setting is not None:
            where.append(f"{self.setting_word} {self.setting}")
        parts = {
            "where": ", ".join(where) or None,
            "expected": self.expected,
            "got": self.got,
            "next": self.next_step,
        }
        return [(label, str(part)) for label, part in parts.items() if part is not None]

    def __str__(self) -> str:
        lines = [self.what]
        for label, part in self.details():
            first, *more = part.split("\n")
            lines.append(f"  {label:<{LABEL_WIDTH}}{first}")
            lines += [f"  {'':<{LABEL_WIDTH}}{line}" for line in more]
        return printable_lines("\n".join(lines))  # also shown in logs and on Dagster's pages


def _place(at: _At) -> tuple[str | None, int | None]:
    return at if isinstance(at, tuple) else (at.journal, at.offset)


@contextmanager
def located(*, at: _At = (None, None), table: str | None = None) -> Iterator[None]:
    """An error that is raised within gets the place and the table that it does not name itself."""
    try:
        yield
    except CdcError as error:
        journal, offset = _place(at)
        error.journal = error.journal or journal
        error.offset = offset if error.offset is None else error.offset
        error.table = error.table or table
        raise


# -- configuration and machine ---------------------------------------------------------------------


class ConfigError(CdcError):
    """The configuration, or a name given on the command line, has a value that cannot be used. The
    exit code is 2.

    Fix: Correct what `where` names; `cdc-pipeline validate` lists every mistake of the files.
    """


class NothingMatchedError(ConfigError):
    """Patterns under `tables.include` have never matched a table: a name is misspelt, the account
    has no SELECT on the table, or the table does not exist yet. The rest of the run has succeeded.

    Fix: Correct the pattern or grant SELECT; set `tables.allow_empty: true` for a table that will
    be created later.
    """


class RuntimeSetupError(CdcError):
    """Java, Delta's jars or another part of the installation is missing, too old or damaged, for
    example by an interrupted download.

    Fix: Do what `next` says; `cdc-pipeline doctor SOURCE` examines this machine.
    """


class StoppedError(CdcError):
    """Ctrl-C or SIGTERM ended the command.

    Fix: Give it again: what it had published stays, and it goes on from there.
    """

    retryable = True


class LockError(CdcError):
    """Another process holds the lock of this source: each source has one writer at a time (K16).
    That is a run, a snapshot or a verification, on this machine or another one.

    Fix: Wait until it has ended and run again; nothing was changed.
    """

    retryable = True


# -- source ----------------------------------------------------------------------------------------


class SourceError(CdcError):
    """The server refused a statement, or it or the archive cannot serve what the run needs.

    Fix: `got` has the server's own words; do what `next` says, then run again.
    """


class ServerUnreachableError(SourceError):
    """There is no connection to the server, or it broke: the server is down, host or port are
    wrong, or a firewall or the network is in the way.

    Fix: Check `source.host` and `source.port`, and that the server runs; then run again.
    """

    retryable = True


class ServerAnswerError(SourceError):
    """The server sent something that cannot be right: bytes outside of the protocol, an answer
    without an end, or a value that is not of its kind. Another program listens at the address,
    something in between changes what is sent, or the server is damaged.

    Fix: Check `source.host` and `source.port`, the server's error log, and set `source.tls.mode:
    verify`.
    """


class StatementError(SourceError):
    """The server refused a statement that reads its state: it does not know the statement, or it is
    shutting down.

    Fix: `got` has the server's error number and words; look it up in the server's documentation.
    """

    def __init__(self, number: int, text: str, *, address: str) -> None:
        super().__init__(
            f"{address} refused a statement",
            got=f"error {number}: {text}",
            next_step="look up the error number in the server's documentation",
        )
        self.number = number
        self.text = text


class LoginError(SourceError):
    """The server refuses the account or the connection's TLS.

    Fix: Correct what `where` names; then run again.
    """


class InsecureLoginError(LoginError):
    """The server requests the password in a form that would reveal it, and its identity is not
    verified (K26). The password was not sent.

    Fix: Set `source.tls.mode: verify`, or give the account another authentication method.
    """


class TableReadError(SourceError):
    """The server refused a SELECT of a table, or aborted it for a permanent reason: SELECT is not
    granted, the table is damaged, or a value cannot be read.

    Fix: Grant SELECT, or repair what `got` names; then take the snapshot again.
    """


class TableReadInterruptedError(TableReadError):
    """A lock, a kill or a timeout aborted a SELECT of a table: the same read can succeed.

    Fix: Run again; a snapshot continues where it was.
    """

    retryable = True


class TableChangedError(TableReadError):
    """An ALTER TABLE has changed the table since its schema was read.

    Fix: Run again: the table is read with its new schema.
    """

    usual_step = "capture the source past the DDL, then read the table with its new columns"


class ServerSettingError(SourceError):
    """A server variable has a value that capture cannot work with: `log_bin` is off,
    `binlog_format` is not ROW, or another setting leaves out what is needed.

    Fix: Execute the SQL statement that `next` contains, and write the value into the server's
    configuration file too.
    """


class MissingGrantError(SourceError):
    """The account lacks a privilege: the GRANT was never executed, or for another host of the
    account.

    Fix: Execute the GRANT statement that `next` contains, as an administrator.
    """

    setting_word = "privilege"


class JournalMissingError(SourceError):
    """A journal that must be read does not exist: the server keeps its journals for a shorter time
    than passed since the last run, or a journal was deleted or misspelt.

    Fix: Read the journal from an archive (`source.archive_directory`), or take new snapshots of the
    tables; keep journals longer.
    """


class PositionError(SourceError):
    """A position is not on an event boundary, or is past the end of its journal: it was mistyped,
    or belongs to another server.

    Fix: Take a position that `cdc-pipeline binlog` or SHOW BINLOG EVENTS lists.
    """


class ReplicaIdError(SourceError):
    """Another reader of the server uses this pipeline's replica server id, and the server would
    disconnect one of the two: two captures of one pipeline run at once, or another replica has the
    same id.

    Fix: Stop the other one, or set a `source.replica_server_id` that nobody else uses.
    """

    usual_step = (
        "set source.replica_server_id to a number that no server and no other pipeline uses; run "
        "only one capture of a pipeline at a time"
    )


class SourceIdentityError(SourceError):
    """The cursor was written for another server, or the server's journals were renumbered:
    `source.host` leads elsewhere, or the server was restored or its log reset.

    Fix: Correct `source.host`; if the server was restored on purpose, do what `next` says.
    """


class ServerChangedError(SourceIdentityError):
    """Another server answers at the cursor's address, as after a failover; after enough such errors
    the address counts as moved (SPEC P5).

    Fix: Run again: the pipeline finds its place in the new server's log, or says what is missing.
    """

    retryable = True


# -- binlog ----------------------------------------------------------------------------------------


class BinlogError(CdcError):
    """The bytes of a journal violate the binlog format: the file is no journal, is damaged, or was
    written by a server that is not known yet.

    Fix: `cdc-pipeline binlog FILE` shows how far it can be read; take another copy of the journal.
    """


class DamagedJournalError(BinlogError):
    """A journal has a wrong checksum, an impossible length or a wrong magic number: a disk or a
    copy has changed its bytes.

    Fix: Take another copy, from a replica or a backup; everything before the place was applied.
    """

    usual_step = "fetch the journal again from its server; everything before this offset is good"


class TruncatedJournalError(DamagedJournalError):
    """The journal ends in the middle of an event: it was copied while the server wrote it, or the
    copy was interrupted.

    Fix: Copy the whole file; everything before the place was applied.
    """


class SizeLimitError(BinlogError):
    """A server or a journal announces a size above the limit of a setting (K25): a transaction is
    that large, or the bytes are damaged.

    Fix: If the size is right, raise the setting that `where` names.
    """


class UnknownEventError(BinlogError):
    """A newer server wrote an event that this version does not know, and did not mark it as
    ignorable.

    Fix: Install a newer version of cdc_pipeline; everything before the event was applied.
    """


class UnknownColumnTypeError(BinlogError):
    """A newer server has a column type that this version does not know.

    Fix: Leave the column or the table out (`tables.exclude`), or install a newer version.
    """


class UnsupportedEventError(BinlogError):
    """An event of known type cannot be applied: a server setting makes the log hold less than whole
    rows, or statements instead of rows.

    Fix: Change the server's setting as `next` says, then continue as it says.
    """


class IncompleteRowsError(UnsupportedEventError):
    """Rows of a table lack values that are needed to apply them, such as an insert without the
    columns that took their default: `binlog_row_image` is not FULL.

    Fix: SET GLOBAL binlog_row_image = 'FULL', then take a new snapshot of the table.
    """


class TableIdNotFoundError(BinlogError):
    """Rows whose transaction contains no table map for them (SPEC C3): the journal is damaged, or
    the start is in the middle of a transaction.

    Fix: Start at a transaction's beginning; take another copy of the journal.
    """


class UnrepresentableValueError(BinlogError):
    """A column has a value that its Delta type cannot hold (a zero date, bytes that are not text in
    the column's charset), and the row policy is `fail`.

    Fix: Set `sink.on_invalid_value` or `sink.zero_dates` to `rescue`, then run again.
    """


# -- store -----------------------------------------------------------------------------------------


class StoreError(CdcError):
    """The event store between reader and drain cannot use its directory, or the program has a
    defect.

    Fix: Check `store.directory`; run again. If it comes again, report it.
    """


class RingSizeError(StoreError):
    """The ring's size, `store.ring_events`, is not a power of two (SPEC S1).

    Fix: Set it to a power of two, such as 65536.
    """


class EventListTooLargeError(StoreError):
    """A list has more events than the ring can hold, though lists are divided before they are put:
    a defect of the program (SPEC S4).

    Fix: Raise `store.ring_events`, and report it.
    """


class AckPositionError(StoreError):
    """No event that was got and is not yet acked is at the given position: a defect of the program
    (SPEC S9).

    Fix: Run again: the run continues at the last cut. Report it.
    """


class StoreDamagedError(StoreError):
    """A store reads back something other than what it wrote to its files: the disk of
    `store.directory` is failing, or another program wrote there.

    Fix: Name another disk in `store.directory` and run again; nothing is lost.
    """


class StoreClosedError(StoreError):
    """The store was stopped while a put or a get waited, because the run is ending with another
    error.

    Fix: See that other error.
    """


# -- transaction, schema ---------------------------------------------------------------------------


class TransactionError(CdcError):
    """The order of events in a transaction contradicts the protocol: the journal is damaged, or the
    start is in the middle of a transaction.

    Fix: Start at a transaction's beginning; take another copy of the journal.
    """


class UnknownXaError(TransactionError):
    """XA COMMIT of a transaction whose rows were not read: it was prepared before the position that
    the pipeline started at (K8).

    Fix: Start earlier, take new snapshots of its tables, or accept its loss by name
    (`accept.unknown_xa`).
    """


class SchemaError(CdcError):
    """A table's columns contradict what is known about them: a DDL was not seen, or the table is
    not what it was.

    Fix: Do what `next` says; a new snapshot of the table always helps.
    """


class MetadataMissingError(SchemaError):
    """The table map carries no full metadata (`binlog_row_metadata` is MINIMAL, the server's
    default), and the columns at that place of the log are not known.

    Fix: SET PERSIST binlog_row_metadata = 'FULL' (MariaDB: SET GLOBAL), then take a new snapshot of
    the table.
    """


class UnsupportedDdlError(SchemaError):
    """The effect of a DDL of a captured table cannot be applied: the log does not show what it did
    to existing rows, or the policy does not permit it.

    Fix: Take a new snapshot of it, or choose another policy under `schema_changes`.
    """


class FeatureNotAllowedError(SchemaError):
    """A column type or a change of a table needs a Delta feature that `sink.reader_features` does
    not allow.

    Fix: Add the feature to `sink.reader_features`, or exclude the column.
    """


class KeylessTableError(SchemaError):
    """A captured table has neither a primary key nor a unique key without NULL, and the rule says
    `keyless: stop` or keeps a mode with a key.

    Fix: Add a primary key, name one with `key` in a rule, choose `keyless: changelog`, or exclude
    the table.
    """


class OverlapUndecidedError(SchemaError):
    """A target that keeps every change may already have those after a switch of servers without
    GTIDs: the two logs share transactions that cannot be told apart (K7).

    Fix: Accept them by name (`accept.overlap`), or take a new snapshot of the table.

    Attributes:
        targets: names of those targets.
    """

    def __init__(self, what: str, *, targets: tuple[str, ...], **rest: Any) -> None:
        super().__init__(what, **rest)
        self.targets = targets


class ContentUnknownError(SchemaError):
    """The pipeline does not have the rows of a table: a RENAME TABLE has given a captured name to a
    table that was not captured (K28), or a session wrote with binlog_format STATEMENT or MIXED
    (K29).

    Fix: Take its snapshot: `cdc-pipeline snapshot SOURCE --table NAME`.

    Attributes:
        targets: names of the targets that do not hold its rows; None for all of the table's.
    """

    needs_snapshot = True

    def __init__(self, what: str, *, targets: tuple[str, ...] | None = None, **rest: Any) -> None:
        super().__init__(what, **rest)
        self.targets = targets


# -- sink and cursor -------------------------------------------------------------------------------


class SinkError(CdcError):
    """The lake cannot take the changes of the run: its folder or bucket cannot be used, or its
    tables are not as they were left.

    Fix: Do what `next` says; the changes are read again by the next run.
    """


class LakeUnreachableError(SinkError):
    """The lake's object store does not answer, or answers wrongly: the address, the region or the
    credentials are wrong, or the network failed.

    Fix: Check `sink.lake_path` and `sink.storage`; then run again.
    """

    retryable = True


class StagingError(SinkError):
    """A staged file is missing or its checksum is wrong: files below `_cdc` were deleted or
    changed, or the disk fails.

    Fix: Restore them, or rebuild the cursor as `next` says.
    """


class MergeError(SinkError):
    """Spark or Delta failed while a batch was applied: an executor was lost, memory ran out, or a
    file could not be written.

    Fix: Run again: the recorded batch is finished. See Spark's log if it fails again.
    """

    retryable = True


class LakeFullError(MergeError):
    """A disk refuses writes: it has no free space or no free inodes, or a quota is reached.

    Fix: Free space and run again; `cdc-pipeline maintain SOURCE` removes old files.
    """


class LakeDiskError(SinkError):
    """An input or output error of a disk at one file; it may not happen the next time.

    Fix: Examine the disk, then run again.
    """

    retryable = True


class TargetRefusedError(MergeError):
    """Spark or Delta refuses the changes of a batch to one table, and would refuse them again:
    others have changed the table in the lake, or a rule does not fit its columns.

    Fix: Correct the rule, or take a new snapshot of the table.
    """

    retryable = False


class ConcurrentWriterError(MergeError):
    """Another job keeps committing to a target's Delta table.

    Fix: Stop the other writer; only the pipeline may write its tables.
    """


class LakeStateError(SinkError):
    """The lake's recorded state contradicts its tables (K3): files were restored from a backup,
    deleted, or written by another program.

    Fix: Do what `next` says: it keeps what can be kept.
    """


class CatalogError(SinkError):
    """The session's catalog (`sink.catalog`) does not answer, or the account may not create tables
    in it.

    Fix: Check the catalog and its permissions, then run again.
    """

    retryable = True


class CatalogNameError(CatalogError):
    """The catalog already has another table under the name to register: another program registered
    it, or two targets have one name there.

    Fix: Drop the other table, or choose another name under `sink.catalog`.
    """

    retryable = False


class PublicationError(SinkError):
    """The newest cut is not published (`sink.publish`), because the catalog does not answer or
    refuses a view, or the file cannot be written; all else of the run is done.

    Fix: Remove the cause, then run again: a run publishes what is missing, also without changes.
    """

    retryable = True


class CutNotFoundError(SinkError):
    """The lake has no cut that matches the request: the number, the position or the time is outside
    of what it has kept.

    Fix: Choose one that `cdc-pipeline cuts list SOURCE` shows.
    """


class TableNotInCutError(SinkError):
    """A table cannot be read as of a cut: it is not in the cut yet, is suspended in it (K4), or its
    version was removed after `sink.cut_retention` (K15).

    Fix: Choose a later cut; `cdc-pipeline cuts show SOURCE CUT` lists its tables.
    """


class CutsNotComparableError(SinkError):
    """A table's changes between two cuts cannot be told: its mode, key or columns are others, a key
    has several rows, or the changes are too many.

    Fix: Read it whole as of the newer cut, and go on from there.
    """


class RowsDifferError(SinkError):
    """Rows of a table of the lake are not those of the server, by changes that the log did not show
    (a cascade, `sql_log_bin` off), or that others made in the lake.

    Fix: `cdc-pipeline verify SOURCE --table TABLE --repair`.
    """


class SparkNeededError(SinkError):
    """A table has something that only Spark reads: a Delta feature, a kind of column mapping or of
    partition.

    Fix: Give `cdc_pipeline.read` a session: `spark=`.
    """


class TargetSuspendedError(SinkError):
    """Some tables met something that cannot be applied to them with certainty: their targets are
    suspended while the others went on (K4). Retryable if another run can resume all of them.

    Fix: Each table is listed with its cause and how to resume it; `cdc-pipeline status` shows them
    too.
    """


class SnapshotError(CdcError):
    """Snapshots of tables cannot be taken, or not by the one in progress (K17): another one is
    unfinished, or what it needs is gone.

    Fix: Continue it or start again, as `next` says.
    """


class CursorError(CdcError):
    """The cursor cannot be read, or contradicts the last cut (K3): Dagster's home was lost or
    restored, or another one is used.

    Fix: Set DAGSTER_HOME to the pipeline's own, or rebuild the cursor: `cdc-pipeline cursor rebuild
    SOURCE`.
    """
