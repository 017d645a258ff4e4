"""Check the server: whether it answers, its settings, what it replicates, and its standby."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from cdc_pipeline.errors import CdcError, ServerUnreachableError
from cdc_pipeline.operations.doctor.context import Check, Context, shown
from cdc_pipeline.operations.doctor.diagnosis import Severity, Verdict, error, note, ok, warning
from cdc_pipeline.run.plan.starting import choose
from cdc_pipeline.source.live.answers import AnswerRow, number_of
from cdc_pipeline.source.live.connection import ServerConnection
from cdc_pipeline.source.live.login import is_this_machine
from cdc_pipeline.source.live.managed import is_proxy
from cdc_pipeline.source.live.replica_id import check_replica_id
from cdc_pipeline.source.live.retention import clock_s
from cdc_pipeline.source.live.server_checks import (
    encryption_findings,
    is_replica,
    log_findings,
    metadata_findings,
)
from cdc_pipeline.text.server_messages import without_quoted
from cdc_pipeline.text.table_names import NameRule
from cdc_pipeline.text.wording import duration

# Versions that the tests run on. Older ones are read by feature, which is not tested for all of
# them.
TESTED: Final = {"mysql": (8, 4), "mariadb": (10, 11)}
_NAMES: Final = {"mysql": "MySQL", "mariadb": "MariaDB"}
_CLOCK_WARNING_S: Final = 5.0
_LAG_WARNING_S: Final = 600.0
_VERIFY: Final = "source: {tls: {mode: verify, ca_file: ...}}"


def _reachable(context: Context) -> Iterator[Verdict]:
    primary = context.live_config
    began_s = time.monotonic()
    chosen = choose(context.config)
    try:
        context.open(chosen.config)
        server = context.server
        context.config = context.config.comparing(server.identity.names)
        version, flavor = str(server.value("SELECT VERSION()")), server.flavor
    except CdcError:
        context.forget_source()
        raise
    took_ms = (time.monotonic() - began_s) * 1000
    if chosen.reason and (server.config.host, server.config.port) != (primary.host, primary.port):
        yield warning(
            f"the primary {primary.address} cannot be reached; runs read its standby "
            f"{server.address}",
            got=chosen.reason,
            next_step="bring the primary back, or make the standby the configured primary",
        )
    yield ok(f"{_NAMES[flavor]} {version} at {server.address} answers ({took_ms:.0f} ms)")
    numbers = tuple(map(int, re.findall(r"[0-9]{1,9}", version)[:2]))
    if numbers < TESTED[flavor]:
        tested = ".".join(map(str, TESTED[flavor]))
        yield warning(
            f"this version of {_NAMES[flavor]} is older than any tested version",
            expected=f"{tested} or later",
            got=version,
            next_step=f"upgrade the server to {_NAMES[flavor]} {tested} or later, and verify the "
            "tables until then",
        )


def _tls(context: Context) -> Iterator[Verdict]:
    server = context.server
    mode, far = server.config.tls.mode, not is_this_machine(server.config.host)
    yield from shown(encryption_findings(server))
    if not server.encrypted:
        if not far:
            yield note(
                "the connection is not encrypted, but only within this machine",
                expected="TLS",
                got=f"source.tls.mode {mode}",
                next_step=_VERIFY,
            )
        return
    status = server.pairs("SHOW SESSION STATUS LIKE 'Ssl%'")
    how = f"{status.get('ssl_version', 'TLS')}, {status.get('ssl_cipher', '')}"
    if mode in ("preferred", "required"):
        verdict = warning if far else note
        yield verdict(
            "the connection is encrypted, but the server's certificate is not checked: "
            "another machine can pose as the server and get the password",
            expected="verify or verify_ca",
            got=f"{mode} ({how})",
            next_step=f"{_VERIFY} with the certificate of the server's CA",
        )
    else:
        yield ok(f"encrypted: {how}, source.tls.mode {mode}")


def _clock(context: Context) -> Iterator[Verdict]:
    before_s = time.time()
    there_s = clock_s(context.server)
    ahead_s = there_s - (before_s + time.time()) / 2
    if abs(ahead_s) <= _CLOCK_WARNING_S:
        yield ok(f"the server's clock and this machine's differ by {abs(ahead_s):.2f} s")
    else:
        yield warning(
            "the clocks of the server and of this machine differ: lag, retention and searches "
            "by time are off by that much",
            expected=f"at most {_CLOCK_WARNING_S:g} s",
            got=f"the server's is {duration(abs(ahead_s))} {'ahead' if ahead_s > 0 else 'behind'}",
            next_step="synchronize both clocks: chronyc makestep (or: timedatectl set-ntp true)",
        )


def _server_id(context: Context) -> Iterator[Verdict]:
    number = context.server.identity.server_id
    if number == 0:
        yield error(
            "server_id is 0, so the server cannot serve replicas",
            expected="a unique number",
            got="server_id = 0",
            next_step=set_statement(context, "server_id", "1"),
        )
    elif number == 1 and context.live_config.standby is not None:
        yield warning(
            "server_id is the default, which the standby may have too",
            expected="a unique id for each server",
            got="server_id = 1",
            next_step=set_statement(context, "server_id", "101"),
        )
    else:
        yield ok(f"server_id is {number}")


def _replica_id(context: Context) -> Iterator[Verdict]:
    live = context.live
    check_replica_id(live.server, live.replica)
    yield ok(f"replica server id {live.replica.server_id} is free, or used by our own reader")


def _replication(context: Context) -> Iterator[Verdict]:
    """What a replica logs is a matter of `whole_log`."""
    server, found = context.server, context.variables
    rows = server.replication()
    logs_name = "log_replica_updates" if "log_replica_updates" in found else "log_slave_updates"
    logs = found.get(logs_name, "ON").upper() == "ON"
    if not is_replica(server, rows):
        if not logs and (rows is None or context.live_config.standby is not None):
            yield note(
                f"{logs_name} is OFF: if this server becomes a replica, its log will lack "
                "what it replicates",
                expected="ON",
                got="OFF",
                next_step=f"set {logs_name} = ON in the server's configuration and restart it",
            )
        else:
            yield ok("the server is not a replica")
        return
    for row in rows or ():
        yield from _replica_state(row)


def _replica_state(row: AnswerRow) -> Iterator[Verdict]:
    def value(name: str) -> object:
        return row.get(f"replica_{name}", row.get(f"slave_{name}"))

    running = str(value("sql_running")), str(value("io_running"))
    column = "seconds_behind_source" if "seconds_behind_source" in row else "seconds_behind_master"
    behind = row.optional_number(column, -1) if column in row else -1
    if running != ("Yes", "Yes"):
        last = str(row.get("last_sql_error") or row.get("last_io_error") or "")
        yield warning(
            "the server is a replica that does not follow its source: captures find nothing new",
            expected="SQL and IO threads running",
            got=f"SQL: {running[0]}, IO: {running[1]}"
            + (f"; {without_quoted(last)}" if last else ""),
            next_step="START REPLICA (MariaDB: START SLAVE), once its last error is put right",
        )
    elif behind > _LAG_WARNING_S:
        yield warning(
            "the server is a replica far behind its source",
            expected=f"less than {duration(_LAG_WARNING_S)}",
            got=duration(float(behind)),
            next_step="let it catch up, or read from its source",
        )
    else:
        yield ok(
            f"the server is a replica, {behind} s behind its source"
            if behind >= 0
            else "the server is a replica, and does not say how far behind its source"
        )


def _standby(context: Context) -> Iterator[Verdict]:
    standby = context.live_config.standby
    if standby is None:
        return
    primary, examined = context.live_config, context.server.config
    address = standby.address
    if examined.address == address != primary.address:
        return  # it is the one being examined
    update = {"host": standby.host, "port": standby.port}
    other = ServerConnection(primary.model_copy(update=update))
    try:
        if other.identity.same_server(context.server.identity):
            yield error(
                "the standby is the primary itself",
                expected="another server",
                got=f"both are {other.identity}",
                next_step="give source.standby the host and port of a replica",
            )
        elif other.flavor != context.server.flavor:
            yield error(
                "the standby's server differs in kind from the primary's",
                expected=context.server.flavor,
                got=other.flavor,
                next_step="give source.standby the host and port of a replica of the primary",
            )
        else:
            yield ok(f"the standby {address} answers")
        for one in log_findings(other, context.live.captured_tables):
            one.error.what = f"standby {address}: {one.error.what}"
            yield Verdict.from_error(one.error)
    except ServerUnreachableError as failure:
        yield warning(
            f"the standby {address} cannot be reached, so nothing takes over if the primary fails",
            got=str(failure.got),
            next_step=failure.next_step or "",
        )
    except CdcError as failure:
        yield Verdict.from_error(failure)
    finally:
        other.close()


def _managed_service(context: Context) -> Iterator[Verdict]:
    service, host = context.server.service, context.server.config.host
    if is_proxy(host):
        yield warning(
            "source.host is an RDS Proxy, which hands on no binary log",
            expected="the endpoint of the instance, or of the cluster's writer",
            got=host,
            next_step="set source.host to the database's own endpoint",
        )
    if service is not None:
        yield ok(f"this is {service.name}: variables are set in {service.settings}")


@dataclass(frozen=True, slots=True)
class _Advice:
    """A server without the variable is accepted; `good`: values, or the least."""

    variable: str
    good: tuple[str, ...] | int
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


_PATIENCE: Final = (
    _Advice("net_write_timeout", 30, "warning",
            "the server soon ends a dump that is not read: a merge that takes longer may "
            "lose the connection", "60"),
    _Advice("max_allowed_packet", 16 << 20, "note",
            "a snapshot cannot read rows larger than max_allowed_packet", str(64 << 20)),
)  # fmt: skip


def _advised(context: Context, every: Sequence[_Advice]) -> Iterator[Verdict]:
    for advice in every:
        name, value = advice.variable, context.variables.get(advice.variable)
        if value is None:
            continue
        if isinstance(advice.good, int):
            is_good = number_of(value, address=context.server.address, asked=name) >= advice.good
            expected = f"{name} of {advice.good:,} or more"
        else:
            is_good = value.upper() in advice.good
            expected = f"{name} = {advice.good[0]}"
        if is_good:
            yield ok(f"{name} is {value}")
        else:
            step = set_statement(context, name, advice.value)
            parts = {"expected": expected, "got": value, "next_step": step}
            yield Verdict(severity=advice.severity, what=advice.what, **parts)


def _gtids(context: Context) -> Iterator[Verdict]:
    with_standby = context.live_config.standby is not None
    verdict = warning if with_standby else note
    if context.server.flavor == "mariadb":
        what = (
            "a replica may log transactions with GTIDs out of order: a failover by GTID would stop"
        )
        severity: Severity = "warning" if with_standby else "note"
        yield from _advised(
            context, [_Advice("gtid_strict_mode", ("ON", "1"), severity, what, "ON")]
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
            # Transactions without a GTID that are not captured yet cannot be read under ON.
            next_step="; ".join(
                step.rstrip(";")
                for step in (
                    set_statement(context, "enforce_gtid_consistency", "ON"),
                    *(set_statement(context, "gtid_mode", f"'{step}'") for step in left[:-1]),
                    f"cdc-pipeline run {context.config.name}",
                    set_statement(context, "gtid_mode", f"'{left[-1]}'"),
                )
            )
            + ";",
        )


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
            next_step="sink: {zero_dates: null} stores no text of them",
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
    own = f"SET PERSIST {variable} = {value};"
    if context.server.flavor == "mariadb" or context.variables.get("version", "8").startswith("5."):
        own = (
            f"SET GLOBAL {variable} = {value}; and {variable} = {value} in the server's "
            "configuration file"
        )
    return context.server.setting_step(variable, value.strip("'"), own)


OPENING: Final = Check("server", "reachable", _reachable, opens=True)
CHECKS: Final = (
    Check("server", "managed service", _managed_service, "no managed service is recognized"),
    Check("server", "tls", _tls),
    Check("server", "clock", _clock),
    Check("server", "server id", _server_id),
    Check("server", "replica id", _replica_id),
    Check(
        "server",
        "whole log",
        lambda context: shown(log_findings(context.server, context.live.captured_tables)),
        "the log is whole: no setting or filter leaves changes out of it",
    ),
    Check(
        "server",
        "row metadata",
        lambda context: shown(metadata_findings(context.server)),
        "binlog_row_metadata is FULL",
    ),
    Check("server", "advised settings", lambda context: _advised(context, _ADVICE)),
    Check("server", "GTIDs", _gtids),
    Check("server", "patience", lambda context: _advised(context, _PATIENCE)),
    Check("server", "zone and modes", _zone_and_modes),
    Check("server", "names", _names),
    Check("server", "replication", _replication),
    Check("server", "standby", _standby),
)
