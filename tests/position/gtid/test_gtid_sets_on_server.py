"""MySQL's own functions as the second opinion on GTID sets, tags included."""

from __future__ import annotations

import random

from cdc_pipeline.position.gtid.sets import parse_gtid_set
from tests.servers import Server

SOURCES = ["3e11fa47-71ca-11e1-9e33-c80aa9429562", "91ba6d0a-45f6-11ef-8dfe-00155d2a1e10"]


def random_text(chosen: random.Random) -> str:
    parts = []
    for _ in range(chosen.randint(1, 4)):
        text = chosen.choice(SOURCES)
        for tag in chosen.sample(["", "batch", "_x"], chosen.randint(1, 3)):
            text += f":{tag}" if tag else ""
            for _ in range(chosen.randint(1, 3)):
                first = chosen.randint(1, 30)
                text += f":{first}-{first + chosen.randint(0, 6)}"
        # A tag stays until the next one: intervals without a tag must come first.
        parts.append(text)
    return ", ".join(parts)


def test_union_difference_and_containment_are_the_servers(mysql_server: Server) -> None:
    chosen = random.Random(5)
    for _ in range(60):
        one, two = random_text(chosen), random_text(chosen)
        left, right = parse_gtid_set(one, "mysql"), parse_gtid_set(two, "mysql")
        row = mysql_server.query(
            "SELECT GTID_SUBTRACT(%s, ''), GTID_SUBTRACT(%s, %s), GTID_SUBSET(%s, %s)",
            (one, one, two, two, one),
        )[0]
        texts = [
            (value.decode() if isinstance(value, bytes) else value).replace("\n", "")
            for value in row[:2]
        ]
        assert str(left) == texts[0]
        assert str(left.subtract(right)) == texts[1]
        assert left.contains(right) == bool(row[2])
