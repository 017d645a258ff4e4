"""What can happen to a server between two runs, each as a function of a world.

An event is a generator with one `yield`: what comes before it is done before the last run that goes
well, what comes after it happens after that run (and, for a standby, after the failover). Changes
that every history has, before the last run and after what happens, are made by `play.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from tests.campaigns.server_history.world import World

Event = Callable[[World], Iterator[None]]
HOUR_S: Final = 3600


# -- what loses nothing ----------------------------------------------------------------------------


def nothing(world: World) -> Iterator[None]:
    yield
    world.flush(2)


def restarted(world: World) -> Iterator[None]:
    yield
    world.change()
    world.server.restart()


def killed(world: World) -> Iterator[None]:
    yield
    world.change()
    world.server.kill()
    world.server.start()


def same_state_restored(world: World) -> Iterator[None]:
    yield
    world.change()
    world.restore(world.hot_copy())


def moved_to_another_machine(world: World) -> Iterator[None]:
    yield
    world.change()
    world.restore(world.cold_copy(), keeps_uuid=False)
    world.server.restart({"server_id": world.server.server_id + 5000})


def uuid_changed(world: World) -> Iterator[None]:
    yield
    world.change()
    world.server.stop()
    (world.server.datadir / "auto.cnf").unlink()
    world.server.start()


def server_id_changed(world: World) -> Iterator[None]:
    yield
    world.change()
    world.server.execute(f"SET GLOBAL server_id = {world.server.server_id + 7000}")
    world.server.new_session()


def checksums_switched(world: World) -> Iterator[None]:
    yield
    world.change()
    world.server.execute("SET GLOBAL binlog_checksum = NONE")


def clock_set_back(world: World) -> Iterator[None]:
    yield
    world.change()
    world.clock.move(-HOUR_S)
    world.flush()


def clock_set_forward_and_back(world: World) -> Iterator[None]:
    world.clock.move(HOUR_S)
    world.server.flush_journal()
    yield
    world.change()
    world.clock.move(0)
    world.flush()


def base_name_changed(world: World) -> Iterator[None]:
    yield
    world.change()
    world.server.restart({"log_bin": "journal"})


def base_name_changed_and_grown(world: World) -> Iterator[None]:
    """The numbers pass the cursor's."""
    yield from base_name_changed(world)
    for _ in range(12):
        world.change(2, label="other")
        world.flush()


# -- earlier states --------------------------------------------------------------------------------


def set_back(world: World) -> Iterator[None]:
    """Only what comes before the cursor is there again."""
    copy = world.cold_copy()
    yield
    world.restore(copy)
    world.changes_after = False


def cold_copy_restored(world: World) -> Iterator[None]:
    copy = world.cold_copy()
    yield
    world.restore(copy)
    world.change(9, label="other")


def hot_copy_restored(world: World) -> Iterator[None]:
    copy = world.hot_copy()
    yield
    world.restore(copy)
    world.change(9, label="other")


def restored_and_purged(world: World) -> Iterator[None]:
    """Nothing of the time before the restore, nor of what followed at once, is left in the log."""
    copy = world.hot_copy()
    yield
    world.restore(copy)
    world.change(9, label="other")
    world.flush(6)
    world.change(label="other")
    world.server.purge_to(world.server.journals()[-1].name)


def restored_within_the_same_second(world: World) -> Iterator[None]:
    """Two histories with the same journals, offsets, GTIDs, seconds, lengths and last events: a
    virtual machine whose clock went back with it."""
    copy = world.cold_copy()
    second = world.restore_at(copy)
    world.twin_changes("one", second)
    world.changes_before = False
    yield
    world.restore_at(copy, second)
    world.twin_changes("two", second)


def restored_after_a_snapshot(world: World) -> Iterator[None]:
    """The tables were read, and nothing of the log since."""
    copy = world.cold_copy()
    second = world.restore_at(copy)
    world.twin_changes("one", second)
    world.changes_before, world.loads = False, True
    yield
    world.restore_at(copy, second)
    world.twin_changes("two", second)


def dump_restored(world: World) -> Iterator[None]:
    """An empty server, filled by a dump that has all that was read."""
    yield
    dump = world.dump()
    world.start_empty()
    world.fill_from(dump)


def later_dump_restored(world: World) -> Iterator[None]:
    """The dump has more than what was read."""
    yield
    world.change()
    dump = world.dump()
    world.next_second()
    world.start_empty()
    world.fill_from(dump)


def old_dump_restored(world: World) -> Iterator[None]:
    """A dump from before the last run, in an empty server."""
    world.settle()
    dump = world.dump()
    yield
    world.start_empty()
    world.fill_from(dump)
    world.change(9, label="other")


# -- journals --------------------------------------------------------------------------------------


def reset(world: World) -> Iterator[None]:
    yield
    world.reset_log()


def reset_and_grown(world: World) -> Iterator[None]:
    """Journals of the old names are there again."""
    yield
    world.reset_log()
    for _ in range(12):
        world.change(2, label="other")
        world.flush()


def reset_grown_and_purged(world: World) -> Iterator[None]:
    """The names go on behind the cursor's, which the server no longer has."""
    yield
    world.reset_log()
    for _ in range(12):
        world.change(2, label="other")
        world.flush()
    world.server.purge_to(world.server.journals()[-3].name)


def reset_to_a_higher_number(world: World) -> Iterator[None]:
    """No name of the old log is used again; the numbers of transactions are."""
    yield
    world.reset_log(to=900)
    world.change(30, label="other")


def reset_to_a_higher_number_and_few_changes(world: World) -> Iterator[None]:
    yield
    world.reset_log(to=900)


def reset_with_its_gtids(world: World) -> Iterator[None]:
    """An administrator begins the log again and keeps what was executed."""
    yield
    world.change()
    world.reset_log(keeps_gtids=True)


def purged_before_the_cursor(world: World) -> Iterator[None]:
    yield
    world.flush()
    world.server.purge_to(world.cursor.journal)


def purged_up_to_the_cursor(world: World) -> Iterator[None]:
    """The cursor's journal is gone; everything in it was read."""
    yield
    world.next_second()
    world.flush()
    world.archive_copies()
    world.server.purge_to(world.server.journals()[-1].name)


def purged_unread(world: World) -> Iterator[None]:
    yield
    world.change()
    world.flush()
    world.archive_copies()
    world.server.purge_to(world.server.journals()[-1].name)


def deleted_before_the_cursor(world: World) -> Iterator[None]:
    yield
    world.flush()
    world.settle()
    world.hide("binlog.000001")


def deleted_unread(world: World) -> Iterator[None]:
    """A journal that was not read is removed by hand, and brought back after the error."""
    yield
    world.flush()
    name = world.server.end_position()[0]
    world.change()
    world.flush()
    world.settle()
    world.hide(name)


def deleted_under_the_cursor(world: World) -> Iterator[None]:
    yield
    world.change()
    name = world.server.end_position()[0]
    world.flush()
    world.settle()
    world.hide(name)


def taken_out_of_the_index(world: World) -> Iterator[None]:
    """An unread journal is removed by hand, and its line from the index."""
    yield
    world.flush()
    name = world.server.end_position()[0]
    world.change()
    world.flush()
    world.server.stop()
    (world.server.datadir / name).unlink()
    index = world.server.datadir / "binlog.index"
    lines = index.read_text(encoding="utf-8").splitlines(keepends=True)
    index.write_text("".join(line for line in lines if Path(line.strip()).name != name))
    world.server.start()


def power_cut_behind_the_cursor(world: World) -> Iterator[None]:
    """The journal has lost its unread end, which the tables have."""
    yield
    world.settle()
    read_bytes = world.server.end_position()[1]
    world.change()
    world.settle()
    end_bytes = world.server.end_position()[1]
    world.power_cut(world.chance.randrange(read_bytes + 1, end_bytes))


def power_cut_before_the_cursor(world: World) -> Iterator[None]:
    """The journal has lost what was read already."""
    world.settle()
    kept_bytes = world.server.end_position()[1]
    yield
    end_bytes = world.server.end_position()[1]
    world.power_cut(world.chance.randrange(kept_bytes, end_bytes))


def torn_copy(world: World) -> Iterator[None]:
    """The last journal was copied up to the middle of an event, and is copied whole later."""
    yield
    world.change()
    world.archive_copies()
    last = max(world.archive.iterdir())
    whole = last.read_bytes()
    last.write_bytes(whole[: len(whole) - world.chance.randrange(1, 300)])
    world.copies = False

    def bring_back() -> None:
        world.copies = True

    world.bring_back = bring_back


# -- GTIDs -----------------------------------------------------------------------------------------


def _step_gtids(world: World, *modes: str) -> None:
    for mode in modes:
        if mode in ("ON", "ON_PERMISSIVE"):
            world.server.execute("SET GLOBAL enforce_gtid_consistency = ON")
        world.server.execute(f"SET GLOBAL gtid_mode = {mode}")


def gtids_switched_off(world: World) -> Iterator[None]:
    yield
    world.change()
    _step_gtids(world, "ON_PERMISSIVE", "OFF_PERMISSIVE", "OFF")


def gtids_switched_on(world: World) -> Iterator[None]:
    yield
    world.change()
    _step_gtids(world, "OFF_PERMISSIVE", "ON_PERMISSIVE", "ON")


def gtids_off_and_on_with_a_run_between(world: World) -> Iterator[None]:
    yield
    _step_gtids(world, "ON_PERMISSIVE", "OFF_PERMISSIVE")
    world.next_second()
    world.change()
    world.archive_copies()
    world.capture()
    _step_gtids(world, "ON_PERMISSIVE", "ON")


def gtids_off_and_on_between_runs(world: World) -> Iterator[None]:
    yield
    _step_gtids(world, "ON_PERMISSIVE", "OFF_PERMISSIVE", "OFF")
    world.change()
    _step_gtids(world, "OFF_PERMISSIVE", "ON_PERMISSIVE", "ON")


def domain_changed(world: World) -> Iterator[None]:
    yield
    world.change()
    world.server.execute("SET GLOBAL gtid_domain_id = 7")
    world.server.new_session()


def numbers_out_of_order(world: World) -> Iterator[None]:
    """A session sets its own numbers, which the strict mode would refuse."""
    yield
    world.change()
    world.server.execute_all("SET GLOBAL gtid_strict_mode = OFF", "SET SESSION gtid_seq_no = 5000")
    world.change(1)
    world.server.execute("SET SESSION gtid_seq_no = 3000")
    world.change(1)


def log_switched_off(world: World) -> Iterator[None]:
    """The server runs without its log for a while."""
    yield
    world.server.restart({"skip_log_bin": None})
    world.change()
    world.server.restart({"log_bin": "binlog"})


# -- other servers ---------------------------------------------------------------------------------


def another_server(world: World) -> Iterator[None]:
    yield
    world.start_empty()
    world.make_tables()
    world.flush()


def another_product(world: World) -> Iterator[None]:
    yield
    world.start_empty("mysql" if world.flavor == "mariadb" else "mariadb")
    world.make_tables()


def standby_lags(world: World) -> Iterator[None]:
    """The standby lacks transactions that were read; nothing is written to it yet."""
    world.lag()
    yield
    world.changes_after = False


def standby_lags_and_goes_on(world: World) -> Iterator[None]:
    world.lag()
    yield
    world.change(9, label="other")


def replica_of_a_restored_primary(world: World) -> Iterator[None]:
    """The primary was restored to an earlier state and wrote other transactions under the same
    GTIDs; the standby, which replicated these, takes over."""
    world.lag()
    copy = world.copy_of_primary()
    yield
    world.replica_takes_over_from(copy)
