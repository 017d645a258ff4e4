"""Fixtures for real servers (see tests/servers/README.md). Nothing is started before a test asks
for it."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from cdc_pipeline.collector import modules_kept
from tests.servers import FLAVORS, Flavor, Server, crashes
from tests.servers.crashes import watched
from tests.support.scheduling import APART, OneJvm

pytest_plugins = ("tests.support.captures", "tests.support.project", "tests.support.told")


# The same examples in each run, on a machine of any speed: `make nightly` looks for others.
settings.register_profile(
    "suite", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "new_examples", settings.get_profile("suite"), derandomize=False, print_blob=True
)
settings.load_profile("suite")

_kept = ExitStack()


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(crashes)
    if not config.getoption("--hypothesis-profile"):
        # Constants of whatever modules are loaded would make examples depend on which tests run.
        providers._get_local_constants = lambda: providers._local_constants


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    return OneJvm(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Next to nothing of what collecting makes is garbage, and looking for it took a fourth of the
    time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The files with the longest tests first, so that all workers end at about the same time.

    What is marked nightly runs with ``-m nightly`` alone. A test of both servers that is expensive,
    because it captures, or starts Spark or a server of its own, runs on MySQL in `make test`, and
    on MariaDB too in `make test-all`; with Spark by night, since what Spark gets to write does not
    depend on the server, and the stories of one server alone have MariaDB in `make test-all`.
    """
    for item in items:
        for flavor in _needed_flavors(item):
            item.add_marker(flavor)
        callspec = getattr(item, "callspec", None)
        on_mariadb = callspec is not None and "mariadb" in callspec.id
        own_server = "start_server" in getattr(item, "fixturenames", ())
        captures = item.path.relative_to(config.rootpath).parts[1] in (
            "run",
            "operations",
            "targets",
        )
        if on_mariadb and item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.nightly)
        elif on_mariadb and (captures or own_server):
            item.add_marker(pytest.mark.whole)
    if "nightly" not in config.option.markexpr:
        nightly = [item for item in items if item.get_closest_marker("nightly")]
        config.hook.pytest_deselected(items=nightly)
        items[:] = [item for item in items if not item.get_closest_marker("nightly")]
    items.sort(key=_start_cost, reverse=True)


def pytest_collection_finish() -> None:
    """Nothing that exists now is garbage: each capture would look for some among the objects of
    thousands of tests, or count them."""
    gc.collect()
    _kept.enter_context(modules_kept())


@pytest.fixture
def own_collector() -> Iterator[None]:
    """The collector as a process has it that has kept nothing."""
    _kept.close()
    yield
    _kept.enter_context(modules_kept())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure tells what its servers' threads do: one that hangs is still there."""
    report = yield
    servers = [one for one in getattr(item, "funcargs", {}).values() if isinstance(one, Server)]
    for server in servers if report.failed and call.when == "call" else ():
        with suppress(Exception):
            threads = "\n".join(map(str, server.query("SHOW FULL PROCESSLIST")))
            report.sections.append((f"threads of the {server.flavor} server", threads))
    return report


def _needed_flavors(item: pytest.Item) -> list[str]:
    """Of the fixtures' servers. A test that starts one itself says so by a mark."""
    names = set(getattr(item, "fixturenames", ()))
    callspec = getattr(item, "callspec", None)
    is_each = callspec is not None and bool(names & {"server", "start_server"})
    return [
        flavor
        for flavor in FLAVORS
        if f"{flavor}_server" in names or (is_each and flavor in callspec.id)
    ]


def _start_cost(item: pytest.Item) -> int:
    """3: takes minutes, 2: starts Spark, 1: needs a server, 0: none of these."""
    if item.nodeid.partition("::")[0] in APART:
        return 3
    if item.get_closest_marker("spark"):
        return 2
    return int(bool(item.get_closest_marker("mysql") or item.get_closest_marker("mariadb")))


_database_numbers = itertools.count(1)


@contextmanager
def temporary_database(server: Server) -> Iterator[str]:
    """A new, empty database on `server`, in a journal that no other test has written to, and a new
    session of the server's own connection; dropped at the end."""
    name = f"test_{next(_database_numbers)}"
    server.new_session()
    server.flush_journal()
    server.execute(f"CREATE DATABASE `{name}`")
    yield name
    if server.running:
        # A test that failed may leave a transaction open or prepared, which would hold this up for
        # a year.
        server.execute("SET SESSION lock_wait_timeout = 30")
        server.execute(f"DROP DATABASE IF EXISTS `{name}`")


@pytest.fixture(scope="session")
def mysql_server() -> Iterator[Server]:
    """One MySQL server for the whole run, shared: use a database of your own, and neither stop nor
    kill it."""
    with watched(Server("mysql")) as server:
        yield server


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[Server]:
    """One MariaDB server for the whole run, shared: use a database of your own, and neither stop
    nor kill it."""
    with watched(Server("mariadb")) as server:
        yield server


@pytest.fixture(
    params=[
        pytest.param("mysql", marks=pytest.mark.mysql, id="mysql"),
        pytest.param("mariadb", marks=pytest.mark.mariadb, id="mariadb"),
    ]
)
def server(request: pytest.FixtureRequest) -> Server:
    """The shared server of each flavor in turn."""
    shared: Server = request.getfixturevalue(f"{request.param}_server")
    return shared


@pytest.fixture
def fresh_database(server: Server) -> Iterator[str]:
    """A database of the test's own on `server`."""
    with temporary_database(server) as name:
        yield name


@pytest.fixture
def mysql_database(mysql_server: Server) -> Iterator[str]:
    """A database of the test's own on `mysql_server`."""
    with temporary_database(mysql_server) as name:
        yield name


@pytest.fixture
def mariadb_database(mariadb_server: Server) -> Iterator[str]:
    """A database of the test's own on `mariadb_server`."""
    with temporary_database(mariadb_server) as name:
        yield name


@pytest.fixture
def start_server() -> Iterator[Callable[..., Server]]:
    """``start_server(flavor, **options)``: a server of the test's own; all are gone after the
    test."""
    with ExitStack() as stack:

        def start(flavor: Flavor, **options: str | int | bool | None) -> Server:
            return stack.enter_context(Server(flavor, options))

        yield start
