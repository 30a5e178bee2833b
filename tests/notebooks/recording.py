"""Records the runs that the notebook reads, and executes the notebook: `python -m tests.notebooks.recording`.

It takes about a minute on a quiet machine. First it records pairs of light runs, which give the ratios. Then it records one
run of each side at level standard, which holds the time of every call and of all work of the device.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import nbformat
import numpy as np

from profiler.run.source import dtype_of
from tests.notebooks.execution import ROOT, executed

RUNS: Final = ROOT / "notebooks" / "runs"
NOTEBOOK: Final = ROOT / "notebooks" / "the_case.ipynb"
PAIRS: Final = 3
CHUNKS: Final = {"as-found": 25, "fixed": 1000}
"""Chunks of a light run: about a second."""
DETAILED_CHUNKS: Final = {"as-found": 1, "fixed": 100}
"""One chunk as found has 39,000 calls and 24,000 activities, which take 0.5 MB."""


def run(*words: object) -> None:
    """Run a module from the root of the repository with this Python, which the runs name `python`."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run(["python", "-m", *map(str, words)], cwd=ROOT, env=environment, check=True)


def record(name: str, side: str, level: str, chunks: int, warmup_s: float) -> None:
    """Record a run, and store it as `name`.zip."""
    with TemporaryDirectory() as scratch:
        folder = Path(scratch) / name
        trainer = ["python", "-m", "reference_trainer.lm", "--variant", side, "--device", "host"]
        lengths = ["--max-chunks", chunks, "--warmup-seconds", warmup_s]
        run("profiler", "run", "--level", level, "--label", side, "--out", folder, "--", *trainer, *lengths)
        for source in folder.glob("source-*"):
            keep_measured_steps(source)
        for path in folder.rglob("*.json*"):
            leave_out_paths(path)
        # LZMA needs two thirds of the space of Deflate
        with zipfile.ZipFile(RUNS / f"{name}.zip", "w", zipfile.ZIP_LZMA) as archive:
            for path in sorted(folder.rglob("*")):
                archive.write(path, path.relative_to(scratch))


def keep_measured_steps(source: Path) -> None:
    """Leave out the calls and activities of no measured step: they are most of the file, and no figure shows them."""
    steps = np.fromfile(source / "steps.bin", dtype_of("steps", loaded=False))
    steps = steps[steps["warmup"] == 0]
    for table in ("calls", "activities"):
        if (path := source / f"{table}.bin").exists():
            rows = np.fromfile(path, dtype_of(table, loaded=False))
            rows[(rows["begin"] >= steps["begin"].min()) & (rows["begin"] <= steps["end"].max())].tofile(path)


def leave_out_paths(path: Path) -> None:
    """Make the paths of the repository relative, and cut those of Python and its packages.

    :raises ValueError: another path of this machine is left.
    """
    packages, library = (Path(sysconfig.get_path(name)) for name in ("purelib", "stdlib"))
    text = path.read_text(encoding="utf-8")
    for long, short in {packages: packages.name, library: library.name}.items():
        text = text.replace(f"{long}/", f"{short}/")
    text = text.replace(f"{ROOT}/", "").replace(str(ROOT), ".")
    if f"{Path.home()}/" in text:
        raise ValueError(f"{path.name} still names a folder of this machine")
    path.write_text(text, encoding="utf-8")


def main() -> None:
    for side in CHUNKS:  # compile the kernels before recording
        run("reference_trainer.lm", "--variant", side, "--device", "host", "--max-chunks", 1)
    for path in RUNS.glob("*.zip"):
        path.unlink()
    for pair in range(1, PAIRS + 1):
        for side, chunks in CHUNKS.items():
            record(f"{pair}-{side}", side, "light", chunks, warmup_s=0.3)
    for side, chunks in DETAILED_CHUNKS.items():
        record(f"detail-{side}", side, "standard", chunks, warmup_s=1)  # the sampler of stacks needs a second to begin
    nbformat.write(executed(NOTEBOOK), NOTEBOOK)


if __name__ == "__main__":
    main()
