"""An S3-compatible store on this machine (moto), in a process of its own.

``python -m tests.support.object_store_server``.

Rules, as of a real store:
- Requests for objects are answered one at a time, so that a condition and its write are one step.
- `ACCESS_KEY` may do all, `READ_KEY` may not write; any other key is refused.
- Each write of an object is told in the log file: method, key, whether it had a condition, status.

The first line on standard output is the port.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

ACCESS_KEY = "tests-access-key"
READ_KEY = "tests-read-key"
SECRET = "tests-secret-0123456789"

_CREDENTIAL = re.compile(r"Credential=([^/,]+)/")
_DENIED = "<?xml version='1.0'?><Error><Code>{code}</Code><Message>{code}</Message></Error>"


class _Guarded:
    def __init__(self, app: Callable[..., Iterable[bytes]], log: Path) -> None:
        self._app = app
        self._one_at_a_time = threading.Lock()
        self._log = log

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        found = _CREDENTIAL.search(environ.get("HTTP_AUTHORIZATION", ""))
        key = found[1] if found else ""
        writes = method in ("PUT", "POST", "DELETE")
        code = "InvalidAccessKeyId" if key not in (ACCESS_KEY, READ_KEY) else ""
        if key == READ_KEY and writes:
            code = "AccessDenied"
        if code:
            start("403 Forbidden", [("Content-Type", "application/xml")])
            return [_DENIED.format(code=code).encode()]
        status: list[str] = []

        def told(line: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
            status.append(line)
            return start(line, headers, *rest)

        with self._one_at_a_time:
            with self._log.with_suffix(".requests").open("a") as requests:
                requests.write(f"{method} {path} {environ.get('QUERY_STRING', '')}\n")
            body = list(self._app(environ, told))
            if writes:
                condition = (
                    "conditional"
                    if {"HTTP_IF_NONE_MATCH", "HTTP_IF_MATCH"} & set(environ)
                    else "plain"
                )
                with self._log.open("a") as log:
                    log.write(f"{method} {path} {condition} {status[0].split()[0]}\n")
        return body


def main(log: Path) -> None:
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        def log(self, type: str, message: str, *args: Any) -> None:
            """The store's own log tells enough."""

    app = _Guarded(DomainDispatcherApplication(create_backend_app), log)
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Quiet)
    print(server.port, flush=True)
    threading.Thread(target=lambda: (sys.stdin.read(), server.shutdown()), daemon=True).start()
    server.serve_forever()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
