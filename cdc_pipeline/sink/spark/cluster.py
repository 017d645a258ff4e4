"""What a cluster gives: a master that answers, and executors.

Rules:
- A session starts without executors, and its jobs then wait without an end. So one small job goes
  first; what no cluster of that size can give is an error, and what may only take its time is told.
- Only settings and DataFrames are used: a session may be of Spark Connect.
"""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import threading
import urllib.request
from contextlib import suppress
from typing import Any, Final
from uuid import uuid4

from cdc_pipeline.errors import RuntimeSetupError
from cdc_pipeline.text.wording import count_of, size

_log = logging.getLogger(__name__)

_EXECUTORS_S: Final = 40.0
_PAGE_PORT: Final = "SPARK_MASTER_WEBUI_PORT"  # as Spark's own scripts name it
_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_STANDALONE: Final = "spark://"
_HADOOP_VARIABLES: Final = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
_CONNECT_S: Final = 10.0


def check_master(master: str) -> None:
    """RuntimeSetupError: no master answers, or YARN's settings are not named."""
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


def check_executors(session: Any, *, is_patient: bool = True) -> None:
    """RuntimeSetupError: none came, and no worker is large enough, or not `is_patient`."""
    master = session.conf.get("spark.master", "local")
    if master.startswith("local"):
        return
    tag, has_run = f"cdc-pipeline-{uuid4().hex}", threading.Event()

    def ask() -> None:
        with suppress(Exception):  # what is wrong apart from that, the first statement says
            session.addTag(tag)
            session.range(1).collect()
        has_run.set()

    threading.Thread(target=ask, name="executors", daemon=True).start()
    if has_run.wait(_EXECUTORS_S):
        return
    memory = session.conf.get("spark.executor.memory", "1g")
    cores = int(session.conf.get("spark.executor.cores", "1"))
    workers = _workers(master)
    refusal = RuntimeSetupError(
        f"Spark has no executors after {_EXECUTORS_S:.0f} s",
        setting="sink.spark",
        expected=f"executors with {memory} of memory and {count_of(cores, 'core')} each, from "
        f"{master}",
        got=_offer(workers),
        next_step="start workers, or set spark.executor.memory and spark.executor.cores to what "
        "one can give; or wait for other applications to end",
    )
    is_hopeless = workers is not None and not any(
        worker["memory"] << 20 >= memory_bytes(memory) and worker["cores"] >= cores
        for worker in workers
    )
    if is_patient and not is_hopeless:
        _log.warning("waiting for executors: %s", refusal)
        return
    session.interruptTag(tag)
    raise refusal


def _workers(master: str) -> list[dict[str, Any]] | None:
    """Those that a standalone master counts on, as its page lists them; None if none answers."""
    if master.startswith(_STANDALONE):
        port = os.environ.get(_PAGE_PORT, "8080")
        for address in master.removeprefix(_STANDALONE).split(","):
            url = f"http://{address.rpartition(':')[0]}:{port}/json/"
            with (
                suppress(Exception),  # another program may answer there
                urllib.request.urlopen(url, timeout=_CONNECT_S) as page,
            ):
                state = json.load(page)
                if state["status"] == "ALIVE":  # of several masters one is
                    return [worker for worker in state["workers"] if worker["state"] == "ALIVE"]
    return None


def _offer(workers: list[dict[str, Any]] | None) -> str:
    if workers is None:
        return "unknown: the cluster manager's own page shows what it has"
    if not workers:
        return "the master has no workers"
    of_each = sorted(
        {f"{size(w['memory'] << 20)} and {count_of(w['cores'], 'core')}" for w in workers}
    )
    free = count_of(sum(worker["coresfree"] for worker in workers), "core")
    return f"{count_of(len(workers), 'worker')} with {', '.join(of_each[:5])}; {free} free"


def memory_bytes(text: str) -> int:
    """Of a JVM memory setting such as ``2g``; 0 if it is none."""
    match = re.fullmatch(r"(\d+)\s*([kmgt]?)b?", text.strip().lower())
    return int(match[1]) * _UNITS[match[2]] if match else 0
