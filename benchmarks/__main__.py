"""Run a benchmark with its targets: ``make bench NAME=snapshot ARGS="rows=100000"``.

``python -m benchmarks NAME [key=value ...] [--json]``; ``all`` is each of them but `large_events`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

_BENCHMARKS: Final = {
    "backfill": "8 archived journals, in parallel beside one after the other; changes=1000000",
    "backlog": "10,000 unread journals: planning, and catching up; gigabytes=20",
    "bucket": "requests of runs on a lake in a bucket, beside their targets; commits=500",
    "cluster": "what a Spark cluster's executors take off the driver (4 GB of disk)",
    "commands": "CPU-seconds of commands that read files only, against importing Arrow",
    "decode": "the decoder beside its peers: CPU-seconds per million rows; live; memory",
    "first_run": "what compiling the decoder costs the first run on a machine",
    "history": "the 10,000th run and commands beside the 100th; runs=10000 (2 GB of disk)",
    "idle": "CPU-seconds of a run that finds nothing new, against loading the definitions",
    "keep_journals": "reading a log with and without keeping its journals",
    "large_events": "events of a gigabyte on real servers (8 GB of memory, 10 GB of disk)",
    "memory": "resident memory of a capture against its budget",
    "sink": "merging: CPU-seconds of the JVM beside a plain MERGE (4 GB of disk)",
    "snapshot": "a table into Delta beside a row loop and spark.read.jdbc; rows=5000000",
    "store": "event store and transactions, from a journal to acked batches",
    "sync": "a journal into Delta tables beside Debezium's embedded engine (4 GB of disk)",
    "tables": "1,000 tables on a live server: idle runs, 100 changed tables, cuts; tables=1000",
    "verify": "5,000,000 equal rows beside hashes of rows; 200 tables in a bucket; rows=5000000",
}


def main(arguments: Sequence[str]) -> int:
    names = list(_BENCHMARKS) if arguments[:1] == ["all"] else [*arguments[:1]]
    if not names or names[0] not in _BENCHMARKS:
        print("\n".join(f"{name:13} {what}" for name, what in _BENCHMARKS.items()))
        return 2 if names else 0
    if len(names) > 1:
        names.remove("large_events")
    settings = [option for option in arguments[1:] if not option.startswith("-")]
    flags = [option for option in arguments[1:] if option.startswith("-")]
    for setting in settings:
        key, _, value = setting.partition("=")
        os.environ[key.upper()] = value
    codes = [
        subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *flags], check=False).returncode
        for name in names
    ]
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
