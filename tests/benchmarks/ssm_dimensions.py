"""`python -m tests.benchmarks.ssm_dimensions --into DIR`: both methods' losses against the dimension of students.

Whether students generalise that were drawn until they fit, and whether those do that gradient descent fitted, when
there are ever more parameters for the same few measurements: what Alexander et al. ask of matrix factorization (Do
Neural Networks Need Gradient Descent to Generalize?, 2025), asked of state-space models. The trainer does the sweep as
a program, with all cures; other options are passed on to it. The outcomes stay in DIR: a run that was broken off goes
on from there, and one of more seeds adds to them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from reference_trainer.ssm.optimization import Ratio, median_ratio
from reference_trainer.ssm.problem import GD, GNC
from reference_trainer.ssm.settings import Settings

NAMES = {GD: "gradient descent", GNC: "guess and check"}
LOSSES = {"train_loss": "training loss", "generalization_loss": "generalisation loss"}
COLOURS = {GD: "#3b6fb6", GNC: "#c2571a"}
MARKERS = {GD: "o", GNC: "s"}
DIMS = (4, 8, 16, 32, 64, 128, 256)
SEEDS = 50
OUTCOMES = "outcomes.jsonl"


class Growth(NamedTuple):
    """How a loss changes over the dimensions."""

    ratio: Ratio
    """Over teachers that were fitted at both ends."""
    teachers: int
    """All that were tried at both."""


def command(arguments: argparse.Namespace, others: Sequence[str]) -> list[str]:
    """The trainer's."""
    asked = ["--num-seeds", str(arguments.seeds), "--student-dims", *map(str, arguments.dims)]
    asked += ["--teacher-ranks", *map(str, arguments.ranks), "--results", str(arguments.into / OUTCOMES)]
    return [sys.executable, "-m", "reference_trainer.ssm", "--variant", "fixed", *asked, *others]


def read(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What all results have in common, and the outcomes of jobs."""
    header, *rows = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    return header, [row for row in rows if "train_loss" in row]


def cells(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Quartiles over seeds, by method, rank and dimension."""
    groups: dict[tuple[str, int, int], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["method"], row["rank"], row["dim"]), []).append(row)
    return [
        {
            "method": method,
            "rank": rank,
            "dim": dim,
            "seeds": len(group),
            "fitted": sum(row["fitted"] for row in group),
            **{loss: quartiles([float(row[loss]) for row in group]) for loss in LOSSES},
            "passes": quartiles([row["epochs"] or row["guesses"] for row in group]),
        }
        for (method, rank, dim), group in sorted(groups.items())
    ]


def quartiles(values: Sequence[float]) -> list[float]:
    """The first, the median, the third."""
    return np.quantile(values, (0.25, 0.5, 0.75)).tolist()


def growth(rows: Sequence[Mapping[str, Any]], method: str, rank: int) -> Growth | None:
    """The generalisation loss of the largest dimension over the smallest one's, over teachers: each has both.

    Of those that were fitted at both ends: what did not fit the measurements says nothing of those that do.
    """
    mine = [row for row in rows if (row["method"], row["rank"]) == (method, rank)]
    dims = sorted({row["dim"] for row in mine})
    ends = [{row["seed"]: row for row in mine if row["dim"] == dim} for dim in (*dims[:1], *dims[-1:])]
    if not ends:
        return None
    small, large = ends
    both = [(small[seed], large[seed]) for seed in small if seed in large]
    fitted = [pair for pair in both if all(row["fitted"] for row in pair)]
    if not fitted:
        return None
    first, last = (np.array([float(pair[end]["generalization_loss"]) for pair in fitted]) for end in (0, 1))
    return Growth(median_ratio((last / first).tolist()), len(both))


def document(path: Path, said: str) -> dict[str, Any]:
    """All figures, as values for JSON."""
    import torch

    header, rows = read(path)
    known = [(method, rank) for method in NAMES for rank in sorted({row["rank"] for row in rows})]
    grown = {f"{method}-r{rank}": growth(rows, method, rank) for method, rank in known}
    return {
        "command": said,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "machine": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "results": header,
        "cells": cells(rows),
        "growth": {
            name: one
            and {
                "value": one.ratio.value,
                "low": one.ratio.low,
                "high": one.ratio.high,
                "fitted": one.ratio.n,
                "teachers": one.teachers,
            }
            for name, one in grown.items()
        },
    }


def markdown(found: Mapping[str, Any], figure: str) -> Iterator[str]:
    """The lines of the report."""
    yield "# Both methods against the dimension of students"
    yield ""
    yield f"`{found['command']}`, Python {found['python']}, torch {found['torch']}, {found['cores']} cores."
    yield ""
    yield f"![Losses against the student's dimension]({figure})"
    yield ""
    yield "Medians and quartiles over seeds, each with a teacher of its own. Where epochs or guesses ran out before a"
    yield "student fitted, the last one or the best one counts."
    yield ""
    yield "| method | rank | dimension | seeds | fitted | training loss | generalisation loss | epochs or guesses |"
    yield "|---|--:|--:|--:|--:|--:|--:|--:|"
    for cell in found["cells"]:
        spread = (f"{low_to_high(cell[name])}" for name in (*LOSSES, "passes"))
        counts = (str(cell[name]) for name in ("rank", "dim", "seeds", "fitted"))
        yield f"| {' | '.join((NAMES[cell['method']], *counts, *spread))} |"
    yield ""
    yield "The two methods are not compared at equal training losses: gradient descent stops at the first loss below"
    yield "the threshold, so just under it, while a guess that is taken lies anywhere below it. That may be a part of"
    yield "why one generalises better at a dimension. How training losses change with the dimension is in the table."
    yield ""
    yield "Generalisation loss at the largest dimension over that at the smallest one, of the same teacher; median with"
    yield "an interval of at least 95%, over teachers that were fitted at both:"
    yield ""
    for name, ratio in found["growth"].items():
        method, _, rank = name.partition("-r")
        yield f"- {NAMES[method]}, rank {rank}: {said_of(ratio) if ratio else 'not known'}"


def said_of(growth: Mapping[str, Any]) -> str:
    """Its value, and of how many teachers it is."""
    interval = f"{growth['value']:.2f} ({growth['low']:.2f} to {growth['high']:.2f})"
    return f"{interval}, {growth['fitted']} of {growth['teachers']} teachers"


def low_to_high(three: Sequence[float]) -> str:
    """Median (first to third quartile)."""
    low, middle, high = (f"{value:.2g}" if value < 100 else f"{value:,.0f}" for value in three)
    return f"{middle} ({low} to {high})"


def draw(found: Mapping[str, Any], path: Path) -> None:
    """Training loss above, generalisation below, a teacher's rank a column."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    ranks = sorted({cell["rank"] for cell in found["cells"]})
    look = {"svg.hashsalt": "ssm", "svg.fonttype": "none", "font.size": 9, "axes.spines.top": False}
    with mpl.rc_context({**look, "axes.spines.right": False, "legend.frameon": False}):
        size = (1 + 3 * len(ranks), 5)
        figure, axes = plt.subplots(2, len(ranks), figsize=size, sharex=True, sharey="row", squeeze=False)
        for across, rank in enumerate(ranks):
            axes[0, across].set_title(f"teacher of rank {rank}")
            axes[1, across].set_xlabel("dimension of the student")
            for down, (loss, name) in enumerate(LOSSES.items()):
                axis = axes[down, across]
                for method in NAMES:
                    mine = [cell for cell in found["cells"] if (cell["method"], cell["rank"]) == (method, rank)]
                    if mine:
                        _curve(axis, mine, loss, method)
                axis.set_xscale("log", base=2)
                axis.set_yscale("log")
                axis.grid(alpha=0.3)
                axis.xaxis.set_major_formatter("{x:.0f}")
                if not across:
                    axis.set_ylabel(name)
        axes[0, 0].legend(loc="best")
        figure.tight_layout()
        figure.savefig(path, metadata={"Date": None})
        plt.close(figure)


def _curve(axis: Any, mine: Sequence[Mapping[str, Any]], loss: str, method: str) -> None:
    dims = [cell["dim"] for cell in mine]
    low, middle, high = np.array([cell[loss] for cell in mine]).T
    axis.fill_between(dims, low, high, color=COLOURS[method], alpha=0.15, linewidth=0)
    axis.plot(dims, middle, color=COLOURS[method], marker=MARKERS[method], markersize=4, label=NAMES[method])


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.ssm_dimensions", description=__doc__)
    parser.add_argument("--into", type=Path, required=True, help="folder of the report")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="teachers of each rank (default: %(default)s)")
    parser.add_argument("--dims", type=int, nargs="+", default=DIMS, help="of students")
    parser.add_argument("--ranks", type=int, nargs="+", default=Settings().teacher_ranks, help="of teachers")
    arguments, others = parser.parse_known_args(argv)
    arguments.into.mkdir(parents=True, exist_ok=True)
    subprocess.run(command(arguments, others), check=True)
    said = "python -m tests.benchmarks.ssm_dimensions " + shlex.join(sys.argv[1:] if argv is None else argv)
    found = document(arguments.into / OUTCOMES, said)
    (arguments.into / "dimensions.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    draw(found, arguments.into / "dimensions.svg")
    text = "\n".join(markdown(found, "dimensions.svg"))
    (arguments.into / "dimensions.md").write_text(text + "\n", encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
