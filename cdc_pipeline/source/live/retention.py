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

_DAY_S: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class JournalRetention:
    """How long, and how much, a server keeps.

    Attributes:
        expire_s: seconds after a journal's last write; None if forever.
        total_bytes: all journals together; None without a limit.
        setting: the variables that say so, with their values.
        variable: what to set; its unit is a second, or a day if `in_days`.
    """

    expire_s: float | None
    total_bytes: int | None
    setting: str
    variable: str
    in_days: bool = False

    def value_for(self, seconds: float) -> str:
        """Return what to set `variable` to, so that journals are kept for at least `seconds`."""
        return f"{seconds / _DAY_S:g}" if self.in_days else f"{seconds:.0f}"


def journal_retention(variables: Mapping[str, str]) -> JournalRetention:
    """Return the retention that global variables, by name in lower case, say."""
    seconds = variables.get("binlog_expire_logs_seconds")
    days = variables.get("expire_logs_days")
    limit = int(variables.get("max_binlog_total_size", "0") or 0)
    variable = "binlog_expire_logs_seconds" if seconds is not None else "expire_logs_days"
    says_days = seconds is None or (not float(seconds) and float(days or 0) > 0)
    settings = {
        "binlog_expire_logs_seconds": seconds,
        "expire_logs_days": days if says_days else None,
    }
    expire_s = float(seconds or 0) or float(days or 0) * _DAY_S or None
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
