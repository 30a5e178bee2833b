"""The live half of `check`: round after round until the rounds decide, with what they say so far shown meanwhile."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from profiler.commands._gate_stops import code_of
from profiler.gate.decide import next_kind
from profiler.gate.model import CONFIRM, Limits, Round
from profiler.gate.values import round_values

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from profiler.record.turns.rounds import Rounds

_FIRST_LOOK: Final = 5


@dataclass(slots=True)
class Made:
    """The rounds that there are, and why there are no more."""

    rounds: list[Round] = field(default_factory=list)
    interrupted: int = 0
    """The exit code of the signal that ended them; 0: none did."""
    why_stopped: str = ""
    """Empty: they decide."""


def make_rounds(maker: Rounds, limits: Limits, made: Made, first: Callable[[], None]) -> None:
    """Rounds until they decide, the time limit comes, or Ctrl-C does.

    :param made: takes them one by one, so that they are there when the next one fails.
    :param first: called after the first one; what it raises ends them.
    """
    began = time.monotonic()
    with _progress() as show:
        try:
            while kind := next_kind(made.rounds, limits):
                longest = max((one.seconds for one in made.rounds), default=0.0)
                if limits.max_seconds is not None and time.monotonic() - began + longest > limits.max_seconds:
                    made.why_stopped = f"the time limit of {limits.max_seconds:g} s"
                    break
                show(made.rounds, kind)
                made.rounds.append(maker.make(len(made.rounds) + 1, kind))
                if len(made.rounds) == 1:
                    first()
        except KeyboardInterrupt as stop:
            made.interrupted = code_of(stop)


Show = Callable[[list[Round], str], None]


def _progress() -> AbstractContextManager[Show]:
    from rich.console import Console

    console = Console(stderr=True)
    return _bar(console) if console.is_terminal else nullcontext(_line)


def _line(rounds: list[Round], kind: str) -> None:
    print(f"round {len(rounds) + 1}{' (confirming)' if kind == CONFIRM else ''}{so_far(rounds)}", file=sys.stderr)


@contextmanager
def _bar(console: Console) -> Iterator[Show]:
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description:<34}"), BarColumn(20), TextColumn("{task.fields[said]}"))
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as progress:
        bar = progress.add_task("", total=_FIRST_LOOK, said="")

        def show(rounds: list[Round], kind: str) -> None:
            number = len(rounds) + 1
            total = _FIRST_LOOK if number <= _FIRST_LOOK else None  # from then on the rounds say when it ends
            words = f"round {number}: " + ("confirming a slow-down" if kind == CONFIRM else "base and candidate")
            progress.update(bar, completed=number - 1, total=total, description=words, said=so_far(rounds).strip(": "))

        yield show


def so_far(rounds: list[Round]) -> str:
    """What the rounds' medians have been, in short."""
    values = [value for one in rounds if (value := round_values(one).typical) is not None]
    if not values:
        return ""
    shown = ", ".join(f"{100 * math.expm1(value):+.1f}%" for value in values[-6:])
    return f": slow-down so far {shown}"
