"""Small programs that mark their steps, of the standard library alone: they start in a tenth of a second."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

from profiler.check.model import BASE
from profiler.check.speed.resident import Program

ROOT = Path(__file__).resolve().parents[3]

WORK = """
from profiler import marks
def work(amount=2000):
    total = 0
    for number in range(amount):
        total += number * number
    return total
"""
STEPPING = WORK + "while True:\n    work()\n    marks.count('syncs', 3)\n    marks.step(tokens=7)\n"

MOMENTS = (
    WORK
    + """
from profiler.run.tables import BoundaryKind
def batch():
    work()
    marks.recorder().record_boundary(BoundaryKind.LOADER, "DataLoader (train.py:1)")
def optimized():
    work()
    marks.recorder().record_boundary(BoundaryKind.OPTIMIZER, "SGD (train.py:2)")
"""
)
"""What hooks see of a program that marks nothing, without torch."""


def program(
    folder: Path, source: str, side: str = BASE, *, env: Mapping[str, str] | None = None, name: str = "program.py"
) -> Program:
    """`source` as a program of the tests' own Python, without hooks."""
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(textwrap.dedent(source), encoding="utf-8")
    return Program(side, (sys.executable, str(file)), folder, {"PYTHONPATH": str(ROOT), **(env or {})}, inside=False)
