"""``python -m tests.servers.install [mysql] [mariadb]``: show the tests' servers, and fetch what is
missing."""

from __future__ import annotations

import sys
import time

from cdc_pipeline.errors import CdcError
from tests.servers.installation import FLAVORS, find_installation


def main(arguments: list[str]) -> int:
    """Print the servers of the named flavors, by default both, fetching what is missing.

    Exit code 1 if one cannot be had, 2 for a flavor that does not exist.
    """
    unknown = sorted(set(arguments) - set(FLAVORS))
    if unknown:
        print(
            f"no such flavor: {', '.join(unknown)}; there are {' and '.join(FLAVORS)}",
            file=sys.stderr,
        )
        return 2
    missing = 0
    for flavor in [flavor for flavor in FLAVORS if not arguments or flavor in arguments]:
        started = time.monotonic()
        try:
            found = find_installation(flavor)
        except CdcError as error:
            print(f"{flavor}: {error}", file=sys.stderr)
            missing += 1
            continue
        print(f"{flavor} {found.version_text}: {found.origin} ({time.monotonic() - started:.1f} s)")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
