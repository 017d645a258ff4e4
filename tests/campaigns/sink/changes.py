"""The changes of the journals, row by row, as `cdc-pipeline binlog --format jsonl` tells them, for
the slow twins.

Rows that ROLLBACK TO a savepoint undid are taken out. Images are as the journal has them:
`twins.whole_changes` completes those that hold a row only in part (MINIMAL, NOBLOB).
"""

from __future__ import annotations

import datetime as dt
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import numpy as np
from click.testing import CliRunner

from cdc_pipeline.cli.app import cli
from tests.campaigns.sink.column_types import plain
from tests.campaigns.sink.oracle import Place

Values = dict[str, Any]

_EXACT = Context(prec=80)


@dataclass(frozen=True)
class Change:
    """One row's change; images hold what the journal's image holds. `place`: of the rows event;
    `transaction`: GTID; `order`: number of the change among those of its transaction, in any
    table, from 0.
    """

    table: str
    op: str
    before: Values | None
    after: Values | None
    place: Place
    transaction: str
    order: int


def read_changes(journals: Sequence[Path], *, start: Place) -> dict[str, list[Change]]:
    done = CliRunner().invoke(
        cli,
        [
            "binlog",
            "--format",
            "jsonl",
            "--from",
            f"{start[0]}:{start[1]}",
            *map(str, journals),
        ],
    )
    assert done.exit_code == 0, done.output
    lines = [json.loads(line, parse_float=str) for line in done.stdout.split("\n") if line]
    found: dict[str, list[Change]] = defaultdict(list)
    for transaction in _transactions(lines):
        for order, line in enumerate(_kept(transaction)):
            change = Change(
                table=f"{line['schema']}.{line['table']}",
                op=line["op"],
                before=line["before"],
                after=line["after"],
                place=(line["journal"], line["offset"]),
                transaction=line["gtid"],
                order=order,
            )
            found[change.table].append(change)
    return dict(found)


def _transactions(lines: Iterable[Values]) -> Iterator[list[Values]]:
    transaction: list[Values] = []
    for line in lines:
        if transaction and transaction[-1]["gtid"] != line["gtid"]:
            yield transaction
            transaction = []
        transaction.append(line)
    if transaction:
        yield transaction


def _kept(transaction: list[Values]) -> list[Values]:
    """Rows that count: those after a savepoint go where ROLLBACK TO undid them."""
    kept: list[Values] = []
    marks: list[int] = []
    for line in transaction:
        if line["op"] != "statement":
            kept.append(line)
            continue
        word = line["sql"].split(None, 1)[0].upper()
        if word == "SAVEPOINT":
            marks.append(len(kept))
        elif word == "ROLLBACK" and marks:
            del kept[marks[-1] :]
    return kept


def value_of(value: Any, delta_type: Any) -> Any:
    if value is None:
        return None
    if isinstance(delta_type, dict):
        return value.upper()  # a geometry: SRID and WKB, in hex
    if delta_type == "binary":
        return bytes.fromhex(value)
    if delta_type in ("timestamp", "timestamp_ntz"):
        return plain(dt.datetime.fromisoformat(value))
    if delta_type.startswith("decimal("):
        # that of now: an added digit is added to every row
        scale = int(delta_type.rstrip(")").split(",")[1])
        return plain(Decimal(value).quantize(Decimal(1).scaleb(-scale), context=_EXACT))
    if delta_type == "float":
        return plain(float(np.float32(value)))
    if delta_type == "double":
        return plain(float(value))
    return value
