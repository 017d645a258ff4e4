"""Choose the server that a run reads: the primary, or its standby while the primary does not
answer (SPEC P4, P6).

Rules:
- Only an unreachable server is skipped. One that refuses the account or has wrong settings is an
  error: its standby would refuse too, or would hide the mistake.
- The choice is made once, before anything is read; a connection that breaks later is left to the
  next run.
"""

from __future__ import annotations

from contextlib import closing

from cdc_pipeline.config.pipeline_config import LiveSourceConfig
from cdc_pipeline.errors import ServerUnreachableError
from cdc_pipeline.source.live.connection import ServerConnection
from cdc_pipeline.source.live.login import COMMAND_SETTING


def choose_server(config: LiveSourceConfig) -> tuple[LiveSourceConfig, str]:
    """The primary, or the standby if one is configured and the primary cannot be reached, and why;
    "" if there is no choice. Account and TLS are the same. Raises ServerUnreachableError: neither
    answers; SourceError: the one that answers refuses the connection.
    """
    standby = config.standby
    if standby is None:
        return config, ""
    try:
        _connect(config)
        return config, f"the primary {config.address} answers"
    except ServerUnreachableError as error:
        if error.setting == COMMAND_SETTING:
            raise  # which says nothing of the server
        failure = error
    other = config.model_copy(update={"host": standby.host, "port": standby.port})
    try:
        _connect(other)
    except ServerUnreachableError as error:
        raise ServerUnreachableError(
            f"neither {config.address} nor its standby {standby.address} can be reached",
            setting="source.host, source.standby",
            got=f"{failure.got}; {error.got}",
            next_step=failure.next_step,
        ) from error
    return other, (
        f"the primary {config.address} cannot be reached ({failure.got}): the standby "
        f"{standby.address}"
    )


def _connect(config: LiveSourceConfig) -> None:
    with closing(ServerConnection(config)) as connection:
        connection.value("SELECT 1")
