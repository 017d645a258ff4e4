"""DuckDB, Polars and delta-rs read the lakes of `tests/campaigns/readers/campaign.py`; each row is
compared with the server's.

    python read.py FOLDER

Runs in an environment of its own (`requirements.lock`), without this project's packages. A line for
each table and reader, published view and query of the page; exits with 1 where a reader that the
lake's setting promises does not give the server's rows. Writes the table of the page, `seen.md`.
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


def connected() -> duckdb.DuckDBPyConnection:
    import_extension("delta")
    connection = duckdb.connect()
    connection.execute("LOAD delta")
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def by_duckdb(folder: Path) -> pa.Table:
    return _arrow(connected().execute("SELECT * FROM delta_scan($1)", [str(folder)]))


def _arrow(result: duckdb.DuckDBPyConnection) -> pa.Table:
    table: pa.Table = result.arrow().read_all()
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


def published(folder: Path) -> dict[str, str]:
    """What DuckDB makes of each view of the published file, twice: a second run replaces them."""
    connection = connected()
    for _ in range(2):
        connection.execute((folder / "views.sql").read_text(encoding="utf-8"))
    made = connection.execute("SELECT view_name FROM duckdb_views() WHERE schema_name = 'views'")
    verdicts = {}
    for (view,) in made.fetchall():
        rows = _arrow(connection.execute(f'SELECT * FROM views."{view}"'))
        # Plain views have the source's rows and columns alone.
        verdicts[view] = verdict(view.partition("_")[0], rows, wanted_rows(folder, view))
    if sorted(verdicts) != [name for name in MODES if name != "item_changelog"]:
        verdicts["views"] = f"DIFFERS: {sorted(verdicts)}"
    return verdicts


def queried(folder: Path) -> dict[str, str]:
    """What the page's queries give, each of a lake that its reader can read."""
    given = json.loads((folder / "queries.json").read_text(encoding="utf-8"))
    os.chdir(folder)
    sql = given["queries"]["sql"].replace("lake/shop", "duckdb/shop")
    python = given["queries"]["python"].replace("lake/shop", "polars/shop")
    names = {"polars": polars}
    exec(python, names)  # a page of ours
    tables = {
        "duckdb": _arrow(connected().execute(sql)),
        "polars": names["item"].collect().to_arrow(),
    }
    answer = sorted(given["answer"], key=repr)
    return {
        reader: "equal" if rows_of(table, table.column_names) == answer else "DIFFERS"
        for reader, table in tables.items()
    }


def wanted_rows(folder: Path, name: str) -> list[dict[str, str | None]]:
    file = folder / f"{name.partition('_')[0]}.json"
    wanted: list[dict[str, str | None]] = json.loads(file.read_text(encoding="utf-8"))
    return wanted


def seen_table(seen: dict[tuple[str, str], list[str]]) -> str:
    """Of each setting and reader what was seen of all tables, as the page has it."""
    rows = [("`reader_features`", *READERS), ("---",) * (len(READERS) + 1)]
    for lake in ("all", "duckdb", "polars", "delta-rs"):
        cells = []
        for reader in READERS:
            refused = sum(verdict.startswith("refused") for verdict in seen[lake, reader])
            differ = sum(verdict == "DIFFERS" for verdict in seen[lake, reader])
            cell = f"refuses {refused} of {len(MODES)}" if refused else "all equal"
            cells.append(f"**{differ} wrong**" if differ else cell)
        rows.append((f"`{lake}`", *cells))
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def main(folder: Path) -> int:
    short, seen = 0, dict[tuple[str, str], list[str]]()
    for lake, promised in PROMISED.items():
        for name in MODES:
            wanted = wanted_rows(folder, name)
            for reader, read in READERS.items():
                try:
                    said = verdict(name, read(folder / lake / "shop" / name), wanted)
                except Exception as error:  # readers have no exception in common
                    said = f"refused: {str(error).splitlines()[0][:110]}"
                seen.setdefault((lake, reader), []).append(said)
                short += reader in promised and said not in ("equal", "read")
                print(
                    f"{lake:9} {name:15} {reader:9} "
                    f"{'promised' if reader in promised else '':9} {said}"
                )
    (folder / "seen.md").write_text(seen_table(seen), encoding="utf-8")
    for what, verdicts in (("published", published(folder)), ("query", queried(folder))):
        for name, said in verdicts.items():
            print(f"{what:9} {name:15} {said}")
            short += said != "equal"
    return min(short, 1)


if __name__ == "__main__":
    code = main(Path(sys.argv[1]))
    sys.stdout.flush()
    # Not sys.exit: threads of the readers' native libraries may abort the process while it ends.
    os._exit(code)
