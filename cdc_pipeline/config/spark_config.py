"""The `sink.spark` section: the Spark session that merges, and which Spark settings a file may set.

Rules:
- The meaning of SQL texts, names, literals and casts is fixed: `SQL_SETTINGS` hold in every
  session, whatever the file or the machine's `spark-defaults.conf` say (`sink/spark/session.py`),
  and a file that sets one of them is refused (K20: text is data).
- No secret appears in a process's arguments, which every user of the machine can read (K26): a
  setting that may be a secret, by its name or value, is passed to the running JVM instead. That is
  impossible for what Java needs in its arguments.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Final

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from cdc_pipeline.config.section import Section, Takes
from cdc_pipeline.config.units import spark_size

# Spark's own defaults, except for the first and the time zone.
SQL_SETTINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "spark.sql.variable.substitute": "false",  # reads ${env:X} in any text, literals included
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.caseSensitive": "false",
        "spark.sql.timestampType": "TIMESTAMP_LTZ",
        "spark.sql.storeAssignmentPolicy": "ANSI",
        "spark.sql.mapKeyDedupPolicy": "EXCEPTION",
        "spark.sql.groupByOrdinal": "true",
        "spark.sql.orderByOrdinal": "true",
        "spark.sql.groupByAliases": "true",
        "spark.sql.ansi.enabled": "true",
        "spark.sql.ansi.doubleQuotedIdentifiers": "false",
        "spark.sql.ansi.enforceReservedKeywords": "false",
        "spark.sql.ansi.relationPrecedence": "false",
        "spark.sql.parser.escapedStringLiterals": "false",
        "spark.sql.parser.quotedRegexColumnNames": "false",
        "spark.sql.function.concatBinaryAsString": "false",
        "spark.sql.function.eltOutputAsString": "false",
        "spark.sql.decimalOperations.allowPrecisionLoss": "true",
        "spark.sql.legacy.literal.pickMinimumPrecision": "true",
        "spark.sql.legacy.timeParserPolicy": "CORRECTED",
        "spark.sql.legacy.consecutiveStringLiterals.enabled": "false",
        "spark.sql.parquet.binaryAsString": "false",
        "spark.sql.parquet.int96AsTimestamp": "true",
        "spark.sql.parquet.int96TimestampConversion": "false",
        "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
        "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
        "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
        "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
        "spark.sql.parquet.outputTimestampType": "INT96",
        "spark.sql.sources.partitionOverwriteMode": "STATIC",
        # Settings that skip rows in silence.
        "spark.sql.files.ignoreCorruptFiles": "false",
        "spark.sql.files.ignoreMissingFiles": "false",
        # Their limits pass through a calendar without the 5th to 14th of October 1582 (F66).
        "spark.sql.parquet.filterPushdown.date": "false",
        "spark.sql.parquet.filterPushdown.timestamp": "false",
    }
)
_OURS: Final = re.compile(
    r"spark\.sql\.(ansi|parser|variable|legacy)\..*"
    # With another writer's transaction id or note, a table would take our later commits for repeats
    # and skip them.
    r"|spark\.databricks\.delta\.(write\.txn(AppId|Version)(\..*)?|commitInfo\.userMetadata|"
    r"commitInfo\.enabled)"
)
_SECRET_NAME: Final = re.compile(
    r"secret|passw(or)?d|passphrase|token|credentials?$|access[._-]?key|account\.key|"
    r"private[._-]?key|sas[._-]|api[._-]?key|encryption[._-]key|\.key$",
    re.IGNORECASE,
)
_SECRET_VALUE: Final = re.compile(
    r"://[^/\s:@]*:[^/\s@]+@|(pwd|passw(or)?d|secret|token|key)\s*=", re.IGNORECASE
)
# Settings that are read before or while a JVM starts.
_OF_START: Final = re.compile(
    r"spark\.(driver|submit|yarn\.dist)\..*|spark\.(jars|files|archives)(\..*)?|spark\..*(extra|"
    r"default)JavaOptions"
)
# With `create` in it, Hadoop does not check whether a file exists; Delta's log relies on that.
_NO_CHECKS: Final = "spark.hadoop.fs.s3a.performance.flags"
# As the entry points of Python packages are written.
_FUNCTION: Final = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$"

_MASTER: Final = (
    r"^(local|local\[(\*|\d+)(, *\d+)?\]|local-cluster\[.+\]|yarn|k8s://.+"
    r"|spark://([^\s:,/]+|\[[\da-fA-F:]+\]):\d+(,([^\s:,/]+|\[[\da-fA-F:]+\]):\d+)*)$"
)


def is_secret(name: str, value: str) -> bool:
    """Whether a setting may be a secret, by its name or by a password in its value."""
    return _SECRET_NAME.search(name) is not None or _SECRET_VALUE.search(value) is not None


def _may_be_named(name: str) -> str:
    if name in SQL_SETTINGS or _OURS.fullmatch(name):
        raise ValueError(
            "cannot be set: it changes the meaning of SQL texts and values, and cdc_pipeline "
            "sets it in every session; remove it from the file"
        )
    return name


class SparkConfig(Section):
    """The Spark session that merges. Settings are passed unchanged and override the project's
    own, except for those of `SQL_SETTINGS`. A `session` of the user's has settings of its
    own.
    """

    master: Annotated[
        str,
        Field(pattern=_MASTER),
        Takes("local[4], spark://HOST:7077, yarn or k8s://https://HOST:443"),
    ] = "local[*]"
    driver_memory: Annotated[
        str,
        BeforeValidator(spark_size, json_schema_input_type=str),
        Takes("a size with its unit, such as 2g or 512 MiB"),
    ] = "2g"
    session: (
        Annotated[str, Field(pattern=_FUNCTION), Takes("a function, written as module:function")]
        | None
    ) = None
    settings: dict[Annotated[str, AfterValidator(_may_be_named)], str] = Field(
        default_factory=dict, repr=False
    )

    @field_validator("settings")
    @classmethod
    def _safe_settings(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            if name == _NO_CHECKS and "create" in text:
                raise ValueError(f"{name} must be without create: Delta's log relies on its checks")
            if _OF_START.fullmatch(name) and is_secret(name, text):
                raise ValueError(
                    f"{name} may contain a password and would be an argument of a process, "
                    "which every user of the machine can read; put it into a file that the "
                    "setting can name instead"
                )
        return value

    @model_validator(mode="after")
    def _one_spark(self) -> SparkConfig:
        others = sorted(self.model_fields_set - {"session"})
        if self.session is not None and others:
            raise ValueError(
                f"session and {' and '.join(others)} exclude each other, because a session that "
                f"already runs has its own; remove one of them"
            )
        return self

    @property
    def is_local(self) -> bool:
        """Executors are threads of the driver: only for the masters `local` and `local[...]`, and
        never for a session of the user's, which is known only once it is asked for.
        """
        if self.session is not None:
            return False
        return self.master == "local" or self.master.startswith("local[")
