"""Nobody wedges the source (K22): whatever step of one target fails, with whatever error, the
recorded batch is finished with the others, and the target catches up once the fault is gone.

Whole captures of a recorded journal into tables in memory.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from cdc_pipeline.errors import (
    CatalogError,
    CatalogNameError,
    CdcError,
    ConcurrentWriterError,
    LakeFullError,
    LakeStateError,
    LakeUnreachableError,
    MergeError,
    SinkError,
    StagingError,
    TargetRefusedError,
    TargetSuspendedError,
)
from cdc_pipeline.sink.delta.failures import failure_of, is_of_the_machine
from tests.support.memory_shop import MemoryShop, memory_shop
from tests.support.memory_sink import STEPS

TABLES = ["shop.pair", "shop.plain", "shop.isam", "shop.copied"]
FAILING = "shop.pair"
RUNS_MAX = 6


class AnalysisException(Exception):
    """As pyspark raises it."""


def _raw() -> Exception:
    return KeyError("metaData")


ERRORS: dict[str, Callable[[], Exception]] = {
    "of the disk": lambda: OSError(errno.EIO, "Input/output error"),
    "of python": _raw,
    "of the jvm": lambda: RuntimeError("An error occurred while calling o12.sql"),
    "refused": lambda: AnalysisException("[DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION] ..."),
    "of a name": lambda: SinkError("a schema or table name cannot be used as a folder name"),
    "of the lake": lambda: LakeStateError("the table belongs to another program"),
    "of others": lambda: ConcurrentWriterError("another writer has changed the table"),
    "of the store": lambda: LakeUnreachableError("Forbidden"),
}
CASES = (
    [(step, "of python") for step in STEPS[:-2]]
    + [("register", "of python")]
    + [("rows", name) for name in ERRORS if name != "of python"]
)
CASES += [
    ("create", "refused"),
    ("create", "of a name"),
    ("log", "of the lake"),
    ("log", "of the store"),
]

NewShop = Callable[..., MemoryShop]


@pytest.fixture
def new_shop(tmp_path: Path) -> NewShop:
    def make(*include: str) -> MemoryShop:
        sink = {"catalog": {"database": "lake"}}
        return memory_shop(tmp_path, include=list(include or TABLES), sink=sink)

    return make


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[int]]:
    """What each table holds when nothing fails."""
    shop = memory_shop(tmp_path_factory.mktemp("sound"), include=TABLES)
    shop.run()
    found = shop.all_changes()
    assert {name: bool(changes) for name, changes in found.items()} == dict.fromkeys(TABLES, True)
    return found


def run_until_suspended(shop: MemoryShop) -> list[CdcError]:
    """Start run after run, as an operator would, until one says that tables stand still; what they
    ended with."""
    ended: list[CdcError] = []
    for _ in range(RUNS_MAX):
        with pytest.raises(CdcError) as caught:
            shop.run()
        ended.append(caught.value)
        if isinstance(caught.value, TargetSuspendedError):
            return ended
        assert caught.value.retryable, "nobody would start that run again"
    raise AssertionError(f"wedged: {ended[-1]}")


@pytest.mark.parametrize(("step", "kind"), CASES)
@pytest.mark.parametrize("alone", [False, True], ids=["with others", "alone"])
def test_k22_a_step_that_fails_suspends_its_target(
    new_shop: NewShop, expected: dict[str, list[int]], step: str, kind: str, alone: bool
) -> None:
    """Also raw errors, and also in a source of one table; it catches up when the fault is gone."""
    shop = new_shop(*([FAILING] if alone else TABLES))
    shop.fails_at(step, FAILING, ERRORS[kind])
    run_until_suspended(shop)
    assert set(shop.suspended()) == {FAILING}
    assert shop.last_cut().cursor.suspended[FAILING].next_step or kind not in (
        "of python",
        "of the disk",
    )
    for name in TABLES[1:] if not alone else ():
        assert shop.changes(name) == expected[name], "the others have all that the log has"
    cuts = len(list(shop.paths.cuts.iterdir()))
    assert len(list(shop.paths.batches.iterdir())) == cuts, "no batch is left unfinished"
    with pytest.raises(TargetSuspendedError):
        shop.run()  # and so it goes on, run by run
    assert len(list(shop.paths.batches.iterdir())) == len(list(shop.paths.cuts.iterdir()))
    shop.heal()
    shop.run()
    assert shop.all_changes() == {
        name: expected[name] for name in (TABLES if not alone else [FAILING])
    }
    assert FAILING in shop.lake.registered


def test_k22_what_fails_after_a_commit_is_found_done_by_the_next_run(
    new_shop: NewShop, expected: dict[str, list[int]]
) -> None:
    shop = new_shop()
    shop.fails_at("log_after", FAILING, _raw)
    for _ in range(3):  # a batch of this table each
        with pytest.raises(MergeError):
            shop.run()
    shop.run()
    assert shop.all_changes() == expected


@pytest.mark.parametrize("step", ["create", "rows"])
def test_k22_what_the_machine_fails_suspends_nobody(
    new_shop: NewShop, expected: dict[str, list[int]], step: str
) -> None:
    """A full disk, and a lake that takes no writes: the batch waits, and is finished when there is
    room."""
    shop = new_shop()
    shop.fails_at(step, FAILING, lambda: OSError(errno.ENOSPC, "No space left on device"))
    for _ in range(3):
        with pytest.raises(MergeError, match="No space left"):
            shop.run()
    shop.lake.machine_fails = SinkError("the lake cannot be written")
    shop.fails_at(step, FAILING, _raw)
    for _ in range(3):
        with pytest.raises(MergeError) as caught:
            shop.run()
    assert str(caught.value.__cause__) == "the lake cannot be written"
    assert len(list(shop.paths.batches.iterdir())) == len(list(shop.paths.cuts.glob("*.json"))) + 1
    shop.lake.machine_fails = None
    shop.heal()
    shop.run()
    assert shop.all_changes() == expected


@pytest.mark.parametrize(
    "error", [CatalogError("refused"), CatalogNameError("it is another table")]
)
def test_k22_a_table_that_the_catalog_does_not_take(
    new_shop: NewShop, expected: dict[str, list[int]], error: CatalogError
) -> None:
    """It is registered, and caught up, when the catalog takes it; a catalog that does not answer
    suspends nobody."""
    shop = new_shop()
    shop.fails_at("register", FAILING, lambda: error)
    if error.retryable:
        with pytest.raises(CatalogError):
            shop.run()
        shop.lake.machine_fails = SinkError("the lake cannot be written")
        with pytest.raises(CatalogError):
            shop.run()
        shop.lake.machine_fails = None
    run_until_suspended(shop)
    assert shop.suspended() == {FAILING: type(error).__name__}
    shop.heal()
    shop.run()
    assert shop.all_changes() == expected
    assert set(shop.lake.registered) == set(TABLES)


def test_k22_a_table_that_fails_for_good_does_not_keep_others_from_catching_up(
    new_shop: NewShop, expected: dict[str, list[int]]
) -> None:
    """Two stand still; the first of them goes on failing with an error that a retry could cure."""
    shop = new_shop()
    shop.fails_at("rows", "shop.plain", _raw)
    shop.failing |= {FAILING}
    run_until_suspended(shop)
    assert set(shop.suspended()) == {FAILING, "shop.plain"}
    shop.failing = {FAILING}
    with pytest.raises(TargetSuspendedError):
        shop.run()
    assert set(shop.suspended()) == {FAILING}
    assert shop.changes("shop.plain") == expected["shop.plain"]
    shop.heal()
    shop.run()
    assert shop.all_changes() == expected


def test_k22_a_staged_file_that_is_gone_wedges_no_source_of_one_table(
    new_shop: NewShop, expected: dict[str, list[int]]
) -> None:
    """The next step of its error works from there: the table reads the log again."""
    shop = new_shop(FAILING)

    shop.stop_at("after_record")
    for file in shop.paths.staging(1).rglob("*.parquet"):
        file.unlink()
    with pytest.raises(TargetSuspendedError) as caught:
        shop.run()
    assert shop.suspended() == {FAILING: StagingError.__name__}
    assert "start the run again" in str(caught.value)
    shop.run()
    assert shop.all_changes() == {FAILING: expected[FAILING]}


@pytest.mark.parametrize("recorded", [False, True], ids=["nothing recorded", "a batch recorded"])
@pytest.mark.parametrize("include", [(FAILING,), TABLES], ids=["alone", "all"])
def test_k3_k22_tables_that_others_changed_wedge_nothing(
    new_shop: NewShop, expected: dict[str, list[int]], include: tuple[str, ...], recorded: bool
) -> None:
    """All tables of the source, also between record and cut; they catch up when they are as they
    were."""
    shop = new_shop(*include)
    shop.run(transactions=6)
    made = list(shop.last_cut().tables)
    assert FAILING in made
    if recorded:
        shop.stop_at("after_record")
    for name in made:
        shop.lake.write(shop.paths.table(name))
    with pytest.raises(TargetSuspendedError, match="cdc-pipeline verify"):
        shop.run()
    assert set(made) <= set(shop.suspended())
    assert len(list(shop.paths.batches.iterdir())) == len(list(shop.paths.cuts.iterdir()))
    for name in made:
        shop.lake.undo(shop.paths.table(name))
    shop.run()
    assert shop.all_changes() == {name: expected[name] for name in include}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (
            "[DELTA_VIOLATE_CONSTRAINT_WITH_VALUES] CHECK few (id < 2) violated by row with "
            "values:\n - id : 2",
            TargetRefusedError,
        ),
        ("[DELTA_METADATA_CHANGED] MetadataChangedException", MergeError),
        ("java.io.IOException: No space left on device", LakeFullError),
    ],
)
def test_k22_what_would_be_refused_again_is_not_called_retryable(
    text: str, kind: type[CdcError]
) -> None:
    found = failure_of(RuntimeError(text), table="shop.orders", batch_number=7)
    assert type(found) is kind
    assert found.retryable == (kind is not TargetRefusedError)
    assert is_of_the_machine(found) == ("No space" in text)
    assert ": 2" not in str(found), "no value of a row"
    # What is suspended at once is tried again by each run: nobody needs to start one for it.
    assert ("start the run again" in str(found.next_step)) == (kind is not TargetRefusedError)
    assert failure_of(found, table="other", batch_number=8) is found
    assert found.table == "shop.orders"
