"""``python -m tests.browser.install``: show the tests' browser, and fetch it if it is missing."""

from __future__ import annotations

import sys
import time

from cdc_pipeline.errors import CdcError
from tests.browser.installation import find_browser


def main() -> int:
    started = time.monotonic()
    try:
        found = find_browser()
    except CdcError as error:
        print(f"browser: {error}", file=sys.stderr)
        return 1
    print(f"browser {found.version}: {found.origin} ({time.monotonic() - started:.1f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
