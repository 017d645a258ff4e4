"""Determine how long a server keeps its journals, from its variables, its clock and what its
managed service adds.

Rules:
- MySQL and MariaDB purge a journal once it has not been written for longer than the expiry; they
  check this when a journal ends, at FLUSH and at startup. A journal that is being written is never
  purged.
- 0 means never. If MySQL's binlog_expire_logs_auto_purge is OFF, nothing is purged automatically.
- MariaDB 11.4 also keeps the journals together below a size (max_binlog_total_size), as Percona's
  server does (binlog_space_limit).
- Amazon RDS and Aurora purge by hours of their own, NULL meaning as soon as they can; Azure reads 0
  so; Cloud SQL may keep as little as a day for point-in-time recovery, whatever the variables say,
  and shows no setting: a journal that the last rotation left proves more, up to the variables,
  which may have been lowered since.
- What the account may not see is unknown, which no caller may take for never.
- A journal's last write is taken from the beginning of the next one. The journal being written is
  kept for the whole expiry after its end: what is left is meant "at the earliest".

Source: MySQL 9.7 manual, 19.1.6.4; MariaDB "Replication and Binary Log System Variables"; Percona
"Binary logs and replication improvements"; for the services see `managed`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Final

from cdc_pipeline.binlog.seq import journal_number
from cdc_pipeline.errors import StatementError
from cdc_pipeline.position.start.context import JournalInfo
from cdc_pipeline.source.live.answers import unexpected
from cdc_pipeline.source.live.managed import (
    AZURE,
    CLOUD_SQL,
    RECOVERY_DAYS,
    RETENTION_HOURS,
    ManagedService,
)

if TYPE_CHECKING:
    from cdc_pipeline.source.live.connection import ServerConnection
    from cdc_pipeline.source.live.live import LiveSource

_MOMENT: Final = re.compile(r"[0-9]{1,12}(\.[0-9]{1,9})?")
_SIZES: Final = ("max_binlog_total_size", "binlog_space_limit")
_VARIABLES: Final = (
    "binlog_expire_logs_seconds", "expire_logs_days", "binlog_expire_logs_auto_purge",
    *_SIZES,
)  # fmt: skip
_RDS_STATEMENTS: Final = (
    "SELECT name, value FROM mysql.rds_configuration", "CALL mysql.rds_show_configuration",
)  # fmt: skip
_DAY_S: Final = 86_400.0
_HOUR_S: Final = 3_600.0
_RECOVERY_DAYS_MAX: Final = 7.0
_NUMBER_MAX: Final = float(1 << 63)


@dataclass(frozen=True, slots=True)
class JournalRetention:
    """How long a server surely keeps a journal after its last write, and how many bytes of all
    together; None without a limit.

    `setting` has what says so, with values; `variable` is what to set, in units of `unit_s`, at
    most `units_max`. `needed_grant`: the statement without which `expire_s` is unknown.
    `provable_s`: the most that older journals can prove (no more than the variables say now).
    """

    expire_s: float | None
    total_bytes: int | None
    setting: str
    variable: str
    unit_s: float = 1.0
    units_max: float = _NUMBER_MAX
    size_variable: str = ""
    needed_grant: str = ""
    provable_s: float = 0.0

    def value_for(self, seconds: float) -> str:
        return f"{min(seconds / self.unit_s, self.units_max):.15g}"


def read_retention(server: ServerConnection) -> JournalRetention:
    """Every caller that wants to know how long a server keeps its journals asks this. Raises as
    `journal_retention`, and as `ServerConnection.query`.
    """
    service = server.service
    keeps = journal_retention(server.variables(_VARIABLES), service)
    if service is None or not service.hours_max:
        return keeps
    told = replace(
        keeps, variable=RETENTION_HOURS, unit_s=_HOUR_S, units_max=float(service.hours_max)
    )
    for statement in _RDS_STATEMENTS:
        try:
            values = {row.get("name"): row.get("value") for row in server.rows(statement)}
        except StatementError:
            continue
        if RETENTION_HOURS in values:
            hours = values[RETENTION_HOURS]
            said = {} if hours is None else {RETENTION_HOURS: str(hours)}
            expire_s = _number(said, RETENTION_HOURS) * _HOUR_S
            text = f"{RETENTION_HOURS} = {'NULL' if hours is None else hours}, {keeps.setting}"
            if keeps.expire_s is not None and keeps.expire_s < expire_s:
                return replace(keeps, setting=text)  # the variable decides, and is to be set
            return replace(told, expire_s=expire_s, setting=text)
    return replace(
        told,
        setting=f"{RETENTION_HOURS} unknown, {keeps.setting}",
        needed_grant=f"GRANT SELECT ON mysql.rds_configuration TO {server.account};",
    )


def journal_retention(
    variables: Mapping[str, str], service: ManagedService | None = None
) -> JournalRetention:
    """From global variables by name in lower case. Raises ServerAnswerError: one is no number."""
    seconds = variables.get("binlog_expire_logs_seconds")
    days = variables.get("expire_logs_days")
    size = next((name for name in _SIZES if _number(variables, name)), "")
    limit = int(_number(variables, size))
    variable = "binlog_expire_logs_seconds" if seconds is not None else "expire_logs_days"
    expire_seconds = _number(variables, "binlog_expire_logs_seconds")
    expire_days = _number(variables, "expire_logs_days")
    says_days = seconds is None or (not expire_seconds and expire_days > 0)
    settings = {
        "binlog_expire_logs_seconds": seconds,
        "expire_logs_days": days if says_days else None,
    }
    expire_s = expire_seconds or expire_days * _DAY_S or None
    if variables.get("binlog_expire_logs_auto_purge", "ON").upper() in ("OFF", "0"):
        expire_s, settings = None, {"binlog_expire_logs_auto_purge": "OFF"}
    if limit:
        settings[size] = str(limit)
    if service is AZURE and not expire_seconds:
        expire_s = 0.0
    unit_s, units_max = (_DAY_S if seconds is None else 1.0), _NUMBER_MAX
    provable_s = 0.0
    if service is CLOUD_SQL:
        provable_s = expire_s or _NUMBER_MAX
        expire_s = min(expire_s or _DAY_S, _DAY_S)
        settings[RECOVERY_DAYS] = "1 or more"
        variable, unit_s, units_max = RECOVERY_DAYS, _DAY_S, _RECOVERY_DAYS_MAX
    return JournalRetention(
        expire_s=expire_s,
        total_bytes=limit or None,
        size_variable=size,
        setting=", ".join(
            f"{name} = {value}" for name, value in settings.items() if value is not None
        ),
        variable=variable,
        unit_s=unit_s,
        units_max=units_max,
        provable_s=provable_s,
    )


def _number(variables: Mapping[str, str], name: str) -> float:
    text = variables.get(name) or "0"
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < _NUMBER_MAX:
        raise unexpected("the server", "SHOW GLOBAL VARIABLES", expected=f"a {name}", got=text)
    return value


def clock_s(server: ServerConnection) -> float:
    """The server's, in seconds since 1970."""
    asked = "SELECT UNIX_TIMESTAMP(NOW(6))"
    text = server.text(asked)
    if not _MOMENT.fullmatch(text):
        raise unexpected(server.address, asked, expected="seconds since 1970", got=text or None)
    return float(text)


class RetainedLog:
    """What a server still has of its log, and how soon it may purge that; asked once."""

    def __init__(self, source: LiveSource) -> None:
        self._source = source
        self.journals = source.server.journals()
        self._created_s = cache(source.journal_created_s)  # each needs a dump

    @cached_property
    def keeps(self) -> JournalRetention:
        keeps = read_retention(self._source.server)
        if not keeps.provable_s or keeps.expire_s is None or len(self.journals) < 3:
            return keeps
        first_end, last_begin = self.journals[1].journal, self.journals[-1].journal
        proved_s = min(self._created_s(last_begin) - self._created_s(first_end), keeps.provable_s)
        return replace(keeps, expire_s=max(keeps.expire_s, proved_s))

    def has(self, journal: str) -> bool:
        return any(info.journal == journal for info in self.journals)

    def after(self, journal: str) -> list[JournalInfo]:
        number = journal_number(journal)
        return [info for info in self.journals if journal_number(info.journal) > number]

    @cached_property
    def bytes_per_s(self) -> float | None:
        """By which the log grows; None if it has one journal."""
        if len(self.journals) < 2:
            return None
        first, last = self.journals[0], self.journals[-1]
        over_s = self._created_s(last.journal) - self._created_s(first.journal)
        return sum(info.size_bytes for info in self.journals[:-1]) / over_s if over_s > 0 else None

    def left_s(self, journal: str, *, enough_s: float = 0.0) -> float | None:
        """Until a journal may be purged, 0 for at any moment or gone; None for never. If `keeps`
        needs a grant, what is known may be too much: None (unknown) unless it is below `enough_s`.
        """
        if not self.has(journal):
            archived = any(info.journal == journal for info in self._source.journals())
            return None if archived else 0.0
        behind, deadlines_s = self.after(journal), []
        if self.keeps.expire_s is not None:
            since_s = (
                clock_s(self._source.server) - self._created_s(behind[0].journal) if behind else 0.0
            )
            deadlines_s.append(self.keeps.expire_s - max(0.0, since_s))
        if self.keeps.total_bytes is not None and self.bytes_per_s:
            later = sum(info.size_bytes for info in behind)
            deadlines_s.append((self.keeps.total_bytes - later) / self.bytes_per_s)
        left_s = max(0.0, min(deadlines_s)) if deadlines_s else None
        is_unknown = self.keeps.needed_grant and left_s is not None and left_s >= enough_s
        return None if is_unknown else left_s
