"""The decisions of the table in `start`: by the configuration, on the cursor's own server, on one
with its transactions, or by a search by time (SPEC P3-P6).

Rules without a cursor:
- A position in a journal is completed (see `lookup`): moved between two transactions, with all
  GTIDs executed before it.
- A time means exactly the first commit at or after it: the fallback interval applies to switches
  only.

Rules with a cursor:
- A GTID set is exact if every transaction has a GTID, even if another server has them in another
  order, so it is used if there is one. Journal and offset are exact only on their own server.
- MariaDB's is one only if the numbers of each domain grow, which nothing but gtid_strict_mode
  ensures. So its own log is read on by offset, once the cursor's event was found in it; where the
  next journal begins after the cursor's very set, from there on: this one may have a torn end.
- A dump by GTID set begins at the newest journal before which the set has everything. If MySQL ran
  without GTIDs for a while, it silently skips transactions without a GTID, whereas MySQL refuses a
  dump by offset with an error. So the part that would be skipped is first read by offset: usually
  the last event of the cursor's journal, and nothing if the log has not rotated.
- A cursor has a GTID set only while its source uses GTIDs. Later transactions without a GTID are in
  no set, so a set kept through such a time would lose them once GTIDs are used again.
- A cursor ahead of its own server's log, or of a log that was replaced, is an error and never reads
  as "nothing new" (K24; `same_log`): after RESET other transactions get the same GTIDs.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

from cdc_pipeline.clock import microseconds_of, time_of
from cdc_pipeline.config.pipeline_config import GtidConfig, PositionConfig, TimeConfig
from cdc_pipeline.errors import (
    JournalMissingError,
    PositionError,
    ServerChangedError,
    SourceIdentityError,
)
from cdc_pipeline.position.gtid.sets import MariadbGtidSet, parse_gtid_set, parse_mariadb
from cdc_pipeline.position.position import Position, ServerIdentity
from cdc_pipeline.position.start.context import (
    SECOND_US,
    Log,
    StartContext,
    StartDecision,
)
from cdc_pipeline.position.start.lookup import (
    complete,
    head_set,
    journals_before,
    journals_within,
    locate_gtid_set,
    search_by_time,
    with_created,
)
from cdc_pipeline.position.start.same_log import (
    check_last_transaction,
    check_same_log,
    other_log,
)


def configured(context: StartContext) -> StartDecision:
    """Of a run without a cursor (SPEC P3, P4, P8)."""
    source, says = context.source, "the configuration starts"
    match context.configured:
        case None:
            what = "the standby without a configured start"
            unset = (
                "the primary's start is meaningless on the standby, and source.standby.start is not"
            )
            decision = _at_end(context, f"{unset} set: the end of its log")
        case GtidConfig(gtid_set=gtid_set):
            position = after_gtid_set(source, gtid_set, setting="start.gtid_set")
            reason = f"{says} after the GTID set {position.gtid_set}"
            what = "the configured GTID set"
            decision = StartDecision(position, (reason,), by_offset=False)
        case PositionConfig(journal=journal, offset=offset):
            wanted = Position(journal, offset)
            what = "the configured journal and offset"
            decision = _completed(context, wanted, f"{says} at {wanted}")
        case TimeConfig(journal=str(journal)) as start:
            what, decision = "the configured time in one journal", _at_time(context, start, journal)
        case TimeConfig() as start:
            what, decision = "the configured time", _at_time(context, start, "")
        case "earliest":
            position = with_created(source, source.earliest_position())
            what = "the oldest journal"
            decision = StartDecision(position, (f"{says} at the earliest journal: {position}",))
        case _:
            what = "the end of the log"
            decision = _at_end(context, f"{says} at the end of the log")
    return replace(decision, reasons=(f"there is no cursor: {what}", *decision.reasons))


def _at_time(context: StartContext, start: TimeConfig, journal: str) -> StartDecision:
    """In one journal (P4), or anywhere."""
    source, t_us = context.source, microseconds_of(start.time)
    what = f"the configuration starts at {start.time.isoformat()}"
    if journal:
        what = f"{what} in {journal}"
        source.validate_position(Position(journal))
    position = search_by_time(source, t_us=t_us, end=context.end, journal=journal)
    if position is None and journal:
        none = "the journal has no commit at or after it, so all of the journal is read"
        return _completed(context, Position(journal), f"{what}: {none}")
    if position is None:
        none = "there is no commit at or after it, so reading starts at the end of the log"
        return _at_end(context, f"{what}: {none}")
    decision = _completed(context, position, f"{what}: found at {position}")
    if journal or position.journal != (oldest := source.journals()[0].journal):
        return decision
    if source.journal_created_s(oldest) * SECOND_US <= t_us:
        return decision
    late = (
        f"the oldest journal, {oldest}, was created after that time: the log lacks what happened "
        "before"
    )
    return replace(decision, reasons=(*decision.reasons, late))


def _at_end(context: StartContext, reason: str) -> StartDecision:
    position = with_created(context.source, context.end)
    return StartDecision(position, (f"{reason}: {position}",))


def _completed(context: StartContext, wanted: Position, reason: str) -> StartDecision:
    context.source.validate_position(wanted)
    position, notes = complete(context.source, wanted)
    return StartDecision(position, (reason, *notes))


def stay(context: StartContext) -> StartDecision:
    cursor, source = context.cursor, context.source
    _check_not_ahead(context)
    position = cursor.position
    by_offset = not context.goes_by_gtid or (
        context.identity.flavor == "mariadb"
        and position.last_event is not None
        and not _is_followed(source, position)
    )
    notes: tuple[str, ...] = ()
    if position.gtid_set and not context.uses_gtids:
        position = position.by_offset
        notes = ("the server no longer uses GTIDs: the cursor's set is dropped",)
    check_same_log(source, position)
    if by_offset:
        source.validate_position(position.by_offset)
    else:
        position = _without_deleted_domains(context)
        source.validate_position(position)
        _check_nothing_is_passed_over(source, position.gtid_set, position)
    return _from_cursor(context, position, notes, by_offset=by_offset)


def _is_followed(source: Log, position: Position) -> bool:
    """Whether a journal begins after the set, and not in the midst of the position's own."""
    names = [info.journal for info in source.journals(since=position)]
    if position.journal not in names[:-1]:
        return False
    following = head_set(source, names[names.index(position.journal) + 1])
    return parse_gtid_set(following, "mariadb") == parse_gtid_set(position.gtid_set, "mariadb")


def complete_cursor(context: StartContext) -> StartDecision:
    source, wanted = context.source, context.cursor.position.by_offset
    _check_not_ahead(context)
    check_same_log(source, wanted)
    source.validate_position(wanted)
    position, notes = complete(source, wanted)
    return _from_cursor(context, position, notes)


def by_set_after_purge(context: StartContext) -> StartDecision:
    _check_not_ahead(context)
    position = _without_deleted_domains(context)
    context.source.validate_position(position)
    check_last_transaction(context.source, position)
    _check_nothing_is_passed_over(context.source, position.gtid_set, position)
    return _from_cursor(context, position, by_offset=False)


def _without_deleted_domains(context: StartContext) -> Position:
    """The cursor's; FLUSH BINARY LOGS DELETE_DOMAIN_ID has taken a domain out of its own log."""
    position = context.cursor.position
    if context.identity.flavor == "mysql":
        return position
    own, end = parse_mariadb(position.gtid_set), parse_mariadb(context.end.gtid_set)
    return replace(position, gtid_set=str(own.within(end)))


def _from_cursor(
    context: StartContext,
    position: Position,
    notes: tuple[str, ...] = (),
    *,
    by_offset: bool = True,
) -> StartDecision:
    at_end = context.cursor.position.order == context.end.order
    new = (
        "it is at the end of the log: there is nothing new"
        if at_end
        else f"the log continues to {context.end}"
    )
    return StartDecision(position, (*_cursor_notes(context), *notes, new), by_offset=by_offset)


def fail_over(context: StartContext) -> StartDecision:
    cursor, source = context.cursor, context.source
    try:
        position = after_gtid_set(source, cursor.gtid_set, setting="cursor.gtid_set")
    except PositionError as error:
        if not source.is_archive:
            raise
        raise other_log(  # the set is no setting that could be corrected
            source,
            cursor.position,
            expected=f"a log in which everything after {cursor.gtid_set} follows it",
            got=str(error.got or error.what),
        ) from None
    position = replace(position, last_transaction=cursor.last_transaction)
    check_last_transaction(source, position)
    return StartDecision(
        position,
        (
            *_cursor_notes(context),
            f"now {_name_of(context.identity)} answers, which has all of that set and retains "
            "what follows: its log is read without the transactions of the cursor's set",
        ),
        by_offset=False,
        epoch_grows=True,
    )


def switch_by_time(context: StartContext) -> StartDecision:
    """By the last commit time minus the fallback interval (P6, P5)."""
    source, rules = context.source, context.rules
    last_us = _last_commit_us(context)
    t_us = last_us - rules.fallback_interval_us
    _check_reaches_back(context, last_us)
    found = search_by_time(source, t_us=t_us, end=context.end)
    reasons = [
        *_cursor_notes(context),
        f"now {_name_of(context.identity)} answers: searched for the first commit at or after "
        f"{_time(t_us)}, which is {rules.fallback_interval_us / SECOND_US:g} s before the last one "
        "that was applied",
        f"found at {found}" if found else f"there is none: the end of the log at {context.end}",
    ]
    position = found or context.end
    until_us: int | None = last_us
    if context.overlap is not None:
        overlap = context.overlap(position, t_us)
        position, reasons = overlap.position, [*reasons, overlap.reason]
        until_us = overlap.until_us
    if context.uses_gtids:
        position, notes = complete(source, position.by_offset)
        reasons += notes
    else:
        position = position.by_offset
    return StartDecision(position, tuple(reasons), epoch_grows=True, overlap_until_us=until_us)


def switch_virtual_ip(context: StartContext) -> StartDecision:
    decision = switch_by_time(context)
    count = context.rules.dump_errors.count
    reason = (
        f"{count} dumps in a row have failed, more than {context.rules.dump_errors_max}: "
        "the address now leads to another server"
    )
    return replace(decision, reasons=(reason, *decision.reasons), resets_dump_errors=True)


def await_virtual_ip(context: StartContext) -> StartDecision:
    """ServerChangedError, always: it may be temporary (P5)."""
    cursor, rules = context.cursor, context.rules
    more = rules.dump_errors_max - rules.dump_errors.count
    raise ServerChangedError(
        f"another server answers at the address of the cursor of {cursor.source}",
        at=cursor,
        expected=_name_of(cursor.identity),
        got=_name_of(context.identity),
        next_step=f"bring the old server back to the address, or run again: after {more} more "
        "consecutive errors of this kind (source.dump_errors_max is "
        f"{rules.dump_errors_max}) the address counts as moved, and a run searches "
        "this server's log by time",
    )


def refuse(context: StartContext) -> StartDecision:
    """SourceIdentityError, always."""
    cursor = context.cursor
    raise SourceIdentityError(
        f"the cursor of {cursor.source} was written for another server",
        at=cursor,
        expected=_name_of(cursor.identity),
        got=_name_of(context.identity),
        next_step="connect to the server of the cursor again, or name both servers in "
        "source.host and source.standby; " + context.source.begin_again,
    )


def _check_not_ahead(context: StartContext) -> None:
    """SourceIdentityError: the cursor is ahead of its own server's log, by position or by GTIDs."""
    cursor, identity, end = context.cursor, context.identity, context.end
    position = cursor.position
    missing = ""
    # MariaDB's numbers need not grow, and its sets are compared with the log's state.
    if position.gtid_set and end.gtid_set and identity.flavor == "mysql":
        own = parse_gtid_set(position.gtid_set, identity.flavor)
        missing = str(own.subtract(parse_gtid_set(end.gtid_set, identity.flavor)))
    if position.order <= end.order and not missing:
        return
    raise SourceIdentityError(
        f"the cursor of {cursor.source} is ahead of the log of {_name_of(identity)}: its journals "
        "were renumbered, or it was restored to an earlier state",
        at=position,
        expected=f"a log that ends at {position} or later"
        + (f" and holds {missing}" if missing else ""),
        got=f"a log that ends at {end}",
        next_step="wait if this is a lagging replica; " + context.source.begin_again,
    )


def after_gtid_set(source: Log, text: str, *, setting: str) -> Position:
    """The oldest journal of a server, which skips the set itself, or the position in an archive
    that separates the set from the rest.

    Raises PositionError: no GTID set of this source, the log has no GTIDs, or no position
    separates an archive; JournalMissingError: later ones were purged; SourceIdentityError: not all
    were executed; ServerSettingError: later transactions have no GTID.
    """
    flavor = source.identity.flavor
    wanted = parse_gtid_set(text, flavor)
    if isinstance(wanted, MariadbGtidSet):
        wanted = wanted.position()
    text = str(wanted)
    earliest, end = source.earliest_position(), source.end_position()
    if not source.uses_gtids:
        raise PositionError(
            "the start is a GTID set, but the log has no GTIDs",
            setting=setting,
            got=text,
            next_step="start at a journal and an offset, at a time, at earliest or at latest",
        )
    if source.is_archive:  # no server skips executed transactions of an archive
        begin = _newest_within(source, wanted=text, earliest=earliest)
        with closing(source.chunks(begin, end)) as chunks:
            position = locate_gtid_set(
                chunks, wanted=text, earliest=begin, end=end, flavor=flavor, setting=setting
            )
    else:
        position = replace(earliest, gtid_set=text)
    source.validate_position(position)
    _check_nothing_is_passed_over(source, position.gtid_set)
    return position


def _newest_within(source: Log, *, wanted: str, earliest: Position) -> Position:
    """The begin of the newest journal that only transactions of `wanted` precede, else `earliest`.
    The set at a journal's head only grows from journal to journal, so a few heads are read.
    """
    names = [info.journal for info in source.journals()]
    count = journals_within(source, names[1:], wanted)
    if not count:
        return with_created(source, earliest)
    newest = Position(names[count], gtid_set=head_set(source, names[count]))
    return with_created(source, newest)


def _name_of(identity: ServerIdentity) -> str:
    where = f" at {identity.address}" if identity.address else ""
    return f"{identity} (server id {identity.server_id}){where}"


def _cursor_notes(context: StartContext) -> tuple[str, ...]:
    cursor = context.cursor
    return (
        f"the cursor of batch {cursor.batch_number} is at {cursor.position}",
        f"it was written for {_name_of(cursor.identity)}",
    )


def _last_commit_us(context: StartContext) -> int:
    """The last applied commit time, or the nearest known time before the next transaction."""
    cursor = context.cursor
    last_us = max(context.rules.last_commit_us, cursor.timestamp_s * SECOND_US)
    if last_us <= 0:
        last_us = cursor.journal_created_s * SECOND_US
    if last_us <= 0:
        raise SourceIdentityError(
            f"the cursor of {cursor.source} was written for another server and has no "
            "time to search by",
            at=cursor,
            expected=_name_of(cursor.identity),
            got=_name_of(context.identity),
            next_step="connect to the server of the cursor again, or take the tables' snapshots "
            "from the new server",
        )
    return last_us


def _check_reaches_back(context: StartContext, last_us: int) -> None:
    """The new server's log may begin after the last applied transaction, which leaves a gap."""
    oldest = context.source.journals()[0].journal
    created_s = context.source.journal_created_s(oldest)
    if created_s * SECOND_US > last_us:
        raise JournalMissingError(
            f"the log of {_name_of(context.identity)} begins after the last transaction "
            "that was applied",
            at=(oldest, None),
            expected=f"a journal created at or before {_time(last_us)}",
            got=f"the oldest was created at {_time(created_s * SECOND_US)}",
            next_step="read the gap from the old server or an archive of it; without them, "
            + context.source.begin_again,
        )


def _check_nothing_is_passed_over(
    source: Log, gtid_set: str, since: Position | None = None
) -> None:
    """Read by offset what a dump by a GTID set would skip, behind `since` if that is of this log.
    ServerSettingError: transactions without a GTID, which MySQL itself refuses.
    """
    if source.identity.flavor != "mysql" or source.is_archive:
        return  # MariaDB has a GTID for each transaction; files are read by offset
    names = [info.journal for info in source.journals(since=since)]
    if since is not None and since.journal in names:
        begin = since.by_offset
    else:
        # The journal in which the set became complete: what it had before that is no longer known.
        before = journals_before(source, names, gtid_set)
        begin = Position(names[max(0, before - 1)])
    later = names[names.index(begin.journal) + 1 :]
    count = journals_within(source, later, gtid_set)
    if not count:
        return
    with closing(source.chunks(begin, Position(later[count - 1]))) as chunks:
        for _ in chunks:
            pass


def _time(t_us: int) -> str:
    return time_of(t_us).isoformat(timespec="milliseconds")
