"""Small programs that mark their steps and import only the standard library: they start in a tenth of a second."""

from __future__ import annotations

import sys
import textwrap
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from profiler.check.model import BASE
from profiler.check.speed.controlled_process import Program
from profiler.core.procfs import read_stat

ROOT = Path(__file__).resolve().parents[3]
LIMIT_S = 60

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
"""What the hooks would report of a program that marks nothing, without torch."""


def program(
    folder: Path, source: str, side: str = BASE, *, env: Mapping[str, str] | None = None, name: str = "program.py"
) -> Program:
    """`source` as a program of the tests' Python, without hooks."""
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(textwrap.dedent(source), encoding="utf-8")
    return Program(side, (sys.executable, str(file)), folder, {"PYTHONPATH": str(ROOT), **(env or {})}, hooked=False)


def state(pid: int) -> str:
    """State letter of proc(5); "gone" if there is no such process."""
    stat = read_stat(pid)
    return "gone" if stat is None else stat.state


def until(condition: Callable[[], bool]) -> None:
    """Wait for `condition`, at most LIMIT_S."""
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)
