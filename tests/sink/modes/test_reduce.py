"""Chains of key updates, without Spark."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa

from cdc_pipeline.binlog.seq_columns import SEQ_TYPE
from cdc_pipeline.sink.modes.reduce import life_roots


def test_k11_a_row_is_followed_through_a_chain_of_keys() -> None:
    """K10: a value that no image on the way holds is that of the row where the chain began."""
    chain = [2, 4, 6, 8, 10, 12, 14]  # each left the one before it; another row begins at 21
    links = pa.table(
        {
            "seg": pa.array([Decimal(seq) for seq in (*chain[1:], 22)], SEQ_TYPE),
            "left_seg": pa.array([Decimal(seq) for seq in (*chain[:-1], 21)], SEQ_TYPE),
        }
    )
    roots = life_roots(links)
    found = dict(
        zip(map(int, roots["seg"].to_pylist()), map(int, roots["root"].to_pylist()), strict=True)
    )
    assert found == {**dict.fromkeys(chain[1:], 2), 22: 21}
