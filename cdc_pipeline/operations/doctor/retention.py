"""Check how long the server keeps the log that the pipeline still needs.

All consumers of the log count: the cursor, suspended tables, snapshots that are under way.
"""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote
from typing import Final

from cdc_pipeline.binlog.seq import journal_number
from cdc_pipeline.errors import CdcError
from cdc_pipeline.lake.long_operations import consumers_beside
from cdc_pipeline.operations.doctor.context import Check, Context
from cdc_pipeline.operations.doctor.diagnosis import Verdict, error, note, ok, warning
from cdc_pipeline.operations.doctor.server import set_statement
from cdc_pipeline.position.failback import Consumer, consumers_of
from cdc_pipeline.position.start.same_log import begin_again
from cdc_pipeline.text.wording import count_of, duration, listed, size

_DAY_S: Final = 86_400.0
_WARN_RUNS: Final = 3
_ADVISED_RUNS: Final = 10
_ADVISED_S: Final = 7 * _DAY_S
_XA_OLD_S: Final = 3_600.0


def _expiry(context: Context) -> Iterator[Verdict]:
    """Check the setting against the schedule, whatever is in the log now."""
    log, interval_s = context.log, context.interval_s
    keeps, rate = log.keeps, log.bytes_per_s
    total = sum(info.size_bytes for info in log.journals)
    now = f"{count_of(len(log.journals), 'journal')} of {size(total)}"
    now += "" if rate is None else f", growing by {size(rate * _DAY_S)} a day"
    got = f"{keeps.setting}; {now}"
    longer = _keep_longer(context)
    if keeps.needed_grant:
        yield warning(
            "how long the server keeps journals is unknown: the account may not see it",
            expected=f"longer than {context.interval_text}",
            got=got,
            next_step=keeps.needed_grant,
        )
    elif keeps.expire_s is None:
        yield note(
            "the server never purges journals by age, so its disk fills up unless "
            "someone purges them",
            expected="an expiry of a few days",
            got=got,
            next_step=longer,
        )
    elif keeps.expire_s < interval_s:
        yield error(
            "the server purges journals before the next run has read them",
            expected=f"longer than {context.interval_text}",
            got=f"{duration(keeps.expire_s)} ({got})",
            next_step=longer,
        )
    elif keeps.expire_s < max(_WARN_RUNS * interval_s, _DAY_S):
        yield warning(
            "journals are kept so briefly that a failing run can hardly be fixed in time",
            expected=f"at least a day, and {_WARN_RUNS} times {context.interval_text}",
            got=f"{duration(keeps.expire_s)} ({got})",
            next_step=longer,
        )
    else:
        yield ok(f"journals are kept for {duration(keeps.expire_s)} ({got})")
    if keeps.total_bytes is not None and rate:
        lasts_s = keeps.total_bytes / rate
        text = f"the largest size of the log holds {duration(lasts_s)} at the current rate"
        if lasts_s < _WARN_RUNS * interval_s:
            advised_bytes = str(round(rate * _advised_s(context)))
            yield warning(
                text,
                expected=f"{_WARN_RUNS} times {context.interval_text}",
                got=now,
                next_step=set_statement(context, keeps.size_variable, advised_bytes),
            )
        else:
            yield ok(text)


def _advised_s(context: Context) -> float:
    days = max(_ADVISED_S, _ADVISED_RUNS * context.interval_s) / _DAY_S
    return -(-days // 1) * _DAY_S


def _keep_longer(context: Context) -> str:
    keeps = context.log.keeps
    return set_statement(context, keeps.variable, keeps.value_for(_advised_s(context)))


def _needed(context: Context) -> Iterator[Verdict]:
    cursor, consumers = context.cursor, list[Consumer]()
    # Another server numbers its journals differently: a run finds the place there by GTIDs or by
    # time.
    if cursor is not None and cursor.identity.same_server(context.server.identity):
        consumers += consumers_of(cursor)
    for consumer in [*consumers, *consumers_beside(context.config, context.cut)]:
        yield _headroom(context, consumer)


def _headroom(context: Context, consumer: Consumer) -> Verdict:
    log, journal = context.log, consumer.position.journal
    who = "the cursor" if consumer.name == "cursor" else consumer.name
    if not log.has(journal):
        return _gone(context, consumer, who)
    left_s = log.left_s(journal, enough_s=_WARN_RUNS * context.interval_s)
    if log.keeps.needed_grant and left_s is None:
        return warning(
            f"how soon {journal}, which {who} needs, may be purged is unknown",
            got=log.keeps.setting,
            next_step=log.keeps.needed_grant,
        )
    if left_s is None:
        return ok(f"{who} is in {journal}, which the server never purges by itself")
    surely = "latest" if log.keeps.needed_grant else "earliest"
    when = f"would be purged in {duration(left_s)} at the {surely}"
    text = f"{journal}, which {who} needs, {when if left_s else 'may be purged at any moment'}"
    if left_s > _WARN_RUNS * context.interval_s:
        return ok(text)
    verdict, times = warning, f"{_WARN_RUNS} times"
    if left_s < context.interval_s:
        verdict, times = error, "longer than"
    return verdict(
        text,
        expected=f"{times} {context.interval_text}",
        got=f"{log.keeps.setting}; {count_of(len(log.after(journal)), 'newer journal')}",
        next_step=f"{_keep_longer(context)} and: cdc-pipeline run {context.config.name}",
    )


def _gone(context: Context, consumer: Consumer, who: str) -> Verdict:
    journal, journals = consumer.position.journal, context.log.journals
    try:
        context.source.validate_position(consumer.position)
    except CdcError as failure:
        name = context.config.name
        command = f"take a snapshot: cdc-pipeline snapshot {name}"
        if context.cursor is not None and consumer.name in context.cursor.suspended:
            command += f" --table {quote(consumer.name)}"
        elif consumer.name != "cursor":
            command += " --restart"
        else:
            command = begin_again(name)
        left = f"; the server has {journals[0].journal} and later journals" if journals else ""
        return error(
            f"{journal}, which {who} needs, is no longer on the server",
            expected=str(consumer.position),
            got=failure.what + left,
            next_step=f"copy the journals into source.archive_directory, or {command}",
        )
    return ok(
        f"{journal}, which {who} needs, comes from the archive, or is located by GTIDs in "
        "what the server has"
    )


def _archive(context: Context) -> Iterator[Verdict]:
    from cdc_pipeline.source.archive.files import journal_files

    directory = context.live_config.archive_directory
    if directory is None:
        return
    files = journal_files(directory)
    if not files:
        yield warning(
            "the archive holds no journals, so it is of no use",
            expected="files such as binlog.000001",
            got=str(directory),
            next_step="copy each journal there when it is complete, for example with: mysqlbinlog "
            f"--raw --result-file={directory}/ ...",
        )
        return
    numbers = {journal_number(file.name) for file in files}
    oldest, first_live = min(numbers), journal_number(context.log.journals[0].journal)
    missing = sorted(set(range(oldest, first_live)) - numbers)
    if missing:
        yield warning(
            "journals are neither in the archive nor on the server; whatever needs them or older "
            "ones cannot be read",
            expected=f"all from {oldest:06d} to {first_live - 1:06d}",
            got="missing: " + listed([f"{number:06d}" for number in missing]),
            next_step=f"copy them into {directory} from a backup",
        )
    else:
        yield ok(
            f"{len(files)} journals in the archive join the server's log, which can be read "
            f"from {context.source.earliest_position()} on"
        )


def _kept(context: Context) -> Iterator[Verdict]:
    from cdc_pipeline.operations.journals import kept_logs

    keep = context.config.keep_journals
    if keep is None:
        return
    journals = kept_logs(context.config).journals
    holes = [journal.journal for journal in journals if journal.is_hole]
    if holes:
        yield warning(
            "kept journals have holes; what needs these or older ones cannot be read from there",
            expected="every journal from the oldest kept one on",
            got="missing or open: " + listed(holes),
            next_step=f"cdc-pipeline run {context.config.name}, which fetches what the server "
            "still has; copy the others from a backup, as files of their own names, into the "
            f"server's folder in {keep.path}",
        )
    else:
        yield ok(f"{count_of(len(journals), 'journal')} kept in {keep.path}, without a hole")


def _open_xa(context: Context) -> Iterator[Verdict]:
    waiting = () if context.cursor is None else context.cursor.open_xa
    prepared = context.source.prepared_xids() if waiting else None
    for xa in waiting:
        at = str(xa.begin)
        age_s = context.now_s - xa.prepared_at_us / 1e6
        if prepared is not None and xa.xid not in prepared:
            yield warning(
                f"the server no longer has the XA transaction {xa.xid}, whose {xa.rows} rows wait: "
                "its end lies behind the cursor, or is lost",
                got=at,
                next_step=f"cdc-pipeline run {context.config.name}; if its end is lost, the run "
                "says how to go on",
            )
        elif xa.prepared_at_us >= 0 and age_s > _XA_OLD_S:
            hidden = (
                " If the server does not have it, its end is lost: with XA_RECOVER_ADMIN (MySQL) "
                "the next run says how to go on."
            )
            yield warning(
                f"the XA transaction {xa.xid} has been prepared for {duration(age_s)}: its "
                f"{xa.rows} rows wait, and it holds locks at the server",
                got=at,
                next_step=f"XA COMMIT {xa.xid}; or XA ROLLBACK {xa.xid};"
                + ("" if prepared is not None else hidden),
            )
        else:
            yield ok(f"the XA transaction {xa.xid} is prepared, and its {xa.rows} rows wait")


CHECKS: Final = (
    Check("retention", "expiry", _expiry),
    Check("retention", "needed", _needed, "no old journals are needed yet"),
    Check("retention", "archive", _archive),
    Check("retention", "kept journals", _kept),
    Check("retention", "open XA", _open_xa, "no XA transaction waits"),
)
