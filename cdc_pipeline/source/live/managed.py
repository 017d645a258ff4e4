"""Recognize a managed service by what its servers say, and where their settings are set.

Rules:
- What names the service is in the answers that a connection gets anyway (`session`), or in the host
  name that the service gives: nothing more is asked, of any server.
- What serves no binary log is refused at the door, so that each command says the same (K31).
- No service lets an account SET GLOBAL what a capture needs: each has a place of its own.

Source: Amazon RDS and Aurora, "Setting and showing binary log configuration"; Cloud SQL for MySQL,
"Use point-in-time recovery" and "Configure database flags"; Azure Database for MySQL - Flexible
Server, "Server parameters"; PlanetScale, "MySQL compatibility". None was seen running.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cdc_pipeline.errors import ServerSettingError

# For the WHERE of SHOW VARIABLES.
MARKS: Final = ("version", "version_comment", "basedir", "aurora_version", "aad_auth_only")
MARK_PATTERNS: Final = ("azure%", "cloudsql%")
RETENTION_HOURS: Final = "binlog retention hours"
RECOVERY_DAYS: Final = "days of logs for point-in-time recovery"
_VITESS: Final = re.compile("vitess|planetscale", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ManagedService:
    """`settings`: where variables are set; `log_bin`: what turns the log on; `hours_max`: the
    largest `RETENTION_HOURS`, 0 where there is no such setting.
    """

    name: str
    settings: str
    log_bin: str
    hours_max: int = 0

    def step(self, variable: str, value: str) -> str:
        """What an administrator does to set it."""
        if variable == "log_bin":
            return self.log_bin
        if variable == RETENTION_HOURS:
            return f"CALL mysql.rds_set_configuration('{variable}', {value});"
        if variable == RECOVERY_DAYS:
            step = f"gcloud sql instances patch NAME --retained-transaction-log-days={value}"
            return f"{step}; the server shows no such setting, but how old its journals become"
        return f"set {variable} = {value} in {self.settings}"


RDS: Final = ManagedService(
    "Amazon RDS",
    "the DB parameter group of the instance",
    "turn on automated backups of this instance (a backup retention period of a day or more)",
    hours_max=168,
)
AURORA: Final = ManagedService(
    "Amazon Aurora",
    "the DB cluster parameter group",
    "set source.host to the cluster (writer) endpoint, because readers have no log; there, set "
    "binlog_format = ROW in the DB cluster parameter group and restart the writer",
    hours_max=2160,
)
CLOUD_SQL: Final = ManagedService(
    "Google Cloud SQL",
    "the database flags of the instance",
    "turn on point-in-time recovery (gcloud sql instances patch NAME --enable-bin-log)",
)
AZURE: Final = ManagedService(
    "Azure Database for MySQL",
    "the server parameters of the instance",
    "set source.host to the server itself, whose log is always on",
)


def managed_service(variables: Mapping[str, str], host: str) -> ManagedService | None:
    """By `MARKS` and `MARK_PATTERNS` that the server has, in lower case; None: nobody's."""
    name, comment = host.lower().rstrip("."), variables.get("version_comment", "").lower()
    if "aurora_version" in variables:
        return AURORA
    if (
        variables.get("basedir", "").startswith("/rdsdbbin")
        or "aws.amazon.com/rds" in comment
        or name.endswith((".rds.amazonaws.com", ".rds.amazonaws.com.cn"))
    ):
        return RDS
    if (
        "-google" in variables.get("version", "").lower()
        or "google" in comment
        or any(variable.startswith("cloudsql") for variable in variables)
    ):
        return CLOUD_SQL
    if (
        any(variable.startswith(("azure", "aad_auth_only")) for variable in variables)
        or "azure" in comment
        or name.endswith(".mysql.database.azure.com")
    ):
        return AZURE
    return None


def refuse_without_log(version: str, address: str) -> None:
    """`version`: of the greeting. Raises ServerSettingError."""
    if _VITESS.search(version):
        raise ServerSettingError(
            f"{address} is Vitess (as PlanetScale is): its gateway hands on no binary log",
            setting="source.host",
            expected="MySQL or MariaDB",
            got=version,
            next_step="read the primary behind each shard, one pipeline each, if its port can be "
            "reached; PlanetScale does not offer that",
        )


def is_proxy(host: str) -> bool:
    """An RDS Proxy, by the name that the service gives each."""
    return ".proxy-" in host.lower() and ".rds.amazonaws.com" in host.lower()
