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


def _set_back(reason: str) -> dict[str, Decision]:
    return {
        "*/archive": Refused(reason, SourceIdentityError, ("rebuild",)),
        "*": Refused(reason, SourceIdentityError, ("snapshot",)),
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
        _set_back("the log ends before the cursor, or lacks transactions that were read"),
    ),
    Row(
        "a cold copy is restored and the server goes on",
        _EARLIER,
        events.cold_copy_restored,
        {
            "mysql by offset/standby": _LOST_TOLD,
            **_set_back("the log does not have the cursor's last events or transactions"),
        },
    ),
    Row(
        "a hot copy is restored and the server goes on",
        _EARLIER,
        events.hot_copy_restored,
        _set_back("the log does not have the cursor's last events or transactions"),
    ),
    Row(
        "a hot copy is restored, the server goes on, and the journals of that time are purged",
        _EARLIER,
        events.restored_and_purged,
        _set_back("what follows the cursor was purged"),
    ),
    Row(
        "a copy is restored, and other rows are written by transactions of the same GTIDs, places, "
        "lengths and seconds",
        _EARLIER,
        events.restored_within_the_same_second,
        {
            "*/standby": Impossible("nothing was read from the standby's own log yet"),
            **_set_back("the cursor has the checksum of the last events up to 64 KiB"),
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
        {"*": GoesOn("the dump says which transactions it has")},
    ),
    Row(
        "an empty server is filled by a dump that has more than what was read",
        _EARLIER,
        events.later_dump_restored,
        {"*": Refused("x", JournalMissingError, ("snapshot",))},
    ),
    Row(
        "an empty server is filled by a dump that has less than what was read",
        _EARLIER,
        events.old_dump_restored,
        {"*": Refused("x", SourceIdentityError, ("snapshot",))},
    ),
    Row(
        "the log is reset",
        _RENUMBERED,
        events.reset,
        {"*": Refused("x", SourceIdentityError, ("snapshot",)), "*/archive": _ARCHIVE_WAITS},
    ),
    Row(
        "the log is reset, and comes to the old names again",
        _RENUMBERED,
        events.reset_and_grown,
        {"*": Refused("x", SourceIdentityError, ("snapshot",))},
    ),
    Row(
        "the log is reset, passes the old names, and these are purged",
        _RENUMBERED,
        events.reset_grown_and_purged,
        {"*": Refused("x", JournalMissingError, ("snapshot",))},
    ),
    Row(
        "the log is reset to a higher number, and as many transactions follow as before",
        _RENUMBERED,
        events.reset_to_a_higher_number,
        {"*": Refused("x", SourceIdentityError, ("snapshot",))},
    ),
    Row(
        "the log is reset to a higher number, and few transactions follow",
        _RENUMBERED,
        events.reset_to_a_higher_number_and_few_changes,
        {"*": Refused("x", SourceIdentityError, ("snapshot",))},
    ),
    Row(
        "the log is reset and told which transactions were executed",
        _RENUMBERED,
        events.reset_with_its_gtids,
        {"*": Refused("x", SourceIdentityError, ("snapshot",))},
    ),
    Row(
        "the journals get another base name (`log_bin`)",
        _RENUMBERED,
        events.base_name_changed,
        {"*": Refused("x", SourceIdentityError, ("snapshot",))},
    ),
    Row(
        "journals before the cursor are purged",
        _JOURNALS,
        events.purged_before_the_cursor,
        {"*": GoesOn("nothing needs them")},
    ),
    Row(
        "the cursor's journal is purged, and was read to its end",
        _JOURNALS,
        events.purged_up_to_the_cursor,
        {"*": GoesOn("x")},
    ),
    Row(
        "journals are purged that were not read",
        _JOURNALS,
        events.purged_unread,
        {"*": Refused("x", JournalMissingError, ("snapshot",))},
    ),
    Row(
        "a journal before the cursor is deleted by hand",
        _JOURNALS,
        events.deleted_before_the_cursor,
        {"*": GoesOn("x")},
    ),
    Row(
        "a journal that was not read is deleted by hand",
        _JOURNALS,
        events.deleted_unread,
        {"*": Refused("x", JournalMissingError, ("file",))},
    ),
    Row(
        "the cursor's journal is deleted by hand",
        _JOURNALS,
        events.deleted_under_the_cursor,
        {"*": Refused("x", JournalMissingError, ("file",))},
    ),
    Row(
        "a journal that was not read is deleted, and its line in the server's index",
        _JOURNALS,
        events.taken_out_of_the_index,
        {"*": Refused("x", JournalMissingError, ("snapshot",))},
    ),
    Row(
        "a power cut costs the newest journal an end that was not read, but not the tables",
        _JOURNALS,
        events.power_cut_behind_the_cursor,
        {"*": Unseen("x")},
    ),
    Row(
        "a power cut costs the newest journal what was read",
        _JOURNALS,
        events.power_cut_before_the_cursor,
        {"*": Refused("x", SourceIdentityError, ("snapshot",))},
    ),
    Row(
        "the archive's newest copy ends in the middle of an event",
        _JOURNALS,
        events.torn_copy,
        {
            "*/archive": Refused("x", TruncatedJournalError, ("file",)),
            "*": Impossible("a server's own journal is no copy; see the power cuts"),
        },
    ),
    Row(
        "GTIDs are switched off",
        _GTIDS,
        events.gtids_switched_off,
        {"mysql by GTID/*": GoesOn("x"), "mysql*": Impossible("x"), "*": _ONLY_MYSQL},
    ),
    Row(
        "GTIDs are switched on",
        _GTIDS,
        events.gtids_switched_on,
        {"mysql by offset/*": GoesOn("x"), "mysql*": Impossible("x"), "*": _ONLY_MYSQL},
    ),
    Row(
        "GTIDs are switched off and on, with a run between",
        _GTIDS,
        events.gtids_off_and_on_with_a_run_between,
        {"mysql by GTID/*": GoesOn("x"), "mysql*": Impossible("x"), "*": _ONLY_MYSQL},
    ),
    Row(
        "GTIDs are switched off and on between two runs",
        _GTIDS,
        events.gtids_off_and_on_between_runs,
        {"mysql by GTID/*": GoesOn("x"), "mysql*": Impossible("x"), "*": _ONLY_MYSQL},
    ),
    Row(
        "the GTID domain changes",
        _GTIDS,
        events.domain_changed,
        {"mariadb/*": GoesOn("x"), "*": Impossible("MySQL has no domains")},
    ),
    Row(
        "GTIDs come out of order (the strict mode is off)",
        _GTIDS,
        events.numbers_out_of_order,
        {"mariadb/*": GoesOn("x"), "*": Impossible("MySQL gives each number once")},
    ),
    Row(
        "the server runs without its log for a while",
        _GTIDS,
        events.log_switched_off,
        {"*": Unseen("x")},
    ),
    Row(
        "another server of the same kind answers, with tables of the same names",
        _OTHERS,
        events.another_server,
        {"*": Refused("x", SourceIdentityError, ("snapshot",))},
    ),
    Row(
        "a server of the other product answers",
        _OTHERS,
        events.another_product,
        {"*": Refused("x", SourceIdentityError, ("snapshot",))},
    ),
    Row(
        "the standby takes over and lacks transactions that were read",
        _OTHERS,
        events.standby_lags,
        {"*/standby": Refused("x", SourceIdentityError, ("snapshot",)), "*": _NO_STANDBY},
    ),
    Row(
        "the standby takes over, lacks transactions that were read, and goes on",
        _OTHERS,
        events.standby_lags_and_goes_on,
        {"*/standby": Refused("x", SourceIdentityError, ("snapshot",)), "*": _NO_STANDBY},
    ),
    Row(
        "the standby takes over, and has what a restored primary wrote under the same GTIDs",
        _OTHERS,
        events.replica_of_a_restored_primary,
        {"*/standby": Refused("x", SourceIdentityError, ("snapshot",)), "*": _NO_STANDBY},
    ),
)
_ = (PositionError, ServerSettingError, SourceError)
