"""Whether the Spark master can be reached, before a JVM tries it for a minute and stops without
saying why."""

from __future__ import annotations

import os
import socket
from typing import Final

from cdc_pipeline.errors import RuntimeSetupError

_STANDALONE: Final = "spark://"
_HADOOP_VARIABLES: Final = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
_CONNECT_S: Final = 10.0


def check_master(master: str) -> None:
    """Connect to a master of a standalone cluster; look for YARN's settings; pass other kinds.
    Raises RuntimeSetupError: no master answers, or YARN's settings are not named.
    """
    if master == "yarn" and not any(os.environ.get(name) for name in _HADOOP_VARIABLES):
        raise RuntimeSetupError(
            "YARN cannot be found",
            setting="sink.spark.master",
            expected=f"{' or '.join(_HADOOP_VARIABLES)}, the folder of the cluster's settings",
            got="neither is set",
            next_step='export HADOOP_CONF_DIR="/etc/hadoop/conf", or where the cluster\'s settings '
            "are",
        )
    if not master.startswith(_STANDALONE):
        return
    refusals = []
    for address in master.removeprefix(_STANDALONE).split(","):
        host, _, port = address.rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S):
                return
        except (OSError, OverflowError) as error:
            refusals.append(f"{address}: {getattr(error, 'strerror', None) or error}")
    raise RuntimeSetupError(
        "no Spark master answers",
        setting="sink.spark.master",
        expected="a Spark master that this machine can connect to",
        got=", ".join(refusals),
        next_step="correct sink.spark.master, or start the master; local[*] merges on this machine",
    )
