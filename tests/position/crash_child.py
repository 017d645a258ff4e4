"""Writes cursors 1, 2, 3 ... and prints each number once its write has returned; killed from
outside, or at a step.

    python -m tests.position.crash_child KIND PLACE [STEP]

With a step of the file store the third write kills its own process there.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
from pathlib import Path

from cdc_pipeline.position.cursor import CursorStore
from cdc_pipeline.position.cursor_file import FileCursorStore
from tests.support.cursor_stores import opener_of, state


def main(kind: str, place: str, step: str = "") -> None:
    batch = 0

    def on_step(name: str) -> None:
        if name == step and batch == 3:
            os.kill(os.getpid(), signal.SIGKILL)

    store: CursorStore = opener_of(kind, Path(place), None)()
    if step:
        store = FileCursorStore(Path(place), source="shop", on_step=on_step)
    for batch in itertools.count(1):
        store.write(state(batch), {"batch": batch})
        print(batch, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
