"""Check the server: whether it answers, what it is, what it replicates, and its standby."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Final

from cdc_pipeline.errors import CdcError, ServerUnreachableError
from cdc_pipeline.operations.doctor import settings
from cdc_pipeline.operations.doctor.context import Context, checks
from cdc_pipeline.operations.doctor.diagnosis import Verdict, error, note, ok, warning
from cdc_pipeline.operations.doctor.settings import set_statement
from cdc_pipeline.run.plan.starting import choose
from cdc_pipeline.source.live.answers import AnswerRow, unexpected
from cdc_pipeline.source.live.login import is_this_machine
from cdc_pipeline.text.server_messages import without_quoted
from cdc_pipeline.text.wording import duration

# Versions that the tests run on. Older ones are read by feature, which is not tested for all of
# them.
TESTED: Final = {"mysql": (8, 4), "mariadb": (10, 11)}
_NAMES: Final = {"mysql": "MySQL", "mariadb": "MariaDB"}
_CLOCK_WARNING_S: Final = 5.0
_LAG_WARNING_S: Final = 600.0
_MOMENT: Final = re.compile(r"[0-9]{1,12}(\.[0-9]{1,9})?")


def _reachable(context: Context) -> Iterator[Verdict]:
    primary = context.live_config
    began_s = time.monotonic()
    chosen = choose(context.config)
    context.open_server(chosen.config)
    try:
        server = context.server
        version, flavor = str(server.value("SELECT VERSION()")), server.flavor
    except CdcError:
        context.forget_source()
        raise
    took_ms = (time.monotonic() - began_s) * 1000
    if chosen.reason and (server.config.host, server.config.port) != (primary.host, primary.port):
        yield warning(
            f"the primary {primary.host}:{primary.port} cannot be reached; runs read its standby "
            f"{server.address}",
            got=chosen.reason,
            mend=f"bring {primary.host}:{primary.port} back, or make the standby the primary in "
            "the configuration",
        )
    yield ok(f"{_NAMES[flavor]} {version} at {server.address} answers ({took_ms:.0f} ms)")
    numbers = tuple(map(int, re.findall(r"[0-9]{1,9}", version)[:2]))
    if numbers < TESTED[flavor]:
        tested = ".".join(map(str, TESTED[flavor]))
        yield warning(
            f"this version of {_NAMES[flavor]} is older than any tested version",
            expected=f"{tested} or later",
            got=version,
            mend=f"upgrade the server to {_NAMES[flavor]} {tested} or later, and verify the "
            "tables until then",
        )


def _tls(context: Context) -> Iterator[Verdict]:
    server = context.server
    mode = server.config.tls.mode
    status = server.pairs("SHOW SESSION STATUS LIKE 'Ssl%'")
    cipher = status.get("ssl_cipher", "")
    far = not is_this_machine(server.config.host)
    if not cipher:
        verdict: Callable[..., Verdict] = warning if far else note
        why = (
            "source.tls.mode is off"
            if mode == "off"
            else "the server offers no TLS, and mode preferred continues without it"
        )
        yield verdict(
            "the connection is not encrypted: rows are sent in plain text"
            + ("" if far else ", but only within this machine"),
            expected="TLS",
            got=why,
            mend="source: {tls: {mode: verify, ca_file: ...}}"
            + ("" if mode == "off" else " and ssl_cert, ssl_key on the server"),
        )
    elif mode in ("preferred", "required"):
        verdict = warning if far else note
        yield verdict(
            "the connection is encrypted, but the server's certificate is not checked: "
            "another machine can pose as the server and get the password",
            expected="verify or verify_ca",
            got=f"{mode} ({status.get('ssl_version', '')}, {cipher})",
            mend="source: {tls: {mode: verify, ca_file: ...}} with the certificate "
            "of the server's CA",
        )
    else:
        yield ok(f"encrypted: {status.get('ssl_version', 'TLS')}, {cipher}, source.tls.mode {mode}")


def _clock(context: Context) -> Iterator[Verdict]:
    before_s = time.time()
    asked = "SELECT UNIX_TIMESTAMP(NOW(6))"
    text = context.server.text(asked)
    if not _MOMENT.fullmatch(text):
        raise unexpected(
            context.server.address, asked, expected="seconds since 1970", got=text or None
        )
    there_s = float(text)
    after_s = time.time()
    ahead_s = there_s - (before_s + after_s) / 2
    if abs(ahead_s) <= _CLOCK_WARNING_S:
        yield ok(f"the server's clock and this machine's differ by {abs(ahead_s):.2f} s")
    else:
        yield warning(
            "the clocks of the server and of this machine differ: lag, retention and searches "
            "by time are off by that much",
            expected=f"at most {_CLOCK_WARNING_S:g} s",
            got=f"the server's is {duration(abs(ahead_s))} {'ahead' if ahead_s > 0 else 'behind'}",
            mend="synchronize both clocks: chronyc makestep (or: timedatectl set-ntp true)",
        )


def _server_id(context: Context) -> Iterator[Verdict]:
    number = context.server.identity.server_id
    if number == 0:
        yield error(
            "server_id is 0, so the server cannot serve replicas",
            expected="a unique number",
            got="server_id = 0",
            mend=set_statement(context, "server_id", "1"),
        )
    elif number == 1 and context.live_config.standby is not None:
        yield warning(
            "server_id is the default, which the standby may have too",
            expected="a unique id for each server",
            got="server_id = 1",
            mend=set_statement(context, "server_id", "101"),
        )
    else:
        yield ok(f"server_id is {number}")


def _replica_id(context: Context) -> Iterator[Verdict]:
    from cdc_pipeline.source.live.replica_id import check_replica_id

    live = context.live
    check_replica_id(live.server, live.replica, pipeline_name=context.config.name)
    yield ok(f"replica server id {live.replica.server_id} is free, or used by our own reader")


def _replication(context: Context) -> Iterator[Verdict]:
    """What a replica logs is a matter of `whole_log`."""
    from cdc_pipeline.source.live.server_checks import is_replica

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
                mend=f"set {logs_name} = ON in the server's configuration and restart it",
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
            mend="START REPLICA (MariaDB: START SLAVE), after fixing the cause of its last error",
        )
    elif behind > _LAG_WARNING_S:
        yield warning(
            "the server is a replica far behind its source",
            expected=f"less than {duration(_LAG_WARNING_S)}",
            got=duration(float(behind)),
            mend="let it catch up, or read from its source",
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
    from cdc_pipeline.source.live.connection import ServerConnection
    from cdc_pipeline.source.live.server_checks import log_findings

    primary, examined = context.live_config, context.server.config
    if (
        (examined.host, examined.port)
        == (standby.host, standby.port)
        != (primary.host, primary.port)
    ):
        return  # it is the one being examined
    address = f"{standby.host}:{standby.port}"
    other = ServerConnection(
        context.live_config.model_copy(update={"host": standby.host, "port": standby.port})
    )
    try:
        if other.identity.same_server(context.server.identity):
            yield error(
                "the standby is the primary itself",
                expected="another server",
                got=f"both are {other.identity}",
                mend="give source.standby the host and port of a replica",
            )
        elif other.flavor != context.server.flavor:
            yield error(
                "the standby's server differs in kind from the primary's",
                expected=context.server.flavor, got=other.flavor,
                mend="give source.standby the host and port of a replica of the primary",
            )  # fmt: skip
        else:
            yield ok(f"the standby {address} answers")
        for one in log_findings(other, context.live.captured_tables):
            yield error(
                f"standby {address}: {one.what}",
                expected=f"{one.setting} = {one.expected}",
                got=one.got,
                mend=one.next_step,
            )
    except ServerUnreachableError as failure:
        yield warning(
            f"the standby {address} cannot be reached, so nothing takes over if the primary fails",
            got=str(failure.got),
            mend=failure.next_step or "",
        )
    except CdcError as failure:
        yield Verdict.from_error(failure)
    finally:
        other.close()


OPENING: Final = checks("server", opens=True, reachable=_reachable)
CHECKS: Final = (
    *checks("server", tls=_tls, clock=_clock, server_id=_server_id, replica_id=_replica_id),
    *settings.CHECKS,
    *checks("server", replication=_replication, standby=_standby),
)
