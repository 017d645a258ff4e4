"""DuckDB, Polars and delta-rs read the lakes of `tests/campaigns/readers/campaign.py`; each row is
compared with the server's.

    python read.py FOLDER

Runs in an environment of its own (`requirements.lock`), without this project's packages. A line for
each table and reader; exits with 1 where a reader that the lake's setting promises does not give
the server's rows.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
from deltalake import DeltaTable
from duckdb_extensions import import_extension

MODES = ("item", "item_history", "item_changelog", "item_soft", "part")
PROMISED = {
    "all": ("duckdb",),
    "spark": ("duckdb",),
    "duckdb": ("duckdb",),
    "polars": ("polars",),
    "delta-rs": ("delta-rs", "polars"),
}


def by_duckdb(folder: Path) -> pa.Table:
    import_extension("delta")
    connection = duckdb.connect()
    connection.execute("LOAD delta")
    connection.execute("SET TimeZone = 'UTC'")
    table: pa.Table = (
        connection.execute("SELECT * FROM delta_scan($1)", [str(folder)]).arrow().read_all()
    )
    return table


READERS: dict[str, Callable[[Path], pa.Table]] = {
    "duckdb": by_duckdb,
    "polars": lambda folder: polars.scan_delta(str(folder)).collect().to_arrow(),
    "delta-rs": lambda folder: DeltaTable(folder).to_pyarrow_table(),
}


def as_text(column: str, value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bytes):
        return value.hex()
    if column == "at":  # the server prints a TIMESTAMP in the session's zone, which is UTC
        return str(value).removesuffix("+00:00")
    return str(value)


def rows_of(table: pa.Table, columns: list[str]) -> list[list[str | None]]:
    taken = table.select(columns).to_pylist()
    return sorted(([as_text(name, row[name]) for name in columns] for row in taken), key=repr)


def verdict(name: str, got: pa.Table, wanted: list[dict[str, str | None]]) -> str:
    """Of a mirror: equal to SELECT. Of the other modes: what of them is the mirror is."""
    columns = [column for column in wanted[0] if column != "doc"]  # JSON is canonical in the lake
    if name.endswith("_history"):
        got = got.filter(pa.compute.is_null(got["__END_AT"]))
    elif name.endswith("_soft"):
        got = got.filter(pa.compute.invert(got["_cdc_deleted"]))
    elif name.endswith("_changelog"):
        return "read"
    expected = sorted(([row[column] for column in columns] for row in wanted), key=repr)
    return "equal" if rows_of(got, columns) == expected else "DIFFERS"


def main(folder: Path) -> int:
    short = 0
    for lake, promised in PROMISED.items():
        for name in MODES:
            wanted = json.loads(
                (folder / f"{name.partition('_')[0]}.json").read_text(encoding="utf-8")
            )
            for reader, read in READERS.items():
                try:
                    said = verdict(name, read(folder / lake / "shop" / name), wanted)
                except Exception as error:  # readers have no exception in common
                    said = f"refused: {str(error).splitlines()[0][:110]}"
                short += reader in promised and said not in ("equal", "read")
                print(
                    f"{lake:9} {name:15} {reader:9} "
                    f"{'promised' if reader in promised else '':9} {said}"
                )
    return min(short, 1)


if __name__ == "__main__":
    code = main(Path(sys.argv[1]))
    sys.stdout.flush()
    # Not sys.exit: threads of the readers' native libraries may abort the process while it ends.
    os._exit(code)
