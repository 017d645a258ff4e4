"""The decoder beside its peers, and what else it promises: figures, targets, verdicts; exit code 1
when one is missed.

python -m benchmarks.decode [--json] [--runs N] [--only TEXT]... [--ours]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.decode.peers import PEERS, Peer
from benchmarks.decode.result import Decoded, NotRunError
from benchmarks.decode.workloads import Workload, journals
from benchmarks.processes import told_by
from benchmarks.report import Figure, report

START_MAX_S = 1.5
LIVE_RATIOS_MAX = (1.3, 1.5)
PEAK_MAX_MIB = (
    # twelve blocks of 16 MiB: raw, what a block leaves over, both images in Arrow, the allocator's
    # own
    192.0
)
GROWTH_MAX_MIB = 64.0

OURS = "ours, to Arrow"


@dataclass(frozen=True, slots=True)
class Cell:
    """One decoder on one workload. `workload`, `decoder`: names; `decoded`: the run with the median
    CPU time; None where it was not run. `runs_s`: CPU-seconds per million changes of each run;
    `agrees`: whether it found what ours found; `not_run`: why it was not run, or "".
    """

    workload: str
    decoder: str
    decoded: Decoded | None
    runs_s: list[float]
    agrees: bool = True
    not_run: str = ""

    @property
    def per_million_s(self) -> float | None:
        return statistics.median(self.runs_s) if self.runs_s else None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.decode", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print everything as one JSON object")
    parser.add_argument(
        "--runs", type=int, default=1, help="processes of each decoder; the median counts"
    )
    parser.add_argument(
        "--only", action="append", default=[], help="only peers whose name holds this text"
    )
    parser.add_argument("--ours", action="store_true", help="no peers")
    options = parser.parse_args()
    peers = [
        peer
        for peer in PEERS
        if not options.only or any(text in peer.name for text in options.only)
    ]
    recorded = list(journals())
    cells = decode_cells(recorded, [] if options.ours else peers, options.runs)
    figures = [start_figure(recorded), *live_figures(recorded), *memory_figures(recorded)]
    targets_met = all(
        cell.per_million_s is not None and cell.per_million_s <= workload.target_s
        for workload, _ in recorded
        for cell in cells
        if (cell.workload, cell.decoder) == (workload.name, OURS)
    )
    if options.json:
        print_json(recorded, cells, figures)
        return 0 if targets_met and all(figure.is_met for figure in figures) else 1
    print_table(recorded, cells, peers)
    exit_code = report("start, live, memory", figures, as_json=False)
    return 0 if targets_met and exit_code == 0 else 1


# -- decoders --------------------------------------------------------------------------------------


def decode_cells(
    recorded: Sequence[tuple[Workload, Path]], peers: Sequence[Peer], runs: int
) -> list[Cell]:
    """Every decoder on every workload; ours first, since it says what the others must find."""
    cells = []
    for workload, path in recorded:
        done = [Decoded(**_own("decode", path)) for _ in range(max(runs, 3))]  # type: ignore[arg-type]
        ours = sorted(done, key=lambda one: one.cpu_s)[len(done) // 2]
        assert ours.changes == workload.changes, (
            f"{path.name} does not hold what its workload says: remove it"
        )
        cells.append(Cell(workload.name, OURS, ours, [one.per_million_s for one in done]))
        for peer in peers:
            _say(f"{workload.name}: {peer.name}")
            try:
                done = [peer.run(path) for _ in range(runs)]
            except NotRunError as error:
                cells.append(Cell(workload.name, peer.name, None, [], not_run=str(error)))
                continue
            found = sorted(done, key=lambda one: one.cpu_s)[len(done) // 2]
            agrees = all(one.agrees_with(ours) for one in done)
            cells.append(
                Cell(workload.name, peer.name, found, [one.per_million_s for one in done], agrees)
            )
    return cells


def _own(what: str, *arguments: object) -> dict[str, float]:
    found: dict[str, float] = told_by("benchmarks.decode.ours", what, *arguments)
    return found


def _say(text: str) -> None:
    if sys.stderr.isatty():
        print(text, file=sys.stderr)


# -- what else is promised -------------------------------------------------------------------------


def start_figure(recorded: Sequence[tuple[Workload, Path]]) -> Figure:
    """The whole process, from the interpreter's start to the first rows of every journal."""
    paths = [path for _, path in recorded]
    seconds = statistics.median(_own("start", *paths)["cpu_s"] for _ in range(3))
    return Figure("start: imports, cached kernels, first rows", seconds, "CPU-s", START_MAX_S)


def live_figures(recorded: Sequence[tuple[Workload, Path]]) -> list[Figure]:
    figures = []
    for (workload, path), ratio_max in zip(recorded, LIVE_RATIOS_MAX, strict=False):
        _say(f"{workload.name}: live")
        found = told_by("benchmarks.decode.live", path)
        names = ("dropping_s", "dropping_packets_s", "reading_s")
        dropping, packets, reading = (statistics.median(found[name]) for name in names)
        figures += [
            Figure(f"live, {workload.name}: bytes dropped", dropping, "CPU-s"),
            Figure(f"live, {workload.name}: packets dropped", packets, "CPU-s"),
            Figure(f"live, {workload.name}: read into the store", reading, "CPU-s"),
            Figure(f"live, {workload.name}: ratio to bytes", reading / dropping, ""),
            Figure(f"live, {workload.name}: ratio to packets", reading / packets, "", ratio_max),
        ]
    return figures


def memory_figures(recorded: Sequence[tuple[Workload, Path]]) -> list[Figure]:
    """Of a quarter of each journal and of the whole."""
    figures = []
    for workload, path in recorded:
        size = path.stat().st_size
        peaks = []
        for size_bytes in (size // 4, size):
            found = _own("memory", path, size_bytes)
            peaks.append(found["peak_mib"] - found["idle_mib"])
            name = f"memory, {workload.name}, {size_bytes / 1e6:.0f} MB: above idle"
            figures.append(Figure(name, peaks[-1], "MiB", PEAK_MAX_MIB))
        figures.append(
            Figure(f"memory, {workload.name}: growth", peaks[1] - peaks[0], "MiB", GROWTH_MAX_MIB)
        )
    return figures


# -- output ----------------------------------------------------------------------------------------


def print_table(
    recorded: Sequence[tuple[Workload, Path]], cells: Sequence[Cell], peers: Sequence[Peer]
) -> None:
    by_name = {(cell.decoder, cell.workload): cell for cell in cells}
    console = Console()
    table = Table(
        title="a journal to values: CPU-seconds per million row changes; x: how many times ours"
    )
    table.add_column("decoder", no_wrap=True)
    for workload, _ in recorded:
        table.add_column(workload.name[:2].upper(), justify="right", no_wrap=True)
        table.add_column("x", justify="right", no_wrap=True)
    table.add_column("JSON")
    table.add_column("CRC")
    for peer in peers:
        row = [peer.name]
        for workload, _ in recorded:
            row += _measured(by_name.get((peer.name, workload.name)), by_name[OURS, workload.name])
        table.add_row(*row, peer.json, peer.crc)
    ours = [by_name[OURS, workload.name].per_million_s or 0.0 for workload, _ in recorded]
    targets = [workload.target_s for workload, _ in recorded]
    table.add_section()
    table.add_row(OURS, *_spread(f"{value:.3g}" for value in ours), "text", "yes", style="bold")
    table.add_row("target: at most", *_spread(f"{target:g}" for target in targets), "", "")
    verdicts = (
        "met" if value <= target else "MISSED" for value, target in zip(ours, targets, strict=True)
    )
    table.add_row("verdict", *_spread(verdicts), "", "")
    console.print(table)
    for workload, path in recorded:
        text = f"{workload.changes:,} changes, {path.stat().st_size / 1e6:.0f} MB: {workload.about}"
        console.print(f"{workload.name[:2].upper()} {text}", highlight=False)
    for peer in peers:
        if peer.note:
            console.print(f"{peer.name}: {peer.note}", highlight=False)
    for cell in cells:
        if cell.not_run:
            console.print(
                f"not run: {cell.decoder} on {cell.workload}: {cell.not_run}", highlight=False
            )
        if not cell.agrees:
            console.print(
                f"DIFFERS: {cell.decoder} on {cell.workload} found {cell.decoded}", highlight=False
            )


def _measured(cell: Cell | None, ours: Cell) -> tuple[str, str]:
    if cell is None or cell.per_million_s is None or ours.per_million_s is None:
        return "not run", ""
    text = f"{cell.per_million_s:.3g}" + ("" if cell.agrees else "!")
    return text, f"{cell.per_million_s / ours.per_million_s:.3g}"


def _spread(texts: Any) -> list[str]:
    """Each text with an empty cell for the ratio after it."""
    return [cell for text in texts for cell in (text, "")]


def print_json(
    recorded: Sequence[tuple[Workload, Path]], cells: Sequence[Cell], figures: Sequence[Figure]
) -> None:
    document = {
        "workloads": [
            {"name": workload.name, "changes": workload.changes, "bytes": path.stat().st_size,
             "target_s": workload.target_s, "about": workload.about}
            for workload, path in recorded
        ],
        "decoders": [{**asdict(cell), "per_million_s": cell.per_million_s} for cell in cells],
        "figures": [{**asdict(figure), "met": figure.is_met} for figure in figures],
    }  # fmt: skip
    print(json.dumps(document, indent=2))


if __name__ == "__main__":
    sys.exit(main())
