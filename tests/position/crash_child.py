"""Writes cursors 1, 2, 3 ... and prints each number once its write has returned; killed from
outside.

    python -m tests.position.crash_child PLACE
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

from cdc_pipeline.sink.cursor_table import DeltaCursorStore
from tests.support.cursor_stores import state


def main(place: str) -> None:
    store = DeltaCursorStore(Path(place), source="shop")
    for batch in itertools.count(1):
        store.write(state(batch), {"batch": batch})
        print(batch, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
