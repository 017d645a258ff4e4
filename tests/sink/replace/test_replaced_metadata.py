"""The protocol of a table that takes over the files of another one."""

from __future__ import annotations

from typing import Any

import pytest

from cdc_pipeline.sink.replace.replaced_metadata import merged_protocol


def protocol(readers: int, writers: int, *features: str, of_writers: str = "") -> dict[str, Any]:
    versions = {"minReaderVersion": readers, "minWriterVersion": writers}
    if writers < 7:
        return versions
    named = {"writerFeatures": [*features, *of_writers.split()]}
    return versions | named | ({"readerFeatures": list(features)} if readers == 3 else {})


DELETES = protocol(3, 7, "deletionVectors", of_writers="appendOnly invariants")


@pytest.mark.parametrize(
    ("old", "side", "merged"),
    [
        (None, DELETES, DELETES),
        (DELETES, DELETES, DELETES),
        (protocol(1, 2), protocol(2, 5), protocol(2, 5)),
        (DELETES, protocol(1, 2), DELETES),
        (protocol(1, 2), DELETES, DELETES),
        (
            protocol(2, 5),
            protocol(3, 7, "timestampNtz"),
            protocol(
                3,
                7,
                "columnMapping",
                "timestampNtz",
                of_writers="appendOnly changeDataFeed checkConstraints generatedColumns invariants",
            ),
        ),
        (
            protocol(1, 7, of_writers="clustering domainMetadata"),
            protocol(1, 7, of_writers="domainMetadata"),
            protocol(1, 7, of_writers="clustering domainMetadata"),
        ),
    ],
)
def test_a_protocol_is_what_both_tables_need(old: Any, side: Any, merged: Any) -> None:
    found = merged_protocol(old, side)
    for name in ("readerFeatures", "writerFeatures"):
        assert sorted(found.get(name, ())) == sorted(merged.get(name, ())), name
    assert found["minReaderVersion"] == merged["minReaderVersion"]
    assert found["minWriterVersion"] == merged["minWriterVersion"]
