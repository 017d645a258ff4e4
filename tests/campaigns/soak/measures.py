"""What a process and its folders hold: memory, descriptors, threads, files.

Rules:
- `inside` measures from within, after a collection of the JVM, so that its garbage is no growth.
  Python is left to collect as it does: what it has not freed yet may hold much of the JVM. Memory
  that allocators keep for later is given back first.
- Threads of tokio are not counted: delta-rs starts them as it needs them, and those that are idle
  end after some seconds.
- `outside` reads what the system knows. Both are taken between two runs, while nothing is done.
- Sizes are in MiB or bytes, as their names say.
"""

from __future__ import annotations

import ctypes
import gc
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

MIB = 1 << 20

Measures = dict[str, float]


def inside() -> dict[str, Any]:
    pa.default_memory_pool().release_unused()
    ctypes.CDLL(None).malloc_trim(0)
    found: Measures = {
        "python_objects": len(gc.get_objects()),
        "python_threads": threading.active_count(),
    }
    from pyspark import SparkContext

    context: Any = SparkContext
    jvm = context._jvm
    if jvm is not None and context._active_spark_context is not None:
        jvm.java.lang.System.gc()
        beans = jvm.java.lang.management.ManagementFactory
        heap = beans.getMemoryMXBean().getHeapMemoryUsage().getUsed()
        other = beans.getMemoryMXBean().getNonHeapMemoryUsage().getUsed()
        found |= {
            "jvm_heap_mib": heap / MIB,
            "jvm_other_mib": other / MIB,
            "jvm_classes": beans.getClassLoadingMXBean().getLoadedClassCount(),
        }
    return found


def outside(pid: int) -> Measures:
    """Measure a process and the JVM that it has started, as the system sees them."""
    found = {f"python_{name}": value for name, value in _process(pid).items()}
    for child in _children(pid):
        # The JVM is there for as long as the process; anything else may have just ended.
        with suppress(FileNotFoundError, ProcessLookupError):
            found |= _jvm(child)
    return found


def _jvm(pid: int) -> Measures:
    if Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip() != "java":
        return {}
    return {f"jvm_{name}": value for name, value in _process(pid).items()}


def files(folder: Path) -> tuple[int, int]:
    count = size = 0
    for root, folders, names in os.walk(folder):
        count += len(folders)
        for name in names:
            try:
                size += os.lstat(os.path.join(root, name)).st_size
            except FileNotFoundError:
                continue
            count += 1
    return count, size


def folders(paths: dict[str, Path]) -> Measures:
    found: Measures = {}
    for name, path in paths.items():
        found[f"{name}_files"], found[f"{name}_bytes"] = files(path)
    return found


def log_files(lake: Path) -> Measures:
    logs = [table / "_delta_log" for table in lake.glob("[!_]*/*")]
    return {"delta_log_files": sum(len(os.listdir(log)) for log in logs if log.is_dir())}


def _children(pid: int) -> list[int]:
    found: list[int] = []
    # The process or a thread of it may have just ended.
    with suppress(FileNotFoundError, ProcessLookupError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with suppress(FileNotFoundError, ProcessLookupError):
                children = Path(f"/proc/{pid}/task/{task}/children").read_text(encoding="utf-8")
                found += map(int, children.split())
    return found + [below for child in found for below in _children(child)]


def _process(pid: int) -> Measures:
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    lines = dict(line.split(":", 1) for line in status.splitlines())
    return {
        "rss_mib": int(lines["VmRSS"].split()[0]) / 1024,
        "system_threads": _threads(pid),
        "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
    }


def _threads(pid: int) -> int:
    count = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with suppress(FileNotFoundError, ProcessLookupError):
            name = Path(f"/proc/{pid}/task/{task}/comm").read_text(encoding="utf-8").strip()
            count += name != "tokio-rt-worker"
    return count
