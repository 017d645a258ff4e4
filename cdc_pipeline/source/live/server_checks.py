"""Check whether a server's settings and the account's grants allow a capture. Nothing of the log is
read before this passes.

Rules:
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

from dataclasses import dataclass
from typing import Final

from cdc_pipeline.errors import CdcError, MissingGrantError, ServerSettingError, StatementError
from cdc_pipeline.source.live import server_errors
from cdc_pipeline.source.live.connection import ServerConnection
from cdc_pipeline.source.live.handover import ReplicaName
from cdc_pipeline.source.live.login import is_this_machine

_AFTER: Final = (
    "; then let open sessions reconnect, and start after the events that they have written"
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault of a server or an account."""

    error: type[CdcError]
    setting: str
    what: str
    expected: str
    got: str
    next_step: str


@dataclass(frozen=True, slots=True)
class _Rule:
    """A variable, its acceptable values, and the fix. Absent variables are acceptable.

    `only_with` is another variable with a value; without that, every value of this one is
    acceptable.
    """

    variable: str
    good: tuple[str, ...]
    what: str
    statement: str
    only_with: tuple[str, str] = ("", "")


_RULES: Final = (
    _Rule("log_bin", ("ON", "1"), "the server writes no binary log",
          "set log_bin = binlog in the server's configuration and restart it"),
    _Rule("binlog_format", ("ROW",), "the server logs statements instead of row changes",
          "SET GLOBAL binlog_format = 'ROW'" + _AFTER),
    _Rule("binlog_row_value_options", ("",),
          "the server logs JSON changes as differences from documents that its MINIMAL row "
          "images omit",
          "SET GLOBAL binlog_row_value_options = ''" + _AFTER, ("binlog_row_image", "MINIMAL")),
)  # fmt: skip


def check_server(server: ServerConnection, *, replica: ReplicaName) -> None:
    """Check settings and grants.

    Args:
        server: control connection.
        replica: how the dump will register; clashes are checked elsewhere.

    Raises:
        ServerSettingError, MissingGrantError: all findings in one text.
        ServerUnreachableError, SourceError: no connection.
    """
    findings = [*setting_findings(server), *grant_findings(server, replica)]
    if not findings:
        return
    first = findings[0]
    settings = [finding.setting for finding in findings]
    if len(findings) == 1:
        raise first.error(
            f"{server.address}: {first.what}",
            setting=first.setting,
            expected=first.expected,
            got=first.got,
            next_step=first.next_step,
        )
    missing = [finding.setting for finding in findings if finding.error is MissingGrantError]
    grants = server.grant_error(", ".join(missing), "access denied")
    if len(missing) == len(findings):
        raise grants
    steps = [finding.next_step for finding in findings if finding.error is not MissingGrantError]
    listing = "\n".join(
        f"  - {f.what} ({f.setting}: expected {f.expected}, got {f.got})" for f in findings
    )
    raise first.error(
        f"{server.address} cannot be captured yet, for {len(findings)} reasons:\n{listing}",
        setting=", ".join(settings),
        next_step="\n".join([*steps, *([str(grants.next_step)] if missing else [])]),
    )


def setting_findings(server: ServerConnection) -> list[Finding]:
    """Return the variables with values that capture cannot work with."""
    values = server.variables(
        [name for rule in _RULES for name in (rule.variable, rule.only_with[0]) if name]
    )
    found = []
    for rule in _RULES:
        value = values.get(rule.variable)
        other, needed = rule.only_with
        if other and str(values.get(other)).upper() != needed:
            continue
        if value is not None and value.upper() not in rule.good:
            expected = rule.good[0] or "an empty value"
            found.append(
                Finding(
                    ServerSettingError,
                    rule.variable,
                    rule.what,
                    expected,
                    value or "an empty value",
                    rule.statement,
                )
            )
    if any(finding.setting == "log_bin" for finding in found):
        # The other settings say nothing while there is no log.
        return [finding for finding in found if finding.setting == "log_bin"]
    return found


def metadata_finding(server: ServerConnection) -> Finding | None:
    """Return the finding for row metadata below the recommended level; None if it is FULL, or the
    server knows no levels."""
    value = server.variables(["binlog_row_metadata"]).get("binlog_row_metadata", "FULL")
    if value.upper() == "FULL":
        return None
    return Finding(
        ServerSettingError,
        "binlog_row_metadata",
        "columns come from the catalog and the log's own DDL",
        "FULL",
        value,
        "SET GLOBAL binlog_row_metadata = 'FULL'",
    )


def setting_notes(server: ServerConnection) -> tuple[str, ...]:
    """Return what would make captures of a server safer, but is not required."""
    found = metadata_finding(server)
    plain: tuple[str, ...] = ()
    if (
        server.config.tls.mode == "preferred"
        and not server.encrypted
        and not is_this_machine(server.config.host)
    ):
        plain = (
            f"{server.address} offers no TLS, and source.tls.mode preferred continues without "
            "it: rows are sent in plain text; give the server a certificate and set "
            "source.tls.mode to verify",
        )
    if found is None:
        return plain
    return (
        *plain,
        f"{found.setting} is {found.got}: {found.what}; {found.next_step} is recommended, so "
        "that each table map describes its columns",
    )


def grant_findings(server: ServerConnection, replica: ReplicaName) -> list[Finding]:
    """Return the privileges that the account lacks, each with its GRANT."""
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
    return [
        Finding(
            error=MissingGrantError,
            setting=privilege,
            what=f"the account {server.account} lacks {privilege} ({purpose})",
            expected="granted",
            got="access denied",
            next_step=f"GRANT {privilege} ON *.* TO {server.account};",
        )
        for privilege, purpose in missing
    ]
