"""Recording under a progress bar that says what runs and how long the rest will take."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from profiler.record.pairs import Recorded, Task, record_all

_WORDS: Final = {
    "warmup": "warm-up",
    "light": "measuring",
    "again": "measuring",
    "detail": "breakdown pass",
    "floor": "floor",
}
_ESTIMATE_OVER: Final = 120.0
"""Seconds of runs that the time left is estimated from: a round of a ladder, fast and slow programs."""
_MINUTES: Final = 90.0
"""Seconds from which the time left is given in minutes."""


def record_with_progress(tasks: Sequence[Task], out: Path) -> Recorded:
    """Make the recordings of `tasks` below `out`; where stderr is no terminal, one line for each round."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description:<46.46}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("left of all recordings"),
    )
    console = Console(stderr=True)
    if not console.is_terminal:
        return record_all(tasks, out, _line_of_rounds(tasks))
    print(plan_in_words(tasks), file=sys.stderr, flush=True)
    with Progress(*columns, console=console, transient=True, speed_estimate_period=_ESTIMATE_OVER) as progress:
        bar = progress.add_task("", total=len(tasks))

        def announce(number: int, task: Task) -> None:
            progress.update(bar, completed=number, description=f"{_WORDS[task.kind]}: {task.label}")

        return record_all(tasks, out, announce)


def plan_in_words(tasks: Sequence[Task]) -> str:
    """How often each program will run, and what makes that shorter: said before anything takes time."""
    rounds = max((task.round for task in tasks), default=0)
    kinds = Counter(_WORDS[task.kind] for task in tasks)
    counted = ", ".join(f"{number} {kind}" for kind, number in kinds.items())
    shorter = "; --pairs makes it shorter, with wider intervals" if rounds > 1 else ""
    return f"{len(tasks)} recordings ({counted}), each as long as its program runs{shorter}"


def _line_of_rounds(tasks: Sequence[Task]) -> Callable[[int, Task], None]:
    """Says when a round begins, for logs and pipes."""
    rounds = max((task.round for task in tasks), default=0)
    begun, first, said = 0.0, 0, 0

    def announce(number: int, task: Task) -> None:
        nonlocal begun, first, said
        if task.round <= said:
            return
        if not said:  # the warm-ups before it are shorter: they tell nothing of the time left
            begun, first = time.monotonic(), number
        said = task.round
        done = number - first
        left = (time.monotonic() - begun) / done * (len(tasks) - number) if done else 0.0
        rest = f", about {_rounded(left)} left of all recordings" if done else ""
        print(f"round {said} of {rounds}{rest}", file=sys.stderr, flush=True)

    return announce


def _rounded(seconds: float) -> str:
    """`40 s` or `3 min`: an estimate, and no more."""
    return f"{round(seconds / 60)} min" if seconds >= _MINUTES else f"{max(1, round(seconds))} s"
