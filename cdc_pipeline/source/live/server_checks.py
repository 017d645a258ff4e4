"""Check whether a server's log is whole and the account's grants allow a capture. Nothing of the
log is read before this passes.

Rules:
- What decides whether the log is whole is in one list, `log_findings`: each run refuses its errors
  and notes its warnings, and `cdc-pipeline doctor` shows the same (K31), as it does of the other
  findings here. What leaves changes out of the log that are in the server's tables is an error.
- All findings are reported in one error: its class is that of the first, its text names each with
  the statement that fixes it.
- Settings are read, grants are tried: an account may hold a privilege by a role, a wildcard or
  SUPER.
- What capture can work with is not refused: partial row images, JSON differences (but not of
  documents that MINIMAL images leave out), compression, checksums off, GTIDs off. Row metadata
  below FULL is a warning: recommended, since the columns then come from the catalog and the
  statements of the log.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from cdc_pipeline.errors import CdcError, MissingGrantError, ServerSettingError, StatementError
from cdc_pipeline.source.live import server_errors
from cdc_pipeline.source.live.answers import AnswerRow
from cdc_pipeline.source.live.connection import ServerConnection
from cdc_pipeline.source.live.handover import ReplicaName
from cdc_pipeline.source.live.login import is_this_machine
from cdc_pipeline.text.table_names import split_table_name
from cdc_pipeline.text.wording import listed

Tables = Callable[[], Sequence[str]]
_REPLICATION_FILTERS: Final = (
    "replicate_do_db", "replicate_ignore_db", "replicate_do_table", "replicate_ignore_table",
    "replicate_wild_do_table", "replicate_wild_ignore_table", "replicate_rewrite_db",
)  # fmt: skip
_EMPTY: Final = "an empty value"
_AFTER: Final = (
    "; then let open sessions reconnect, and start after the events that they have written"
)


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault of a server or an account; a warning keeps no run from starting."""

    error: CdcError
    severity: Literal["error", "warning"] = "error"

    @property
    def note(self) -> str:
        """In one sentence."""
        found = self.error
        setting = f"{found.setting} is {found.got}: " if found.setting else ""
        return f"{setting}{found.what}; {found.next_step}"


def _of_setting(
    setting: str,
    what: str,
    expected: str,
    got: str,
    next_step: str,
    severity: Literal["error", "warning"] = "error",
) -> Finding:
    error = ServerSettingError(
        what, setting=setting, expected=expected, got=got, next_step=next_step
    )
    return Finding(error, severity)


@dataclass(frozen=True, slots=True)
class _Rule:
    """A variable, its acceptable values, and the fix. Absent variables are acceptable, and so is
    every value if the other variable `only_with` has not the value.
    """

    variable: str
    good: tuple[str, ...]
    what: str
    statement: str
    only_with: tuple[str, str] = ("", "")
    severity: Literal["error", "warning"] = "error"


_RULES: Final = (
    _Rule("log_bin", ("ON", "1"), "the server writes no binary log",
          "set log_bin = binlog in the server's configuration and restart it"),
    _Rule("binlog_storage_engine", ("",),
          "the server keeps its log inside InnoDB, in a form that is not read (MariaDB 12.3)",
          "remove binlog_storage_engine from the server's configuration, restart it, and take new "
          "snapshots: it writes another log from then on"),
    _Rule("binlog_format", ("ROW",), "the server logs statements instead of row changes",
          "SET GLOBAL binlog_format = 'ROW'" + _AFTER),
    _Rule("sql_log_bin", ("ON", "1"), "sessions do not log what they change",
          "SET GLOBAL sql_log_bin = ON" + _AFTER),
    _Rule("binlog_row_value_options", ("",),
          "the server logs JSON changes as differences from documents that its MINIMAL row "
          "images omit",
          "SET GLOBAL binlog_row_value_options = ''" + _AFTER, ("binlog_row_image", "MINIMAL")),
)  # fmt: skip
_METADATA: Final = _Rule(
    "binlog_row_metadata",
    ("FULL",),
    "the log's rows do not describe their columns, which come from the catalog and the log's own "
    "DDL: rows from before a DDL may stop their table",
    "SET GLOBAL binlog_row_metadata = 'FULL'; and binlog_row_metadata = FULL in the server's "
    "configuration",
    severity="warning",
)


def check_server(server: ServerConnection, tables: Tables, *, replica: ReplicaName) -> None:
    """Check the log and the grants; `replica` is how the dump will register, clashes are checked
    elsewhere. Raises ServerSettingError, MissingGrantError: all findings in one text;
    ServerUnreachableError, SourceError: no connection.
    """
    of_log = [one.error for one in log_findings(server, tables) if one.severity == "error"]
    errors = [*of_log, *(one.error for one in grant_findings(server, replica))]
    if len(errors) == 1:
        errors[0].what = f"{server.address}: {errors[0].what}"
        raise errors[0]
    missing = [str(one.setting) for one in errors if isinstance(one, MissingGrantError)]
    grants = server.grant_error(", ".join(missing), "access denied")
    if errors and len(missing) == len(errors):
        raise grants
    steps = [one.next_step or "" for one in errors if not isinstance(one, MissingGrantError)]
    listing = "\n".join(
        f"  - {one.what} ({one.setting}: expected {one.expected}, got {one.got})" for one in errors
    )
    if errors:
        raise type(errors[0])(
            f"{server.address} cannot be captured yet, for {len(errors)} reasons:\n{listing}",
            setting=", ".join(str(one.setting) for one in errors),
            next_step="\n".join([*steps, *([str(grants.next_step)] if missing else [])]),
        )


def log_findings(server: ServerConnection, tables: Tables) -> list[Finding]:
    """All that keeps the log from being whole, or would if this server took over; `tables`
    returns the captured ones as ``schema.table``. Raises ServerUnreachableError, SourceError: no
    connection.
    """
    findings = _variable_findings(server, _RULES)
    without_log = [finding for finding in findings if finding.error.setting == "log_bin"]
    if without_log:
        return without_log  # The rest says nothing.
    return [*findings, *_log_filter_findings(server), *_replica_findings(server, tables)]


def _variable_findings(server: ServerConnection, rules: Sequence[_Rule]) -> list[Finding]:
    values = server.variables(
        [name for rule in rules for name in (rule.variable, rule.only_with[0]) if name]
    )
    findings = []
    for rule in rules:
        value = values.get(rule.variable)
        other, needed = rule.only_with
        if other and str(values.get(other)).upper() != needed:
            continue
        if value is not None and value.upper() not in rule.good:
            expected, got = rule.good[0] or _EMPTY, value or _EMPTY
            own, after, _ = rule.statement.partition(_AFTER)
            step = own  # sql_log_bin is of sessions, which no service sets
            if rule.variable != "sql_log_bin":
                step = server.setting_step(rule.variable, rule.good[0] or "''", own)
            findings.append(
                _of_setting(rule.variable, rule.what, expected, got, step + after, rule.severity)
            )
    return findings


def _log_filter_findings(server: ServerConnection) -> list[Finding]:
    """Options that leave databases out of the log.

    A statement is left out by its session's database, so that each of them loses a TRUNCATE or a
    DDL of any other database as well.
    """
    try:
        row = server.log_status()
    except MissingGrantError:
        return []  # a finding of its own
    return [
        _of_setting(
            option,
            "the server logs only some of its changes: what it leaves out never reaches the lake",
            _EMPTY,
            str(row[option]),
            f"remove {option} from the server's configuration and restart it; choose tables with "
            "tables.include, and take a snapshot of those that it left out",
        )
        for option in ("binlog_do_db", "binlog_ignore_db")
        if row.get(option)
    ]


def _replica_findings(server: ServerConnection, tables: Tables) -> list[Finding]:
    """What a server that replicates from another one leaves out of its own log."""
    rows = server.replication()
    if not is_replica(server, rows):
        return []
    followed = (
        "the server replicates from another one, or did so,"
        if rows is None
        else "the server replicates from another one"
    )
    values = server.variables(
        ["log_replica_updates", "log_slave_updates", "slave_run_triggers_for_rbr"]
    )
    findings = []
    logs = next(
        (name for name in ("log_replica_updates", "log_slave_updates") if name in values), ""
    )
    if values.get(logs, "ON").upper() != "ON":
        unseen = (
            "" if rows is not None
            else "; if it is no replica any more: GRANT REPLICA MONITOR ON *.* TO "
            f"{server.account}; so that this can be seen"
        )  # fmt: skip
        findings.append(
            _of_setting(
                logs,
                f"{followed} and does not log what it replicates: nothing of that reaches the lake",
                "ON",
                values[logs],
                server.setting_step(
                    logs, "ON", f"set {logs} = ON in the server's configuration and restart it"
                )
                + f", then take a snapshot; or point source.host to its source{unseen}",
            )
        )
    if values.get("slave_run_triggers_for_rbr", "NO").upper() == "YES":
        findings.append(
            _of_setting(
                "slave_run_triggers_for_rbr",
                f"{followed} and does not log what its triggers do to what it replicates",
                "NO or LOGGING",
                "YES",
                "SET GLOBAL slave_run_triggers_for_rbr = 'LOGGING', and in the server's "
                "configuration; then take a snapshot of the tables that triggers change",
            )
        )
    return [*findings, *_replication_filter_findings(server, rows or [], tables)]


def is_replica(server: ServerConnection, rows: Sequence[AnswerRow] | None) -> bool:
    """By `ServerConnection.replication`; if that is hidden, whether it is or was a replica."""
    if rows is not None:
        return bool(rows)
    if server.variables(["gtid_slave_pos"]).get("gtid_slave_pos"):
        return True
    running = server.pairs("SHOW GLOBAL STATUS LIKE 'Slaves\\_running'").get("slaves_running", "0")
    return running != "0"


def _replication_filter_findings(
    server: ServerConnection, rows: Sequence[AnswerRow], tables: Tables
) -> list[Finding]:
    """Filters with which a replica leaves captured tables out.

    Its own log is as whole as its own tables, so this is an error only where a run may have read
    the primary before.
    """
    findings = []
    for row in rows:
        for option in _REPLICATION_FILTERS:
            value = str(row.get(option) or "")
            compared = server.identity.names.fold(value)
            touched = value and [name for name in tables() if _leaves_out(option, compared, name)]
            if touched:
                findings.append(
                    _of_setting(
                        option,
                        f"the server replicates only some changes of {listed(touched, most=5)}",
                        "no filter of captured tables",
                        value,
                        f"remove {option} from the replica, or exclude these tables with "
                        "tables.exclude",
                        "error" if server.config.standby is not None else "warning",
                    )
                )
    return findings


def _leaves_out(option: str, value: str, name: str) -> bool:
    """Whether a filter of a replica may leave changes of the table `name` out."""
    database, table = split_table_name(name)
    items = [item.strip() for item in value.split(",")]
    if option == "replicate_rewrite_db":
        return database in re.findall(r"[^\s(),>-]+", value)
    if option.endswith("_db"):
        hit = database in items
    elif "_wild_" in option:
        # Patterns are of both names as the server joins them: no dot of a name is quoted.
        joined = ".".join((database, table))
        hit = any(_like(item).fullmatch(joined) for item in items)
    else:
        hit = (database, table) in map(split_table_name, items)
    return hit == ("_ignore_" in option)


def _like(pattern: str) -> re.Pattern[str]:
    parts = re.findall(r"\\.|.", pattern)
    return re.compile(
        "".join({"%": ".*", "_": "."}.get(part, re.escape(part[-1])) for part in parts)
    )


def metadata_findings(server: ServerConnection) -> list[Finding]:
    """Row metadata below the recommended level; none if the server knows no levels."""
    return _variable_findings(server, [_METADATA])


def encryption_findings(server: ServerConnection) -> list[Finding]:
    """Rows that are sent in plain text to another machine."""
    mode = server.config.tls.mode
    if server.encrypted or is_this_machine(server.config.host):
        return []
    return [
        _of_setting(
            "source.tls.mode",
            "the connection is not encrypted: rows are sent in plain text"
            + ("" if mode == "off" else ", since the server offers no TLS"),
            "verify",
            mode,
            "source: {tls: {mode: verify, ca_file: ...}}"
            + ("" if mode == "off" else " and ssl_cert, ssl_key on the server"),
            "warning",
        )
    ]


def setting_notes(server: ServerConnection, tables: Tables) -> tuple[str, ...]:
    """What would make captures safer, but is not required."""
    plain = encryption_findings(server) if server.config.tls.mode == "preferred" else []
    findings = [*log_findings(server, tables), *plain, *metadata_findings(server)]
    return tuple(finding.note for finding in findings if finding.severity == "warning")


def grant_findings(server: ServerConnection, replica: ReplicaName) -> list[Finding]:
    """The privileges that the account lacks, each with its GRANT."""
    missing: list[tuple[str, str]] = []
    if not server.may_register_replica(replica.server_id, replica.host):
        missing.append(("REPLICATION SLAVE", "reading the log"))
    try:
        server.query("SHOW BINARY LOGS")
    except StatementError as error:
        if error.number == server_errors.ACCESS_DENIED_PRIVILEGE:
            missing.append((server.status_privilege, "the list of journals and the end of the log"))
        elif error.number != 1381:  # no log at all: a separate finding
            raise server.unexpected(error) from None
    findings = []
    for privilege, purpose in missing:
        lacking = server.grant_error(privilege, "access denied")
        lacking.what, lacking.expected = f"{lacking.what} ({purpose})", "granted"
        findings.append(Finding(lacking))
    return findings
