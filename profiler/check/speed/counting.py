"""Runs a program for so many steps, more than once, to count what it does in them: sites may cost what they do."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from profiler.check.speed.interrupts import held
from profiler.check.speed.resident import PATIENCE_S, EndedError, OtherStepsError, Program, Resident
from profiler.check.speed.rounds import WARMUP
from profiler.check.speed.watchdog import guarded
from profiler.core.errors import ProfilerError

STEPS: Final = 20
"""Counted steps of a process: what is done every 10th step is done twice."""
_LOOK_S: Final = 0.02


def count(
    program: Program,
    out: Path,
    names: list[str],
    *,
    steps: int = STEPS,
    warmup: int = WARMUP,
    level: str = "standard",
    patience: float = PATIENCE_S,
    announce: Callable[[str], None] = lambda _: None,
) -> list[Path]:
    """Runs of fresh processes below `out`, one for each of `names`; a program that ends by itself before that is
    counted over the steps that it took.

    :raises ProfilerError: it fails, or takes no step.
    """
    return [
        _one(program, out / name, steps, warmup, level=level, patience=patience, announce=announce) for name in names
    ]


def _one(
    program: Program,
    folder: Path,
    steps: int,
    warmup: int,
    *,
    level: str,
    patience: float,
    announce: Callable[[str], None],
) -> Path:
    announce(folder.name)
    with held(), ExitStack() as stack:
        guard = stack.enter_context(guarded())
        sockets = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gate-")))
        resident = Resident(program, folder, sockets, level=level, patience=patience, guard=guard)
        stack.callback(resident.end)
        counts = False
        try:
            while True:
                _settle(resident, patience)
                try:
                    if warmup:
                        resident.turn(warmup, measured=False)
                    counts = True
                    resident.turn(steps)
                    break
                except OtherStepsError:
                    resident.forget_turns()
                    counts = False
        except EndedError as error:
            if error.code:
                raise ProfilerError(f"the program {error.in_words()}") from error
            if not resident.stood:
                raise ProfilerError(resident.stepless()) from error
            if not counts:
                raise ProfilerError(
                    f"the program ended within its {warmup} steps of warm-up: give it more to do, or --warmup less "
                    f"(its output is in {folder})"
                ) from error
    return folder


def _settle(resident: Resident, patience: float) -> None:
    until = time.monotonic() + patience
    while not resident.settle():
        if time.monotonic() > until:
            raise ProfilerError(resident.late(patience))
        time.sleep(_LOOK_S)
