"""``python -m tests.servers.install [mysql] [mariadb] [mariadb-11.8 ...] [releases]``: show the
tests' servers, and fetch what is missing; `releases` are those of `make nightly`."""

from __future__ import annotations

import sys
import time
from functools import partial

from cdc_pipeline.errors import CdcError
from tests.servers.installation import FLAVORS, RELEASES, find_installation, find_release


def main(arguments: list[str]) -> int:
    """By default one of each flavor. Exit code 1 if one cannot be had, 2 if none has the name."""
    finders = {flavor: partial(find_installation, flavor) for flavor in FLAVORS}
    finders |= {release: partial(find_release, release) for release in RELEASES}
    asked = [*arguments, *(RELEASES if "releases" in arguments else ())] or list(FLAVORS)
    unknown = sorted({*asked} - finders.keys() - {"releases"})
    if unknown:
        print(
            f"no such server: {', '.join(unknown)}; there are {', '.join([*finders, 'releases'])}",
            file=sys.stderr,
        )
        return 2
    missing = 0
    for flavor in [name for name in finders if name in asked]:
        started = time.monotonic()
        try:
            found = finders[flavor]()
        except CdcError as error:
            print(f"{flavor}: {error}", file=sys.stderr)
            missing += 1
            continue
        print(f"{flavor} {found.version_text}: {found.origin} ({time.monotonic() - started:.1f} s)")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
