"""A program that runs beside the tests, with all that it starts, until its context ends.

Rules:
- It and its children are one process group: they are stopped, continued and killed together.
- It never outlives the test process: the kernel kills it when the thread that started it ends, and
  that thread lives as long as the process.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from cdc_pipeline.errors import RuntimeSetupError

START_DEADLINE_S = 120
_POLL_S = 0.1
_SPAWNER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="daemon-spawner")


class Daemon:
    """A program, started on entry of the context and killed at its exit. `name`: for people;
    `command`: the program and its arguments; `log`: file that takes what it prints; `is_ready`:
    returns whether it answers; called until it does. `environment`: variables beside those of
    this process; `user`: id of the user and group to run as; by default this process's.
    `stop_signal`: ends it in order; what is left of its group is killed.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        log: Path,
        is_ready: Callable[[], bool],
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        user: int | None = None,
        stop_signal: signal.Signals = signal.SIGKILL,
    ) -> None:
        self.name = name
        self.log = log
        self._command = list(command)
        self._is_ready = is_ready
        self._environment = {**os.environ, **(environment or {})}
        self._folder = folder
        self._user = user
        self._stop_signal = stop_signal
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Daemon:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def group(self) -> int:
        assert self._process is not None, f"{self.name} is not started"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def is_away(self) -> bool:
        """Whether the program has ended, or a signal has stopped it."""
        if not self.running:
            return True
        stat = Path(f"/proc/{self.group}/stat").read_text(encoding="utf-8")
        return stat.rpartition(")")[2].split()[0] == "T"

    def come_back(self) -> None:
        if self.running:
            os.killpg(self.group, signal.SIGCONT)
        else:
            self.kill()
            self.start()

    def start(self) -> None:
        """Start it, and wait until it is ready. Raises RuntimeSetupError: it ended, or was not
        ready before the deadline; the end of its log is told.
        """
        self._process = _SPAWNER.submit(self._spawn).result()
        deadline = time.monotonic() + START_DEADLINE_S
        pause = threading.Event()
        while not self._is_ready():
            if not self.running or time.monotonic() > deadline:
                code = self._process.poll()
                self.kill()
                raise RuntimeSetupError(
                    f"{self.name} "
                    + ("did not answer" if code is None else f"ended with exit code {code}"),
                    expected=f"an answer within {START_DEADLINE_S} s",
                    got=self.log_end(),
                    next_step="read its own words above",
                )
            pause.wait(_POLL_S)

    def stop(self) -> None:
        if self._process is not None and self._stop_signal != signal.SIGKILL and self.running:
            self._process.send_signal(self._stop_signal)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(START_DEADLINE_S)
        self.kill()

    def kill(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def log_end(self, characters: int = 4000) -> str:
        if not self.log.exists():
            return ""
        return self.log.read_text(encoding="utf-8", errors="replace")[-characters:]

    def _spawn(self) -> subprocess.Popen[bytes]:
        setpriv = shutil.which("setpriv")
        prefix = [setpriv, "--pdeathsig", "KILL"] if setpriv else []
        if self._user is not None:
            assert prefix, "setpriv of util-linux"
            prefix += [f"--reuid={self._user}", f"--regid={self._user}", "--clear-groups"]
        with self.log.open("ab") as output:
            return subprocess.Popen(
                [*prefix, *(["--"] if prefix else []), *self._command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self._folder,
                env=self._environment,
                start_new_session=True,
            )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
