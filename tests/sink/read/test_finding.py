"""Which cut a number, a time or a GTID set means, which are kept, and what is refused. No JVM."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import cdc_pipeline
from cdc_pipeline.config.modes import MODES
from cdc_pipeline.config.pipeline_config import SinkConfig
from cdc_pipeline.errors import CutNotFoundError, LakeStateError, TableNotInCutError
from cdc_pipeline.lake.cut_retention import oldest_kept, prune_cuts
from cdc_pipeline.lake.paths import LakePaths, list_numbers
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.position.gtid.sets import parse_gtid_set
from cdc_pipeline.schema.target_spec import TargetSpec
from cdc_pipeline.schema.types import TargetColumn
from cdc_pipeline.sink.read.cuts import find_cut, parse_as_of, version_in
from cdc_pipeline.sink.read.read import view_names, view_statements
from tests.sink.read.conftest import UUID

PutCut = Callable[..., Cut]
SECOND = 1_000_000


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, tz=UTC)


@pytest.fixture
def four(put_cut: PutCut) -> None:
    """Transactions 1-5, 1-10, then a cut that moves nothing (a table is caught up), 1-20."""
    put_cut(3, time_us=100 * SECOND, gtids=f"{UUID}:1-5")
    put_cut(4, time_us=200 * SECOND, gtids=f"{UUID}:1-10")
    put_cut(5, time_us=200 * SECOND, gtids=f"{UUID}:1-10")
    put_cut(6, time_us=300 * SECOND, gtids=f"{UUID}:1-20")


@pytest.mark.usefixtures("four")
@pytest.mark.parametrize(
    ("as_of", "number"),
    [
        (None, 6),
        (4, 4),
        ("4", 4),
        (f"{UUID}:5", 3),
        (f"{UUID}:1-6", 4),  # the first that contains all of it
        (f"{UUID}:20", 6),
        (parse_gtid_set(f"{UUID}:7", "mysql"), 4),
        (at(100), 3),
        (at(199.9), 3),
        (at(200), 5),  # the last one, with what was caught up
        (at(9999), 6),
        ("1970-01-01T00:03:20+00:00", 5),
        ("1970-01-01 01:03:20+01:00", 5),
    ],
)
def test_each_way_to_name_a_cut(paths: LakePaths, as_of: object, number: int) -> None:
    assert find_cut(paths, as_of).batch_number == number  # type: ignore[arg-type]


@pytest.mark.usefixtures("four")
@pytest.mark.parametrize(
    ("as_of", "said"),
    [
        (2, "3 to 6"),
        (7, "3 to 6"),
        (at(99), "1970-01-01 00:01:40"),
        (f"{UUID}:21", "1-20 .cut 6."),
        ("1970-01-01T00:03:20", "needs a zone"),
        (at(200).replace(tzinfo=None), "needs a zone"),
        ("1970-01-41T00:03:20+00:00", "cannot be understood"),
        ("", "cannot be understood"),
        ("yesterday", "a cut's number, a time with a zone such as"),
        ("1970-01-01", "needs a zone"),
        (True, "cannot be understood"),
        (3.5, "cannot be understood"),
    ],
)
def test_what_is_not_there_is_said_with_the_range(
    paths: LakePaths, as_of: object, said: str
) -> None:
    with pytest.raises(CutNotFoundError, match=said):
        find_cut(paths, as_of)  # type: ignore[arg-type]


def test_a_source_time_that_goes_back_never_shows_what_is_later(
    paths: LakePaths, put_cut: PutCut
) -> None:
    """Cut 3 has an earlier time than cut 2 (another server's clock), and its transactions."""
    put_cut(1, time_us=100 * SECOND)
    put_cut(2, time_us=300 * SECOND)
    put_cut(3, time_us=200 * SECOND)
    assert find_cut(paths, at(250)).batch_number == 1


def test_cuts_without_gtids_or_times_say_so(paths: LakePaths, put_cut: PutCut) -> None:
    put_cut(1)
    with pytest.raises(CutNotFoundError, match="have no GTIDs"):
        find_cut(paths, f"{UUID}:1")
    with pytest.raises(CutNotFoundError, match="have no times"):
        find_cut(paths, at(5))


def test_a_lake_without_the_source_names_those_that_it_has(
    paths: LakePaths, put_cut: PutCut
) -> None:
    put_cut(1)
    with pytest.raises(CutNotFoundError, match="one of the sources shop"):
        cdc_pipeline.cuts(paths.lake, "crm")


def test_cuts_are_listed_oldest_first_with_what_is_suspended(
    paths: LakePaths, put_cut: PutCut
) -> None:
    put_cut(1, time_us=5 * SECOND)
    put_cut(2, tables={"shop.orders": 4, "shop.items": 2}, suspended={"shop.items": 1})
    first, second = cdc_pipeline.cuts(paths.lake, "shop")
    assert (first.number, first.source_time, first.suspended) == (1, at(5), {})
    assert (second.number, second.source_time) == (2, None)
    assert second.tables == {"shop.orders": 4, "shop.items": 2}
    assert second.suspended == {"shop.items": "binlog.000001:777"}


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("17", 17),
        ("0-1-100", "0-1-100"),
        (f" {UUID}:1-3", f"{UUID}:1-3"),
        ("2026-01-31T08:00:00Z", at(1769846400)),
    ],
)
def test_text_is_a_number_a_time_or_a_gtid_set(text: str, meaning: object) -> None:
    assert parse_as_of(text) == meaning


# -- tables of a cut -------------------------------------------------------------------------------


def test_k4_a_table_suspended_in_the_cut_is_refused_with_its_own_place(put_cut: PutCut) -> None:
    cut = put_cut(
        2, tables={"shop.orders": 4, "shop.items": 2}, suspended={"shop.items": 1, "shop.notes": 1}
    )
    assert version_in(cut, "shop.orders") == 4
    with pytest.raises(
        TableNotInCutError,
        match=r"the table is at binlog\.000001:777, the cut at binlog\.000001:2004",
    ) as refused:
        version_in(cut, "shop.items")
    assert "`cdc-pipeline snapshot shop --table shop.items`" in str(refused.value.next_step)
    assert version_in(cut, "shop.items", allow_suspended=True) == 2
    # Suspended before its table was made: there is nothing to read, allowed or not.
    with pytest.raises(TableNotInCutError, match="does not have this table"):
        version_in(cut, "shop.notes", allow_suspended=True)


def test_a_table_that_the_cut_does_not_have_is_refused_with_those_that_it_has(
    put_cut: PutCut,
) -> None:
    with pytest.raises(TableNotInCutError, match=r"one of shop\.orders"):
        version_in(put_cut(1), "shop.later")


def test_k4_views_leave_suspended_tables_out_and_quote_every_name(
    paths: LakePaths, put_cut: PutCut
) -> None:
    cut = put_cut(2, tables={"shop.or`ders": 4, "shop.items": 2}, suspended={"shop.items": 1})
    statements = view_statements(paths, cut, schema="as`of")
    path = f"{paths.lake}/shop/or~60ders"
    assert statements[1:] == [
        "CREATE SCHEMA IF NOT EXISTS `as``of`",
        "CREATE OR REPLACE VIEW `as``of`.`or_ders` AS SELECT * FROM "
        f"delta.`{path}` VERSION AS OF 4",
    ]


def test_views_of_several_schemas_carry_the_schema() -> None:
    assert view_names(["a.x", "b.x"]) == {"a.x": "a_x", "b.x": "b_x"}
    assert view_names(["a.x", "a.y"]) == {"a.x": "x", "a.y": "y"}


@pytest.mark.parametrize("other", ["a.X", "a.x y", "a.x-y"])
def test_k28_a_name_that_several_tables_would_have_is_no_view_s(other: str) -> None:
    """K28: whichever came first, its name might show the other one; all other tables have views."""
    one = "a.x" if other == "a.X" else "a.x_y"
    names = view_names([one, "a.z", other])
    assert names["a.z"] == "z"
    assert len({name.lower() for name in names.values()}) == 3
    assert all(re.fullmatch(r"(x|X|x_y)_[0-9a-f]{8}", names[table]) for table in (one, other))
    assert view_names([other, one]) == {one: names[one], other: names[other]}


# -- which cuts are kept ---------------------------------------------------------------------------


def test_k15_a_cut_goes_when_the_next_one_is_older_than_the_retention(
    paths: LakePaths, put_cut: PutCut
) -> None:
    now_us = round(datetime.now(UTC).timestamp() * 1e6)
    ages_h = {1: 100, 2: 90, 3: 50, 4: 10, 5: 1}
    for number, age in ages_h.items():
        put_cut(number, published_us=now_us - age * 3600 * SECOND)
    assert prune_cuts(paths, retention=timedelta(hours=51)) == 1
    # Cut 2 was the state of the lake until 50 hours ago: a moment within the retention.
    assert list_numbers(paths.cuts) == [2, 3, 4, 5]
    assert prune_cuts(paths, retention=timedelta(hours=20)) == 1
    assert prune_cuts(paths, retention=timedelta(0)) == 2
    assert list_numbers(paths.cuts) == [5], "the newest stays"
    assert prune_cuts(paths, retention=timedelta(0)) == 0


@pytest.mark.parametrize(
    ("ages_h", "expected"),
    [
        # the clock was behind for a day, from cut 3 on, and was set right again
        ({1: 40, 2: 30, 3: 9000, 4: 8990, 5: 20, 6: 1}, [1, 2, 3, 4, 5, 6]),
        ({1: 70, 2: 60, 3: 9000, 4: 8990, 5: 52, 6: 1}, [5, 6]),
        # it was ahead for a while: what follows says how old these cuts are
        ({1: 90, 2: -9000, 3: -9001, 4: 52, 5: 1}, [4, 5]),
        ({1: 90, 2: -9000, 3: -9001, 4: 50, 5: 1}, [1, 2, 3, 4, 5]),
        # it has just been set back: the others are in the future
        ({1: -9000, 2: -9001, 3: 0}, [1, 2, 3]),
    ],
)
def test_k15_a_clock_that_was_wrong_takes_no_young_cut_and_keeps_no_old_one(
    paths: LakePaths, put_cut: PutCut, ages_h: dict[int, int], expected: list[int]
) -> None:
    now_us = round(datetime.now(UTC).timestamp() * 1e6)
    for number, age in ages_h.items():
        put_cut(number, published_us=now_us - age * 3600 * SECOND)
    prune_cuts(paths, retention=timedelta(hours=51))
    assert list_numbers(paths.cuts) == expected


@pytest.mark.parametrize(
    ("ages_h", "expected"),
    [
        ({1: 60}, None),
        ({1: 100, 2: 52}, None),  # the newest is kept alone, however old
        ({1: 100, 2: 90, 3: 50, 4: 10}, (2, 90)),
        ({1: 50, 2: 10}, (1, 50)),
        # the clock was wrong: published after what is known
        ({1: 90, 2: -9000, 3: 52, 4: 1}, (3, 52)),
        ({1: 90, 2: -9000, 3: 50, 4: 1}, (1, 90)),
    ],
)
def test_k15_what_a_vacuum_spares_begins_with_the_oldest_cut_that_its_age_keeps(
    paths: LakePaths, put_cut: PutCut, ages_h: dict[int, int], expected: tuple[int, int] | None
) -> None:
    now_us = round(datetime.now(UTC).timestamp() * 1e6)
    for number, age in ages_h.items():
        put_cut(number, published_us=now_us - age * 3600 * SECOND)
    kept = oldest_kept(paths, retention=timedelta(hours=51))
    if expected is not None:
        expected = expected[0], now_us - expected[1] * 3600 * SECOND
    assert kept == expected
    put_cut(9, published_us=now_us)
    paths.cut(1).write_text("{")
    assert oldest_kept(paths, retention=timedelta(hours=51)) == (1, 0), "damaged: it is not known"


def test_k15_the_last_cut_that_a_suspended_table_was_part_of_stays(
    paths: LakePaths, put_cut: PutCut
) -> None:
    for number in (1, 2, 3, 4):
        put_cut(
            number,
            tables={"shop.orders": 1, "shop.items": 1},
            suspended={"shop.items": 2} if number > 2 else {},
        )
    assert prune_cuts(paths, retention=timedelta(0)) == 2
    assert list_numbers(paths.cuts) == [2, 4]


def test_a_damaged_old_cut_stops_readers_and_no_pruning(paths: LakePaths, put_cut: PutCut) -> None:
    put_cut(1, time_us=SECOND)
    put_cut(2, time_us=2 * SECOND)
    put_cut(3, time_us=3 * SECOND)
    paths.cut(2).write_text("{")
    assert prune_cuts(paths, retention=timedelta(0)) == 0
    with pytest.raises(LakeStateError, match="damaged"):
        find_cut(paths, at(2))


@pytest.mark.parametrize(
    ("text", "hours"),
    [("7 days", 168), ("36 hours", 36), ("90 minutes", 1.5), ("2 weeks", 336), ("1day", 24)],
)
def test_a_retention_is_a_number_and_a_unit(text: str, hours: float) -> None:
    config = SinkConfig.model_validate({"lake_path": "lake", "cut_retention": text})
    assert config.cut_retention == timedelta(hours=hours)


@pytest.mark.parametrize("value", ["a week", "0 days", 7, "7", "-1 days"])
def test_what_is_no_duration_is_refused_with_the_form(value: object) -> None:
    with pytest.raises(ValueError, match="7 days, 36 h or 90 min"):
        SinkConfig.model_validate({"lake_path": "lake", "cut_retention": value})


def test_reading_loads_nothing_heavy_before_it_is_called() -> None:
    program = (
        "import sys, cdc_pipeline; cdc_pipeline.read, cdc_pipeline.cuts; "
        "print(*sorted(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[3],
    )
    assert not {"pyspark", "pydantic", "pyarrow", "dagster"} & set(done.stdout.split())


def test_plain_views_have_the_columns_and_present_rows_of_the_source(
    paths: LakePaths, put_cut: PutCut
) -> None:
    cut = put_cut(2, tables={f"shop.{mode}": 4 for mode in MODES})
    columns = (
        TargetColumn(name="id", delta_type="int"),
        TargetColumn(name="a`b", delta_type="int"),
    )
    tables = {
        name: state.model_copy(
            update={"spec": TargetSpec(mode=name.removeprefix("shop."), columns=columns)}
        )
        for name, state in cut.tables.items()
    }
    statements = view_statements(paths, cut.model_copy(update={"tables": tables}), plain=True)
    rows = {
        "mirror": "",
        "soft_delete": " WHERE NOT _cdc_deleted",
        "history": " WHERE __END_AT IS NULL",
    }
    assert sorted(statements[1:]) == sorted(
        f"CREATE OR REPLACE TEMPORARY VIEW `{mode}` AS SELECT `id`, `a``b` FROM "
        f"delta.`{paths.lake}/shop/{mode}` VERSION AS OF 4{where}"
        for mode, where in rows.items()
    )


def test_k4_changes_of_a_table_that_is_suspended_in_either_cut_are_refused(
    put_cut: PutCut, paths: LakePaths
) -> None:
    put_cut(1, tables={"shop.orders": 0}, suspended={"shop.orders": 1})
    put_cut(2, tables={"shop.orders": 1})
    with pytest.raises(TableNotInCutError, match="suspended in cut 1"):
        cdc_pipeline.changes(paths.lake, None, None, 1)
    with pytest.raises(TableNotInCutError, match="suspended in cut 1"):
        cdc_pipeline.changes(paths.lake, ["shop.orders"], 1, 2, source="shop")
