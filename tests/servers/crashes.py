"""A pytest plugin: a shared server that dies by itself costs one test one more run, and the
session's summary tells it.

Rules:
- Watched are the servers that are lent inside `watched` (the session's shared ones). Stopped or
  killed through their own methods they are left alone: only an end that nobody asked for counts
  (`Server.died`).
- After every test a watched server that has died is started again on its data, so that the next
  test has it.
- A test during which one died by a signal is run once more; what its first run found is told, not
  counted. No other test ever runs twice, and none a third time.
- Nothing of this is silent: the terminal summary has the report of every crash, and the number of
  tests run again.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from cdc_pipeline.errors import RuntimeSetupError
from tests.servers.server import Server

_watched: list[Server] = []
_failed_fixtures: list[tuple[Any, Any]] = []
"""Definition and request of every fixture that could not be made in the first run of the test under way."""  # noqa: E501


@dataclass
class Crash:
    """One end that nobody asked for. `first_run` is what the test's run had come to ("passed",
    "failed in call") if it was run again; `restart` is why the server could not be started again.
    """

    server: str
    test: str
    report: str
    by_signal: bool
    first_run: str
    restart: str


_seen: list[Crash] = []
_crashes = pytest.StashKey[list[Crash]]()


@contextmanager
def watched(server: Server) -> Iterator[Server]:
    """`server`, started, and started again should it die by itself; closed at the end."""
    with server:
        _watched.append(server)
        try:
            yield server
        finally:
            _watched.remove(server)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_crashes] = []


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """One test: its run, and one more if a watched server has died by a signal meanwhile."""
    hook = item.ihook
    _failed_fixtures.clear()
    hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, nextitem=nextitem, log=False)
    crashes = _start_again(item)
    if any(crash.by_signal for crash in crashes):
        for crash in crashes:
            crash.first_run = _outcome(reports)
        _forget_failed_fixtures()
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        crashes += _start_again(item)
    # Reports travel from a worker of xdist to the session that prints, with what is set on them.
    reports[0].server_crashes = [asdict(crash) for crash in crashes]
    for report in reports:
        hook.pytest_runtest_logreport(report=report)
    hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """What died is there again for the test's fixtures, before the last test's close it
    for good.
    """
    _seen.extend(_start_again(item))


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any, request: Any) -> Generator[None, object, object]:
    try:
        return (yield)
    except BaseException:
        _failed_fixtures.append((fixturedef, request))
        raise


class _Collector:
    """Takes the crashes off the reports, in the session that prints."""

    def __init__(self, crashes: list[Crash]) -> None:
        self._crashes = crashes

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._crashes += [Crash(**crash) for crash in getattr(report, "server_crashes", ())]


def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.pluginmanager.register(_Collector(session.config.stash[_crashes]))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    crashes = config.stash[_crashes]
    if not crashes:
        return
    terminalreporter.section("servers that crashed")
    for crash in crashes:
        terminalreporter.write_line(f"{crash.server} during {crash.test}", bold=True)
        terminalreporter.write_line(crash.report)
        if crash.restart:
            terminalreporter.write_line(f"It could not be started again: {crash.restart}", red=True)
    again = [crash for crash in crashes if crash.first_run]
    told = [f"{crash.test} (the first run {crash.first_run})" for crash in again]
    terminalreporter.write_line(
        f"crashes: {len(crashes)}; tests run again: {len(again)}", yellow=True
    )
    for line in told:
        terminalreporter.write_line(f"  run again: {line}")


def _start_again(item: pytest.Item) -> list[Crash]:
    """The crashes seen since the test began; they are forgotten."""
    for server in _watched:
        if not server.died:
            continue
        name = f"{server.flavor} {server.installation.version_text}"
        crash = Crash(name, item.nodeid, server.log_report(), server.died_by_signal, "", "")
        try:
            server.start_again()
        except RuntimeSetupError as error:
            crash.restart = str(error)
        _seen.append(crash)
    found = _seen.copy()
    _seen.clear()
    return found


def _outcome(reports: list[pytest.TestReport]) -> str:
    bad = next((report for report in reports if report.failed), None)
    return f"failed in {bad.when}" if bad is not None else reports[-1].outcome


def _forget_failed_fixtures() -> None:
    """Fixtures of wider scopes keep their exception; made again they find the server."""
    for definition, request in _failed_fixtures:
        with suppress(Exception):
            definition.finish(request)
