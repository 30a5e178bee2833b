"""Compares the bundled trainer on the quiet machine and beside a busy loop on each core, and holds the headlines.

    python -m tests.benchmarks.loaded_headline [--quiet 2] [--loaded 10] [-- ARGUMENTS OF compare]

The machine must be quiet otherwise. A row for each comparison, then whether each bar holds; the exit code is 1 if one
does not. The runs stay in a temporary folder only while a comparison is made.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from profiler.analyse.comparability import BOUNDED

ROOT: Final = Path(__file__).resolve().parents[2]
BUSY_LOOP: Final = "import os; parent = os.getppid()\nwhile os.getppid() == parent: sum(range(1_000_000))"
WITHIN: Final = 1.25
"""How far a printed ratio may lie outside of the quiet interval."""
POINTS: Final = 0.03
"""How far the figures of a busy device may differ."""
LEAST_RATIO, MOST_BUSY_BEFORE, LEAST_BUSY_AFTER = 45.0, 0.10, 0.90
COUNTS: Final = {"syncs_per_step": (6_000, 1), "allocations_per_step": (15_000, 0)}
WORKS: Final = re.compile(r"the device works ([\d.]+)% of the time(?:, and ([\d.]+)% of this stretch)?")
DRAWN: Final = re.compile(r"^\| (\S+) \| device \|(?:.*?device idle (\d+)%)?", re.MULTILINE)
ROW: Final = re.compile(r"^\| Device busy \| ([\d.]+)%[^|]*\| ([\d.]+)%", re.MULTILINE)


@dataclass(frozen=True)
class Compared:
    """The figures of one comparison."""

    ratio: dict[str, Any]
    """`throughput_ratio` of the JSON report."""
    printed: tuple[float, ...]
    """The wall ratios of the table of all measures, those of times inverted."""
    counts: dict[str, tuple[float, float]]
    headline: tuple[float, ...]
    picture: tuple[float, ...]
    table: tuple[float, ...]
    """How busy the device of each side is, by the sentences, the note of the picture and the table."""
    drawn: tuple[float, ...]
    """The shares of the picture itself, which is of one stretch."""
    told: tuple[float, ...]
    """What the note says of that stretch; by default the figure of all steps."""

    @property
    def difference(self) -> float:
        """The largest one between the figures of a busy device."""
        columns = zip(self.headline, self.picture, self.table, strict=True)
        return max(max(each) - min(each) for each in columns)


def compared(arguments: Sequence[str]) -> Compared:
    """Make one comparison, and read what it says."""
    with tempfile.TemporaryDirectory(prefix="loaded-headline-") as name:
        folder = Path(name) / "compare"
        command = [sys.executable, "-m", "profiler", "compare", "--out", str(folder), *arguments]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}  # with its link to the newest comparison in that folder
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=name, env=environment)
        return read(json.loads((folder / "compare.json").read_text()), (folder / "compare.md").read_text())


def read(report: dict[str, Any], text: str) -> Compared:
    """The figures of a JSON report and of the same report in Markdown."""
    ratios = [report["ratios"]["fixed"][name]["value"] for name in BOUNDED]
    first, _, rest = text.partition("## ")
    note = next(line for line in first.splitlines() if "of about median length" in line)
    works = [float(share) / 100 for share, _ in WORKS.findall(first)]
    noted = [(float(share) / 100, float(told or share) / 100) for share, told in WORKS.findall(note)]
    row = ROW.search(rest)
    assert row is not None
    return Compared(
        ratio=report["ratios"]["fixed"]["tokens_per_s"],
        printed=tuple(max(value, 1 / value) for value in ratios if value is not None),
        counts={name: tuple(side["measures"][name]["value"] for side in report["sides"]) for name in COUNTS},
        headline=tuple(works[:2]),
        picture=tuple(share for share, _ in noted),
        told=tuple(told for _, told in noted),
        table=tuple(float(share) / 100 for share in row.groups()),
        drawn=tuple(1 - float(idle or 0) / 100 for _, idle in DRAWN.findall(first)),
    )


@contextmanager
def busy_loops() -> Iterator[None]:
    """One busy loop for each core."""
    loops = [subprocess.Popen([sys.executable, "-c", BUSY_LOOP]) for _ in os.sched_getaffinity(0)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def show(name: str, each: Compared) -> None:
    """Print a row."""
    value, bound = each.ratio["value"], each.ratio["bound"]
    said = f"{value:.1f} ({each.ratio['low']:.1f} to {each.ratio['high']:.1f})" if value else f"at least {bound}"
    shares = [
        " / ".join(f"{share:.1%}" for share in shares)
        for shares in (each.headline, each.picture, each.table, each.drawn)
    ]
    counts = ", ".join(f"{before:,.0f} -> {after:,.2f}" for before, after in each.counts.values())
    print(f"| {name} | {said} | {' | '.join(shares)} | {counts} |", flush=True)


def bars(quiet: Sequence[Compared], loaded: Sequence[Compared]) -> Iterator[tuple[str, int, int]]:
    """Each bar, and in how many comparisons out of how many it holds."""
    low, high = min(each.ratio["low"] or 0.0 for each in quiet), max(each.ratio["high"] or 0.0 for each in quiet)
    least = min(each.ratio["value"] or 0.0 for each in quiet)
    inside = [all(low / WITHIN <= value <= high * WITHIN for value in each.printed) for each in loaded]
    yield f"no wall ratio outside {low:.1f} to {high:.1f} x {WITHIN}", sum(inside), len(loaded)
    bounds = [each.ratio["bound"] for each in loaded if each.ratio["value"] is None]
    yield (
        f"the bound is at most {least:.1f}",
        sum(bound is not None and bound <= least for bound in bounds),
        len(bounds),
    )
    every = [*quiet, *loaded]
    yield f"busy agrees within {POINTS:.0%}", sum(each.difference <= POINTS for each in every), len(every)
    told = [max(abs(one - other) for one, other in zip(each.drawn, each.told, strict=True)) for each in every]
    yield f"the note tells what is drawn within {POINTS:.0%}", sum(each <= POINTS for each in told), len(every)
    counted = [
        all(abs(each.counts[name][side] - COUNTS[name][side]) < 0.1 for name in COUNTS for side in (0, 1))
        for each in every
    ]
    yield "counts of a step", sum(counted), len(every)
    yield (
        f"quiet ratio at least {LEAST_RATIO}",
        sum((each.ratio["value"] or 0) >= LEAST_RATIO for each in quiet),
        len(quiet),
    )
    busy = [each.table[0] <= MOST_BUSY_BEFORE and each.table[1] >= LEAST_BUSY_AFTER for each in quiet]
    yield f"quiet busy at most {MOST_BUSY_BEFORE:.0%}, then at least {LEAST_BUSY_AFTER:.0%}", sum(busy), len(quiet)


def main() -> int:
    """Run all comparisons, and print the table and the bars."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quiet", type=int, default=2, help="comparisons on the quiet machine")
    parser.add_argument("--loaded", type=int, default=10, help="comparisons beside busy loops")
    parser.add_argument("arguments", nargs="*", help="of compare")
    args = parser.parse_args()
    print("| machine | fixed over as-found | headline | picture | table | drawn | syncs, allocations |")
    print("|---|---|---|---|---|---|---|")
    quiet, loaded = [], []
    for _ in range(args.quiet):
        quiet.append(compared(args.arguments))
        show("quiet", quiet[-1])
    with busy_loops():
        for _ in range(args.loaded):
            loaded.append(compared(args.arguments))
            show("busy", loaded[-1])
    print()
    failed = False
    for bar, held, count in bars(quiet, loaded):
        failed |= held < count
        print(f"{'ok  ' if held == count else 'MISS'} {held} of {count}: {bar}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
