"""Check how long the server keeps the log that the pipeline still needs.

Rules:
- A journal's last write is taken from the beginning of the next one. The journal being written is
  kept for the whole expiry after its end, so that "at the earliest" is meant literally.
- All consumers of the log count: the cursor, suspended tables, snapshots that are under way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Final

from cdc_pipeline.binlog.seq import journal_number
from cdc_pipeline.errors import CdcError
from cdc_pipeline.lake import state
from cdc_pipeline.operations.doctor.context import Context, checks
from cdc_pipeline.operations.doctor.diagnosis import Verdict, error, note, ok, warning
from cdc_pipeline.operations.doctor.settings import set_statement
from cdc_pipeline.position.failback import Consumer, consumers_of
from cdc_pipeline.position.start.context import JournalInfo
from cdc_pipeline.source.live.retention import JournalRetention, journal_retention
from cdc_pipeline.text.wording import duration, listed, size

_DAY_S: Final = 86_400.0
_WARN_RUNS: Final = 3
_ADVISED_RUNS: Final = 10
_ADVISED_S: Final = 7 * _DAY_S
_XA_OLD_S: Final = 3_600.0


@dataclass(frozen=True, slots=True)
class _Log:
    journals: Sequence[JournalInfo]
    keeps: JournalRetention

    def after(self, journal: str) -> list[JournalInfo]:
        number = journal_number(journal)
        return [info for info in self.journals if journal_number(info.journal) > number]

    def has(self, journal: str) -> bool:
        return any(info.journal == journal for info in self.journals)


def _log(context: Context) -> _Log:
    return _Log(context.server.journals(), journal_retention(context.variables))


def _growth(context: Context) -> float | None:
    journals = context.server.journals()
    if len(journals) < 2:
        return None
    created_s = [context.journal_created_s(info.journal) for info in (journals[0], journals[-1])]
    over_s = created_s[1] - created_s[0]
    return sum(info.size_bytes for info in journals[:-1]) / over_s if over_s > 0 else None


def _expiry(context: Context) -> Iterator[Verdict]:
    """Check the setting against the schedule, whatever is in the log now."""
    log = _log(context)
    keeps, rate = log.keeps, _growth(context)
    total = sum(info.size_bytes for info in log.journals)
    grows = "" if rate is None else f", growing by {size(rate * _DAY_S)} a day"
    count = len(log.journals)
    now = f"{count} journal{'s' if count != 1 else ''} of {size(total)}{grows}"
    if keeps.expire_s is None:
        yield note(
            "the server never purges journals by age, so its disk fills up unless "
            "someone purges them",
            expected="an expiry of a few days",
            got=f"{keeps.setting}; {now}",
            mend=_keep_longer(context, keeps),
        )
    else:
        yield from _short_expiry(context, keeps, keeps.expire_s, now)
    if keeps.total_bytes is not None and rate:
        lasts_s = keeps.total_bytes / rate
        text = f"max_binlog_total_size holds {duration(lasts_s)} of the log at the current rate"
        if lasts_s < _WARN_RUNS * context.interval_s:
            advised_bytes = round(rate * _advised_s(context))
            yield warning(
                text,
                expected=f"{_WARN_RUNS} times {context.interval_text}",
                got=now,
                mend=set_statement(context, "max_binlog_total_size", str(advised_bytes)),
            )
        else:
            yield ok(text)


def _short_expiry(
    context: Context, keeps: JournalRetention, expire_s: float, now: str
) -> Iterator[Verdict]:
    got = f"{duration(expire_s)} ({keeps.setting}); {now}"
    if expire_s < context.interval_s:
        yield error(
            "the server purges journals before the next run has read them",
            expected=f"longer than {context.interval_text}",
            got=got,
            mend=_keep_longer(context, keeps),
        )
    elif expire_s < max(_WARN_RUNS * context.interval_s, _DAY_S):
        yield warning(
            "journals are kept so briefly that a failing run can hardly be fixed in time",
            expected=f"at least a day, and {_WARN_RUNS} times {context.interval_text}",
            got=got,
            mend=_keep_longer(context, keeps),
        )
    else:
        yield ok(f"journals are kept for {got}; {context.interval_text}")


def _advised_s(context: Context) -> float:
    days = max(_ADVISED_S, _ADVISED_RUNS * context.interval_s) / _DAY_S
    return -(-days // 1) * _DAY_S


def _keep_longer(context: Context, keeps: JournalRetention) -> str:
    return set_statement(context, keeps.variable, keeps.value_for(_advised_s(context)))


def _needed(context: Context) -> Iterator[Verdict]:
    log, rate = _log(context), _growth(context)
    consumers = list(_consumers(context))
    if not consumers:
        yield ok("no old journals are needed yet, because there is no cursor")
        return
    for consumer in consumers:
        yield _headroom(context, consumer, log, rate)


def _consumers(context: Context) -> Iterator[Consumer]:
    cursor = context.cursor
    # Another server numbers its journals differently: a run finds the place there by GTIDs or by
    # time.
    if cursor is not None and cursor.identity.same_server(context.server.identity):
        yield from consumers_of(cursor)
    for folder, operation in context.open_operations():
        if not operation.targets:  # it fixes its own range, and fails if that is gone
            continue
        cut = state.last_cut(folder.paths)  # of the side lake; none before its first chunk
        at = operation.cursor if cut is None else cut.cursor
        name = f"the snapshot of {listed(list(operation.sources))}"
        yield Consumer(name=name, epoch=at.epoch, position=at.position)


def _headroom(context: Context, consumer: Consumer, log: _Log, rate: float | None) -> Verdict:
    journal = consumer.position.journal
    who = "the cursor" if consumer.name == "cursor" else consumer.name
    if not log.has(journal):
        return _gone(context, consumer, log, who)
    left_s = _left_s(context, log, journal, rate)
    if left_s is None:
        return ok(f"{who} is in {journal}, which the server never purges by itself")
    ahead = len(log.after(journal))
    text = (
        f"{journal}, which {who} needs, would be purged in "
        f"{duration(max(0.0, left_s))} at the earliest"
    )
    if left_s <= 0:
        text = f"{journal}, which {who} needs, may be purged at any moment"
    if left_s > _WARN_RUNS * context.interval_s:
        return ok(text)
    verdict = error if left_s < context.interval_s else warning
    return verdict(
        text,
        expected=f"longer than {context.interval_text}"
        if verdict is error
        else f"{_WARN_RUNS} times {context.interval_text}",
        got=f"{log.keeps.setting}; {ahead} newer journal{'s' if ahead != 1 else ''}",
        mend=f"{_keep_longer(context, log.keeps)} and: cdc-pipeline run {context.config.name}",
    )


def _left_s(context: Context, log: _Log, journal: str, rate: float | None) -> float | None:
    """Seconds until a journal may be purged; None for never."""
    behind = log.after(journal)
    deadlines_s = []
    if log.keeps.expire_s is not None:
        since_s = 0.0
        if behind:
            since_s = context.now_s - context.journal_created_s(behind[0].journal)
        deadlines_s.append(log.keeps.expire_s - since_s)
    if log.keeps.total_bytes is not None and rate:
        later = sum(info.size_bytes for info in behind)
        deadlines_s.append((log.keeps.total_bytes - later) / rate)
    return min(deadlines_s, default=None)


def _gone(context: Context, consumer: Consumer, log: _Log, who: str) -> Verdict:
    journal, position = consumer.position.journal, consumer.position
    try:
        context.source.validate_position(position)
    except CdcError as failure:
        name = context.config.name
        suspended = context.cursor.suspended if context.cursor is not None else {}
        command = f"cdc-pipeline snapshot {name}"
        if consumer.name in suspended:
            command += f" --table {quote(consumer.name)}"
        elif consumer.name != "cursor":
            command += " --restart"
        return error(
            f"{journal}, which {who} needs, is no longer on the server",
            expected=str(position),
            got=f"{failure.what}; the server has {log.journals[0].journal} and later journals"
            if log.journals
            else failure.what,
            mend=f"copy the journals into source.archive_directory, or take a snapshot: {command}",
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
    first_there = journal_number(context.server.journals()[0].journal)
    if not files:
        yield warning(
            "the archive holds no journals, so it is of no use",
            expected="files such as binlog.000001",
            got=str(directory),
            mend="copy each journal there when it is complete, for example with: mysqlbinlog "
            f"--raw --result-file={directory}/ ...",
        )
        return
    numbers = sorted(journal_number(file.name) for file in files)
    have = set(numbers)
    missing = [number for number in range(numbers[0], first_there) if number not in have]
    if missing:
        yield warning(
            "journals are neither in the archive nor on the server; whatever needs them or older "
            "ones cannot be read",
            expected=f"all from {numbers[0]:06d} to {first_there - 1:06d}",
            got="missing: " + listed([f"{number:06d}" for number in missing]),
            mend=f"copy them into {directory} from a backup",
        )
        return
    identity = context.source.earliest_position()
    yield ok(
        f"{len(files)} journals in the archive join the server's log, which can be read "
        f"from {identity} on"
    )


def _open_xa(context: Context) -> Iterator[Verdict]:
    cursor = context.cursor
    old = []
    waiting = () if cursor is None else cursor.open_xa
    listed = context.source.prepared_xids() if waiting else None
    for xa in waiting:
        if listed is not None and xa.xid not in listed:
            yield warning(
                f"the server no longer has the XA transaction {xa.xid}, whose {xa.rows} rows wait: "
                "its end lies behind the cursor, or is lost",
                got=str(xa.begin),
                mend=f"cdc-pipeline run {context.config.name}; if its end is lost, the run says "
                "how to go on",
            )
        elif xa.prepared_at_us >= 0 and context.now_s - xa.prepared_at_us / 1e6 > _XA_OLD_S:
            old.append(xa)
    for xa in old:
        yield warning(
            f"the XA transaction {xa.xid} has been prepared for "
            f"{duration(context.now_s - xa.prepared_at_us / 1e6)}: its {xa.rows} rows wait, "
            "and it holds locks at the server",
            got=str(xa.begin),
            mend=f"XA COMMIT {xa.xid}; or XA ROLLBACK {xa.xid};"
            + (
                ""
                if listed is not None
                else " If the server does not have it, its end is lost: with XA_RECOVER_ADMIN "
                "(MySQL) the next run says how to go on."
            ),
        )
    if cursor is not None and not old:
        yield ok(
            f"{len(cursor.open_xa)} prepared XA transactions wait"
            if cursor.open_xa
            else "no XA transaction waits"
        )


CHECKS: Final = checks(
    "retention", expiry=_expiry, needed=_needed, archive=_archive, open_XA=_open_xa
)
