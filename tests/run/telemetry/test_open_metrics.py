"""The text format, read back by a strict reader."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cdc_pipeline.run.telemetry.open_metrics import Metric, as_text, labelled, values_of
from tests.support.open_metrics_grammar import parse

LINE_ENDS = "\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
VALUES = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53)


@given(st.text(), st.text(), VALUES)
def test_any_label_and_value_come_back(source: str, table: str, value: float) -> None:
    labels = {"source": source, "table": table}
    text = as_text([Metric("a_gauge", "gauge", table or "x", {labelled(labels): value})])
    expected = {
        name: "".join(" " if one in LINE_ENDS else one for one in written)
        for name, written in labels.items()
    }
    assert parse(text) == {("a_gauge", tuple(expected.items())): float(value)}
    assert values_of(text) == {"a_gauge": {labelled(labels): float(value)}}


def test_units_counters_and_metrics_without_samples() -> None:
    metrics = [
        Metric("lag_seconds", "gauge", "How far.", {'{source="shop"}': 1.5}, "seconds"),
        Metric("unknown_seconds", "gauge", "Nobody knows.", {}, "seconds"),
        Metric("rows", "counter", "Rows.", {'{source="shop"}': 3, '{source="crm"}': 4}),
    ]
    assert as_text(metrics) == (
        "# TYPE lag_seconds gauge\n"
        "# UNIT lag_seconds seconds\n"
        "# HELP lag_seconds How far.\n"
        'lag_seconds{source="shop"} 1.5\n'
        "# TYPE rows counter\n"
        "# HELP rows Rows.\n"
        'rows_total{source="shop"} 3\n'
        'rows_total{source="crm"} 4\n'
        "# EOF\n"
    )
    assert len(parse(as_text(metrics))) == 3


def test_half_a_file_counts_as_none() -> None:
    text = as_text([Metric("rows", "counter", "Rows.", {'{source="shop"}': 3})])
    assert values_of(text[:-4]) == {}
    assert values_of("something else") == {}
