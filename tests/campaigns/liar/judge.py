"""Plays with a lie, and whether each ended as it must.

A play ends with the recorded rows, with other rows if the lie is believable, or with a CdcError
that says what to do and is valid as JSON. Anything else is a finding: another exception, a process
that dies, hangs or grows too large (the last three are the frame's), a password or the content of
a local file among what was sent or in an error, a file outside of the play's own folder.
"""

from __future__ import annotations

import json
import shutil
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from cdc_pipeline.errors import CdcError
from tests.campaigns.liar.conversations import NAMES, Name, Play
from tests.campaigns.liar.lies import FLAVORS, LOCAL_FILE, Lie, recording
from tests.campaigns.liar.lying_server import Answer, LyingServer
from tests.campaigns.liar.recording import schemas_of
from tests.campaigns.network.conversations import Shop
from tests.servers import Flavor
from tests.source.live.login_server import make_certificate

PASSWORD: Final = "liar-Must-never-see-this"
_FILE: Final = b"the content of a local file"
# A lie about a path leads there.
_OUTSIDE: Final = tuple(Path("/tmp", f"cdc-liar.00000{number}") for number in (1, 2))


@dataclass(frozen=True)
class Verdict:
    """How a play with a lie ended. `outcome`: "equal", "believed", "not asked", the code of an
    error, or "finding"; `detail`: of a finding, or the error.
    """

    outcome: str
    detail: str = ""


class Judge:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._shops = {flavor: _shop(flavor) for flavor in FLAVORS}
        self._plays = 0
        self._file = folder / "local file"
        self._file.write_bytes(_FILE)
        self._tls = make_certificate(folder)

    def honest(self, flavor: Flavor, name: Name, *, has_tls: bool = False) -> Verdict:
        return self._judged(flavor, name, None, has_tls)

    def assert_honest(self) -> None:
        """Raise RuntimeError unless every conversation ends well without a lie."""
        for flavor in FLAVORS:
            for name in NAMES:
                verdict = self.honest(flavor, name)
                if verdict.outcome != "equal":
                    raise RuntimeError(f"{flavor} {name} without a lie: {verdict}")

    def judge(self, lie: Lie) -> Verdict:
        return self._judged(lie.flavor, lie.name, lie, lie.has_tls)

    def _judged(self, flavor: Flavor, name: Name, lie: Lie | None, has_tls: bool) -> Verdict:
        self._plays += 1
        folder = self._folder / f"play {self._plays}"
        folder.mkdir()
        shop = self._shops[flavor]
        exchanges = recording(flavor).exchanges[name]
        said = ""
        tls, mode = (self._tls, "required") if has_tls else (None, "off")
        with LyingServer(exchanges, self._lie(lie), tls) as server:
            try:
                rows = Play(shop, name, folder / "own", mode).run(server.port)
                equal = rows == shop.rows
                verdict = Verdict("equal" if equal else "believed")
                if not equal and (lie is None or not lie.is_believable):
                    verdict = Verdict("finding", f"other rows, and no error: {str(rows)[:500]}")
            except CdcError as error:
                said = f"{error}\n{json.dumps(error.as_dict())}"
                verdict = Verdict(error.code(), said)
                if not error.next_step:
                    verdict = Verdict("finding", f"an error without a next step: {said}")
            except Exception as error:
                verdict = Verdict("finding", _told(error))
        if lie is not None and lie.at not in server.asked and verdict.outcome == "equal":
            verdict = Verdict("not asked")
        # Within TLS that checks nothing these send the password, as the servers' own clients do.
        asks = has_tls and any(name in str(lie) for name in ("sha2", b"sha2".hex()))
        leak = self._leak(server.received, said, folder, may_see=asks)
        shutil.rmtree(folder, ignore_errors=True)
        return Verdict("finding", leak) if leak else verdict

    def _lie(self, lie: Lie | None) -> Callable[[int, Answer], Answer]:
        def applied(index: int, answer: Answer) -> Answer:
            if lie is None:
                return answer
            answer = lie.applied(index, answer)
            own = str(self._file).encode()
            answer.packets = [one.replace(LOCAL_FILE.encode(), own) for one in answer.packets]
            return answer

        return applied

    def _leak(self, received: list[bytes], said: str, folder: Path, *, may_see: bool) -> str:
        sent = b"\0".join(received)
        if PASSWORD.encode() in sent and not may_see:
            return "the password was sent"
        if PASSWORD in said:
            return "the error has the password"
        if _FILE in sent:
            return "a local file was sent"
        outside = [str(path) for path in _OUTSIDE if path.exists()]
        outside += [path.name for path in folder.iterdir() if path.name != "own"]
        return f"files outside of the play's folder: {outside}" if outside else ""


def _told(error: Exception) -> str:
    place = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(place.filename).name}:{place.lineno}"
    lines = "".join(traceback.format_exception(error, limit=-8))
    return f"{type(error).__name__}: {error} ({where})\n{lines}"


def _shop(flavor: Flavor) -> Shop:
    recorded = recording(flavor)
    source = {"kind": "live", "host": "127.0.0.1", "user": "cdc", "password": PASSWORD}
    shop = Shop(cast(Any, None), recorded.database, source, recorded.starts, rows=recorded.rows)
    with LyingServer(recorded.catalog) as server:
        shop.schemas = schemas_of(source, recorded.database, server.port)
    return shop
