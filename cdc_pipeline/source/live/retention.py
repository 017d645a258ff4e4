"""Determine how long a server keeps its journals, from its variables.

Rules:
- MySQL and MariaDB purge a journal once it has not been written for longer than the expiry; they
  check this when a journal ends, at FLUSH and at startup. A journal that is being written is never
  purged.
- 0 means never. If MySQL's binlog_expire_logs_auto_purge is OFF, nothing is purged automatically.
- MariaDB 11.4 also keeps the journals together below a size (max_binlog_total_size).

Source: MySQL 9.7 manual, 19.1.6.4; MariaDB "Replication and Binary Log System Variables".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cdc_pipeline.source.live.answers import unexpected

_DAY_S: Final = 86_400.0
_NUMBER_MAX: Final = float(1 << 63)


@dataclass(frozen=True, slots=True)
class JournalRetention:
    """How long a server keeps a journal after its last write, and how many bytes of all
    together; None without a limit.

    `setting` has the variables that say so, with values; `variable` is what to set, in seconds,
    or days if `in_days`.
    """

    expire_s: float | None
    total_bytes: int | None
    setting: str
    variable: str
    in_days: bool = False

    def value_for(self, seconds: float) -> str:
        return f"{seconds / _DAY_S:g}" if self.in_days else f"{seconds:.0f}"


def journal_retention(variables: Mapping[str, str]) -> JournalRetention:
    """From global variables by name in lower case. Raises ServerAnswerError: one is no number."""
    seconds = variables.get("binlog_expire_logs_seconds")
    days = variables.get("expire_logs_days")
    limit = int(_number(variables, "max_binlog_total_size"))
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
        settings["max_binlog_total_size"] = str(limit)
    return JournalRetention(
        expire_s=expire_s,
        total_bytes=limit or None,
        setting=", ".join(
            f"{name} = {value}" for name, value in settings.items() if value is not None
        ),
        variable=variable,
        in_days=seconds is None,
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
