"""``python -m tests.cluster.install``: show the tests' S3 server, and build it if it is missing."""

from __future__ import annotations

import sys
import time

from cdc_pipeline.errors import CdcError
from tests.cluster.gateway import VERSION, find_gateway


def main() -> int:
    started = time.monotonic()
    try:
        found = find_gateway()
    except CdcError as error:
        print(f"S3 server: {error}", file=sys.stderr)
        return 1
    print(f"versitygw {VERSION}: {found} ({time.monotonic() - started:.1f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
