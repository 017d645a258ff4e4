"""``python -m tests.servers.install [NAME ...]`` shows the tests' servers and browser, and fetches
or builds what is missing: mysql, mariadb, a release such as mariadb-11.8, `releases` for those of
`make nightly`, browser, s3."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial

from cdc_pipeline.errors import CdcError
from tests.servers.installation import (
    FLAVORS,
    RELEASES,
    Installation,
    find_installation,
    find_release,
)


def main(arguments: list[str]) -> int:
    """By default a server of each flavor. Exit code 1 if one cannot be had, 2 if none has the
    name."""
    finders: dict[str, Callable[[], str]] = {
        **{flavor: partial(_server, find_installation, flavor) for flavor in FLAVORS},
        **{release: partial(_server, find_release, release) for release in RELEASES},
        "browser": _browser,
        "s3": _s3,
    }
    asked = [*arguments, *(RELEASES if "releases" in arguments else ())] or list(FLAVORS)
    unknown = sorted({*asked} - finders.keys() - {"releases"})
    if unknown:
        print(
            f"no such server: {', '.join(unknown)}; there are {', '.join([*finders, 'releases'])}",
            file=sys.stderr,
        )
        return 2
    missing = 0
    for name in [name for name in finders if name in asked]:
        started = time.monotonic()
        try:
            found = finders[name]()
        except CdcError as error:
            print(f"{name}: {error}", file=sys.stderr)
            missing += 1
            continue
        print(f"{name} {found} ({time.monotonic() - started:.1f} s)")
    return 1 if missing else 0


def _server(find: Callable[[str], Installation], name: str) -> str:
    found = find(name)
    return f"{found.version_text}: {found.origin}"


def _browser() -> str:
    from tests.browser.installation import find_browser

    found = find_browser()
    return f"{found.version}: {found.origin}"


def _s3() -> str:
    from tests.cluster.gateway import VERSION, find_gateway

    return f"{VERSION}: {find_gateway()}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
