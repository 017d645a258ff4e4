"""Histories in a process whose clock is faked (`sets.py`): one JSON text for each goes to standard
output.

``python -m tests.campaigns.clocks.child FLAVOR CLOCK_FILE ZONE SERVER_ZONE SEED...``
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
import traceback
from pathlib import Path
from typing import cast

from tests.campaigns.clocks.history import play
from tests.servers import Flavor, Server
from tests.servers.preload import MovedClock


def main(arguments: list[str]) -> int:
    flavor, file, zone, server_zone, *seeds = arguments
    own = MovedClock(Path(file), zone)
    with tempfile.TemporaryDirectory(prefix="cdc-clocks-") as home:
        server_clock = MovedClock(Path(home) / "server_clock", server_zone)
        Path(home).chmod(0o755)  # a server that runs as another user reads its clock there
        # else a server whose clock goes ahead purges what was not read yet
        options = {"binlog_expire_logs_seconds": 0}
        environment = server_clock.environment
        with Server(cast(Flavor, flavor), options, environment=environment) as server:
            for seed in map(int, seeds):
                told: dict[str, object] = {"seed": seed, "finding": "", "counts": {}}
                try:
                    with contextlib.redirect_stdout(io.StringIO()):
                        told["counts"] = play(
                            seed, Path(home) / str(seed), server, server_clock=server_clock, own=own
                        )
                except Exception as error:
                    told["finding"] = f"{type(error).__name__}: {error}"
                    told["trace"] = traceback.format_exc()
                print(json.dumps(told), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
