"""The one exception tree of the project.

Rules:
- Every failure that a person may meet is a `CdcError`. It says what happened, where (journal, offset, table, setting),
  what was expected and what was got, and the next step to take.
- `retryable` is a property of the class: True where the same run, started again unchanged, can succeed. That of
  suspended targets alone depends on their causes.
- `needs_reload` likewise: True if only a load of the table can help, and reading the log again cannot.
- Messages never hold secrets: no passwords, no connection strings, no row values of masked columns.
"""

from __future__ import annotations

from typing import Any

from cdc_pipeline.text.printable import printable_lines


class CdcError(Exception):
    """Root of all errors of this project.

    Args:
        what: one sentence, without a full stop at its end.
        journal: binlog file name, where one is concerned.
        offset: byte offset in that journal.
        table: source table as ``schema.table``.
        setting: server variable, grant, configuration path or environment variable concerned.
        expected: what should have been there.
        got: what was there.
        next_step: what the reader can do now.
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
        """The error as plain values, for ``--json`` and run metadata. Absent parts are left out."""
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
        return printable_lines("\n".join(lines))  # logs and Dagster's pages show it, too


# -- configuration and machine --------------------------------------------------------------------------------------


class ConfigError(CdcError):
    """The configuration is wrong. Exit code 2."""


class NothingMatchedError(ConfigError):
    """Patterns of tables have never matched one; everything else of the run is done."""


class RuntimeSetupError(CdcError):
    """Java, Delta's jars or another part of this machine is missing or damaged."""


class LockError(CdcError):
    """Another process is writing for this source (K16)."""

    retryable = True


# -- source -----------------------------------------------------------------------------------------------------------


class SourceError(CdcError):
    """The server or the archive cannot serve what the run needs."""


class ServerUnreachableError(SourceError):
    """No connection, or the connection broke."""

    retryable = True


class InsecureLoginError(SourceError):
    """The server asks for the password in a way that would give it away (K26). It was not sent."""


class TableReadError(SourceError):
    """The server refuses a SELECT of a table, or broke it off for good."""


class TableReadInterruptedError(TableReadError):
    """A SELECT of a table was broken off by a lock, a kill or a timeout: the same read can succeed."""

    retryable = True


class TableChangedError(TableReadError):
    """The table is no longer what the schema says that it is read by: a DDL came between. Read it by the new one."""


class ServerSettingError(SourceError):
    """A server variable has a value that capture cannot work with; the next step holds the statement that mends it."""


class MissingGrantError(SourceError):
    """The account lacks a privilege; the next step holds the GRANT statement."""


class JournalMissingError(SourceError):
    """A journal that must be read is not there: purged, deleted, or never existed."""


class PositionError(SourceError):
    """A position is not at an event boundary, or lies beyond the end of its journal."""


class ReplicaIdError(SourceError):
    """Another reader of the server has this pipeline's replica server id; the server would end one
    of the two.
    """


class SourceIdentityError(SourceError):
    """The cursor was written for another server, or the server's journals were renumbered."""


class ServerChangedError(SourceIdentityError):
    """Another server answers at the cursor's address; after enough such errors the address has moved (SPEC P5)."""

    retryable = True


# -- binlog -----------------------------------------------------------------------------------------------------------


class BinlogError(CdcError):
    """The bytes of a journal are not what the format says."""


class DamagedJournalError(BinlogError):
    """A bad checksum, a length that cannot be, a wrong magic number."""


class TruncatedJournalError(DamagedJournalError):
    """The journal ends in the middle of an event."""


class SizeLimitError(BinlogError):
    """What a server or a journal claims is larger than a setting allows; the error names the setting (K25)."""


class UnknownEventError(BinlogError):
    """An event type that is not known and not marked ignorable."""


class UnknownColumnTypeError(BinlogError):
    """A column type code that is not known."""


class UnsupportedEventError(BinlogError):
    """An event that is known by name and cannot be applied; the next step is the way out."""


class IncompleteRowsError(UnsupportedEventError):
    """Rows of one table lack what is needed to apply them (an insert without the columns that got their default)."""


class TableIdNotFoundError(BinlogError):
    """Rows whose table map was not seen in their transaction (SPEC C3)."""


class UnrepresentableValueError(BinlogError):
    """A column value that its Delta type cannot hold (a zero date, bytes that are not text in the column's charset)."""


# -- store ------------------------------------------------------------------------------------------------------------


class StoreError(CdcError):
    """The ring store was asked for something that cannot be."""


class RingSizeError(StoreError):
    """The ring's size is not a power of two (SPEC S1)."""


class EventListTooLargeError(StoreError):
    """A list longer than the ring can ever hold (SPEC S4)."""


class AckPositionError(StoreError):
    """No event that was got and not acked is at the given position (SPEC S9)."""


class StoreDamagedError(StoreError):
    """What a store wrote to its files is not what it reads back."""


class StoreClosedError(StoreError):
    """The store was stopped while a put or a get waited."""


# -- transaction, schema ----------------------------------------------------------------------------------------------


class TransactionError(CdcError):
    """The order of events in a transaction contradicts the protocol."""


class UnknownXaError(TransactionError):
    """XA COMMIT of a transaction whose rows were not seen: it was prepared before the start (K8)."""


class SchemaError(CdcError):
    """A table's columns and what is known of them contradict each other."""


class MetadataMissingError(SchemaError):
    """The table map carries no full metadata (binlog_row_metadata below FULL)."""


class UnsupportedDdlError(SchemaError):
    """A DDL of a captured table whose effect cannot be applied yet."""


class FeatureNotAllowedError(SchemaError):
    """A table needs a Delta feature that the configuration does not permit (sink.reader_features)."""


class KeylessTableError(SchemaError):
    """A captured table without a key in a mode that needs one."""


class OverlapUndecidedError(SchemaError):
    """Changes that may have been applied before a switch would be kept twice by a target that keeps every change (K7).

    Attributes:
        targets: names of those targets.
    """

    def __init__(self, what: str, *, targets: tuple[str, ...], **rest: Any) -> None:
        super().__init__(what, **rest)
        self.targets = targets


class ContentUnknownError(SchemaError):
    """A table has taken a captured name by RENAME, and the pipeline does not have its rows in the form that the name's
    target needs (K28).

    Attributes:
        targets: names of the targets that still hold the rows of the table before it.
    """

    needs_reload = True

    def __init__(self, what: str, *, targets: tuple[str, ...], **rest: Any) -> None:
        super().__init__(what, **rest)
        self.targets = targets


# -- sink and cursor --------------------------------------------------------------------------------------------------


class SinkError(CdcError):
    """The lake cannot take what the run has for it."""


class LakeUnreachableError(SinkError):
    """The object store that the lake lies in does not answer, or not as it should."""

    retryable = True


class StagingError(SinkError):
    """A staged file is missing or its checksum is wrong."""


class MergeError(SinkError):
    """Spark or Delta failed while a batch was applied."""

    retryable = True


class LakeFullError(MergeError):
    """A disk has no room, or takes no writes."""


class TargetRefusedError(MergeError):
    """Spark or Delta refuses what a batch does to one table; it would again."""

    retryable = False


class ConcurrentWriterError(MergeError):
    """Somebody else commits to a target's Delta table, again and again."""


class LakeStateError(SinkError):
    """The lake's recorded state and its tables contradict each other (restored, replaced, written by others; K3)."""


class CatalogError(SinkError):
    """The session's catalog does not take a table (sink.catalog)."""

    retryable = True


class CatalogNameError(CatalogError):
    """The catalog has another table under the name that a table is to be registered by."""

    retryable = False


class CutNotFoundError(SinkError):
    """No cut of the lake is what a reader asked for; says which range there is."""


class TableNotInCutError(SinkError):
    """A table cannot be read as of a cut: not in it, suspended in it (K4), or its version was removed (K15)."""


class TargetSuspendedError(SinkError):
    """Some targets stand still while the others went on (K4); names each, its cause and the way out. Retryable where a
    run that is started again can mend all of them."""


class LoadError(CdcError):
    """Tables cannot be loaded, or not by the load that is under way (K17)."""


class CursorError(CdcError):
    """The cursor cannot be read, or contradicts the last cut (K3)."""
