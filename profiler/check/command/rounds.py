"""The live half of `check`: round after round until the rounds decide, with what they say so far shown meanwhile."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from profiler.check.command.stops import code_of
from profiler.check.confirm import LOOKS
from profiler.check.decide import next_kind
from profiler.check.model import CONFIRM, Limits, Round
from profiler.check.reason import percent
from profiler.check.values import round_values

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from profiler.check.speed.interleave import RoundRunner


@dataclass(slots=True)
class Made:
    """The rounds that there are, and why there are no more."""

    rounds: list[Round] = field(default_factory=list)
    interrupted: int = 0
    """The exit code of the signal that ended them; 0: none did."""
    why_stopped: str = ""
    """Empty: they decide."""


def make_rounds(maker: RoundRunner, limits: Limits, made: Made, first: Callable[[], None]) -> None:
    """Rounds until they decide, the time limit comes, or Ctrl-C does.

    :param made: takes them one by one, so that they are there when the next one fails.
    :param first: called after the first one; what it raises ends them.
    """
    began = time.monotonic()
    with _progress(limits) as show:
        try:
            while kind := next_kind(made.rounds, limits):
                longest = max((one.seconds for one in made.rounds), default=0.0)
                if limits.max_seconds is not None and time.monotonic() - began + longest > limits.max_seconds:
                    made.why_stopped = f"the time limit of {limits.max_seconds:g} s"
                    break
                show(made.rounds, kind)
                made.rounds.append(maker.run(len(made.rounds) + 1, kind))
                if len(made.rounds) == 1:
                    first()
        except KeyboardInterrupt as stop:
            made.interrupted = code_of(stop)


Show = Callable[[Sequence[Round], str], None]
_Unseen: Final = partial(suppress, OSError, SystemExit)
"""Where progress is shown: a terminal that is gone ends no rounds. SystemExit is rich's answer to a closed pipe."""


def _progress(limits: Limits) -> AbstractContextManager[Show]:
    from rich.console import Console

    console = Console(stderr=True)
    return _live(console, limits) if console.is_terminal else nullcontext(_lines(limits))


def _lines(limits: Limits) -> Show:
    began = time.monotonic()

    def show(rounds: Sequence[Round], kind: str) -> None:
        elapsed = timedelta(seconds=int(time.monotonic() - began))
        with _Unseen():
            print(f"{so_far(rounds, kind, limits)} ({elapsed})", file=sys.stderr)

    return show


@contextmanager
def _live(console: Console, limits: Limits) -> Iterator[Show]:
    from rich.progress import Progress, TextColumn, TimeElapsedColumn
    from rich.table import Column

    # The first column may wrap, so that a narrow terminal does not cut the time behind it.
    columns = TextColumn("{task.description}", markup=False, table_column=Column()), TimeElapsedColumn()
    progress = Progress(*columns, console=console, transient=True)
    task = progress.add_task("", total=None)

    def show(rounds: Sequence[Round], kind: str) -> None:
        with _Unseen():
            progress.update(task, description=so_far(rounds, kind, limits))

    with _Unseen():
        progress.start()
    try:
        yield show
    finally:
        with _Unseen():
            progress.stop()


def so_far(rounds: Sequence[Round], kind: str, limits: Limits) -> str:
    """The round that begins, and the slow-down of the typical step in those before it: their mean, and the last one."""
    number = f"round {len(rounds) + 1}"
    if kind == CONFIRM:
        made = sum(one.kind == CONFIRM for one in rounds)
        number += f" (confirming, {made + 1} of at most {LOOKS[-1]})"
    else:
        number += f" of at most {limits.max_rounds}"
    values = [value for one in rounds if (value := round_values(one).typical) is not None]
    if not values:
        return number
    return f"{number}: {percent(math.fsum(values) / len(values))} so far, last {percent(values[-1])}"
