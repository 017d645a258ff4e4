"""Many writers of one file of the lake at once."""

from __future__ import annotations

import threading
from pathlib import Path

from cdc_pipeline.lake.paths import put_if_absent

WRITERS = 8


def texts_that_won(path: Path) -> list[str]:
    """What the writers put who were told that they had, of as many as start together."""
    start = threading.Barrier(WRITERS)
    won: list[str] = []

    def put(text: str) -> None:
        start.wait()
        if put_if_absent(path, text):
            won.append(text)

    threads = [threading.Thread(target=put, args=(f'"{number}"',)) for number in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return won
