"""A Spark standalone cluster on this machine: a master and workers, each a process of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cdc_pipeline.sink.spark.java import find_java_home

_HOST = "127.0.0.1"
_START_TIMEOUT_S = 120


@contextmanager
def spark_cluster(folder: Path, *, workers: int = 2) -> Iterator[str]:
    """Run a cluster of workers with one core each; yield the master's address."""
    import pyspark

    folder.mkdir(parents=True, exist_ok=True)
    home = Path(pyspark.__file__).parent
    java_home = find_java_home()
    java = str(java_home / "bin" / "java")
    # Executors run this package under this interpreter.
    code = os.pathsep.join(path for path in sys.path if path)
    environment = {
        **os.environ,
        "JAVA_HOME": str(java_home),
        "SPARK_HOME": str(home),
        "SPARK_SCALA_VERSION": "2.13",
        "PYTHONPATH": code,
    }
    port = _free_port()
    address = f"spark://{_HOST}:{port}"

    def start(name: str, *arguments: str) -> subprocess.Popen[bytes]:
        log = (folder / f"{name}.log").open("wb")
        with log:
            return subprocess.Popen(
                [java, "-cp", str(home / "jars" / "*"), "-Xmx512m", *arguments],
                stdout=log,
                stderr=log,
                env=environment,
                cwd=folder,
            )

    deploy = "org.apache.spark.deploy"
    master = ("--host", _HOST, "--port", str(port), "--webui-port", "0")
    worker = ("--host", _HOST, "--cores", "1", "--memory", "2g", "--webui-port", "0")
    running = [start("master", f"{deploy}.master.Master", *master)]
    try:
        _wait_for(port)
        for number in range(workers):
            place = ("--work-dir", str(folder / f"work-{number}"))
            running.append(
                start(f"worker-{number}", f"{deploy}.worker.Worker", *worker, *place, address)
            )
        yield address
    finally:
        for process in reversed(running):
            process.terminate()
        for process in running:
            process.wait(30)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])


def _wait_for(port: int) -> None:
    deadline_s = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline_s:
        with socket.socket() as probe:
            if probe.connect_ex((_HOST, port)) == 0:
                return
        time.sleep(0.2)
    raise SystemExit("the Spark master does not start")
