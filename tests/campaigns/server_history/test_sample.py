"""A sample of the campaign: each event once, every second of those that found nothing by night;
each product, positions and place in turn."""

from __future__ import annotations

import pytest

from tests.campaigns.server_history.decisions import Impossible
from tests.campaigns.server_history.matrix import MATRIX, PLACES, POSITIONS, Row
from tests.campaigns.server_history.play import play
from tests.campaigns.server_history.world import Place, Positions

Cell = tuple[Row, Positions, Place]


def _row(name: str) -> Row:
    return next(row for row in MATRIX if row.name == name)


# Each was silent, or ended otherwise, before it was repaired.
FOUND: list[Cell] = [
    (_row("checksums_switched"), "mysql by offset", "live"),
    (_row("checksums_switched"), "mariadb", "live"),
    (_row("reset_to_a_higher_number"), "mariadb", "live"),
    (_row("reset_and_grown"), "mariadb", "standby"),
    (_row("replica_of_a_restored_primary"), "mysql by GTID", "standby"),
    (_row("taken_out_of_the_index"), "mariadb", "live"),
    (_row("restored_within_the_same_second"), "mariadb", "live"),
    (_row("cold_copy_restored"), "mysql by GTID", "standby"),
    (_row("deleted_before_the_cursor"), "mariadb", "live"),
]


def _sample() -> list[Cell]:
    """Of each row that FOUND lacks one cell, other ones from row to row."""
    cells = []
    found = {row.name for row, *_ in FOUND}
    for number, row in enumerate(MATRIX):
        there: list[tuple[Positions, Place]] = [
            (positions, place)
            for positions in POSITIONS
            for place in PLACES
            if not isinstance(row.decision(positions, place), Impossible)
        ]
        if row.name not in found:
            cells.append((row, *there[number * 4 % len(there)]))
    return cells


def _named(cells: list[Cell], *marks: pytest.MarkDecorator) -> list[object]:
    return [
        pytest.param(*cell, marks=marks, id=f"{cell[0].name}-{cell[1].replace(' ', '-')}-{cell[2]}")
        for cell in cells
    ]


@pytest.mark.whole
@pytest.mark.parametrize(
    ("row", "positions", "place"),
    [*_named(_sample()[::2]), *_named(_sample()[1::2], pytest.mark.nightly)],
)
def test_k24_what_happens_to_a_server_is_decided_as_the_matrix_says(
    row: Row, positions: Positions, place: Place
) -> None:
    """K24, K5: rows are equal, or the run is refused and its next step makes them equal."""
    assert not play(row, positions, place, seed=1).finding


@pytest.mark.whole
@pytest.mark.parametrize(("row", "positions", "place"), _named(FOUND))
def test_k24_what_was_found_stays_mended(row: Row, positions: Positions, place: Place) -> None:
    """K24: no server's past is lost in silence."""
    assert not play(row, positions, place, seed=1).finding
