"""Check settings of the server that a capture needs, or that make it safer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from cdc_pipeline.operations.doctor.context import Context, checks
from cdc_pipeline.operations.doctor.diagnosis import Severity, Verdict, error, note, ok, warning
from cdc_pipeline.source.live.answers import number_of
from cdc_pipeline.text.table_names import NameRule
from cdc_pipeline.text.wording import size

_ROW_BYTES: Final = 16 << 20
_WRITE_TIMEOUT_S: Final = 30


def _whole_log(context: Context) -> Iterator[Verdict]:
    from cdc_pipeline.source.live.server_checks import log_findings

    findings = log_findings(context.server, context.live.captured_tables)
    for one in findings:
        verdict = error if one.severity == "error" else warning
        yield verdict(
            one.what, expected=f"{one.setting} = {one.expected}", got=one.got, mend=one.next_step
        )
    if not findings:
        yield ok("the log is whole: no setting or filter leaves changes out of it")


def _row_metadata(context: Context) -> Iterator[Verdict]:
    from cdc_pipeline.source.live.server_checks import metadata_finding

    finding = metadata_finding(context.server)
    if finding is None:
        yield ok("binlog_row_metadata is FULL")
        return
    yield warning(
        f"the log's rows do not describe their columns: {finding.what}, and rows from before a DDL "
        "may stop their table",
        expected=f"{finding.setting} = {finding.expected}",
        got=finding.got,
        mend=set_statement(context, finding.setting, f"'{finding.expected}'"),
    )


@dataclass(frozen=True, slots=True)
class _Advice:
    """A server without the variable is accepted."""

    variable: str
    good: tuple[str, ...]
    severity: Severity
    what: str
    value: str


_ADVICE: Final = (
    _Advice("binlog_row_image", ("FULL", "FULL_NODUP"), "warning",
            "rows do not hold all of their columns: an insert that omits columns with "
            "defaults may stop a table, and so may a table without a key", "'FULL'"),
    _Advice("binlog_checksum", ("CRC32",), "warning",
            "events carry no checksum: damage in transit or on a disk goes unnoticed", "'CRC32'"),
    _Advice("binlog_order_commits", ("ON", "1"), "warning",
            "transactions may be committed in another order than they are logged: the marks "
            "of a snapshot need care",
            "ON"),
    _Advice("sync_binlog", ("1",), "note",
            "a power cut may remove transactions from the log that the lake already has: the "
            "next run would stop", "1"),
    _Advice("innodb_flush_log_at_trx_commit", ("1",), "note",
            "a power cut may remove transactions from the tables that the log, and the lake, "
            "already have", "1"),
)  # fmt: skip


def _advised_settings(context: Context) -> Iterator[Verdict]:
    for advice in _ADVICE:
        value = context.variables.get(advice.variable)
        if value is None:
            continue
        if value.upper() in advice.good:
            yield ok(f"{advice.variable} is {value}")
            continue
        mend = set_statement(context, advice.variable, advice.value)
        yield Verdict(
            severity=advice.severity,
            what=advice.what,
            expected=f"{advice.variable} = {advice.good[0]}",
            got=value,
            mend=mend,
        )


def _gtids(context: Context) -> Iterator[Verdict]:
    with_standby = context.live_config.standby is not None
    verdict: Callable[..., Verdict] = warning if with_standby else note
    if context.server.flavor == "mariadb":
        if context.variables.get("gtid_strict_mode", "ON").upper() == "ON":
            yield ok("gtid_strict_mode is ON")
        else:
            yield verdict(
                "a replica may log transactions with GTIDs out of order: a failover "
                "by GTID would stop",
                expected="gtid_strict_mode = ON",
                got="OFF",
                mend=set_statement(context, "gtid_strict_mode", "ON"),
            )
        return
    mode = context.variables.get("gtid_mode", "OFF").upper()
    if mode == "ON":
        yield ok("gtid_mode is ON")
    else:
        steps = ("OFF", "OFF_PERMISSIVE", "ON_PERMISSIVE", "ON")
        left = steps[steps.index(mode) + 1 :] if mode in steps else steps[1:]
        yield verdict(
            "transactions have no GTIDs: after a failover the position is searched by time "
            "and content (slower, and changelogs and histories wait for a decision)",
            expected="gtid_mode = ON",
            got=mode,
            mend="SET PERSIST enforce_gtid_consistency = ON; "
            + "".join(f"SET PERSIST gtid_mode = '{step}'; " for step in left[:-1])
            # Transactions without a GTID that are not captured yet cannot be read under ON.
            + f"cdc-pipeline run {context.config.name}; SET PERSIST gtid_mode = '{left[-1]}';",
        )


def _write_timeout(context: Context) -> Iterator[Verdict]:
    variables = context.variables
    timeout_s, packet_bytes = (
        number_of(variables.get(name, 0), address=context.server.address, asked=name)
        for name in ("net_write_timeout", "max_allowed_packet")
    )
    if timeout_s < _WRITE_TIMEOUT_S:
        yield warning(
            "the server soon ends a dump that is not read: a merge that takes longer may "
            "lose the connection",
            expected=f"net_write_timeout of {_WRITE_TIMEOUT_S} s or more",
            got=f"{timeout_s} s",
            mend=set_statement(context, "net_write_timeout", "60"),
        )
    else:
        yield ok(f"net_write_timeout is {timeout_s} s")
    if packet_bytes < _ROW_BYTES:
        yield note(
            "a snapshot cannot read rows larger than max_allowed_packet",
            expected=f"{size(_ROW_BYTES)} or more",
            got=size(packet_bytes),
            mend=set_statement(context, "max_allowed_packet", str(64 << 20)),
        )
    else:
        yield ok(f"max_allowed_packet is {size(packet_bytes)}")


def _zone_and_modes(context: Context) -> Iterator[Verdict]:
    variables = context.variables
    yield ok(
        f"time zone {variables.get('time_zone', '?')} ({variables.get('system_time_zone', '?')}): "
        "TIMESTAMP is UTC in the log"
    )
    modes = set(variables.get("sql_mode", "").upper().split(","))
    lenient = [text for text, is_so in (
        ("ALLOW_INVALID_DATES is set", "ALLOW_INVALID_DATES" in modes),
        ("NO_ZERO_DATE is not set", "NO_ZERO_DATE" not in modes),
        ("NO_ZERO_IN_DATE is not set", "NO_ZERO_IN_DATE" not in modes),
        ("no STRICT mode is set", not modes & {"STRICT_TRANS_TABLES", "STRICT_ALL_TABLES"}),
    ) if is_so]  # fmt: skip
    if lenient:
        yield note(
            "the server accepts dates that Delta cannot hold, such as 0000-00-00; they are "
            "rescued and counted",
            expected="STRICT_TRANS_TABLES, NO_ZERO_DATE and NO_ZERO_IN_DATE in sql_mode",
            got="; ".join(lenient),
            mend="sink: {zero_dates: null} stores no text of them (docs/tables/rescue.md)",
        )
    else:
        yield ok("sql_mode is strict about dates")


def _names(context: Context) -> Iterator[Verdict]:
    names = context.server.identity.names
    how = (
        "tells tables apart whose names differ only in their letters' case"
        if names is NameRule.AS_GIVEN
        else "compares names of tables in lower case, and so are they in the lake"
    )
    yield ok(f"lower_case_table_names is {names:d}: the server {how}")


def set_statement(context: Context, variable: str, value: str) -> str:
    """PERSIST exists since MySQL 8.0."""
    if context.server.flavor == "mariadb" or context.variables.get("version", "8").startswith("5."):
        return (
            f"SET GLOBAL {variable} = {value}; and {variable} = {value} in the server's "
            "configuration file"
        )
    return f"SET PERSIST {variable} = {value};"


CHECKS: Final = checks(
    "server",
    whole_log=_whole_log,
    row_metadata=_row_metadata,
    advised_settings=_advised_settings,
    GTIDs=_gtids,
    patience=_write_timeout,
    zone_and_modes=_zone_and_modes,
    names=_names,
)
