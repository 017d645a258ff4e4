"""What happens to a server, and what the next run must decide, wherever it reads and by whatever
positions.

A row has decisions by cell: the first pattern that fits ``positions/place`` decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Final, get_args

from cdc_pipeline.errors import (
    CdcError,
    DamagedJournalError,
    JournalMissingError,
    PositionError,
    ServerChangedError,
    ServerSettingError,
    SourceError,
    SourceIdentityError,
    TruncatedJournalError,
)
from tests.campaigns.server_history import events
from tests.campaigns.server_history.decisions import (
    Decision,
    GoesOn,
    Impossible,
    OneOf,
    Refused,
    Told,
    Unseen,
    Waits,
)
from tests.campaigns.server_history.world import Place, Positions

POSITIONS: Final[tuple[Positions, ...]] = get_args(Positions)
PLACES: Final[tuple[Place, ...]] = get_args(Place)


@dataclass(frozen=True)
class Row:
    """One thing that can happen.

    Attributes:
        what: for people, as the end of "What if ...".
        group: heading that it stands under.
        event: how it is done.
        cells: decisions by pattern.
    """

    what: str
    group: str
    event: events.Event
    cells: Mapping[str, Decision]

    @property
    def name(self) -> str:
        return self.event.__name__

    def decision(self, positions: Positions, place: Place) -> Decision:
        """The decision of a cell."""
        cell = f"{positions}/{place}"
        return next(of for pattern, of in self.cells.items() if fnmatch(cell, pattern))


def _refused(reason: str, error: type[CdcError] = SourceIdentityError) -> dict[str, Decision]:
    return {
        "*/archive": Refused(reason, error, ("rebuild",)),
        "*": Refused(reason, error, ("snapshot",)),
    }


_NO_STANDBY: Final = Impossible("it takes two servers")
_LOST_TOLD: Final = Told(
    "without GTIDs the logs of two servers are joined by the contents of their transactions; "
    "transactions that only the old server had are counted in the run's reasons, and `verify "
    "--repair` sets their rows right",
    "are not in its log",
)
_UNPROVED: Final = Refused(
    "without GTIDs nothing proves that the journal has lost nothing at its end",
    DamagedJournalError,
    ("accept",),
)
_ARCHIVE_WAITS: Final = Waits(
    "the archive's newest journal is still the old log's; as soon as the new log comes to the "
    "cursor's journal, the run is refused"
)
_OTHERS_ARCHIVE: Final = Refused(
    "the archive's oldest journal is another server's", SourceIdentityError, ("live",)
)
_ONLY_MYSQL: Final = Impossible("MariaDB has a GTID for every transaction")
_OTHER: Final = Refused(
    "another server answers at the address; after three runs the address counts as moved, and its "
    "log is searched by time",
    ServerChangedError,
    ("again",),
)

_SAME: Final = "The server stays what it is"
_EARLIER: Final = "The server goes back to an earlier state"
_RENUMBERED: Final = "The log begins again"
_JOURNALS: Final = "Journals are lost"
_GTIDS: Final = "GTIDs change"
_OTHERS: Final = "Another server takes over"

MATRIX: Final = (
    Row(
        "new journals begin (for a standby: it takes over and has everything)",
        _SAME,
        events.nothing,
        {
            "mysql by offset/standby": GoesOn(
                "its log is searched by time; the transactions there that were applied already "
                "are known by their contents"
            ),
            "*/standby": GoesOn("its GTIDs say what was read"),
            "*": GoesOn("the journals follow each other"),
        },
    ),
    Row(
        "it is restarted in order",
        _SAME,
        events.restarted,
        {"*": GoesOn("the journal ends with a STOP event")},
    ),
    Row(
        "it is killed and recovers",
        _SAME,
        events.killed,
        {
            "mysql by offset/*": _UNPROVED,
            "*": GoesOn("the head of the next journal names all transactions before it"),
        },
    ),
    Row(
        "its present state is restored from a hot copy",
        _SAME,
        events.same_state_restored,
        {
            "mysql by offset/*": _UNPROVED,
            "*": GoesOn("the copy has the cursor's last events, and all transactions"),
        },
    ),
    Row(
        "it moves to another machine (a copy with a new uuid and server id)",
        _SAME,
        events.moved_to_another_machine,
        {
            "mysql by offset/live": _OTHER,
            "*": GoesOn("its log has the transactions that were read"),
        },
    ),
    Row(
        "its uuid changes (`auto.cnf` is removed)",
        _SAME,
        events.uuid_changed,
        {
            "mariadb/*": Impossible("MariaDB has no server uuid"),
            "mysql by offset/live": _OTHER,
            "*": GoesOn("its log has the transactions that were read"),
        },
    ),
    Row(
        "its server id changes",
        _SAME,
        events.server_id_changed,
        {"*": GoesOn("its log has the transactions that were read")},
    ),
    Row(
        "its binlog checksums are switched off",
        _SAME,
        events.checksums_switched,
        {"*": GoesOn("the checksums that the cursor keeps are the pipeline's own")},
    ),
    Row(
        "its clock is set back by an hour",
        _SAME,
        events.clock_set_back,
        {"*": GoesOn("no decision on the cursor's own log depends on the clock")},
    ),
    Row(
        "its clock was an hour ahead, and is set right",
        _SAME,
        events.clock_set_forward_and_back,
        {
            "*/standby": Impossible("a standby's own clock is in its log only once it took over"),
            "*": GoesOn("no decision on the cursor's own log depends on the clock"),
        },
    ),
    Row(
        "an earlier state is restored and nothing is written",
        _EARLIER,
        events.set_back,
        {
            "mysql by offset/standby": Refused(
                "its log has nothing later than what was read; once it has, the next row applies",
                PositionError,
                (),
            ),
            **_refused("the log ends before the cursor, or lacks transactions that were read"),
        },
    ),
    Row(
        "a cold copy is restored and the server goes on",
        _EARLIER,
        events.cold_copy_restored,
        {
            "mysql by offset/standby": _LOST_TOLD,
            **_refused("the log does not have the cursor's last events or transactions"),
        },
    ),
    Row(
        "a hot copy is restored and the server goes on",
        _EARLIER,
        events.hot_copy_restored,
        {
            "mysql by offset/standby": Refused(_UNPROVED.reason, DamagedJournalError, ()),
            "mysql by offset/archive": Refused(
                "the journal does not have the cursor's last events", SourceIdentityError, ("live",)
            ),
            **_refused("the log does not have the cursor's last events or transactions"),
        },
    ),
    Row(
        "a hot copy is restored, the server goes on, and the journals of that time are purged",
        _EARLIER,
        events.restored_and_purged,
        {
            "mysql by GTID/standby": Refused(
                "the server never had the last transactions that were read",
                SourceIdentityError,
                ("snapshot",),
            ),
            **_refused("what follows the cursor was purged", JournalMissingError),
            "*/archive": Refused(
                "the journals after the cursor's are not there", JournalMissingError, ("live",)
            ),
        },
    ),
    Row(
        "a copy is restored, and other rows are written by transactions of the same GTIDs, places, "
        "lengths and seconds",
        _EARLIER,
        events.restored_within_the_same_second,
        {
            "*/standby": Impossible("nothing was read from the standby's own log yet"),
            **_refused("the cursor has the checksum of the last events up to 64 KiB"),
        },
    ),
    Row(
        "the same, after a snapshot and before anything of the log was read",
        _EARLIER,
        events.restored_after_a_snapshot,
        {
            "*/live": Unseen(
                "there are no last events to compare, and the journal has its name, its second "
                "and its length: `verify` finds it"
            ),
            "*/archive": Impossible("an archive has no tables; its first run reads its log"),
            "*": Impossible("nothing was read from the standby's own log yet"),
        },
    ),
    Row(
        "an empty server is filled by a dump that has what was read",
        _EARLIER,
        events.dump_restored,
        {
            "mysql by offset/archive": _OTHERS_ARCHIVE,
            "*/archive": _ARCHIVE_WAITS,
            "mysql by offset/live": Refused(
                "another server answers at the address; after three runs its log is searched by "
                "time, and begins after the last transaction that was read",
                ServerChangedError,
                ("again", "snapshot"),
            ),
            "mysql by offset/standby": Refused(
                "its log begins after the last transaction that was read",
                JournalMissingError,
                ("snapshot",),
            ),
            "*": GoesOn("the dump tells the server which transactions it has"),
        },
    ),
    Row(
        "an empty server is filled by a dump that has more than what was read",
        _EARLIER,
        events.later_dump_restored,
        {
            "mysql by offset/archive": _OTHERS_ARCHIVE,
            "*/archive": _ARCHIVE_WAITS,
            "mysql by offset/live": Refused(
                "another server answers at the address; after three runs its log is searched by "
                "time, and begins after the last transaction that was read",
                ServerChangedError,
                ("again", "snapshot"),
            ),
            "mysql by offset/standby": Refused(
                "its log begins after the last transaction that was read",
                JournalMissingError,
                ("snapshot",),
            ),
            "mariadb/*": Refused(
                "the log does not hold the last transaction that was read",
                SourceIdentityError,
                ("snapshot",),
            ),
            "*": Refused(
                "the transactions between are in no journal", JournalMissingError, ("snapshot",)
            ),
        },
    ),
    Row(
        "an empty server is filled by a dump that has less than what was read",
        _EARLIER,
        events.old_dump_restored,
        {
            "mysql by offset/archive": _OTHERS_ARCHIVE,
            "*/archive": _ARCHIVE_WAITS,
            "mysql by offset/live": Refused(
                "another server answers at the address; after three runs its log is searched by "
                "time, and begins after the last transaction that was read",
                ServerChangedError,
                ("again", "snapshot"),
            ),
            "mysql by offset/standby": Refused(
                "its log begins after the last transaction that was read",
                JournalMissingError,
                ("snapshot",),
            ),
            "*": Refused(
                "the server never had the last transactions that were read",
                SourceIdentityError,
                ("snapshot",),
            ),
        },
    ),
    Row(
        "the log is reset",
        _RENUMBERED,
        events.reset,
        {
            "*/archive": _ARCHIVE_WAITS,
            "mysql by offset/standby": Refused(
                "its log begins after the last transaction that was read",
                JournalMissingError,
                ("snapshot",),
            ),
            "*": Refused("the log ends before the cursor", SourceIdentityError, ("snapshot",)),
        },
    ),
    Row(
        "the log is reset, and comes to the old names again",
        _RENUMBERED,
        events.reset_and_grown,
        {
            "*/archive": Refused(
                "the cursor's last events are not in the journal of that name",
                SourceIdentityError,
                ("live",),
            ),
            "mysql by offset/standby": Refused(
                "its log begins after the last transaction that was read",
                JournalMissingError,
                ("snapshot",),
            ),
            "*/standby": Refused(
                "the transaction of the last GTID that was read was committed at another time",
                SourceIdentityError,
                ("snapshot",),
            ),
            "*": Refused(
                "the cursor's last events are not in the journal of that name",
                SourceIdentityError,
                ("snapshot",),
            ),
        },
    ),
    Row(
        "the log is reset, passes the old names, and these are purged",
        _RENUMBERED,
        events.reset_grown_and_purged,
        {
            "*/archive": Refused(
                "the journals after the cursor's are not there", JournalMissingError, ("live",)
            ),
            "mysql by GTID/standby": Refused(
                "the server never had the last transactions that were read",
                SourceIdentityError,
                ("snapshot",),
            ),
            "*": Refused("what follows the cursor was purged", JournalMissingError, ("snapshot",)),
        },
    ),
    Row(
        "the log is reset to a higher number, and more transactions follow than were read",
        _RENUMBERED,
        events.reset_to_a_higher_number,
        {
            "*/archive": Refused(
                "the journals after the cursor's are not there", JournalMissingError, ("live",)
            ),
            "mysql by offset/live": Refused(
                "the cursor's journal is gone", JournalMissingError, ("snapshot",)
            ),
            "mysql by offset/standby": Refused(
                "its log begins after the last transaction that was read",
                JournalMissingError,
                ("snapshot",),
            ),
            "*": Refused(
                "the transaction of the last GTID that was read was committed at another time",
                SourceIdentityError,
                ("snapshot",),
            ),
        },
    ),
    Row(
        "the log is reset to a higher number, and few transactions follow",
        _RENUMBERED,
        events.reset_to_a_higher_number_and_few_changes,
        {
            "mysql by offset/archive": Refused(
                "the journals after the cursor's are not there", JournalMissingError, ("live",)
            ),
            "*/archive": Refused(
                "the log has fewer transactions than were read", SourceIdentityError, ("live",)
            ),
            "mysql by offset/live": Refused(
                "the cursor's journal is gone", JournalMissingError, ("snapshot",)
            ),
            "mysql by offset/standby": Refused(
                "its log begins after the last transaction that was read",
                JournalMissingError,
                ("snapshot",),
            ),
            "*": Refused(
                "the log has fewer transactions than were read", SourceIdentityError, ("snapshot",)
            ),
        },
    ),
    Row(
        "the log is reset and told which transactions were executed",
        _RENUMBERED,
        events.reset_with_its_gtids,
        {
            "*/archive": _ARCHIVE_WAITS,
            "mysql by offset/live": Refused(
                "the log ends before the cursor", SourceIdentityError, ("snapshot",)
            ),
            "mysql by offset/standby": Refused(
                "its log begins after the last transaction that was read",
                JournalMissingError,
                ("snapshot",),
            ),
            "*/live": Refused("the log ends before the cursor", SourceIdentityError, ("snapshot",)),
            "*": Refused(
                "the transactions between are in no journal", JournalMissingError, ("snapshot",)
            ),
        },
    ),
    Row(
        "the journals get another base name (`log_bin`)",
        _RENUMBERED,
        events.base_name_changed,
        {
            "*/archive": Refused("the directory holds the journals of two logs", SourceError, ()),
            "mariadb/standby": Unseen(
                "a MariaDB that begins a log of another name gives its numbers again"
            ),
            "*/standby": Refused(
                "the new log begins after the last transaction that was read",
                JournalMissingError,
                ("snapshot",),
            ),
            "*": Refused(
                "journals are compared by number: one of another name is of another log",
                SourceIdentityError,
                ("snapshot",),
            ),
        },
    ),
    Row(
        "journals before the cursor are purged",
        _JOURNALS,
        events.purged_before_the_cursor,
        {
            "*": GoesOn("nothing needs them"),
        },
    ),
    Row(
        "the cursor's journal is purged, and was read to its end",
        _JOURNALS,
        events.purged_up_to_the_cursor,
        {
            "mysql by offset/live": Refused(
                "without GTIDs the journal itself must be there", JournalMissingError, ("snapshot",)
            ),
            "mysql by offset/standby": Refused(
                "its log begins after the last transaction that was read",
                JournalMissingError,
                ("snapshot",),
            ),
            "*/archive": GoesOn("the archive has it"),
            "*": GoesOn("its GTIDs show that nothing was lost with it"),
        },
    ),
    Row(
        "journals are purged that were not read",
        _JOURNALS,
        events.purged_unread,
        {
            "*/archive": GoesOn("the archive has them"),
            "*": Refused(
                "transactions between are in no journal", JournalMissingError, ("snapshot",)
            ),
        },
    ),
    Row(
        "a journal before the cursor is deleted by hand",
        _JOURNALS,
        events.deleted_before_the_cursor,
        {
            "mariadb/live": Refused(
                "MariaDB cannot say which transactions precede its oldest journal",
                JournalMissingError,
                ("purge",),
            ),
            "mariadb/standby": Refused(
                "MariaDB cannot say which transactions precede its oldest journal",
                JournalMissingError,
                ("purge",),
            ),
            "mysql by offset/standby": Refused(
                "a search by time reads the head of each journal", JournalMissingError, ("purge",)
            ),
            "*": GoesOn("nothing needs it"),
        },
    ),
    Row(
        "a journal that was not read is deleted by hand",
        _JOURNALS,
        events.deleted_unread,
        {
            "*": Refused("the file is not there", JournalMissingError, ("file",)),
        },
    ),
    Row(
        "the cursor's journal is deleted by hand",
        _JOURNALS,
        events.deleted_under_the_cursor,
        {
            "*": Refused("the file is not there", JournalMissingError, ("file",)),
        },
    ),
    Row(
        "a journal that was not read is deleted, and its line in the server's index",
        _JOURNALS,
        events.taken_out_of_the_index,
        {
            "*/archive": Refused(
                "the journals must be numbered without a gap", JournalMissingError, ("live",)
            ),
            "*": Refused(
                "the journals must be numbered without a gap, or GTIDs must prove that nothing "
                "is missing",
                JournalMissingError,
                ("snapshot",),
            ),
        },
    ),
    Row(
        "a power cut costs the newest journal an end that was not read, but not the tables",
        _JOURNALS,
        events.power_cut_behind_the_cursor,
        {
            "mariadb/archive": Refused(
                "MariaDB leaves the torn event at the end of its file",
                TruncatedJournalError,
                ("cut",),
            ),
            "mariadb/*": Refused(
                "MariaDB leaves the torn event at the end of its file",
                TruncatedJournalError,
                ("verify",),
            ),
            "mysql by offset/*": Refused(_UNPROVED.reason, DamagedJournalError, ()),
            "*/archive": OneOf(
                "MySQL cuts the torn transaction off",
                (
                    GoesOn("the tables have lost the same"),
                    Unseen("the tables have more than the log: `verify` finds it"),
                ),
            ),
            "*": OneOf(
                "MySQL cuts the torn transaction off",
                (
                    GoesOn("the tables have lost the same"),
                    Refused(
                        "the server has executed what is in no journal",
                        JournalMissingError,
                        ("snapshot",),
                    ),
                    Unseen("the tables have more than the log: `verify` finds it"),
                ),
            ),
        },
    ),
    Row(
        "a power cut costs the newest journal what was read",
        _JOURNALS,
        events.power_cut_before_the_cursor,
        {
            "*/archive": Refused(
                "the journal ends before the cursor", SourceIdentityError, ("live",)
            ),
            "mysql by offset/standby": _UNPROVED,
            "*/standby": OneOf(
                "the standby's log has lost what was read from the primary",
                (
                    GoesOn("the standby knows that it has executed it"),
                    Refused("what it lost is not known to it", SourceIdentityError, ("snapshot",)),
                ),
            ),
            "*": Refused("the journal ends before the cursor", SourceIdentityError, ("snapshot",)),
        },
    ),
    Row(
        "the archive's newest copy ends in the middle of an event",
        _JOURNALS,
        events.torn_copy,
        {
            "*/archive": Refused(
                "an archive's last journal ends with a whole event",
                TruncatedJournalError,
                ("file",),
            ),
            "*": Impossible("a server's own journal is no copy: see the power cuts"),
        },
    ),
    Row(
        "GTIDs are switched off",
        _GTIDS,
        events.gtids_switched_off,
        {
            "mariadb/*": _ONLY_MYSQL,
            "mysql by GTID/archive": GoesOn("files are read by offset"),
            "mysql by GTID/*": Refused(
                "MySQL sends by offset only what its mode allows", ServerSettingError, ("setting",)
            ),
            "*": Impossible("they are off"),
        },
    ),
    Row(
        "GTIDs are switched on",
        _GTIDS,
        events.gtids_switched_on,
        {
            "mariadb/*": _ONLY_MYSQL,
            "mysql by offset/archive": GoesOn("files are read by offset"),
            "mysql by offset/*": Refused(
                "MySQL sends by offset only what its mode allows", ServerSettingError, ("setting",)
            ),
            "*": Impossible("they are on"),
        },
    ),
    Row(
        "GTIDs are switched off and on, with a run between",
        _GTIDS,
        events.gtids_off_and_on_with_a_run_between,
        {
            "mariadb/*": _ONLY_MYSQL,
            "mysql by GTID/*": GoesOn("each run goes by what the server uses then"),
            "*": Impossible("they are off"),
        },
    ),
    Row(
        "GTIDs are switched off and on between two runs",
        _GTIDS,
        events.gtids_off_and_on_between_runs,
        {
            "mariadb/*": _ONLY_MYSQL,
            "mysql by GTID/archive": GoesOn("files are read by offset"),
            "mysql by GTID/*": Refused(
                "a dump by GTIDs would pass over the transactions without one",
                ServerSettingError,
                ("setting",),
            ),
            "*": Impossible("they are off"),
        },
    ),
    Row(
        "the GTID domain changes",
        _GTIDS,
        events.domain_changed,
        {
            "mariadb/*": GoesOn("a set has the last number of each domain"),
            "*": Impossible("MySQL has no domains"),
        },
    ),
    Row(
        "GTIDs come out of order (`gtid_strict_mode` is off)",
        _GTIDS,
        events.numbers_out_of_order,
        {
            "mariadb/*": GoesOn("on its own server the log is read in its order"),
            "*": Impossible("MySQL gives each number once"),
        },
    ),
    Row(
        "the server runs without its log for a while",
        _GTIDS,
        events.log_switched_off,
        {
            "*": Unseen("what is in no log leaves no trace in one"),
        },
    ),
    Row(
        "another server of the same product answers, with tables of the same names",
        _OTHERS,
        events.another_server,
        {
            "mysql by offset/archive": _OTHERS_ARCHIVE,
            "*/archive": Refused(
                "the archive has journals of two logs", SourceIdentityError, ("live",)
            ),
            "mysql by offset/live": Refused(
                "another server answers at the address; after three runs its log is searched by "
                "time, and begins after the last transaction that was read",
                ServerChangedError,
                ("again", "snapshot"),
            ),
            "mysql by offset/standby": Refused(
                "its log begins after the last transaction that was read",
                JournalMissingError,
                ("snapshot",),
            ),
            "*": Refused(
                "the server never had the transactions that were read",
                SourceIdentityError,
                ("snapshot",),
            ),
        },
    ),
    Row(
        "a server of the other product answers",
        _OTHERS,
        events.another_product,
        {
            "*/archive": Refused(
                "positions of one product mean nothing to the other",
                SourceIdentityError,
                ("live",),
            ),
            "*": Refused(
                "positions of one product mean nothing to the other",
                SourceIdentityError,
                ("snapshot",),
            ),
        },
    ),
    Row(
        "the standby takes over and lacks transactions that were read",
        _OTHERS,
        events.standby_lags,
        {
            "mysql by offset/standby": Refused(
                "its log has nothing later than what was read; once it has, the next row applies",
                PositionError,
                (),
            ),
            "*/standby": Refused(
                "the standby never had the last transactions that were read",
                SourceIdentityError,
                ("snapshot",),
            ),
            "*": _NO_STANDBY,
        },
    ),
    Row(
        "the standby takes over, lacks transactions that were read, and goes on",
        _OTHERS,
        events.standby_lags_and_goes_on,
        {
            "mysql by offset/standby": _LOST_TOLD,
            "*/standby": Refused(
                "the standby never had the last transactions that were read",
                SourceIdentityError,
                ("snapshot",),
            ),
            "*": _NO_STANDBY,
        },
    ),
    Row(
        "the standby takes over, and has what a restored primary wrote under the same GTIDs",
        _OTHERS,
        events.replica_of_a_restored_primary,
        {
            "mysql by offset/standby": _LOST_TOLD,
            "*/standby": Refused(
                "the transaction of the last GTID that was read was committed at another time",
                SourceIdentityError,
                ("snapshot",),
            ),
            "*": _NO_STANDBY,
        },
    ),
)
