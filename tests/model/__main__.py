"""``python -m tests.model [NAME ...]``: explore all models of `spec/commit.tla`, or those named.

Prints states, depth and verdict of each. Exit code 1 if an invariant does not hold, with the steps
that lead there.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from cdc_pipeline.errors import CdcError
from tests.model.models import MODELS
from tests.model.tlc import check


def main(names: Sequence[str]) -> int:
    """Explore models; return the exit code."""
    unknown = set(names) - {model.name for model in MODELS}
    if unknown:
        print(f"no such model: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    broken = 0
    for model in MODELS:
        if names and model.name not in names:
            continue
        try:
            found = check(model.constants, is_progress=model.is_progress)
        except CdcError as error:
            print(error, file=sys.stderr)
            return 1
        verdict = f"VIOLATED: {found.violated}" if found.violated else "holds"
        print(
            f"{model.name:14} {found.states:>10,} states, depth {found.depth:>3}, "
            f"{found.seconds:>5.0f} s  {verdict:20} {model.what}",
            flush=True,
        )
        if found.violated:
            broken += 1
            print(f"    {' -> '.join(found.steps)}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
