"""Records a program over a fixed number of steps in fresh processes, to count what it does in them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from profiler.check.model import PATIENCE_S
from profiler.check.speed.controlled_process import (
    ControlledProcess,
    ProcessEndedError,
    Program,
    StepBoundaryChangedError,
    aligned,
    process_starter,
)
from profiler.check.speed.interleave import WARMUP
from profiler.core.errors import ProfilerError

STEPS: Final = 20
"""Measured steps of a process: an event of every 10th step is counted twice."""


def record_steps(
    program: Program,
    out: Path,
    names: list[str],
    *,
    steps: int = STEPS,
    warmup: int = WARMUP,
    level: str = "standard",
    patience: float = PATIENCE_S,
    announce: Callable[[str], None] = lambda _: None,
    remedy: str = "let it run longer, or count fewer of them (`warmup`)",
) -> list[Path]:
    """Record one run below `out` for each of `names`, each of a fresh process, and return their directories.

    A program that ends by itself after the warm-up is counted over the steps it took.

    :param announce: is called with each name before its run.
    :param remedy: what the user can do where the program ends too early.
    :raises ProfilerError: the program fails, takes no step, or ends during the warm-up.
    """
    folders = [out / name for name in names]
    for folder in folders:
        announce(folder.name)
        with process_starter(level=level, patience=patience) as start:
            process = start(program, folder)
            warm = False
            try:
                while True:
                    for _ in aligned([process], patience):
                        pass
                    try:
                        warm = False
                        if warmup:
                            process.run_steps(warmup, measured=False)
                        warm = True
                        process.run_steps(steps)
                        break
                    except StepBoundaryChangedError:
                        process.discard_measured()
            except ProcessEndedError as error:
                _check_ended_usable(process, error)
                if not warm:
                    ended = f"the program ended during its {warmup} warm-up steps"
                    raise ProfilerError(f"{ended}: {remedy} (its output is in {process.folder})") from error
    return folders


def _check_ended_usable(process: ControlledProcess, error: ProcessEndedError) -> None:
    if error.exit_code:
        raise ProfilerError(f"the program {error.description}{error.hint and f'; {error.hint}'}") from error
    if not process.controller.reached_step:
        raise ProfilerError(process.no_step_message()) from error
