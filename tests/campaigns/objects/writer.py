"""A writer in a process of its own, which can be stopped for as long as wanted.

A process is forked from one that has imported what all need, and captures the source that a
`Story` has into its lake. It can stop itself, as by SIGSTOP from outside, at a fault point; or it
is stopped by whoever has its process id. What is stopped is its process group, so also its JVM. At
its end it tells how the capture ended.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import CdcError
from cdc_pipeline.fault_points import listening
from cdc_pipeline.sink.cursor_table import DeltaCursorStore
from tests.support.kills import AtPoint

_context = multiprocessing.get_context("forkserver")
_DEADLINE_S = 180.0  # a JVM may have to start on a busy machine


class Writer:
    """One capture; started by construction. `document`: the pipeline; `cursors`: folder of its
    cursor. `at`: the fault points at which it stops itself, as `kills.AtPoint` reads them; empty
    for none. `spark`: write Delta tables by Spark.
    """

    def __init__(
        self,
        document: dict[str, Any],
        cursors: Path,
        told: Path,
        at: str = "",
        *,
        spark: bool = False,
    ) -> None:
        _context.set_forkserver_preload([__name__, "tests.support.crash_warm"])
        self._told = told
        told.unlink(missing_ok=True)
        arguments = (json.dumps(document), str(cursors), str(told), at, spark)
        self._process = _context.Process(target=_capture, args=arguments, daemon=True)
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def stop(self) -> None:
        self._send(signal.SIGSTOP)

    def is_stopped(self) -> bool:
        """Wait until it is stopped, or has ended; whether it is stopped."""
        end_s = time.monotonic() + _DEADLINE_S
        while self._process.is_alive():
            if self._state() == "T":
                return True
            assert time.monotonic() < end_s, "the writer neither stopped nor ended"
            threading.Event().wait(0.02)
        return False

    def _send(self, number: signal.Signals) -> None:
        has_group = os.getpgid(self.pid) == self.pid  # it has begun
        (os.killpg if has_group else os.kill)(self.pid, number)

    def _state(self) -> str:
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""
        return stat.rpartition(")")[2].split()[0]

    def ended(self) -> dict[str, Any]:
        """Let it go on, and wait for its end: ``outcome`` is ``applied``, or the error's class.
        Raises AssertionError: it did not end in time.
        """
        if self._process.is_alive():
            self._send(signal.SIGCONT)
        self._process.join(_DEADLINE_S)
        if self._process.is_alive():
            self._send(signal.SIGKILL)
            self._process.join()
            raise AssertionError(f"the writer did not end within {_DEADLINE_S:.0f} s")
        if not self._told.exists():
            raise AssertionError(f"the writer died with {self._process.exitcode}")
        found: dict[str, Any] = json.loads(self._told.read_text(encoding="utf-8"))
        return found


def _capture(document: str, cursors: str, told: str, at: str, spark: bool) -> None:
    from tests.campaigns.objects.story import run

    os.setpgid(0, 0)
    config = PipelineConfig.model_validate_json(document)
    store = DeltaCursorStore(Path(cursors), source=config.name)

    def stop() -> None:
        os.killpg(0, signal.SIGSTOP)

    found: dict[str, Any]
    try:
        with listening(AtPoint(at, stop)) if at else nullcontext():
            run(config, store, spark=spark)
        found = {"outcome": "applied", "retryable": True, "error": ""}
    except CdcError as error:
        found = {"outcome": error.code(), "retryable": error.retryable, "error": str(error)}
    except BaseException as error:
        text = f"{type(error).__name__}: {error}"
        found = {"outcome": type(error).__name__, "retryable": False, "error": text}
    temporary = Path(told).with_suffix(".new")
    temporary.write_text(json.dumps(found), encoding="utf-8")
    temporary.replace(told)
