"""Ensure one reader per replica server id: detect a clash before and during a dump.

Rules:
- Before a dump: the id is neither the server's own nor that of a replica which the server lists
  under another name. A listed one with our own name is left from an earlier run.
- During a dump: servers end the dump that came first. That is not a broken connection: a restart
  would throw out the other reader in turn, so the error is not retryable.
- The error has both names, if the server shows the other one: MariaDB does so only to accounts with
  REPLICATION MASTER ADMIN, MySQL to those that may read the log. MySQL distinguishes readers by
  uuid, MariaDB by server id.

Source: both servers' answers; MySQL manual "SHOW REPLICAS"; MariaDB "SHOW REPLICA HOSTS".
"""

from __future__ import annotations

from cdc_pipeline.errors import CdcError, HasPlace, MissingGrantError, ReplicaIdError
from cdc_pipeline.source.live.connection import ServerConnection
from cdc_pipeline.source.live.handover import ReplicaName

_SETTING = "source.replica_server_id"


def check_replica_id(server: ServerConnection, own: ReplicaName) -> None:
    """Raises ReplicaIdError, with both names: another replica, or the server, uses our id."""
    what = "this pipeline's replica server id is already in use"
    if server.identity.server_id == own.server_id:
        raise ReplicaIdError(
            what,
            setting=_SETTING,
            expected="an id that is not the server's own",
            got=f"{own.server_id} (pipeline {server.pipeline_name}), which is @@server_id of "
            f"{server.address}",
        )
    try:
        hosts = _hosts(server, own.server_id) or []
    except MissingGrantError:
        return  # reported by `check` with its GRANT
    for host in hosts:
        if host != own.host:
            raise ReplicaIdError(
                what,
                setting=_SETTING,
                expected=f"{own.server_id} for {own.host}",
                got=f"{own.server_id} is in use by {host or 'a replica without a name'}",
            )


def thrown_out(
    server: ServerConnection, own: ReplicaName, *, got: str, at: HasPlace
) -> ReplicaIdError:
    """For a dump ended because another reader has its server id; `got` is what the server said."""
    return ReplicaIdError(
        f"{server.address} ended this capture's dump: another reader has connected with the same "
        "replica server id",
        at=at,
        setting=_SETTING,
        expected=f"only {own.host} with {own.server_id}",
        got=f"{own.server_id} is now in use by {_others(server, own)} ({got})",
    )


def _others(server: ServerConnection, own: ReplicaName) -> str:
    try:
        hosts = _hosts(server, own.server_id)
    except CdcError:
        hosts = None
    if hosts is None:
        return (
            "a reader whose name the server does not show to this account "
            "(REPLICATION MASTER ADMIN)"
        )
    others = sorted({host or "a replica without a name" for host in hosts if host != own.host})
    if others:
        return ", ".join(others)
    if hosts:
        return f"another capture of the same name, {own.host}"
    return "a reader that has disconnected again"


def _hosts(server: ServerConnection, server_id: int) -> list[str] | None:
    """None if the account may not see them."""
    replicas = server.replicas()
    if replicas is None:
        return None
    return [str(row.get("host", "")) for row in replicas if row.number("server_id") == server_id]
