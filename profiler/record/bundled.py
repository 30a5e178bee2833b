"""The bundled trainer as programs to start: as found and fixed, its floor, and every set of fixes of a ladder."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Sequence

from profiler.base.errors import Exit, ProfilerError
from profiler.record.fixlist import read_fixes
from profiler.record.ladder import BASELINE, FIXED, LadderPlan, Program, plan_ladder
from profiler.record.pairs import SideCommand

_MODULE = "reference_trainer.lm"
_WARMUP = ("--max-chunks", "1", "--warmup-seconds", "0")
_ERROR = "error: "
"""What the trainer begins the line of an error with."""
FLOOR_LABEL = "the same calls with empty kernels"


def bundled_pair(options: Sequence[str], seconds: float) -> tuple[tuple[SideCommand, ...], SideCommand]:
    """(as found, fixed) and the floor; `options` go to the trainer of every side, each measures `seconds`.

    :raises ProfilerError: the trainer is not installed beside the profiler.
    """
    start = _start(options)
    found = _side(BASELINE, (*start, "--variant", "as-found"), seconds)
    fixed = _side(FIXED, (*start, "--variant", "fixed"), seconds)
    floor = _side(FLOOR_LABEL, (*start, "--variant", "as-found", "--empty-kernels"), seconds)
    return (found, fixed), floor


def bundled_ladder(options: Sequence[str], seconds: float) -> tuple[LadderPlan, tuple[SideCommand, ...], SideCommand]:
    """The rows of the ladder, the programs that they need (as found and fixed first) and the floor.

    :raises ProfilerError: the trainer is not installed, or does not list its fixes.
    """
    start = _start(options)
    plan = plan_ladder(read_fixes(_listed((*start, "--list-fixes"))))
    pair, floor = bundled_pair(options, seconds)
    others = (
        _side(program.label, (*start, *_chosen(program)), seconds, program.folder, optional=program.optional)
        for program in plan.programs
        if program.label not in (BASELINE, FIXED)
    )
    return plan, (*pair, *others), floor


def _chosen(program: Program) -> tuple[str, ...]:
    size = () if program.tokens_per_chunk is None else ("--tokens-per-chunk", str(program.tokens_per_chunk))
    return ("--fixes", ",".join(program.fixes), *size)


def _start(options: Sequence[str]) -> tuple[str, ...]:
    if importlib.util.find_spec("reference_trainer") is None:
        raise ProfilerError("the bundled trainer is not installed: give two runs, or --before CMD --after CMD")
    return (sys.executable, "-m", _MODULE, *options)


def _side(
    label: str, argv: tuple[str, ...], seconds: float, folder: str = "", *, optional: bool = False
) -> SideCommand:
    measured = (*argv, "--seconds", str(seconds))
    return SideCommand(label, measured, (*argv, *_WARMUP), folder, ours=True, optional=optional)


def _listed(argv: Sequence[str]) -> str:
    """What the trainer prints as the list of its fixes."""
    done = subprocess.run(argv, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode == 0:
        return done.stdout
    said = [line.strip() for line in done.stderr.splitlines() if line.strip()] or ["it printed nothing"]
    last = "".join(char for char in said[-1] if char.isprintable())
    if done.returncode == Exit.USAGE and last.startswith(_ERROR):
        raise ProfilerError(last.removeprefix(_ERROR))
    raise ProfilerError(
        f"the bundled trainer does not list its fixes, it exited with {done.returncode}: {last}", Exit.TARGET_FAILED
    )
