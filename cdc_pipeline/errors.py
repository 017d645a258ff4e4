"""The exception hierarchy of the project.

Rules:
- Every failure that a user can see is a `CdcError`. It says what happened, where (journal, offset,
  table, setting), what was expected, what was found instead, and what to do next.
- `retryable` is a property of the class: True if the same run, started again unchanged, can
  succeed. Only for suspended targets does it depend on the causes.
- `needs_reload` is one as well: True if reading the log again cannot help and only a load of the
  table can.
- Messages never contain secrets: no passwords, no connection strings, no row values of masked
  columns.
"""

from __future__ import annotations

from typing import Any

from cdc_pipeline.text.printable import printable_lines


class CdcError(Exception):
    """Root of all errors of this project.

    Args:
        what: one sentence, without a full stop at its end.
        journal: binlog file name, if the error concerns one.
        offset: byte offset in that journal.
        table: source table as ``schema.table``.
        setting: the server variable, grant, configuration path or environment variable at fault.
        expected: what should have been found.
        got: what was found.
        next_step: what the user can do now.
    """

    retryable: bool = False
    needs_reload: bool = False

    def __init__(
        self,
        what: str,
        *,
        journal: str | None = None,
        offset: int | None = None,
        table: str | None = None,
        setting: str | None = None,
        expected: object | None = None,
        got: object | None = None,
        next_step: str | None = None,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.journal = journal
        self.offset = offset
        self.table = table
        self.setting = setting
        self.expected = expected
        self.got = got
        self.next_step = next_step

    def as_dict(self) -> dict[str, object]:
        """Return the error as plain values, for ``--json`` and run metadata,
        without absent parts.
        """
        parts: dict[str, object | None] = {
            "error": type(self).__name__,
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

    def __str__(self) -> str:
        where = []
        if self.journal is not None:
            at = self.journal if self.offset is None else f"{self.journal} at offset {self.offset}"
            where.append(f"journal {at}")
        elif self.offset is not None:
            where.append(f"offset {self.offset}")
        if self.table is not None:
            where.append(f"table {self.table}")
        if self.setting is not None:
            where.append(f"setting {self.setting}")
        lines = [self.what + (f" ({', '.join(where)})" if where else "")]
        if self.expected is not None:
            lines.append(f"  expected: {self.expected}")
        if self.got is not None:
            lines.append(f"  got: {self.got}")
        if self.next_step is not None:
            lines.append(f"  next step: {self.next_step}")
        return printable_lines("\n".join(lines))  # also shown in logs and on Dagster's pages


# -- configuration and machine ---------------------------------------------------------------------


class ConfigError(CdcError):
    """The configuration is wrong. Exit code 2."""


class NothingMatchedError(ConfigError):
    """Table patterns that have never matched a table; the rest of the run has succeeded."""


class RuntimeSetupError(CdcError):
    """Java, Delta's jars or another part of the installation is missing or damaged."""


class LockError(CdcError):
    """Another process holds the lock of this source: each source has one writer at a time (K16)."""

    retryable = True


# -- source ----------------------------------------------------------------------------------------


class SourceError(CdcError):
    """The server or the archive cannot serve what the run needs."""


class ServerUnreachableError(SourceError):
    """No connection, or the connection broke."""

    retryable = True


class InsecureLoginError(SourceError):
    """The server requests the password in a form that would reveal it (K26). It was not sent."""


class TableReadError(SourceError):
    """The server refused a SELECT of a table, or aborted it for a permanent reason."""


class TableReadInterruptedError(TableReadError):
    """A lock, a kill or a timeout aborted a SELECT of a table: the same read can succeed."""

    retryable = True


class TableChangedError(TableReadError):
    """A DDL has changed the table since its schema was read. Read it again with the new schema."""


class ServerSettingError(SourceError):
    """A server variable has a value that capture cannot work with;
    the next step contains the SQL statement that fixes it.
    """


class MissingGrantError(SourceError):
    """The account lacks a privilege; the next step contains the GRANT statement."""


class JournalMissingError(SourceError):
    """A journal that must be read does not exist: it was purged or deleted, or never existed."""


class PositionError(SourceError):
    """A position is not on an event boundary, or is past the end of its journal."""


class ReplicaIdError(SourceError):
    """Another reader of the server uses this pipeline's replica server id;
    the server would disconnect one of the two.
    """


class SourceIdentityError(SourceError):
    """The cursor was written for another server, or the server's journals were renumbered."""


class ServerChangedError(SourceIdentityError):
    """Another server answers at the cursor's address;
    after enough such errors the address counts as moved (SPEC P5).
    """

    retryable = True


# -- binlog ----------------------------------------------------------------------------------------


class BinlogError(CdcError):
    """The bytes of a journal violate the binlog format."""


class DamagedJournalError(BinlogError):
    """A wrong checksum, an impossible length or a wrong magic number."""


class TruncatedJournalError(DamagedJournalError):
    """The journal ends in the middle of an event."""


class SizeLimitError(BinlogError):
    """A server or a journal announces a size above the limit of a setting,
    which the error names (K25).
    """


class UnknownEventError(BinlogError):
    """An event of unknown type that is not marked as ignorable."""


class UnknownColumnTypeError(BinlogError):
    """An unknown column type code."""


class UnsupportedEventError(BinlogError):
    """An event of known type that cannot be applied; the next step says how to continue."""


class IncompleteRowsError(UnsupportedEventError):
    """Rows of a table lack values that are needed to apply them,
    such as an insert without the columns that took their default.
    """


class TableIdNotFoundError(BinlogError):
    """Rows whose transaction contains no table map for them (SPEC C3)."""


class UnrepresentableValueError(BinlogError):
    """A column value that its Delta type cannot hold (a zero date,
    bytes that are not text in the column's charset).
    """


# -- store -----------------------------------------------------------------------------------------


class StoreError(CdcError):
    """An invalid request to the ring store."""


class RingSizeError(StoreError):
    """The ring's size is not a power of two (SPEC S1)."""


class EventListTooLargeError(StoreError):
    """A list with more events than the ring can hold (SPEC S4)."""


class AckPositionError(StoreError):
    """No event that was got and is not yet acked is at the given position (SPEC S9)."""


class StoreDamagedError(StoreError):
    """A store reads back something other than what it wrote to its files."""


class StoreClosedError(StoreError):
    """The store was stopped while a put or a get waited."""


# -- transaction, schema ---------------------------------------------------------------------------


class TransactionError(CdcError):
    """The order of events in a transaction contradicts the protocol."""


class UnknownXaError(TransactionError):
    """XA COMMIT of a transaction whose rows were not read:
    it was prepared before the start (K8).
    """


class SchemaError(CdcError):
    """A table's columns contradict what is known about them."""


class MetadataMissingError(SchemaError):
    """The table map carries no full metadata (binlog_row_metadata below FULL)."""


class UnsupportedDdlError(SchemaError):
    """A DDL of a captured table whose effect cannot be applied yet."""


class FeatureNotAllowedError(SchemaError):
    """A table needs a Delta feature that sink.reader_features does not allow."""


class KeylessTableError(SchemaError):
    """A captured table without a key in a mode that needs one."""


class OverlapUndecidedError(SchemaError):
    """A target that keeps every change would keep changes twice that may have been applied before a
    switch (K7).

    Attributes:
        targets: names of those targets.
    """

    def __init__(self, what: str, *, targets: tuple[str, ...], **rest: Any) -> None:
        super().__init__(what, **rest)
        self.targets = targets


class ContentUnknownError(SchemaError):
    """A table has taken a captured name by RENAME, and the pipeline does not have its rows in the
    form that the target of that name needs (K28).

    Attributes:
        targets: names of the targets that still hold the rows of the previous table.
    """

    needs_reload = True

    def __init__(self, what: str, *, targets: tuple[str, ...], **rest: Any) -> None:
        super().__init__(what, **rest)
        self.targets = targets


# -- sink and cursor -------------------------------------------------------------------------------


class SinkError(CdcError):
    """The lake cannot take the changes of the run."""


class LakeUnreachableError(SinkError):
    """The lake's object store does not answer, or answers wrongly."""

    retryable = True


class StagingError(SinkError):
    """A staged file is missing or its checksum is wrong."""


class MergeError(SinkError):
    """Spark or Delta failed while a batch was applied."""

    retryable = True


class LakeFullError(MergeError):
    """A disk is full or refuses writes."""


class LakeDiskError(SinkError):
    """A disk fails at one file; it may not the next time."""

    retryable = True


class TargetRefusedError(MergeError):
    """Spark or Delta refuses the changes of a batch to one table, and would refuse them again."""

    retryable = False


class ConcurrentWriterError(MergeError):
    """Another writer keeps committing to a target's Delta table."""


class LakeStateError(SinkError):
    """The lake's recorded state contradicts its tables, which were restored,
    replaced or written by others (K3).
    """


class CatalogError(SinkError):
    """The session's catalog refuses a table (sink.catalog)."""

    retryable = True


class CatalogNameError(CatalogError):
    """The catalog already has another table under the name to register."""

    retryable = False


class CutNotFoundError(SinkError):
    """The lake has no cut that matches the request; the error names the range of cuts."""


class TableNotInCutError(SinkError):
    """A table cannot be read as of a cut:
    it is not in the cut, is suspended in it (K4), or its version was removed (K15).
    """


class TargetSuspendedError(SinkError):
    """Some targets are suspended while the others went on (K4). Names each one, its cause and how
    to resume it. Retryable if another run can resume all of them.
    """


class LoadError(CdcError):
    """Tables cannot be loaded, or not by the load in progress (K17)."""


class CursorError(CdcError):
    """The cursor cannot be read, or contradicts the last cut (K3)."""
