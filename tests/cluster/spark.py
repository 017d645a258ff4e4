"""A Spark standalone cluster of this machine: a master and two workers, each a JVM of its own.

The programs are those of the pyspark package. A worker's executors are its children, and end with
it, as they do with a machine.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark

from cdc_pipeline.sink.spark.java import find_java_home
from tests.cluster.daemon import START_DEADLINE_S, Daemon, accepts, free_port
from tests.support.captures import SPARK
from tests.support.object_store import ROOT

WORKERS = 2
_MEMORY = "1g"


@dataclass(frozen=True)
class Cluster:
    """A running cluster. `url`: its master's, as `sink.spark.master` takes it; `workers`: may be
    killed.
    """

    url: str
    workers: tuple[Daemon, ...]
    _pages_port: int

    def spark(self) -> dict[str, Any]:
        settings = {
            "spark.executor.cores": "1",
            "spark.executor.memory": "640m",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": "2",
        }
        own: dict[str, str] = SPARK["settings"]
        return {"master": self.url, "driver_memory": "1g", "settings": {**own, **settings}}

    def start_again(self, worker: Daemon) -> None:
        """Start a worker that was killed, and wait until the master counts on all of them."""
        worker.start()
        deadline = time.monotonic() + START_DEADLINE_S
        while _alive(self._pages_port) < WORKERS:
            assert time.monotonic() < deadline, worker.log_end()
            threading.Event().wait(0.2)


@contextmanager
def running_cluster(folder: Path) -> Iterator[Cluster]:
    port, pages_port = free_port(), free_port()
    home = Path(pyspark.__file__).parent
    environment = {
        "JAVA_HOME": str(find_java_home()),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        # What a machine of a cluster has installed: the package, and the Python that runs it.
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    environment |= {name: os.environ[name] for name in ("NUMBA_CACHE_DIR",) if name in os.environ}
    program = [str(home / "bin" / "spark-class")]
    master_url = f"spark://127.0.0.1:{port}"
    folder.mkdir(parents=True, exist_ok=True)

    def daemon(name: str, main_class: str, options: list[str], is_ready: Any) -> Daemon:
        return Daemon(
            f"Spark's {name}",
            [*program, f"org.apache.spark.deploy.{main_class}", "--host", "127.0.0.1", *options],
            log=folder / f"{name}.log",
            is_ready=is_ready,
            environment=environment,
            folder=folder,
        )

    with ExitStack() as stack:
        options = ["--port", str(port), "--webui-port", str(pages_port)]
        stack.enter_context(
            daemon(
                "master",
                "master.Master",
                options,
                lambda: accepts(port) and _answers(pages_port),
            )
        )
        workers = []
        for number in range(1, WORKERS + 1):
            options = ["--cores", "1", "--memory", _MEMORY, "--webui-port", "0"]
            options += ["--work-dir", str(folder / f"work-{number}"), master_url]
            started = daemon(
                f"worker-{number}",
                "worker.Worker",
                options,
                lambda wanted=number: _alive(pages_port) >= wanted,
            )
            workers.append(stack.enter_context(started))
        yield Cluster(master_url, tuple(workers), pages_port)


def _answers(pages_port: int) -> bool:
    """Whether the master's page is there; its port is open before."""
    try:
        _state(pages_port)
    except OSError:
        return False
    return True


def _alive(pages_port: int) -> int:
    return int(_state(pages_port)["aliveworkers"])


def _state(pages_port: int) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://127.0.0.1:{pages_port}/json/", timeout=60) as answer:
        found: dict[str, Any] = json.load(answer)
    return found
