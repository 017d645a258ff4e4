"""Which events ROLLBACK TO undoes: against a plain model that keeps copies."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_pipeline.transaction.savepoints import Savepoints, fold, is_undone

NAMES = st.sampled_from(["a", "b", "A", "c d", "é", "E"])
STEPS = st.lists(
    st.one_of(
        st.just(("row",)),
        st.tuples(st.just("set"), NAMES),
        st.tuples(st.just("rollback"), NAMES),
        st.tuples(st.just("release"), NAMES),
    ),
    max_size=40,
)


class Model:
    """A list of the rows that count; each savepoint is a copy of it."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.saved: list[tuple[str, list[int]]] = []

    def at(self, name: str) -> int:
        return next((n for n, (known, _) in enumerate(self.saved) if known == fold(name)), -1)

    def set(self, name: str) -> None:
        self.saved = [one for one in self.saved if one[0] != fold(name)] + [
            (fold(name), list(self.rows))
        ]

    def rollback(self, name: str) -> bool:
        if (n := self.at(name)) < 0:
            return False
        self.rows = list(self.saved[n][1])
        del self.saved[n + 1 :]
        return True

    def release(self, name: str) -> None:
        if (n := self.at(name)) >= 0:
            del self.saved[n:]


@given(steps=STEPS)
def test_k8_undone_rows_are_those_that_the_model_forgets(steps: list[tuple[str, ...]]) -> None:
    model, savepoints = Model(), Savepoints()
    rows = []
    for ordinal, (kind, *arguments) in enumerate(steps, start=2):
        if kind == "row":
            model.rows.append(ordinal)
            rows.append(ordinal)
        elif kind == "set":
            model.set(arguments[0])
            savepoints.set(arguments[0], ordinal)
        elif kind == "rollback":
            assert savepoints.rollback_to(arguments[0], ordinal) == model.rollback(arguments[0])
        else:
            model.release(arguments[0])
            savepoints.release(arguments[0])
    ordinals = np.array(rows, dtype=np.int64)
    undone = savepoints.undone
    assert ordinals[~is_undone(ordinals, undone)].tolist() == model.rows
    assert (undone[:, 0] < undone[:, 1]).all()
    assert (undone[1:, 0] >= undone[:-1, 1]).all()


@pytest.mark.parametrize(
    ("one", "other"), [("S", "s"), ("é", "E"), ("ß", "s"), ("Ü", "u"), ("a b", "A B")]
)
def test_k8_names_are_compared_as_the_servers_do(one: str, other: str) -> None:
    assert fold(one) == fold(other)
    assert fold("ø") != fold("o")
